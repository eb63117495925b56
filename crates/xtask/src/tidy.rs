//! Rules for text: line widths, sizes of files and functions, terms, doc comments, commit subjects.
//!
//! A file may keep the findings that it had when the rules came in. `crates/xtask/tidy.exceptions`
//! holds their number for each rule and file, with a reason for each group. The numbers only go
//! down: a new finding fails, and so does a number larger than the count of findings.

mod exceptions;
mod source;
mod terms;

use std::{collections::BTreeMap, fmt, fs, io, path::Path, process::Command};

use anyhow::{Context, Result, ensure};

pub use exceptions::Exceptions;

use crate::report;

/// Columns of a line of code.
const CODE_COLUMNS_MAX: usize = 120;
/// Columns of a comment line, and of a line of a document.
const PROSE_COLUMNS_MAX: usize = 100;
/// Lines of a source file.
const FILE_LINES_MAX: usize = 500;
/// Lines of a function, from its `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Characters of a commit subject.
const SUBJECT_CHARS_MAX: usize = 72;
/// Path of the exceptions, from the root of the repository.
const EXCEPTIONS: &str = "crates/xtask/tidy.exceptions";

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Lines of code that are too wide.
    CodeWidth,
    /// Comment lines that are too wide.
    CommentWidth,
    /// Lines of documents that are too wide.
    DocumentWidth,
    /// Source files that are too long.
    FileLength,
    /// Functions that are too long.
    FunctionLength,
    /// Names of items or files that have a standard term.
    Term,
    /// Doc comments that begin with a question word, and other comments that begin with "Which".
    DocStart,
    /// Walks over the objects of all clusters.
    Walk,
    /// Work without a payer in code that answers requests.
    Payer,
    /// Commit subjects that are too long or name no area.
    Subject,
}

impl Rule {
    /// All rules, in the order in which they are reported.
    pub const ALL: [Rule; 10] = [
        Rule::CodeWidth,
        Rule::CommentWidth,
        Rule::DocumentWidth,
        Rule::FileLength,
        Rule::FunctionLength,
        Rule::Term,
        Rule::DocStart,
        Rule::Walk,
        Rule::Payer,
        Rule::Subject,
    ];

    /// Returns the name of the rule in the exceptions file and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Rule::CodeWidth => "code-width",
            Rule::CommentWidth => "comment-width",
            Rule::DocumentWidth => "document-width",
            Rule::FileLength => "file-length",
            Rule::FunctionLength => "function-length",
            Rule::Term => "term",
            Rule::DocStart => "doc-start",
            Rule::Walk => "walk",
            Rule::Payer => "payer",
            Rule::Subject => "subject",
        }
    }

    /// Returns the rule as a sentence, with the way to follow it.
    pub fn sentence(self) -> &'static str {
        match self {
            Rule::CodeWidth => "code has at most 120 columns: break the line, or name a part of it",
            Rule::CommentWidth => "comments have at most 100 columns: wrap them",
            Rule::DocumentWidth => {
                "documents have at most 100 columns outside of tables, links and code: wrap the line"
            }
            Rule::FileLength => "a file has at most 500 lines: split it where a name is ready",
            Rule::FunctionLength => "a function has at most 70 lines: move its leaves into functions of their own",
            Rule::Term => {
                "the field's term is used: rename the item as the message says, or list it in ALLOWED of \
                 crates/xtask/src/tidy/terms.rs with a reason"
            }
            Rule::DocStart => {
                "a comment begins with a noun phrase or a verb, not with What, Who, Whose, Whether, Where, Which or \
                 How much: name the thing, or say what the function returns"
            }
            Rule::Walk => {
                "no request and no event walks over the objects of all clusters: read an index \
                 (crates/catalog/src/indexes.rs), or list the file with the reason why nobody waits"
            }
            Rule::Payer => {
                "the request pays for what it makes the server do: pass its meter in place of `ServerWork` and \
                 `Meter::unbounded()`, or list the file with the reason why no request waits for it"
            }
            Rule::Subject => "a commit subject is `area: verb object`, at most 72 characters: say the rest in the body",
        }
    }
}

/// One place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// Path from the root of the repository; for a commit its abbreviated id.
    pub file: String,
    /// Line number from 1; 0 where the whole file or a commit is meant.
    pub line: usize,
    /// The text, or the reason of the finding.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { rule, file, line, text } = self;
        write!(f, "{file}:{line}: {}: {text}", rule.name())
    }
}

/// Task for the exceptions file, beside the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Checks; lists at most 20 findings of a rule.
    Check,
    /// Prints every finding, also those that the exceptions allow.
    All,
    /// Lowers the numbers of the exceptions to the current counts.
    Lower,
    /// Rewrites the exceptions from the current findings, and keeps their reasons.
    Accept,
}

/// Checks every tracked file, and the subjects of commits since the exceptions came in.
///
/// # Errors
/// Fails with all findings that are not allowed, and with numbers that are larger than needed.
pub fn run(root: &Path, mode: Mode) -> Result<()> {
    let findings = findings(root)?;
    let path = root.join(EXCEPTIONS);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.context(EXCEPTIONS)?,
    };
    let allowed = Exceptions::parse(&text)?;
    let written = match mode {
        Mode::All => return report::say(&every(&findings)),
        Mode::Lower => allowed.lowered(&findings),
        Mode::Accept => allowed.accepting(&findings),
        Mode::Check => {
            let problems = allowed.problems(&findings);
            ensure!(problems.is_empty(), "{}", problems.join("\n"));
            return Ok(());
        }
    };
    fs::write(path, written.to_string()).context(EXCEPTIONS)
}

/// Returns all findings below the sentences of their rules, and their numbers.
fn every(findings: &[Finding]) -> String {
    let mut lines = Vec::new();
    for rule in Rule::ALL {
        let of_rule: Vec<&Finding> = findings.iter().filter(|finding| finding.rule == rule).collect();
        lines.push(format!("{} ({}): {}", rule.name(), of_rule.len(), rule.sentence()));
        lines.extend(of_rule.iter().map(|finding| format!("  {finding}")));
    }
    lines.push(format!("{} findings", findings.len()));
    lines.join("\n")
}

/// Returns everything that breaks a rule, in the order of files.
fn findings(root: &Path) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    for file in git(root, &["ls-files"])?.lines() {
        let Some(check) = checker(file) else { continue };
        let path = root.join(file);
        // Git still lists a file that was deleted and not committed.
        if !path.exists() {
            continue;
        }
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {file}"))?;
        found.extend(check(file, &text));
    }
    found.extend(subjects(&recent_subjects(root)?));
    Ok(found)
}

/// Returns the function that checks a file of this name. Generators have rules of their own.
fn checker(file: &str) -> Option<fn(&str, &str) -> Vec<Finding>> {
    if file.contains("/generated/") {
        return None;
    }
    match Path::new(file).extension()?.to_str()? {
        "rs" => Some(source::check),
        "md" => Some(document),
        _ => None,
    }
}

/// Findings in a document. Tables, links and fenced code keep their lines as they are.
fn document(file: &str, text: &str) -> Vec<Finding> {
    let (mut found, mut fenced) = (Vec::new(), false);
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let link = line.contains("](") || line.contains("://");
        let exempt = fenced || line.trim_start().starts_with('|') || link;
        if !exempt && line.chars().count() > PROSE_COLUMNS_MAX {
            found.push(Finding {
                rule: Rule::DocumentWidth,
                file: file.to_owned(),
                line: index + 1,
                text: format!("{} columns", line.chars().count()),
            });
        }
    }
    found
}

/// Findings in commit subjects: `(abbreviated id, subject)`.
fn subjects(commits: &[(String, String)]) -> Vec<Finding> {
    let wrong = commits.iter().filter(|(_, subject)| !is_subject(subject));
    let finding = |(id, subject): &(String, String)| Finding {
        rule: Rule::Subject,
        file: id.clone(),
        line: 0,
        text: subject.clone(),
    };
    wrong.map(finding).collect()
}

/// Returns true for `area: verb object` of at most 72 characters.
fn is_subject(subject: &str) -> bool {
    let area = |area: &str| !area.is_empty() && area.chars().all(|c| c.is_ascii_alphanumeric() || "-_,/ .".contains(c));
    let has_area = subject
        .split_once(": ")
        .is_some_and(|(before, after)| area(before) && !after.trim().is_empty());
    let generated = subject.starts_with("Merge ") || subject.starts_with("Revert ");
    generated || (has_area && subject.chars().count() <= SUBJECT_CHARS_MAX)
}

/// Returns the subjects of the commits after the one that added the exceptions. In a shallow clone
/// that lacks this commit, its oldest commit takes its place. Empty before the file is committed.
fn recent_subjects(root: &Path) -> Result<Vec<(String, String)>> {
    let first = git(root, &["log", "--diff-filter=A", "--format=%H", "--", EXCEPTIONS])?;
    let Some(first) = first.lines().last() else {
        return Ok(Vec::new());
    };
    let log = git(root, &["log", "--format=%h %s", &format!("{first}..HEAD")])?;
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    Ok(commits
        .map(|(id, subject)| (id.to_owned(), subject.to_owned()))
        .collect())
}

/// Returns the output of a git command in the repository.
fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .current_dir(root)
        .args(arguments)
        .output()
        .context("cannot run git")?;
    ensure!(
        output.status.success(),
        "git {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).context("git printed no UTF-8")
}

/// Numbers of findings by rule and file.
fn counts(findings: &[Finding]) -> BTreeMap<(Rule, String), usize> {
    let mut counts = BTreeMap::new();
    for finding in findings {
        *counts.entry((finding.rule, finding.file.clone())).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_name_an_area_and_are_short() {
        for (subject, want) in [
            ("apiserver: end a watch whose definition cursor is compacted", true),
            ("store, store-etcd: name the reserve", true),
            ("Merge branch 'x'", true),
            ("Memory that was freed is given back in an idle server, too", false),
            ("store: ", false),
            (
                "a sentence: with a colon that goes on for far longer than seventy-two characters",
                false,
            ),
        ] {
            assert_eq!(is_subject(subject), want, "{subject}");
        }
    }

    #[test]
    fn documents_wrap_outside_of_tables_links_and_code() {
        let long = "x ".repeat(60);
        let text = format!("{long}\n| {long}\n```text\n{long}\n```\nsee [it](there) {long}\n");
        let found = document("docs/a.md", &text);
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1]);
    }
}

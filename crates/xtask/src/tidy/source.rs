//! Rules for Rust sources. They rely on the form that rustfmt gives.

use std::path::Path;

use super::{CODE_COLUMNS_MAX, FILE_LINES_MAX, FUNCTION_LINES_MAX, Finding, PROSE_COLUMNS_MAX, Rule, terms};

/// Question words that no doc comment begins with.
const QUESTION_WORDS: [&str; 6] = ["What", "Who", "Whose", "Whether", "Where", "Which"];

/// Findings in a source file.
pub(super) fn check(file: &str, text: &str) -> Vec<Finding> {
    let finding = |rule, line, text: String| Finding {
        rule,
        file: file.to_owned(),
        line,
        text,
    };
    let mut found = Vec::new();
    if let Some(term) = Path::new(file)
        .file_stem()
        .and_then(|stem| terms::for_file(file, stem.to_str()?))
    {
        found.push(finding(Rule::Term, 0, format!("the file is called {term}")));
    }
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() > FILE_LINES_MAX {
        found.push(finding(Rule::FileLength, 0, format!("{} lines", lines.len())));
    }
    let program_lines = lines_of_program(&lines);
    let (mut in_doc, mut in_comment) = (false, false);
    for (index, line) in lines.iter().enumerate() {
        let number = index + 1;
        let columns = line.chars().count();
        let trimmed = line.trim_start();
        let comment = trimmed.starts_with("//");
        if comment && columns > PROSE_COLUMNS_MAX {
            found.push(finding(Rule::CommentWidth, number, format!("{columns} columns")));
        } else if !comment && columns > CODE_COLUMNS_MAX {
            found.push(finding(Rule::CodeWidth, number, format!("{columns} columns")));
        }
        let doc = doc_text(trimmed);
        let begins_badly = match doc {
            Some(text) if !in_doc => asks(text),
            None if !in_comment => trimmed.starts_with("// Which "),
            _ => false,
        };
        if begins_badly {
            found.push(finding(Rule::DocStart, number, trimmed.to_owned()));
        }
        (in_doc, in_comment) = (doc.is_some(), comment);
        if comment {
            continue;
        }
        if walks(file, trimmed) {
            found.push(finding(Rule::Walk, number, trimmed.to_owned()));
        }
        if index < program_lines && lacks_payer(file, trimmed) {
            found.push(finding(Rule::Payer, number, trimmed.to_owned()));
        }
        if let Some((name, advice)) = terms::defined(file, trimmed) {
            found.push(finding(Rule::Term, number, format!("`{name}`: {advice}")));
        }
        if let Some(length) = function_length(&lines[index..])
            && length > FUNCTION_LINES_MAX
        {
            found.push(finding(
                Rule::FunctionLength,
                number,
                format!("{length} lines: {trimmed}"),
            ));
        }
    }
    found
}

/// Returns true for a walk over the objects of all clusters by the program. Tests, benchmarks and
/// the definition of scopes are not meant.
fn walks(file: &str, line: &str) -> bool {
    const EXEMPT: [&str; 5] = [
        "crates/api/",
        "crates/bench/",
        "crates/sim/",
        "crates/store/",
        "crates/xtask/",
    ];
    let is_program =
        file.starts_with("crates/") && !file.contains("/test") && !EXEMPT.iter().any(|of| file.starts_with(of));
    is_program && line.contains("Scope::everywhere(")
}

/// Returns the number of lines before the tests of a file.
fn lines_of_program(lines: &[&str]) -> usize {
    let begin = lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{'));
    begin.unwrap_or(lines.len())
}

/// Returns true for work that nobody pays for in a crate that answers requests.
fn lacks_payer(file: &str, line: &str) -> bool {
    const ANSWERING: [&str; 9] = [
        "crates/access/",
        "crates/admin/",
        "crates/admission/",
        "crates/apiserver/",
        "crates/auth/",
        "crates/catalog/",
        "crates/edge/",
        "crates/pipeline/",
        "crates/registry/",
    ];
    let answers = ANSWERING.iter().any(|of| file.starts_with(of)) && !file.contains("/test");
    answers && (line.contains("ServerWork::") || line.contains("Meter::unbounded("))
}

/// Returns the text of a line of a doc comment.
fn doc_text(line: &str) -> Option<&str> {
    line.strip_prefix("///")
        .or_else(|| line.strip_prefix("//!"))
        .map(str::trim_start)
}

/// Returns true for text that begins with a question word, or with "How much" and the like.
fn asks(text: &str) -> bool {
    let mut words = text.split_whitespace().map(|word| word.trim_end_matches(','));
    match words.next() {
        Some("How") => matches!(words.next(), Some("much" | "many" | "long" | "often")),
        Some(word) => QUESTION_WORDS.contains(&word),
        None => false,
    }
}

/// Lines of the function that begins on the first line: up to the brace at its own indentation.
fn function_length(lines: &[&str]) -> Option<usize> {
    let first = lines.first()?;
    let trimmed = first.trim_start();
    let head = trimmed.split('(').next()?;
    let is_function = head.split_whitespace().any(|word| word == "fn") && !trimmed.starts_with("let ");
    let indent = &first[..first.len() - trimmed.len()];
    let closing = format!("{indent}}}");
    let one_line = trimmed.ends_with('}') || trimmed.ends_with(';');
    if !is_function || one_line {
        return None;
    }
    let end = lines.iter().position(|line| {
        **line == closing || line.trim_end().ends_with(';') && line.starts_with(&format!("{indent})"))
    })?;
    Some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_over_all_clusters_are_found_in_the_program() {
        let line = "    snapshot.for_each(&Scope::everywhere(ids::widgets()), show);\n";
        assert_eq!(rules(line), [(Rule::Walk, 1)]);
        assert!(check("crates/a/src/a/tests.rs", line).is_empty() && check("crates/sim/src/a.rs", line).is_empty());
        assert!(rules("    // Not by Scope::everywhere(…).\n").is_empty());
    }

    #[test]
    fn requests_have_a_payer() {
        let line = "    let snapshot = store.latest().for_server(ServerWork::Reconciler);\n";
        let found = |file: &str, text: &str| check(file, text).iter().map(|finding| finding.line).collect::<Vec<_>>();
        assert_eq!(found("crates/registry/src/a.rs", line), [1]);
        assert_eq!(
            found("crates/admin/src/a.rs", "    budget(&Meter::unbounded());\n"),
            [1]
        );
        assert!(found("crates/controllers/src/a.rs", line).is_empty());
        let tests = format!("#[cfg(test)]\nmod tests {{\n{line}}}\n");
        assert!(found("crates/registry/src/a.rs", &tests).is_empty());
    }

    fn rules(text: &str) -> Vec<(Rule, usize)> {
        check("crates/a/src/a.rs", text)
            .into_iter()
            .map(|finding| (finding.rule, finding.line))
            .collect()
    }

    #[test]
    fn comments_are_narrower_than_code() {
        let (code, comment) = (
            format!("let a = \"{}\";", "x".repeat(95)),
            format!("// {}", "x".repeat(105)),
        );
        assert_eq!(rules(&format!("{code}\n{comment}\n")), [(Rule::CommentWidth, 2)]);
        assert_eq!(
            rules(&format!("let a = \"{}\";", "x".repeat(120))),
            [(Rule::CodeWidth, 1)]
        );
    }

    #[test]
    fn only_the_first_word_of_a_doc_comment_counts() {
        let text = "/// Whether it is.\nfn a() {}\n/// Returns\n/// what is there.\nfn b() {}\n//! Who asks.\n";
        assert_eq!(rules(text), [(Rule::DocStart, 1), (Rule::DocStart, 6)]);
        let text = "/// How much it is.\nfn a() {}\n/// How it works.\nfn b() {\n// Which is so.\n// What is.\n}\n";
        assert_eq!(rules(text), [(Rule::DocStart, 1), (Rule::DocStart, 5)]);
    }

    #[test]
    fn functions_end_at_their_own_brace() {
        let body = "        let a = 1;\n".repeat(69);
        let text = format!("impl A {{\n    fn long(&self) {{\n{body}    }}\n    fn short(&self) {{\n    }}\n}}\n");
        assert_eq!(rules(&text), [(Rule::FunctionLength, 2)]);
        assert_eq!(rules("trait A {\n    fn a(\n        &self,\n    ) -> u8;\n}\n"), []);
    }

    #[test]
    fn long_files_are_found() {
        assert_eq!(rules(&"\n".repeat(501)), [(Rule::FileLength, 0)]);
    }
}

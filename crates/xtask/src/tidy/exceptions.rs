//! Findings that files may keep, as numbers for each rule and file.

use std::{collections::BTreeMap, fmt};

use anyhow::{Context, Result, ensure};

use super::{Finding, Rule, counts};

/// Allowed numbers of findings by rule and file, in groups that each have a reason.
///
/// ```text
/// # Names of types that the next change of the protocol renames.
/// term crates/server/src/lanes.rs 3
///
/// # Tables of functions.
/// file-length crates/cel/src/tables.rs 1 a reason of its own
/// ```
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Exceptions {
    allowed: BTreeMap<(Rule, String), Allowed>,
    /// Comments above the groups; [`Allowed::group`] counts in them.
    groups: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Allowed {
    number: usize,
    reason: String,
    group: usize,
}

/// First line of the file.
const HEADER: &str = "# Findings of `cargo xtask tidy` that files may keep: rule, file, number. Numbers only go down.";
/// Findings of one rule that a message lists. The message counts the rest.
const LISTED_MAX: usize = 20;

impl Exceptions {
    /// Reads the file.
    ///
    /// # Errors
    /// Fails with the line that is no exception.
    pub fn parse(text: &str) -> Result<Self> {
        let mut exceptions = Exceptions::default();
        let mut comment: Vec<&str> = Vec::new();
        for line in text.lines().filter(|line| *line != HEADER) {
            if line.is_empty() || line.starts_with('#') {
                comment.push(line);
                continue;
            }
            if !comment.is_empty() || exceptions.groups.is_empty() {
                exceptions.groups.push(comment.join("\n").trim().to_owned());
                comment.clear();
            }
            let (key, mut allowed) = parse_line(line).with_context(|| format!("tidy.exceptions: {line:?}"))?;
            allowed.group = exceptions.groups.len() - 1;
            exceptions.allowed.insert(key, allowed);
        }
        Ok(exceptions)
    }

    /// Messages for findings that are not allowed, and for numbers that are larger than needed.
    pub fn problems(&self, findings: &[Finding]) -> Vec<String> {
        let counts = counts(findings);
        let mut problems = Vec::new();
        for rule in Rule::ALL {
            let new: Vec<String> = findings
                .iter()
                .filter(|finding| finding.rule == rule)
                .filter(|finding| counts[&(rule, finding.file.clone())] > self.number(rule, &finding.file))
                .map(|finding| format!("  {finding}"))
                .collect();
            if !new.is_empty() {
                problems.push(format!("{}: {}", rule.name(), rule.sentence()));
                problems.extend(new.iter().take(LISTED_MAX).cloned());
            }
            if new.len() > LISTED_MAX {
                problems.push(format!("  and {} more", new.len() - LISTED_MAX));
            }
        }
        for ((rule, file), allowed) in &self.allowed {
            let found = counts.get(&(*rule, file.clone())).copied().unwrap_or_default();
            if found < allowed.number {
                problems.push(format!(
                    "tidy.exceptions allows {} of {} in {file}, which has {found}: run `cargo xtask tidy --bless`",
                    allowed.number,
                    rule.name()
                ));
            }
        }
        problems
    }

    /// Returns the same exceptions with no number larger than the count of findings.
    #[must_use]
    pub fn lowered(&self, findings: &[Finding]) -> Self {
        let counts = counts(findings);
        let lower = |(key, allowed): (&(Rule, String), &Allowed)| {
            let number = counts.get(key).copied().unwrap_or_default().min(allowed.number);
            let allowed = Allowed {
                number,
                ..allowed.clone()
            };
            (number > 0).then(|| (key.clone(), allowed))
        };
        Exceptions {
            allowed: self.allowed.iter().filter_map(lower).collect(),
            groups: self.groups.clone(),
        }
    }

    /// Returns exceptions for exactly these findings. Entries stay in their groups; a new one joins
    /// the last group that holds its rule, or begins a group. Commits cannot be excepted.
    #[must_use]
    pub fn accepting(&self, findings: &[Finding]) -> Self {
        let mut groups = self.groups.clone();
        let mut own_groups = BTreeMap::new();
        for ((rule, _), allowed) in &self.allowed {
            let last = own_groups.entry(*rule).or_insert(allowed.group);
            *last = allowed.group.max(*last);
        }
        let mut accepted = BTreeMap::new();
        for (key, number) in counts(findings) {
            if key.0 == Rule::Subject {
                continue;
            }
            let known = self.allowed.get(&key);
            let group = match known {
                Some(known) => known.group,
                None => *own_groups.entry(key.0).or_insert_with(|| {
                    groups.push(reason(key.0));
                    groups.len() - 1
                }),
            };
            let reason = known.map(|known| known.reason.clone()).unwrap_or_default();
            accepted.insert(key, Allowed { number, reason, group });
        }
        Exceptions {
            allowed: accepted,
            groups,
        }
    }

    fn number(&self, rule: Rule, file: &str) -> usize {
        self.allowed
            .get(&(rule, file.to_owned()))
            .map_or(0, |allowed| allowed.number)
    }
}

fn parse_line(line: &str) -> Result<((Rule, String), Allowed)> {
    let mut words = line.splitn(4, ' ');
    let mut next = || words.next().context("expected: rule file number reason");
    let (name, file, number) = (next()?, next()?, next()?);
    let rule = Rule::ALL.into_iter().find(|rule| rule.name() == name);
    let rule = rule.with_context(|| format!("there is no rule {name}"))?;
    let number = number.parse().with_context(|| format!("{number} is no number"))?;
    ensure!(number > 0, "an exception of 0 findings is none");
    let reason = words.next().unwrap_or_default().to_owned();
    let allowed = Allowed {
        number,
        reason,
        group: 0,
    };
    Ok(((rule, file.to_owned()), allowed))
}

/// Returns the reason of a new group.
fn reason(rule: Rule) -> String {
    let why = match rule {
        Rule::CodeWidth => "Rows of tables in tests and texts of messages, which rustfmt does not break.",
        Rule::CommentWidth => "Links and examples that do not wrap.",
        Rule::DocumentWidth => "Lines from before the rule.",
        Rule::FileLength => "Files from before the rule in which no name is ready to split them by.",
        Rule::FunctionLength => "Functions from before the rule: tables and scenes of tests, long matches.",
        Rule::Term => "Names from before the rule; each is renamed when its file is next changed.",
        Rule::DocStart => "Comments from before the rule; each is rewritten when its file is next changed.",
        Rule::Walk => "At the start, or in intervals.",
        Rule::Payer => "Work that no request waits for.",
        Rule::Subject => "Commits.",
    };
    format!("# {why}")
}

impl fmt::Display for Exceptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}")?;
        for (index, comment) in self.groups.iter().enumerate() {
            let mut entries = self
                .allowed
                .iter()
                .filter(|(_, allowed)| allowed.group == index)
                .peekable();
            if entries.peek().is_none() {
                continue;
            }
            writeln!(f)?;
            if !comment.is_empty() {
                writeln!(f, "{comment}")?;
            }
            for ((rule, file), Allowed { number, reason, .. }) in entries {
                let line = format!("{} {file} {number} {reason}", rule.name());
                writeln!(f, "{}", line.trim_end())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(file: &str, line: usize) -> Finding {
        Finding {
            rule: Rule::Term,
            file: file.to_owned(),
            line,
            text: "Lane".to_owned(),
        }
    }

    #[test]
    fn numbers_only_go_down() {
        let allowed = Exceptions::parse("# comment\nterm a.rs 2 it is a table\n").expect("an exceptions file");
        let (one, two) = (vec![finding("a.rs", 1)], vec![finding("a.rs", 1), finding("a.rs", 2)]);
        assert_eq!(allowed.problems(&two), Vec::<String>::new());
        assert!(allowed.problems(&one)[0].contains("allows 2 of term in a.rs, which has 1"));
        let lowered = allowed.lowered(&one);
        assert_eq!(lowered.problems(&one), Vec::<String>::new());
        assert!(
            lowered.to_string().ends_with("\nterm a.rs 1 it is a table\n"),
            "{lowered}"
        );
        let new = lowered.problems(&two);
        assert_eq!(new.len(), 3, "the rule and both places: {new:?}");
        assert!(lowered.lowered(&two) == lowered, "blessing never raises a number");
    }

    #[test]
    fn groups_keep_their_reasons() {
        let text = format!("{HEADER}\n\n# First.\nterm a.rs 1\n\n# Second.\ncode-width b.rs 1\nterm b.rs 1 own\n");
        let allowed = Exceptions::parse(&text).expect("an exceptions file");
        assert_eq!(allowed.to_string(), text);
        let found = [finding("a.rs", 1), finding("a.rs", 2), finding("c.rs", 1)];
        let want = format!("{HEADER}\n\n# First.\nterm a.rs 2\n\n# Second.\nterm c.rs 1\n");
        assert_eq!(allowed.accepting(&found).to_string(), want);
        assert_eq!(
            allowed.lowered(&found).to_string(),
            format!("{HEADER}\n\n# First.\nterm a.rs 1\n")
        );
    }

    #[test]
    fn other_lines_are_refused() {
        for bad in ["term", "term a.rs", "term a.rs x", "term a.rs 0", "thing a.rs 1"] {
            assert!(Exceptions::parse(bad).is_err(), "{bad}");
        }
    }
}

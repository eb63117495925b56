//! Findings that files may keep, as numbers for each rule and file.

use std::{collections::BTreeMap, fmt};

use anyhow::{Context, Result, ensure};

use super::{Finding, Rule, counts};

/// Allowed numbers of findings by rule and file.
///
/// ```text
/// # rule file number reason
/// term crates/server/src/lanes.rs 3
/// file-length crates/cel/src/tables.rs 1 a table of functions
/// ```
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Exceptions(BTreeMap<(Rule, String), Allowed>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Allowed {
    number: usize,
    reason: String,
}

/// Findings of one rule that a message lists; more are counted.
const LISTED_MAX: usize = 20;

impl Exceptions {
    /// Reads the file.
    ///
    /// # Errors
    /// Fails with the line that is no exception.
    pub fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let exceptions = lines.map(|line| parse_line(line).with_context(|| format!("tidy.exceptions: {line:?}")));
        Ok(Exceptions(exceptions.collect::<Result<_>>()?))
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
        for ((rule, file), allowed) in &self.0 {
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

    /// The same exceptions with no number larger than what was found.
    #[must_use]
    pub fn lowered(&self, findings: &[Finding]) -> Self {
        let counts = counts(findings);
        let lower = |(key, allowed): (&(Rule, String), &Allowed)| {
            let number = counts.get(key).copied().unwrap_or_default().min(allowed.number);
            let reason = allowed.reason.clone();
            (number > 0).then(|| (key.clone(), Allowed { number, reason }))
        };
        Exceptions(self.0.iter().filter_map(lower).collect())
    }

    fn number(&self, rule: Rule, file: &str) -> usize {
        self.0.get(&(rule, file.to_owned())).map_or(0, |allowed| allowed.number)
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
    Ok(((rule, file.to_owned()), Allowed { number, reason }))
}

impl fmt::Display for Exceptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Findings of `cargo xtask tidy` that files may keep: rule, file, number, reason. Numbers only go down."
        )?;
        for ((rule, file), Allowed { number, reason }) in &self.0 {
            let line = format!("{} {file} {number} {reason}", rule.name());
            writeln!(f, "{}", line.trim_end())?;
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
    fn what_is_no_exception_is_refused() {
        for bad in ["term", "term a.rs", "term a.rs x", "term a.rs 0", "thing a.rs 1"] {
            assert!(Exceptions::parse(bad).is_err(), "{bad}");
        }
    }
}

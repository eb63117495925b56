//! Steps with their times. Each step is announced, timed, and listed in a table at the end, failed
//! steps included.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use anyhow::Result;

/// Steps done so far.
#[derive(Debug, Default)]
pub struct Report {
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    name: &'static str,
    took: Duration,
    /// Outcome: a path, "passed", "skipped: no kubectl", "FAILED".
    outcome: String,
}

impl Report {
    /// Runs one step. `work` returns its result and a description of the outcome. A failure is
    /// listed too, and returned.
    pub fn step<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<(T, String)>) -> Result<T> {
        say(&format!("==> {name}"))?;
        let start = Instant::now();
        let result = work();
        let outcome = result
            .as_ref()
            .map_or("FAILED".to_owned(), |(_, outcome)| outcome.clone());
        self.steps.push(Step {
            name,
            took: start.elapsed(),
            outcome,
        });
        result.map(|(value, _)| value)
    }

    /// Returns the table: one line for each step, and the sum.
    pub fn table(&self) -> String {
        let line =
            |name: &str, took: Duration, outcome: &str| format!("{name:<10}{:>8.1} s  {outcome}\n", took.as_secs_f64());
        let total = self.steps.iter().map(|step| step.took).sum();
        let lines = self.steps.iter().map(|step| line(step.name, step.took, &step.outcome));
        lines.chain([line("total", total, "").trim_end().to_owned()]).collect()
    }
}

/// Prints a line on stdout. Fails when stdout is closed.
pub fn say(text: &str) -> Result<()> {
    Ok(writeln!(io::stdout().lock(), "{text}")?)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_failed_step_is_listed_and_handed_on() {
        let mut report = Report::default();
        assert_eq!(report.step("tools", || Ok((7, "here".to_owned()))).ok(), Some(7));
        let failed = report.step::<()>("tests", || Err(anyhow!("two failed")));
        assert_eq!(failed.map_err(|error| error.to_string()), Err("two failed".to_owned()));
        let table = report.table();
        let lines: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["tools", "0.0", "s", "here"]);
        assert_eq!(lines[1], ["tests", "0.0", "s", "FAILED"]);
        assert_eq!(lines[2], ["total", "0.0", "s"]);
    }
}

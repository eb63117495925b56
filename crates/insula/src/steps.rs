//! Steps of a longer command, printed as they end: the result, the time, and the equivalent kubectl
//! command.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use crate::print::Format;

/// Column of the time, wide enough for most lines.
const WHAT_CHARS: usize = 64;

/// Printer of steps, normally to standard output.
pub(crate) struct Steps<W> {
    out: W,
    output: Format,
    count: usize,
    begun: Instant,
}

/// Result of a step.
pub(crate) struct Done {
    /// Description in one line, for people.
    pub(crate) what: String,
    /// Equivalent command, without `$ `; may be empty.
    pub(crate) by_hand: String,
}

impl<W: Write> Steps<W> {
    pub(crate) fn new(out: W, output: Format) -> Self {
        Self {
            out,
            output,
            count: 0,
            begun: Instant::now(),
        }
    }

    /// Runs a step and prints its line. A failure is printed, too, and returned.
    pub(crate) async fn step<T, F>(&mut self, name: &str, work: F) -> anyhow::Result<T>
    where
        F: Future<Output = anyhow::Result<(Done, T)>>,
    {
        self.count += 1;
        let started = Instant::now();
        match work.await {
            Ok((done, value)) => {
                self.print(name, &done, started.elapsed())?;
                Ok(value)
            }
            Err(error) => {
                self.print_failed(name, &error, started.elapsed())?;
                Err(error)
            }
        }
    }

    /// Returns the number of steps so far, and the total time.
    pub(crate) fn total(&self) -> (usize, Duration) {
        (self.count, self.begun.elapsed())
    }

    /// Prints a line that is no step, for people only.
    pub(crate) fn note(&mut self, line: &str) -> io::Result<()> {
        match self.output {
            Format::Table | Format::Wide => writeln!(self.out, "{line}"),
            Format::Json | Format::Yaml | Format::Name => Ok(()),
        }
    }

    fn print(&mut self, name: &str, done: &Done, took: Duration) -> io::Result<()> {
        let Done { what, by_hand } = done;
        match self.output {
            Format::Table | Format::Wide => {
                let by_hand = if by_hand.is_empty() {
                    String::new()
                } else {
                    format!("   $ {by_hand}")
                };
                writeln!(self.out, "✔ {what:<WHAT_CHARS$} {:>7.3} s{by_hand}", took.as_secs_f64())
            }
            Format::Json | Format::Yaml | Format::Name => {
                let command = if by_hand.is_empty() { None } else { Some(by_hand) };
                let line = serde_json::json!({
                    "step": name, "ok": true, "what": what, "seconds": seconds(took), "command": command,
                });
                self.document(&line)
            }
        }
    }

    fn print_failed(&mut self, name: &str, error: &anyhow::Error, took: Duration) -> io::Result<()> {
        let cause = format!("{error:#}");
        match self.output {
            Format::Table | Format::Wide => writeln!(self.out, "✘ {name}: {cause}   {:.3} s", took.as_secs_f64()),
            Format::Json | Format::Yaml | Format::Name => {
                let line = serde_json::json!({"step": name, "ok": false, "error": cause, "seconds": seconds(took)});
                self.document(&line)
            }
        }
    }
}

impl<W: Write> Steps<W> {
    /// Prints a step for programs: a line of JSON, a document of YAML, or its name.
    fn document(&mut self, step: &serde_json::Value) -> io::Result<()> {
        match self.output {
            Format::Yaml => {
                let text = crate::print::yaml(step).map_err(io::Error::other)?;
                write!(self.out, "---\n{text}")
            }
            Format::Name => writeln!(self.out, "{}", step["step"].as_str().unwrap_or_default()),
            Format::Json | Format::Table | Format::Wide => writeln!(self.out, "{step}"),
        }
    }
}

/// Returns seconds rounded to 0.1 ms, which keeps lines short.
fn seconds(took: Duration) -> f64 {
    (took.as_secs_f64() * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn printed(output: Format) -> String {
        let mut out = Vec::new();
        let mut steps = Steps::new(&mut out, output);
        let good = async {
            let by_hand = "kubectl create -f a.yaml".to_owned();
            Ok((
                Done {
                    what: "workspace root:a".to_owned(),
                    by_hand,
                },
                7,
            ))
        };
        assert_eq!(steps.step("workspace", good).await.unwrap(), 7);
        let bad = async { Err::<(Done, ()), _>(anyhow::anyhow!("no route").context("cannot bind")) };
        steps.step("bind", bad).await.unwrap_err();
        steps.note("bye").unwrap();
        assert_eq!(steps.total().0, 2);
        String::from_utf8(out).unwrap()
    }

    #[tokio::test]
    async fn people_get_aligned_lines() {
        let text = printed(Format::Table).await;
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("✔ workspace root:a   "), "{text}");
        assert!(lines[0].ends_with(" s   $ kubectl create -f a.yaml"), "{text}");
        assert!(lines[1].starts_with("✘ bind: cannot bind: no route   "), "{text}");
        assert_eq!(lines[2], "bye");
    }

    #[tokio::test]
    async fn machines_get_a_json_object_a_line() {
        let text = printed(Format::Json).await;
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(lines[0]["step"], "workspace");
        assert_eq!(lines[0]["command"], "kubectl create -f a.yaml");
        assert_eq!(lines[1]["ok"], false);
        assert_eq!(lines[1]["error"], "cannot bind: no route");
    }
}

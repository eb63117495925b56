//! Report of the figures, as a table or as JSON.

use super::args::Output;
use anyhow::Result;
use serde::Serialize;
use std::{
    fmt,
    io::{Write, stdout},
    time::Duration,
};

/// Times of single operations, and the total time and CPU.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) times: Vec<Duration>,
    pub(crate) wall: Duration,
    pub(crate) cpu: Option<Duration>,
}

/// A row of the report.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Row {
    /// Name of the measurement.
    pub(crate) what: String,
    /// Workspaces that existed.
    pub(crate) workspaces: usize,
    /// Requests in flight.
    pub(crate) clients: usize,
    /// Operations.
    pub(crate) count: usize,
    /// Operations a second.
    pub(crate) per_second: Option<f64>,
    /// Median time of an operation in microseconds.
    pub(crate) p50_us: Option<f64>,
    /// 99th percentile of the times in microseconds.
    pub(crate) p99_us: Option<f64>,
    /// CPU time of the server for one operation in microseconds.
    pub(crate) cpu_us: Option<f64>,
    /// Resident memory of the server for each of `count` items in bytes.
    pub(crate) bytes_each: Option<f64>,
    /// Ratios of both percentiles to those of earlier rows, round by round.
    pub(crate) ratios: Vec<Ratios>,
}

/// Ratios of the percentiles of two rows over all rounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Ratios {
    p50: Ratio,
    p99: Ratio,
}

/// Ratio over all rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Ratio {
    median: f64,
    least: f64,
    most: f64,
}

/// All rows, in the order of measurement.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Measured {
    /// Joins the measurements of several rounds.
    pub(crate) fn all<'a>(rounds: impl Iterator<Item = &'a Measured>) -> Self {
        rounds.fold(Measured::default(), |mut all, round| {
            all.times.extend(&round.times);
            all.wall += round.wall;
            all
        })
    }

    /// Returns the longest time.
    pub(crate) fn slowest(&self) -> Duration {
        self.times.iter().max().copied().unwrap_or_default()
    }

    /// Returns the times in ascending order.
    fn sorted(&self) -> Vec<Duration> {
        let mut times = self.times.clone();
        times.sort_unstable();
        times
    }

    /// Returns the measurement as a row.
    pub(crate) fn row(self, what: &str, workspaces: usize, clients: usize) -> Row {
        let times = self.sorted();
        let count = times.len();
        let per = |duration: Duration| (count > 0).then(|| micros(duration) / count as f64);
        Row {
            what: what.to_owned(),
            workspaces,
            clients,
            count,
            per_second: Some(count as f64 / self.wall.as_secs_f64().max(1e-9)),
            p50_us: percentile(&times, 50).map(micros),
            p99_us: percentile(&times, 99).map(micros),
            cpu_us: self.cpu.and_then(per),
            bytes_each: None,
            ratios: Vec::new(),
        }
    }
}

impl Row {
    /// Adds ratios to an earlier row, from pairs of measurements of the same round.
    pub(crate) fn compare<'a>(&mut self, rounds: impl Iterator<Item = (&'a Measured, &'a Measured)>) {
        let rounds: Vec<_> = rounds.map(|(this, that)| (this.sorted(), that.sorted())).collect();
        let ratio = |percent| {
            let of_round = |(this, that): &(Vec<Duration>, Vec<Duration>)| {
                Some(micros(percentile(this, percent)?) / micros(percentile(that, percent)?))
            };
            Ratio::over_rounds(rounds.iter().filter_map(of_round).collect())
        };
        self.ratios
            .extend(ratio(50).zip(ratio(99)).map(|(p50, p99)| Ratios { p50, p99 }));
    }
}

impl Ratio {
    fn over_rounds(mut rounds: Vec<f64>) -> Option<Self> {
        rounds.sort_unstable_by(f64::total_cmp);
        let (least, most) = (*rounds.first()?, *rounds.last()?);
        let middle = rounds.len() / 2;
        let median = match rounds.len() % 2 {
            1 => rounds[middle],
            _ => (rounds[middle - 1] + rounds[middle]) / 2.0,
        };
        Some(Ratio { median, least, most })
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2}–{:.2})", self.median, self.least, self.most)
    }
}

impl Report {
    /// Adds a row, and prints progress on standard error.
    pub(crate) fn add(&mut self, row: Row) {
        eprintln!("  {}", line(&row).join("  "));
        self.rows.push(row);
    }

    /// Prints everything to standard output.
    pub(crate) fn print(&self, output: Output) -> Result<()> {
        let mut out = stdout().lock();
        match output {
            Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(&self.rows)?)?,
            Output::Table => {
                writeln!(
                    out,
                    "| measurement | workspaces | in flight | count | ops/s | p50 | p99 | CPU/op | memory each | \
                     p50 against rows above | p99 |"
                )?;
                writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")?;
                for row in &self.rows {
                    writeln!(out, "| {} |", line(row).join(" | "))?;
                }
            }
        }
        Ok(())
    }
}

fn line(row: &Row) -> [String; 11] {
    let shown = |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| "–".to_owned(), show);
    let ratio = |which: fn(&Ratios) -> Ratio| {
        let ratios: Vec<String> = row.ratios.iter().map(|ratios| which(ratios).to_string()).collect();
        match ratios.is_empty() {
            true => "–".to_owned(),
            false => ratios.join(", "),
        }
    };
    [
        row.what.clone(),
        row.workspaces.to_string(),
        row.clients.to_string(),
        row.count.to_string(),
        shown(row.per_second, |rate| {
            if rate < 100.0 {
                format!("{rate:.1}")
            } else {
                format!("{rate:.0}")
            }
        }),
        shown(row.p50_us, time),
        shown(row.p99_us, time),
        shown(row.cpu_us, time),
        shown(row.bytes_each, |bytes| format!("{:.1} KiB", bytes / 1024.0)),
        ratio(|ratios| ratios.p50),
        ratio(|ratios| ratios.p99),
    ]
}

fn time(micros: f64) -> String {
    match micros {
        m if m < 1_000.0 => format!("{m:.0} µs"),
        m if m < 100_000.0 => format!("{:.2} ms", m / 1e3),
        m => format!("{:.0} ms", m / 1e3),
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Returns the smallest time that `percent` of all times do not exceed.
fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_micros).collect();
        assert_eq!(percentile(&times, 50), Some(Duration::from_micros(100)));
        assert_eq!(percentile(&times, 99), Some(Duration::from_micros(198)));
        assert_eq!(percentile(&times[..1], 50), Some(Duration::from_micros(1)));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn a_line_says_rate_and_cpu_of_one_operation() {
        let times = vec![Duration::from_millis(2); 10];
        let measured = Measured {
            times,
            wall: Duration::from_millis(5),
            cpu: Some(Duration::from_millis(1)),
        };
        let row = measured.row("create", 1, 64);
        assert_eq!(
            line(&row),
            [
                "create", "1", "64", "10", "2000", "2.00 ms", "2.00 ms", "100 µs", "–", "–", "–"
            ]
        );
    }

    #[test]
    fn ratios_are_of_rounds() {
        let measured = |millis: &[u64]| Measured {
            times: millis.iter().map(|millis| Duration::from_millis(*millis)).collect(),
            ..Measured::default()
        };
        let this = [measured(&[9, 3]), measured(&[1, 2]), measured(&[4, 8])];
        let that = [measured(&[3, 3]), measured(&[4, 4]), measured(&[2, 4])];
        let all = Measured::all(this.iter());
        assert_eq!(all.times.len(), 6);
        let mut row = all.row("get", 1, 1);
        row.compare(this.iter().zip(&that));
        assert_eq!(line(&row)[9..], ["1.00 (0.25–2.00)", "2.00 (0.50–3.00)"]);
    }
}

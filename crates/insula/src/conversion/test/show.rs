//! Report of `insula conversion test` for people.

use std::io::Write;

use super::{Report, Sample, Searched};
use crate::print::{Cell, Format, Printer, Table, Tone};

pub(super) fn reports(reports: &[Report], format: Format) -> anyhow::Result<()> {
    let mut printer = Printer::stdout();
    if !printer.document(format, &reports)? {
        for one in reports {
            report(&mut printer, one)?;
        }
        let findings: usize = reports.iter().map(Report::findings).sum();
        let line = match findings {
            0 => Cell::new(Tone::Good, "nothing found"),
            1 => Cell::new(Tone::Bad, "1 finding"),
            n => Cell::new(Tone::Bad, format!("{n} findings")),
        };
        printer.line(&[line])?;
    }
    printer.flush()?;
    Ok(())
}

fn report<W: Write>(printer: &mut Printer<W>, report: &Report) -> anyhow::Result<()> {
    let head = Cell::new(Tone::Title, report.name.as_str());
    printer.line(&[head, Cell::new(Tone::Dim, format!("  {}", report.versions))])?;
    for error in &report.errors {
        printer.line(&[
            "  ".into(),
            Cell::new(Tone::Bad, "refused"),
            format!(": {error}").into(),
        ])?;
    }
    if let Some(search) = &report.search {
        searched(printer, search)?;
    }
    samples(printer, &report.samples)?;
    printer.text("")?;
    Ok(())
}

fn searched<W: Write>(printer: &mut Printer<W>, search: &Searched) -> anyhow::Result<()> {
    let Some(found) = &search.counterexample else {
        let refused = match search.refused {
            0 => String::new(),
            n => format!(", {n} refused by rules that may fail"),
        };
        let text = format!(
            "  {} cases with {} writes{refused} (seed {}): ",
            search.cases, search.writes, search.seed
        );
        printer.line(&[text.into(), Cell::new(Tone::Good, "every law holds")])?;
        return Ok(());
    };
    let place = format!(" (seed {}, case {})", search.seed, found.case);
    printer.line(&[
        "  ".into(),
        Cell::new(Tone::Bad, found.finding.as_str()),
        Cell::new(Tone::Dim, place),
    ])?;
    for write in &found.writes {
        printer.text(&format!("    written as {}: {}", write.version, write.object))?;
    }
    printer.text(&format!("    remedy: {}", found.help))?;
    Ok(())
}

fn samples<W: Write>(printer: &mut Printer<W>, samples: &[Sample]) -> anyhow::Result<()> {
    let mut table = Table::new(&["  OBJECT", "WRITTEN AS", "READ AS", "ROUND TRIP", "KEPT", "LOST"]);
    for sample in samples {
        for trip in &sample.trips {
            let result = match (sample.problems.is_empty(), trip.lost.is_empty()) {
                (false, _) => Cell::new(Tone::Bad, "failed"),
                (true, true) => Cell::new(Tone::Good, "ok"),
                (true, false) => Cell::new(Tone::Warn, "drops"),
            };
            table.row(vec![
                format!("  {}", sample.object).into(),
                sample.written_as.as_str().into(),
                trip.read_as.as_str().into(),
                result,
                Cell::list(Tone::Plain, &trip.kept),
                Cell::list(Tone::Warn, &trip.lost),
            ]);
        }
    }
    if !table.is_empty() {
        printer.table(&table)?;
    }
    for sample in samples {
        for problem in &sample.problems {
            printer.line(&[
                format!("  {} as {} ({}): ", sample.object, sample.written_as, sample.file).into(),
                Cell::new(Tone::Bad, problem.as_str()),
            ])?;
        }
    }
    Ok(())
}

//! Report of `insula conversion test` for people.

use std::io::Write;

use insula_conversion::proof::{FINDINGS_SHOWN, Misfit};

use super::{Found, Report, Sample, Searched};
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
    incompatible(printer, report)?;
    for (warnings, kind) in [
        (&report.idle, "rules that convert no object"),
        (&report.apart, "lists that are not one list"),
    ] {
        for one in warnings.iter().take(FINDINGS_SHOWN) {
            printer.line(&["  ".into(), Cell::new(Tone::Warn, "warning"), format!(": {one}").into()])?;
        }
        more(printer, warnings.len(), kind)?;
    }
    if let Some(search) = &report.search {
        searched(printer, search)?;
    }
    samples(printer, &report.samples)?;
    printer.text("")?;
    Ok(())
}

/// Fields that a report lists.
const BREAKS_MAX: usize = 40;

fn incompatible<W: Write>(printer: &mut Printer<W>, report: &Report) -> anyhow::Result<()> {
    let count = report.incompatible.len();
    if count == 0 {
        return Ok(());
    }
    let tone = if report.accepted { Tone::Warn } else { Tone::Bad };
    let fields = if count == 1 {
        "1 field"
    } else {
        &format!("{count} fields")
    };
    let text = format!("incompatible versions without rules: {fields}");
    printer.line(&["  ".into(), Cell::new(tone, text)])?;
    for one in report.incompatible.iter().take(BREAKS_MAX) {
        printer.text(&format!("    {one}"))?;
    }
    if count > BREAKS_MAX {
        printer.text(&format!("    and {} more", count - BREAKS_MAX))?;
    }
    if !report.accepted {
        printer.text("    remedy: write rules (insula conversion suggest drafts them), or --accept-incompatible")?;
    }
    Ok(())
}

/// Prints the values that one version accepts and another one refuses.
fn unfitting<W: Write>(printer: &mut Printer<W>, search: &Searched) -> anyhow::Result<()> {
    let count = search.unfitting.len();
    if count == 0 {
        return Ok(());
    }
    let (tone, what) = match search.refuses {
        true => (Tone::Bad, "refused, by validation: Refuse"),
        false => (Tone::Warn, "shown as they are"),
    };
    let kinds = if count == 1 {
        "1 kind"
    } else {
        &format!("{count} kinds")
    };
    let head = format!("{kinds} of values that one version accepts and another refuses, {what}:");
    printer.line(&["  ".into(), Cell::new(tone, head)])?;
    for one in search.unfitting.iter().take(FINDINGS_SHOWN) {
        let rule = one.rule.as_ref().map(|rule| format!(" ({rule})")).unwrap_or_default();
        printer.text(&format!("    {} would refuse {}{rule}", one.version, one.error))?;
        for write in &one.writes {
            printer.text(&format!("      written as {}: {}", write.version, write.object))?;
        }
    }
    more(printer, count, "kinds")?;
    printer.text(&format!("    remedy: {}", Misfit::HELP))?;
    Ok(())
}

/// Counts what is left out after the first findings.
fn more<W: Write>(printer: &mut Printer<W>, count: usize, what: &str) -> anyhow::Result<()> {
    let more = count.saturating_sub(FINDINGS_SHOWN);
    if more > 0 {
        printer.text(&format!("    and {more} more {what}: -o json lists them"))?;
    }
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
        return unfitting(printer, search);
    };
    counterexample(printer, search.seed, found)?;
    for found in search.further.iter().take(FINDINGS_SHOWN - 1) {
        counterexample(printer, search.seed, found)?;
    }
    more(printer, search.further.len() + 1, "findings")
}

fn counterexample<W: Write>(printer: &mut Printer<W>, seed: u64, found: &Found) -> anyhow::Result<()> {
    let place = format!(" (seed {seed}, case {})", found.case);
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
        for note in &sample.unfitting {
            let place = format!("  {} as {} ({}): ", sample.object, sample.written_as, sample.file);
            printer.line(&[place.into(), Cell::new(Tone::Warn, note.as_str())])?;
        }
        for problem in &sample.problems {
            printer.line(&[
                format!("  {} as {} ({}): ", sample.object, sample.written_as, sample.file).into(),
                Cell::new(Tone::Bad, problem.as_str()),
            ])?;
        }
    }
    Ok(())
}

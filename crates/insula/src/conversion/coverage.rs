//! `insula conversion coverage`.

use std::process::ExitCode;

use insula_conversion::{FieldCoverage, FieldOutcome, field_coverage};
use serde::Serialize;

use crate::{
    apis::Input,
    print::{Cell, Format, Printer, Table, Tone},
};

/// Covers the conversions between the hub and each other version, and between pairs with rules.
#[derive(clap::Args)]
#[command(after_help = "\
Outcomes:
  carried    the other version has it at the same path
  moved      the other version has it at another path
  computed   rules compute another value from it
  preserved  the other version does not show it; it is stored beside the object
  withheld   the other version has it, no rule moves or writes it, and yet it does not show it: such rules are refused
  dropped    it is lost: the rules list it under drop, or a definition has no rules for it

Fields of the other version without a source are listed below them:
  constant   a rule sets its value
  default    its schema sets its value

Exit codes:
  0  shown
  1  rules or schema are refused, or a field is dropped and --fail-on dropped is given
  2  a file cannot be read, or a flag is wrong")]
pub(crate) struct Arguments {
    #[command(flatten)]
    input: Input,
    /// Fail if a field has this outcome.
    #[arg(long, value_name = "OUTCOME", value_parser = ["preserved", "dropped"])]
    fail_on: Option<String>,
    /// Format of the output.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// The outcomes of a field, in the order of the summary.
const WORDS: [&str; 8] = [
    "carried",
    "moved",
    "computed",
    "preserved",
    "withheld",
    "dropped",
    "constant",
    "default",
];

#[derive(Serialize)]
struct Coverage {
    name: String,
    errors: Vec<String>,
    directions: Vec<Direction>,
}

#[derive(Serialize)]
struct Direction {
    from: String,
    to: String,
    fields: Vec<Field>,
    made: Vec<Made>,
}

#[derive(Serialize)]
struct Field {
    path: String,
    /// Named as in the status of an APIConversion.
    #[serde(rename = "fate")]
    outcome: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    to: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rules: Vec<String>,
}

/// A field of the target version without a source.
#[derive(Serialize)]
struct Made {
    path: String,
    by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let manifests = arguments.input.load()?;
    let mut all = Vec::new();
    for source in &manifests.sources {
        let (errors, directions) = match source.manifest().compile() {
            Ok(api) => (Vec::new(), field_coverage(&api.bundle).iter().map(direction).collect()),
            Err(errors) => (errors.iter().map(ToString::to_string).collect(), Vec::new()),
        };
        all.push(Coverage {
            name: source.name().to_owned(),
            errors,
            directions,
        });
    }
    let mut printer = Printer::stdout();
    if !printer.document(arguments.output, &all)? {
        all.iter().try_for_each(|coverage| show(&mut printer, coverage))?;
    }
    printer.flush()?;
    let unwanted = |coverage: &Coverage| {
        let mut fields = coverage.directions.iter().flat_map(|direction| &direction.fields);
        !coverage.errors.is_empty() || fields.any(|field| arguments.fail_on.as_deref() == Some(field.outcome))
    };
    Ok(ExitCode::from(u8::from(all.iter().any(unwanted))))
}

fn direction(field_coverage: &FieldCoverage) -> Direction {
    let field = |field: &insula_conversion::CoveredField| Field {
        path: field.path.to_string(),
        outcome: field.outcome.word(),
        to: field.outcome.destinations().iter().map(ToString::to_string).collect(),
        rules: field.outcome.rules().iter().map(ToString::to_string).collect(),
    };
    let made = |made: &insula_conversion::Made| Made {
        path: made.path.to_string(),
        by: made.by.word(),
        rule: made.by.rule().map(str::to_owned),
    };
    Direction {
        from: field_coverage.from.clone(),
        to: field_coverage.to.clone(),
        fields: field_coverage.fields.iter().map(field).collect(),
        made: field_coverage.made.iter().map(made).collect(),
    }
}

fn show<W: std::io::Write>(printer: &mut Printer<W>, coverage: &Coverage) -> anyhow::Result<()> {
    let Coverage {
        name,
        errors,
        directions,
    } = coverage;
    printer.line(&[Cell::new(Tone::Title, name.as_str())])?;
    for error in errors {
        printer.line(&[Cell::new(Tone::Bad, format!("  {error}"))])?;
    }
    for Direction { from, to, fields, made } in directions {
        printer.text("")?;
        let words = || {
            fields
                .iter()
                .map(|field| field.outcome)
                .chain(made.iter().map(|made| made.by))
        };
        let counts = WORDS.map(|word| (word, words().filter(|it| *it == word).count()));
        let counts: Vec<String> = counts
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(word, count)| format!("{count} {word}"))
            .collect();
        printer.line(&[
            Cell::new(Tone::Title, format!("{from} → {to}")),
            Cell::new(Tone::Dim, format!("  {}", counts.join(", "))),
        ])?;
        let mut table = Table::new(&["FIELD", "OUTCOME", "TO", "BY"]);
        for field in fields {
            table.row(vec![
                field.path.as_str().into(),
                Cell::new(tone(field.outcome), field.outcome),
                Cell::list(Tone::Plain, &field.to),
                Cell::list(Tone::Plain, &field.rules),
            ]);
        }
        for Made { path, by, rule } in made {
            table.row(vec![
                Cell::new(Tone::Dim, "-"),
                (*by).into(),
                path.as_str().into(),
                Cell::list(Tone::Plain, rule.as_slice()),
            ]);
        }
        printer.table(&table)?;
    }
    printer.text("")?;
    Ok(())
}

fn tone(outcome: &str) -> Tone {
    match outcome {
        _ if outcome == FieldOutcome::Dropped.word() || outcome == FieldOutcome::Withheld.word() => Tone::Bad,
        _ if outcome == FieldOutcome::Preserved.word() => Tone::Warn,
        _ => Tone::Good,
    }
}

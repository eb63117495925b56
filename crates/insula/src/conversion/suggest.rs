//! `insula conversion suggest`.

use std::{fmt::Write as _, io::Write, path::PathBuf, process::ExitCode};

use anyhow::{anyhow, bail};
use insula_api::FieldError;
use insula_catalog::Api;
use insula_conversion::{GuessSource, Suggestion, Suggestions, VersionSchema, proof::Search, suggest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    apis,
    print::{Cell, Format, Printer, Table, Tone, yaml},
};

/// Pairs fields of two versions by names, descriptions, enumerations, units, bounds and shapes.
/// Fields with the same path in both versions need no rule and are not listed. Every suggestion
/// passes the checks of a server.
#[derive(clap::Args)]
#[command(after_help = "\
The YAML output is an APIConversion, with the confidence of each suggestion as a comment: review it, correct it, and \
test it with `insula conversion test`.

Exit codes:
  0  every field has a counterpart
  1  some have none, or the suggested rules would be refused (they are listed)
  2  a file cannot be read, or the versions to compare are ambiguous")]
pub(crate) struct Arguments {
    /// A file with the old API, or with all versions if it is the only file.
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// A file with the new API.
    #[arg(value_name = "NEW")]
    new: Option<PathBuf>,
    /// The old version [default: the stored one of OLD].
    #[arg(long, value_name = "VERSION")]
    from: Option<String>,
    /// The new version [default: the last one of NEW that OLD does not have].
    #[arg(long, value_name = "VERSION")]
    to: Option<String>,
    /// Leave out suggestions with less confidence, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 40)]
    min_confidence: u8,
    /// Format of the output.
    #[arg(long, short, value_enum, default_value = "yaml")]
    output: Format,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    from: String,
    to: String,
    pairs: Vec<Pair>,
    only_in_from: Vec<String>,
    only_in_to: Vec<String>,
    /// Errors of admission for the rules as they are.
    refused: Vec<String>,
    conversion: Conversion,
}

/// An APIConversion, with fields in the order in which people write them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Conversion {
    api_version: &'static str,
    kind: &'static str,
    metadata: Value,
    spec: Spec,
}

#[derive(Serialize, Deserialize)]
struct Spec {
    conversions: Vec<Direction>,
}

#[derive(Serialize, Deserialize)]
struct Direction {
    from: String,
    to: String,
    rules: Vec<Rule>,
}

/// A rule in one of its forms: for a field, or for the object.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    destination: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transformation: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    may_fail: Option<bool>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Pair {
    /// One field, or the parts of a field.
    from: Vec<String>,
    to: Vec<String>,
    /// Confidence in percent.
    confidence: u8,
    reasons: Vec<String>,
    /// Transformations of the old value to the new one; empty for a move.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    transformations: Vec<String>,
    /// Reason why its rules would be refused; the draft then leaves them out.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs_work: Option<String>,
}

impl Pair {
    fn from_suggestion(pair: &Suggestion) -> Pair {
        let texts = |paths: &[insula_conversion::Path]| paths.iter().map(ToString::to_string).collect();
        let made = |guess: &insula_conversion::Guess| match (&guess.source, &guess.transformation) {
            (_, Some(Value::String(text))) => Some(text.clone()),
            (_, Some(template)) => Some(template.to_string()),
            (GuessSource::Object(text), None) => Some(text.clone()),
            (GuessSource::Field(_), None) => None,
        };
        Pair {
            from: texts(&pair.old),
            to: texts(&pair.new),
            confidence: percent(pair.confidence),
            reasons: pair.reasons.clone(),
            transformations: pair.forth.iter().filter_map(made).collect(),
            needs_work: pair.work.clone(),
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let (name, old) = one(&arguments.old)?;
    let (name, new) = match &arguments.new {
        Some(path) => {
            let (name, api) = one(path)?;
            (name, Some(api))
        }
        None => (name, None),
    };
    let (from, to) = versions(arguments, &old, new.as_ref())?;
    let mut found = suggest(&from.schema, &to.schema);
    let enough = |confidence: f64| percent(confidence) >= arguments.min_confidence;
    let (kept, unsure): (Vec<_>, Vec<_>) = found.pairs.into_iter().partition(|pair| enough(pair.confidence));
    found.only_old.extend(unsure.iter().flat_map(|pair| pair.old.clone()));
    found.only_new.extend(unsure.iter().flat_map(|pair| pair.new.clone()));
    found.pairs = kept;
    let refused = found.try_out(&old.group, (&from, &to), Search::default());
    let answer = answer(&name, &from.name, &to.name, &found, &refused)?;
    let complete = answer.refused.is_empty()
        && answer.only_in_from.is_empty()
        && answer.only_in_to.is_empty()
        && answer.pairs.iter().all(|pair| pair.needs_work.is_none());
    show(&answer, arguments.output)?;
    Ok(ExitCode::from(u8::from(!complete)))
}

fn one(path: &PathBuf) -> anyhow::Result<(String, Api)> {
    let manifests = apis::load(std::slice::from_ref(path))?;
    let [_] = manifests.sources.as_slice() else {
        bail!(
            "{} holds {} schemas: name a file with one",
            path.display(),
            manifests.sources.len()
        );
    };
    let mut source = manifests
        .sources
        .into_iter()
        .next()
        .ok_or_else(|| anyhow!("no schema"))?;
    source.conversion = None;
    source.without_rules();
    let name = source.name().to_owned();
    let api = source.assemble();
    let api = api.map_err(|errors| anyhow!("{}: {}", path.display(), insula_api::aggregate(&errors)))?;
    Ok((name, api))
}

fn versions(arguments: &Arguments, old: &Api, new: Option<&Api>) -> anyhow::Result<(VersionSchema, VersionSchema)> {
    let find = |api: &Api, name: &str, file: &PathBuf| {
        let version = api.versions.iter().find(|version| *version.name == *name);
        let version = version.map(|version| VersionSchema {
            name: version.name.to_string(),
            served: true,
            schema: version.schema.clone(),
        });
        version.ok_or_else(|| anyhow!("{} has no version {name:?}", file.display()))
    };
    let stored = old.bundle.storage();
    let from = find(old, arguments.from.as_deref().unwrap_or(stored), &arguments.old)?;
    let (later, file) = match (new, &arguments.new) {
        (Some(new), Some(file)) => (new, file),
        _ => (old, &arguments.old),
    };
    let fresh = |name: &&str| *name != from.name && (new.is_none() || old.bundle.schema(name).is_none());
    let to = match &arguments.to {
        Some(name) => name.clone(),
        None => {
            let last = later.bundle.versions().filter(fresh).last();
            let why = || {
                anyhow!(
                    "{} has no version that is new: name the two with --from and --to",
                    file.display()
                )
            };
            last.ok_or_else(why)?.to_owned()
        }
    };
    if to == from.name {
        bail!("both versions are called {to}: rules are between versions of different names");
    }
    Ok((from, find(later, &to, file)?))
}

fn answer(name: &str, from: &str, to: &str, found: &Suggestions, refused: &[FieldError]) -> anyhow::Result<Answer> {
    let conversion = Conversion {
        api_version: "apis.kcp.io/v1alpha1",
        kind: "APIConversion",
        metadata: json!({"name": name}),
        spec: Spec::deserialize(&found.rules(from, to))?,
    };
    let texts = |paths: &[insula_conversion::Path]| paths.iter().map(ToString::to_string).collect();
    Ok(Answer {
        from: from.to_owned(),
        to: to.to_owned(),
        pairs: found.pairs.iter().map(Pair::from_suggestion).collect(),
        only_in_from: texts(&found.only_old),
        only_in_to: texts(&found.only_new),
        refused: refused.iter().map(ToString::to_string).collect(),
        conversion,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share, between 0 and 1"
)]
fn percent(share: f64) -> u8 {
    (share * 100.0).round() as u8
}

fn show(answer: &Answer, format: Format) -> anyhow::Result<()> {
    if format == Format::Yaml {
        let text = comments(answer) + &yaml(&answer.conversion)?;
        std::io::stdout().write_all(text.as_bytes())?;
        return Ok(());
    }
    let mut printer = Printer::stdout();
    if !printer.document(format, answer)? {
        let mut table = Table::new(&["CONFIDENCE", &answer.from, &answer.to, "BY", "WHY"]);
        for pair in &answer.pairs {
            let tone = if pair.confidence >= 80 { Tone::Good } else { Tone::Warn };
            table.row(vec![
                Cell::new(tone, format!("{}%", pair.confidence)),
                Cell::list(Tone::Plain, &pair.from),
                Cell::list(Tone::Plain, &pair.to),
                Cell::list(Tone::Plain, &pair.transformations),
                pair.reasons.join(", ").into(),
            ]);
        }
        printer.table(&table)?;
        printer.text("")?;
        for (version, paths) in [(&answer.from, &answer.only_in_from), (&answer.to, &answer.only_in_to)] {
            if !paths.is_empty() {
                let text = format!("only in {version}: {}", paths.join(", "));
                printer.line(&[Cell::new(Tone::Warn, text)])?;
            }
        }
        for (pair, why) in unfinished(answer) {
            let text = format!("{} → {} needs work: {why}", pair.from.join(", "), pair.to.join(", "));
            printer.line(&[Cell::new(Tone::Warn, text)])?;
        }
        for refused in &answer.refused {
            printer.line(&[Cell::new(Tone::Bad, format!("refused: {refused}"))])?;
        }
    }
    printer.flush()?;
    Ok(())
}

/// Returns the pairs whose rules would be refused, with the reasons.
fn unfinished(answer: &Answer) -> impl Iterator<Item = (&Pair, &str)> {
    let pairs = answer.pairs.iter();
    pairs.filter_map(|pair| Some((pair, pair.needs_work.as_deref()?)))
}

fn comments(answer: &Answer) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        // Writing to a String does not fail.
        let _ = writeln!(out, "# {text}");
    };
    line(format!("{} → {}, guessed: read before use.", answer.from, answer.to));
    for pair in &answer.pairs {
        line(format!(
            "{:>3}% {} → {} ({})",
            pair.confidence,
            pair.from.join(", "),
            pair.to.join(", "),
            pair.reasons.join(", ")
        ));
    }
    for (pair, why) in unfinished(answer) {
        // The first line only: the others show the position in the expression.
        let why = why.lines().next().unwrap_or_default();
        let (from, to) = (pair.from.join(", "), pair.to.join(", "));
        line(format!(
            "not in these rules, needs work: {from} → {to} by {}: {why}",
            pair.transformations.join(", ")
        ));
    }
    for (version, paths) in [(&answer.from, &answer.only_in_from), (&answer.to, &answer.only_in_to)] {
        for path in paths {
            line(format!("only in {version}: {path}"));
        }
    }
    for refused in &answer.refused {
        line(format!("refused as it is: {refused}"));
    }
    out
}

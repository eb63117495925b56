//! `insula conversion suggest`.

use std::{fmt::Write as _, io::Write, path::PathBuf, process::ExitCode};

use anyhow::{anyhow, bail};
use insula_admission::publication::{Draft, NoVersions, Pair, Side, draft, versions_to_draft};
use insula_catalog::Api;
use insula_conversion::SURE;
use insula_meter::Meter;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    apis,
    print::{self, Cell, Format, Printer, Progress, Table, Tone, yaml},
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
    /// The old version [default: the stored one of OLD; with one file of more than two versions and
    /// neither --from nor --to, rules are drafted from every other version to the stored one].
    #[arg(long, value_name = "VERSION")]
    from: Option<String>,
    /// The new version [default: the last one of NEW that OLD does not have].
    #[arg(long, value_name = "VERSION")]
    to: Option<String>,
    /// Leave out suggestions with less confidence, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = SURE)]
    min_confidence: u8,
    /// Write rules for every suggestion, also for those that are mere guesses.
    #[arg(long, conflicts_with = "min_confidence")]
    include_guesses: bool,
    /// Format of the output.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Yaml)]
    output: Format,
}

/// The drafts and the APIConversion of their rules. A single draft is not in a list.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    draft: Option<Draft>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    drafts: Vec<Draft>,
    conversion: Conversion,
}

impl Answer {
    fn drafts(&self) -> impl Iterator<Item = &Draft> {
        self.draft.iter().chain(&self.drafts)
    }
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

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let (name, old) = one(&arguments.old)?;
    let (name, new) = match &arguments.new {
        Some(path) => {
            let (name, api) = one(path)?;
            (name, Some(api))
        }
        None => (name, None),
    };
    let named = (arguments.from.as_deref(), arguments.to.as_deref());
    let pairs = versions_to_draft(&old, new.as_ref(), named).map_err(|why| no_versions(arguments, &why))?;
    let (mut drafts, mut spec) = (
        Vec::new(),
        Spec {
            conversions: Vec::new(),
        },
    );
    let least = match arguments.include_guesses {
        true => 0,
        false => arguments.min_confidence,
    };
    for (from, to) in &pairs {
        let mut progress = Progress::stderr();
        let draft = draft(
            least,
            &old.group,
            (from, to),
            &Meter::unbounded(),
            &mut |pairs, trial| {
                progress.show(&format!(
                    "{} → {}: checking {pairs} suggestions, trial {trial}",
                    from.name, to.name
                ));
            },
        );
        drop(progress);
        spec.conversions.extend(Spec::deserialize(&draft.rules)?.conversions);
        drafts.push(draft);
    }
    let complete = drafts.iter().all(Draft::is_complete);
    let only = if drafts.len() == 1 { drafts.pop() } else { None };
    let answer = Answer {
        draft: only,
        drafts,
        conversion: Conversion {
            api_version: "apis.kcp.io/v1alpha1",
            kind: "APIConversion",
            metadata: json!({"name": name}),
            spec,
        },
    };
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
    source.without_rules();
    let name = source.name().to_owned();
    let api = source.manifest().assemble();
    let api = api.map_err(|errors| anyhow!("{}: {}", path.display(), insula_api::aggregate(&errors)))?;
    Ok((name, api))
}

fn no_versions(arguments: &Arguments, why: &NoVersions) -> anyhow::Error {
    let file = |side: Side| match (side, &arguments.new) {
        (Side::New, Some(new)) => new.display(),
        _ => arguments.old.display(),
    };
    match why {
        NoVersions::Unknown(side, name) => anyhow!("{} has no version {name:?}", file(*side)),
        NoVersions::NothingNew(side) => anyhow!(
            "{} has no version that is new: name the two with --from and --to",
            file(*side)
        ),
        NoVersions::Equal(name) => {
            anyhow!("both versions are called {name}: rules are between versions of different names")
        }
    }
}

fn show(answer: &Answer, format: Format) -> anyhow::Result<()> {
    if format == Format::Yaml {
        let text = answer.drafts().map(comments).collect::<String>() + &yaml(&answer.conversion)?;
        return print::raw(&text);
    }
    let mut printer = Printer::stdout();
    let name = answer.conversion.metadata["name"].as_str();
    if !printer.named(format, answer, name)? {
        for (at, draft) in answer.drafts().enumerate() {
            if at > 0 {
                printer.text("")?;
            }
            table(draft, &mut printer)?;
        }
    }
    printer.flush()?;
    Ok(())
}

fn table(draft: &Draft, printer: &mut Printer<impl Write>) -> anyhow::Result<()> {
    let mut table = Table::new(&["CONFIDENCE", &draft.from, &draft.to, "BY", "WHY"]);
    for pair in &draft.pairs {
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
    for (version, paths) in [(&draft.from, &draft.only_in_from), (&draft.to, &draft.only_in_to)] {
        if !paths.is_empty() {
            let text = format!("only in {version}: {}", paths.join(", "));
            printer.line(&[Cell::new(Tone::Warn, text)])?;
        }
    }
    for (pair, why) in unfinished(draft) {
        let text = format!("{} → {} needs work: {why}", pair.from.join(", "), pair.to.join(", "));
        printer.line(&[Cell::new(Tone::Warn, text)])?;
    }
    for refused in &draft.refused {
        printer.line(&[Cell::new(Tone::Bad, format!("refused: {refused}"))])?;
    }
    Ok(())
}

/// Returns the pairs whose rules would be refused, with the reasons.
fn unfinished(draft: &Draft) -> impl Iterator<Item = (&Pair, &str)> {
    let pairs = draft.pairs.iter();
    pairs.filter_map(|pair| Some((pair, pair.needs_work.as_deref()?)))
}

fn comments(draft: &Draft) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        // Writing to a String does not fail.
        let _ = writeln!(out, "# {text}");
    };
    line(format!("{} → {}, guessed: read before use.", draft.from, draft.to));
    for pair in &draft.pairs {
        line(format!(
            "{:>3}% {} → {} ({})",
            pair.confidence,
            pair.from.join(", "),
            pair.to.join(", "),
            pair.reasons.join(", ")
        ));
    }
    for (pair, why) in unfinished(draft) {
        // The first line only: the others show the position in the expression.
        let why = why.lines().next().unwrap_or_default();
        let (from, to) = (pair.from.join(", "), pair.to.join(", "));
        line(format!(
            "not in these rules, needs work: {from} → {to} by {}: {why}",
            pair.transformations.join(", ")
        ));
    }
    for (version, paths) in [(&draft.from, &draft.only_in_from), (&draft.to, &draft.only_in_to)] {
        for path in paths {
            line(format!("only in {version}: {path}"));
        }
    }
    for refused in &draft.refused {
        line(format!("refused as it is: {refused}"));
    }
    out
}

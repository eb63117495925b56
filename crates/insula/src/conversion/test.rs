//! `insula conversion test`.

use insula_meter::Meter;
use std::{path::PathBuf, process::ExitCode};

use insula_catalog::Api;
use insula_conversion::{
    Bundle, Stored, ToStore, Validation, laws,
    proof::{self, Counterexample, Misfit, Search},
    unmetered_budget,
};
use serde::Serialize;
use serde_json::Value;

use super::{convert::api_of, differences};
use crate::{
    apis::{self, Input, Source},
    files::Document,
    print::Format,
};

mod show;

/// Checks rules and schemas as the server does. Then generates objects from the schemas, writes
/// them through one version and edits them through others. Last, writes and reads every sample
/// through every version.
#[derive(clap::Args)]
#[command(after_help = "\
Samples are objects among the files of -f and of --samples. KEPT lists fields that the other version \
cannot show and that are back when the object is read as it was written; LOST lists those that are not.

Values that one version accepts and another refuses are listed, with the smallest object of each kind. They are no
findings, unless spec.validation of the rules is Refuse.

Exit codes:
  0  nothing found
  1  rules or schema are refused, a law is broken, versions without rules are incompatible, or a sample is refused, is
     invalid, or loses a field not under drop
  2  a file cannot be read, an object is of no API among the files, or a flag is wrong")]
pub(crate) struct Arguments {
    #[command(flatten)]
    input: Input,
    /// A file or folder of objects.
    #[arg(long, value_name = "FILE")]
    samples: Vec<PathBuf>,
    /// Cases to generate, each of one object with up to four writes; 0 for none. Without it, the
    /// same cases as a server searches before it serves rules, with the same verdict.
    #[arg(long, value_name = "N")]
    cases: Option<u32>,
    #[arg(
        help = "Seed of the generator: the same seed gives the same cases",
        long,
        value_name = "S",
        default_value_t = 2026
    )]
    seed: u64,
    /// Accept versions without rules although fields break between them.
    #[arg(long)]
    accept_incompatible: bool,
    /// Format of the output.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Findings about one API.
#[derive(Serialize)]
struct Report {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    versions: String,
    /// Errors for which the server would refuse the API.
    errors: Vec<String>,
    /// Fields that break between versions without rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    incompatible: Vec<String>,
    /// Rules that convert no object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    idle: Vec<String>,
    /// Lists that are not one list in all versions that have them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    apart: Vec<String>,
    #[serde(skip)]
    accepted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    search: Option<Searched>,
    samples: Vec<Sample>,
}

/// Result of the search for counterexamples.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Searched {
    seed: u64,
    cases: u32,
    writes: u64,
    /// Writes that a rule with `mayFail` refused.
    refused: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    counterexample: Option<Found>,
    /// Counterexamples for other rules and fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    further: Vec<Found>,
    /// Values that one version accepts and another one refuses: an example of each kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unfitting: Vec<Unfitting>,
    /// True if the author wants such values refused.
    #[serde(skip)]
    refuses: bool,
}

#[derive(Serialize)]
struct Unfitting {
    version: String,
    field: String,
    error: String,
    /// The rule that writes the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    writes: Vec<CaseWrite>,
}

#[derive(Serialize)]
struct Found {
    finding: String,
    writes: Vec<CaseWrite>,
    help: &'static str,
    case: u32,
}

#[derive(Serialize)]
struct CaseWrite {
    version: String,
    object: Value,
}

/// Results of one sample object.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sample {
    object: String,
    file: String,
    written_as: String,
    problems: Vec<String>,
    /// Errors of other versions' schemas, which readers are shown all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unfitting: Vec<String>,
    trips: Vec<Trip>,
}

/// A round trip through another version.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Trip {
    read_as: String,
    kept: Vec<String>,
    lost: Vec<String>,
}

impl Report {
    fn findings(&self) -> usize {
        let searched = self.search.as_ref().map_or(0, |search| {
            let refused = if search.refuses { search.unfitting.len() } else { 0 };
            usize::from(search.counterexample.is_some()) + search.further.len() + refused
        });
        let problems: usize = self.samples.iter().map(|sample| sample.problems.len()).sum();
        let incompatible = !self.accepted && !self.incompatible.is_empty();
        self.errors.len() + usize::from(incompatible) + searched + problems
    }
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut manifests = arguments.input.load()?;
    let folders = crate::files::read_with(&arguments.samples, arguments.input.folders)?;
    for document in folders.into_iter().filter(apis::is_sample) {
        // A folder may be named twice, with -f and with --samples.
        if !manifests.others.iter().any(|other| other.value == document.value) {
            manifests.others.push(document);
        }
    }
    let mut reports = Vec::new();
    let mut compiled = Vec::new();
    for source in &manifests.sources {
        let (report, api) = check(source, arguments);
        reports.push(report);
        compiled.extend(api);
    }
    // Objects of a refused API cannot be tested.
    let refused = compiled.len() < reports.len();
    for document in &manifests.others {
        let api = match api_of(&compiled, document) {
            Ok(api) => api,
            Err(_) if refused => continue,
            Err(error) => return Err(error),
        };
        let sample = try_out(api, document);
        if let Some(report) = reports
            .iter_mut()
            .find(|report| report.name == name_of(api, &manifests.sources))
        {
            report.samples.push(sample);
        }
    }
    show::reports(&reports, arguments.output)?;
    Ok(ExitCode::from(u8::from(
        reports.iter().any(|report| report.findings() > 0),
    )))
}

fn name_of<'a>(api: &Api, sources: &'a [Source]) -> &'a str {
    let of_api = |source: &&Source| {
        source.schema.text("/spec/names/plural") == &*api.names.plural
            && source.schema.text("/spec/group") == &*api.group
    };
    sources.iter().find(of_api).map(Source::name).unwrap_or_default()
}

fn check(source: &Source, arguments: &Arguments) -> (Report, Option<Api>) {
    let mut report = Report {
        name: source.name().to_owned(),
        versions: String::new(),
        errors: Vec::new(),
        incompatible: Vec::new(),
        idle: Vec::new(),
        apart: Vec::new(),
        accepted: arguments.accept_incompatible,
        search: None,
        samples: Vec::new(),
    };
    let checked = source
        .manifest()
        .compile()
        .and_then(|api| Ok((api, source.manifest().rules()?)));
    let (api, rules) = match checked {
        Ok(checked) => checked,
        Err(errors) => {
            let errors = source.manifest().findings().unwrap_or(errors);
            report.errors = errors.iter().map(ToString::to_string).collect();
            return (report, None);
        }
    };
    report.versions = apis::versions(&api.bundle);
    report.incompatible = api.bundle.breaks().iter().map(ToString::to_string).collect();
    report.idle = api.bundle.idle_rules();
    report.apart = api.bundle.lists_apart().to_vec();
    // A definition without rules may lose fields; no law applies to it.
    let lawful = !source.manifest().is_definition() || rules.is_some();
    if lawful && arguments.cases != Some(0) {
        report.search = Some(search(&api.bundle, arguments));
    }
    (report, Some(api))
}

fn search(bundle: &Bundle, arguments: &Arguments) -> Searched {
    let mut how = Search {
        seed: arguments.seed,
        ..Search::default().of_every_pair(bundle)
    };
    if let Some(cases) = arguments.cases {
        how.cases = cases;
        how.work = u64::MAX;
    }
    match proof::search_all(bundle, how) {
        Ok(searched) => Searched {
            seed: how.seed,
            cases: searched.cases,
            writes: searched.writes,
            refused: searched.refused,
            counterexample: None,
            further: Vec::new(),
            unfitting: searched.misfits.into_iter().map(unfitting).collect(),
            refuses: bundle.validation() == Validation::Refuse,
        },
        Err(found) => {
            let cases = found.iter().map(|one| one.case + 1).max();
            let mut found = found.into_iter().map(shown);
            let first = found.next();
            Searched {
                seed: how.seed,
                cases: cases.unwrap_or_default(),
                writes: 0,
                refused: 0,
                counterexample: first,
                further: found.collect(),
                unfitting: Vec::new(),
                refuses: false,
            }
        }
    }
}

fn shown(found: Counterexample) -> Found {
    Found {
        finding: found.finding.to_string(),
        help: found.finding.help(),
        writes: found.script.into_iter().map(case_write).collect(),
        case: found.case,
    }
}

fn case_write(write: proof::Write) -> CaseWrite {
    CaseWrite {
        version: write.version,
        object: write.object,
    }
}

fn unfitting(misfit: Misfit) -> Unfitting {
    Unfitting {
        version: misfit.version,
        field: misfit.field,
        error: misfit.error,
        rule: misfit.rule.map(|(at, _)| at.to_string()),
        writes: misfit.script.into_iter().map(case_write).collect(),
    }
}

fn try_out(api: &Api, document: &Document) -> Sample {
    let version = apis::version_of(api, &document.value).unwrap_or_default();
    let mut sample = Sample {
        object: format!("{}/{}", api.names.plural, document.text("/metadata/name")),
        file: document.file.clone(),
        written_as: version.to_owned(),
        problems: Vec::new(),
        unfitting: Vec::new(),
        trips: Vec::new(),
    };
    let bundle = &api.bundle;
    let Some(schema) = bundle.schema(version) else {
        return sample;
    };
    let mut x = document.value.clone();
    let unknown = insula_schema::prune_report(&x, schema);
    sample
        .problems
        .extend(unknown.iter().map(|field| format!("unknown field {field}")));
    insula_schema::prune(&mut x, schema);
    insula_schema::default(&mut x, schema);
    let invalid = insula_schema::validate(&x, schema, &Meter::unbounded());
    sample.problems.extend(invalid.iter().map(ToString::to_string));
    if !invalid.is_empty() {
        return sample;
    }
    match bundle.put(&x, version, None, &mut unmetered_budget()) {
        Ok(after) => round_trips(bundle, &x, &after, &mut sample),
        Err(error) => sample.problems.push(format!("refused: {error}")),
    }
    sample
}

fn round_trips(bundle: &Bundle, x: &Value, after: &ToStore, sample: &mut Sample) {
    let version = sample.written_as.clone();
    let read = |stored: Stored<'_>, to: &str| bundle.get(stored, to, &mut unmetered_budget());
    let stored = after.stored(bundle.storage());
    let laws = laws::put_get(bundle, x, &version, after).and_then(|()| laws::get_put(bundle, after));
    sample
        .problems
        .extend(laws.err().map(|violation| violation.to_string()));
    let lost = match read(stored, &version) {
        Ok(back) => differences::paths(x, &back),
        Err(error) => return sample.problems.push(error.to_string()),
    };
    for other in bundle.served().filter(|other| *other != version) {
        let shown = match read(stored, other) {
            Ok(shown) => shown,
            Err(error) => {
                sample.problems.push(error.to_string());
                continue;
            }
        };
        let invalid = bundle
            .schema(other)
            .map(|schema| insula_schema::validate(&shown, schema, &Meter::unbounded()));
        let invalid = invalid.unwrap_or_default();
        let found = match bundle.validation() {
            Validation::Refuse => &mut sample.problems,
            Validation::Show => &mut sample.unfitting,
        };
        found.extend(
            invalid
                .iter()
                .map(|error| format!("as {other} it is not valid: {error}")),
        );
        let alone = bundle.convert(&shown, &version, &mut unmetered_budget());
        let missing = alone.map(|alone| differences::paths(x, &alone)).unwrap_or_default();
        sample.trips.push(Trip {
            read_as: other.to_owned(),
            kept: missing.into_iter().filter(|place| !lost.contains(place)).collect(),
            lost: lost.clone(),
        });
    }
}

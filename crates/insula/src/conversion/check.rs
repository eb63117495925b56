//! `insula conversion check`: the rules beside a converter that a project has already.

use insula_meter::Meter;
use std::{path::PathBuf, process::ExitCode};

use insula_catalog::Api;
use insula_conversion::{proof, unmetered_budget};
use insula_schema::Structural;
use serde::Serialize;
use serde_json::Value;

use super::{convert::api_of, differences};
use crate::{
    apis::{self, Input},
    files::Document,
    print::{Cell, Format, Printer, Table, Tone},
};

mod other;

use other::Other;

/// Maximum number of rounds in which an object is made smaller.
const ROUNDS_MAX: usize = 40;

/// Converts objects by the rules and by another converter, and compares the results. Objects are
/// generated from the schemas, and taken from the files.
#[derive(clap::Args)]
#[command(after_help = "\
The other converter gets a ConversionReview (apiextensions.k8s.io/v1) and answers with one: a command on its standard \
input and output, or a webhook by its URL.

Results are compared as a server would show them: without fields that the schema does not have, with its defaults. \
Empty objects, empty lists and null count as absent, and metadata counts only where a rule names it.

Exit codes:
  0  all objects agree
  1  some do not, or rules or schema are refused
  2  a file cannot be read, a flag is wrong, or the other converter gives no answer")]
pub(crate) struct Arguments {
    #[command(flatten)]
    input: Input,
    /// The other converter: a command for the shell, or a URL that begins with http:// or https://.
    #[arg(long, value_name = "COMMAND|URL")]
    against: String,
    /// Certificates to trust, as PEM; by default those of the system.
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// A file or folder of objects.
    #[arg(long, value_name = "FILE")]
    samples: Vec<PathBuf>,
    /// Objects to generate for each version.
    #[arg(long, value_name = "N", default_value_t = 100)]
    objects: u32,
    #[arg(
        help = "Seed of the generator: the same seed gives the same objects",
        long,
        value_name = "S",
        default_value_t = 2026
    )]
    seed: u64,
    /// Format of the output.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Comparison of one direction of an API.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Direction {
    name: String,
    from: String,
    to: String,
    objects: usize,
    agree: usize,
    /// The smallest object that was found on which the converters differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<Difference>,
}

#[derive(Serialize, Clone)]
struct Difference {
    object: Value,
    /// The first field that differs; empty if one of the two refuses the object.
    field: String,
    rules: String,
    other: String,
}

/// One direction, with what converts it.
struct Pair<'a> {
    api: &'a Api,
    to: &'a str,
    from_schema: &'a Structural,
    schema: &'a Structural,
    other: &'a Other,
}

type Converted = Result<Value, String>;

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut manifests = arguments.input.load()?;
    manifests.others.extend(
        crate::files::read_with(&arguments.samples, arguments.input.folders)?
            .into_iter()
            .filter(apis::is_sample),
    );
    let other = Other::new(&arguments.against, arguments.certificate_authority.as_deref())?;
    let mut compiled = Vec::new();
    for source in &manifests.sources {
        match source.manifest().compile() {
            Ok(api) => compiled.push((source.name().to_owned(), api)),
            Err(errors) => {
                errors
                    .iter()
                    .for_each(|error| eprintln!("error: {}: {error}", source.name()));
                return Ok(ExitCode::from(1));
            }
        }
    }
    let mut directions = Vec::new();
    for (name, api) in &compiled {
        let samples = of_api(api, &manifests.others);
        let served: Vec<&str> = api.bundle.served().collect();
        for from in &served {
            let Some(from_schema) = api.bundle.schema(from) else {
                continue;
            };
            let api_version = api_version_of(api, from);
            let kind = (&*api_version, &*api.names.kind);
            let mut objects = proof::objects(from_schema, kind, arguments.seed, arguments.objects);
            let own = samples.iter().filter(|object| object["apiVersion"] == *api_version);
            objects.extend(own.cloned());
            for to in served.iter().filter(|to| *to != from) {
                let Some(schema) = api.bundle.schema(to) else { continue };
                let pair = Pair {
                    api,
                    to,
                    from_schema,
                    schema,
                    other: &other,
                };
                let (agree, difference) = pair.compare(&objects)?;
                directions.push(Direction {
                    name: name.clone(),
                    from: (*from).to_owned(),
                    to: (*to).to_owned(),
                    objects: objects.len(),
                    agree,
                    difference,
                });
            }
        }
    }
    print(&directions, arguments.output)?;
    let differ = directions.iter().any(|direction| direction.agree < direction.objects);
    Ok(ExitCode::from(u8::from(differ)))
}

fn of_api(api: &Api, documents: &[Document]) -> Vec<Value> {
    let own = documents
        .iter()
        .filter(|document| api_of(std::slice::from_ref(api), document).is_ok());
    own.map(|document| document.value.clone()).collect()
}

/// Returns the `apiVersion` of objects of a version.
fn api_version_of(api: &Api, version: &str) -> String {
    match &*api.group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

impl Pair<'_> {
    /// Returns how many objects both convert alike, and the smallest one found that they do not.
    fn compare(&self, objects: &[Value]) -> anyhow::Result<(usize, Option<Difference>)> {
        let differences = self.differences(objects)?;
        let agree = differences.iter().filter(|difference| difference.is_none()).count();
        let smallest = differences.into_iter().flatten().min_by_key(size);
        let smallest = smallest.map(|difference| self.smaller(difference)).transpose()?;
        Ok((agree, smallest))
    }

    fn differences(&self, objects: &[Value]) -> anyhow::Result<Vec<Option<Difference>>> {
        let api_version = api_version_of(self.api, self.to);
        let theirs = self.other.convert(&api_version, objects)?;
        let pairs = objects.iter().zip(theirs);
        Ok(pairs.map(|(object, other)| self.difference(object, other)).collect())
    }

    fn difference(&self, object: &Value, other: Converted) -> Option<Difference> {
        let rules = self.api.bundle.convert(object, self.to, &mut unmetered_budget());
        let rules: Converted = rules.map_err(|error| error.to_string());
        let difference = |field: &str, rules: String, other: String| Difference {
            object: object.clone(),
            field: field.to_owned(),
            rules,
            other,
        };
        match (rules, other) {
            (Ok(rules), Ok(other)) => {
                let (rules, other) = (self.shown(object, rules), self.shown(object, other));
                let first = differences::values(&rules, &other).into_iter().next()?;
                let text = |value: Option<&Value>| value.map_or("absent".to_owned(), Value::to_string);
                Some(difference(&first.path, text(first.a), text(first.b)))
            }
            (Ok(_), Err(why)) => Some(difference("", "converts it".to_owned(), format!("refuses it: {why}"))),
            (Err(why), Ok(_)) => Some(difference("", format!("refuses it: {why}"), "converts it".to_owned())),
            (Err(_), Err(_)) => None,
        }
    }

    /// Returns a result as a server shows it, with the metadata of its source but for what rules
    /// name, and without empty values.
    fn shown(&self, source: &Value, mut converted: Value) -> Value {
        insula_schema::prune(&mut converted, self.schema);
        insula_schema::default(&mut converted, self.schema);
        self.api.bundle.keep_metadata(source, &mut converted);
        without_empty(&mut converted);
        converted
    }

    /// Removes fields and items of an object as long as the converters still differ on it.
    fn smaller(&self, mut found: Difference) -> anyhow::Result<Difference> {
        for _ in 0..ROUNDS_MAX {
            let mut candidates = Vec::new();
            parts(&found.object, &mut Vec::new(), &mut candidates);
            let smaller = candidates.iter().map(|part| without(&found.object, part));
            let smaller: Vec<Value> = smaller
                .filter(|object| insula_schema::validate(object, self.from_schema, &Meter::unbounded()).is_empty())
                .collect();
            let differing = self.differences(&smaller)?.into_iter().flatten();
            // The same fault, and not another one: a refusal stays a refusal.
            let alike = differing.filter(|other| other.field.is_empty() == found.field.is_empty());
            match alike.min_by_key(size) {
                Some(smaller) => found = smaller,
                None => break,
            }
        }
        Ok(found)
    }
}

fn size(difference: &Difference) -> usize {
    difference.object.to_string().len()
}

/// Collects the pointers (RFC 6901) to all fields and items that may be left out.
fn parts(value: &Value, at: &mut Vec<String>, out: &mut Vec<Vec<String>>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(i, item)| (i.to_string(), item))
            .collect(),
        _ => return,
    };
    for (name, value) in inner {
        if at.is_empty() && matches!(name.as_str(), "apiVersion" | "kind") || at == &["metadata"] && name == "name" {
            continue;
        }
        at.push(name);
        out.push(at.clone());
        parts(value, at, out);
        at.pop();
    }
}

fn without(object: &Value, part: &[String]) -> Value {
    let mut object = object.clone();
    let mut here = Some(&mut object);
    if let Some((last, above)) = part.split_last() {
        for step in above {
            here = here.and_then(|value| match value {
                Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
                other => other.get_mut(step),
            });
        }
        match here {
            Some(Value::Object(map)) => drop(map.remove(last)),
            Some(Value::Array(items)) => drop(last.parse().ok().map(|index: usize| items.remove(index))),
            _ => {}
        }
    }
    object
}

fn without_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(without_empty);
            map.retain(|_, value| match value {
                Value::Null => false,
                Value::Object(map) => !map.is_empty(),
                Value::Array(items) => !items.is_empty(),
                _ => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(without_empty),
        _ => {}
    }
}

fn print(directions: &[Direction], format: Format) -> anyhow::Result<()> {
    let mut printer = Printer::stdout();
    if !printer.document(format, &directions)? {
        let mut table = Table::new(&["NAME", "FROM", "TO", "OBJECTS", "AGREE", "SHARE"]);
        for direction in directions {
            let tone = if direction.agree == direction.objects {
                Tone::Good
            } else {
                Tone::Bad
            };
            table.row(vec![
                direction.name.as_str().into(),
                direction.from.as_str().into(),
                direction.to.as_str().into(),
                direction.objects.to_string().into(),
                direction.agree.to_string().into(),
                Cell::new(tone, share(direction)),
            ]);
        }
        printer.table(&table)?;
        for direction in directions {
            let Some(found) = &direction.difference else { continue };
            printer.text("")?;
            printer.text(&format!(
                "{} → {} {}",
                direction.from,
                direction.to,
                if found.field.is_empty() { "differ" } else { &found.field }
            ))?;
            printer.text(&format!("  object  {}", found.object))?;
            printer.text(&format!("  rules   {}", found.rules))?;
            printer.text(&format!("  other   {}", found.other))?;
        }
    }
    printer.flush()?;
    Ok(())
}

/// Returns the share of objects that agree, in percent; rounded down, so that 100 % are all.
fn share(direction: &Direction) -> String {
    match direction.agree * 1000 / direction.objects.max(1) {
        1000 => "100 %".to_owned(),
        tenths => format!("{}.{} %", tenths / 10, tenths % 10),
    }
}

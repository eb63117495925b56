//! A comparison of our kinds with kcp's: fields, types, limits, rules, defaults and columns.
//! `data/kcp_kinds.txt` lists each line, and each difference with its reason.

use serde_json::Value as Json;
use std::{collections::BTreeSet, path::Path};

const TABLE: &str = include_str!("data/kcp_kinds.txt");

/// All lines, each prefixed with its kind and version; an indented line also has its field.
type Lines = BTreeSet<String>;

/// The attributes of a field that have a line of their own, in the order of the table.
const SHORT: &[&str] = &[
    "format",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
];

/// The expected lines of the table: those that kcp and our kinds share, and those of our kinds
/// alone.
struct Table {
    lines: Lines,
    /// Fields whose whole subtree is our own.
    whole: Vec<String>,
    absent: Vec<&'static str>,
}

impl Table {
    fn read() -> Table {
        let mut table = Table {
            lines: Lines::new(),
            whole: Vec::new(),
            absent: Vec::new(),
        };
        let (mut kind, mut version, mut field) = ("", "", "");
        for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let line = match (line.strip_prefix("- "), line.strip_prefix("+ ")) {
                (Some(_), _) => continue,
                (None, ours) => ours.unwrap_or(line),
            };
            if let Some(name) = line.strip_prefix("absent ") {
                table.absent.push(name);
                continue;
            }
            let first = line.split(' ').next().unwrap_or(line);
            match first {
                "=" => (kind, version, field) = (line.split(' ').nth(1).unwrap_or_default(), "-", ""),
                "==" => (version, field) = (line.split(' ').nth(1).unwrap_or_default(), ""),
                "" => {}
                _ => field = first,
            }
            match (line.strip_suffix(" ..."), line.strip_prefix("  ")) {
                (Some(path), _) => table.whole.push(format!("{kind} {version} {path}")),
                (None, Some(detail)) => drop(table.lines.insert(format!("{kind} {version} {field} | {detail}"))),
                (None, None) => drop(table.lines.insert(format!("{kind} {version} {line}"))),
            }
        }
        table
    }

    fn is_whole(&self, line: &str) -> bool {
        let below = |path: &String| {
            line.strip_prefix(path.as_str())
                .is_some_and(|rest| rest.starts_with([' ', '.', '[']))
        };
        self.whole.iter().any(below)
    }
}

/// A definition in the notation of the table.
struct Told {
    at: String,
    lines: Lines,
}

impl Told {
    fn definition(definition: &Json) -> (String, Lines) {
        let (spec, names) = (&definition["spec"], &definition["spec"]["names"]);
        let kind = format!("{}.{}", text(&names["kind"]), text(&spec["group"]));
        let mut told = Told {
            at: format!("{kind} - "),
            lines: Lines::new(),
        };
        let [plural, singular, list] = ["plural", "singular", "listKind"].map(|name| text(&names[name]));
        let [short, categories] = ["shortNames", "categories"].map(|name| joined(&names[name], ","));
        told.say(format!(
            "= {kind} {} {plural} {singular} {list} shortNames={short} categories={categories}",
            text(&spec["scope"])
        ));
        for version in items(&spec["versions"]) {
            told.at = format!("{kind} {} ", text(&version["name"]));
            told.version(version);
        }
        (kind, told.lines)
    }

    fn say(&mut self, line: String) {
        self.lines.insert(format!("{}{line}", self.at));
    }

    fn version(&mut self, version: &Json) {
        let flag = |name: &str, word: &'static str| if version[name] == true { word } else { "" };
        let subresources: String = keys(&version["subresources"]).map(|name| format!(" {name}")).collect();
        let (served, stored) = (flag("served", " served"), flag("storage", " stored"));
        self.say(format!("== {}{served}{stored}{subresources}", text(&version["name"])));
        for column in items(&version["additionalPrinterColumns"]) {
            self.say(format!(
                "column {} {}",
                text(&column["name"]),
                text(&column["jsonPath"])
            ));
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        if schema["required"].is_array() {
            self.say(format!("root required={}", joined(&schema["required"], ",")));
        }
        let name = &schema["properties"]["metadata"]["properties"]["name"];
        if name.is_object() {
            self.say(format!("name {name}"));
        }
        for field in ["spec", "status"]
            .into_iter()
            .filter(|name| schema["properties"][*name].is_object())
        {
            self.field(field.to_owned(), &schema["properties"][field], requires(schema, field));
        }
    }

    fn field(&mut self, path: String, schema: &Json, required: bool) {
        let mut line = format!("{path} {}", kind_of(schema));
        if required {
            line += " required";
        }
        if schema["enum"].is_array() {
            line += &format!(" enum={}", joined(&schema["enum"], "|"));
        }
        for name in SHORT.iter().filter(|name| !schema[**name].is_null()) {
            line += &format!(" {name}={}", bare(&schema[*name]));
        }
        line += &match (
            text(&schema["x-kubernetes-list-type"]),
            &schema["x-kubernetes-list-map-keys"],
        ) {
            ("", _) => String::new(),
            (list, Json::Null) => format!(" listType={list}"),
            (list, keys) => format!(" listType={list}({})", joined(keys, ",")),
        };
        if let Json::String(map) = &schema["x-kubernetes-map-type"] {
            line += &format!(" mapType={map}");
        }
        if schema["x-kubernetes-preserve-unknown-fields"] == true {
            line += " preserveUnknown";
        }
        self.say(line);
        for name in ["default", "oneOf"].into_iter().filter(|name| !schema[*name].is_null()) {
            self.say(format!("{path} | {name} {}", schema[name]));
        }
        if let Json::String(pattern) = &schema["pattern"] {
            self.say(format!("{path} | pattern {pattern}"));
        }
        self.rules(&path, "", schema);
        for name in ["pattern", "minLength", "maxLength"] {
            if !schema["items"][name].is_null() {
                self.say(format!("{path} | item {name} {}", bare(&schema["items"][name])));
            }
        }
        self.rules(&path, "item ", &schema["items"]);
        self.below(path, schema);
    }

    fn rules(&mut self, path: &str, of: &str, schema: &Json) {
        for rule in items(&schema["x-kubernetes-validations"]) {
            self.say(format!(
                "{path} | {of}rule {} => {}",
                text(&rule["rule"]),
                text(&rule["message"])
            ));
        }
    }

    fn below(&mut self, mut path: String, mut schema: &Json) {
        while schema["type"] == "array" {
            schema = &schema["items"];
            path += "[]";
        }
        for name in keys(&schema["properties"]) {
            self.field(
                format!("{path}.{name}"),
                &schema["properties"][name],
                requires(schema, name),
            );
        }
    }
}

fn kind_of(schema: &Json) -> String {
    match (text(&schema["type"]), &schema["additionalProperties"]) {
        ("array", _) => format!("[]{}", kind_of(&schema["items"])),
        ("object", Json::Object(_)) => match text(&schema["additionalProperties"]["type"]) {
            "" => "map[string]any".into(),
            of => format!("map[string]{of}"),
        },
        ("", _) => "any".into(),
        (of, _) => of.to_owned(),
    }
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}

fn bare(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn items(value: &Json) -> impl Iterator<Item = &Json> {
    value.as_array().into_iter().flatten()
}

fn keys(value: &Json) -> impl Iterator<Item = &str> {
    value.as_object().into_iter().flatten().map(|(name, _)| name.as_str())
}

fn joined(values: &Json, by: &str) -> String {
    match items(values).map(text).collect::<Vec<_>>() {
        none if none.is_empty() => "-".into(),
        some => some.join(by),
    }
}

fn requires(schema: &Json, name: &str) -> bool {
    items(&schema["required"]).any(|required| required == name)
}

#[test]
fn kinds_of_kcp_are_what_its_clients_know() {
    let table = Table::read();
    let mut found = Lines::new();
    let mut kinds = Vec::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/crds");
    for file in std::fs::read_dir(folder).expect("the definitions are there") {
        let path = file.expect("an entry").path();
        let definition = std::fs::read_to_string(&path).expect("a definition");
        let definition: Json = serde_saphyr::from_str(&definition).expect("valid YAML");
        if text(&definition["spec"]["group"]).ends_with("kcp.io") {
            let (kind, lines) = Told::definition(&definition);
            kinds.push(kind);
            found.extend(lines);
        }
    }
    let missing: Vec<_> = table.lines.difference(&found).map(|line| format!("- {line}")).collect();
    let more = found.difference(&table.lines).filter(|line| !table.is_whole(line));
    let wrong: Vec<_> = missing
        .into_iter()
        .chain(more.map(|line| format!("+ {line}")))
        .collect();
    assert!(
        wrong.is_empty(),
        "tests/data/kcp_kinds.txt against config/crds:\n{}",
        wrong.join("\n")
    );
    let not_absent: Vec<_> = table
        .absent
        .iter()
        .filter(|absent| kinds.iter().any(|kind| kind == *absent))
        .collect();
    assert!(not_absent.is_empty(), "kinds that are there now: {not_absent:?}");
}

//! buf's breaking rules of the category FILE, which imply those of WIRE_JSON, against the recorded
//! API in `recorded.txt`.
//!
//! The record is a tree of lines `kind identity attribute=value …`, parts indented below their
//! owner. An element that is gone, or an attribute with another value, breaks a rule. An addition
//! breaks none, and joins the record with `cargo xtask proto`.

use std::{env, fs, path::Path};

use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, field_descriptor_proto::Label,
};

use crate::{OURS, compile, files};

/// Lines above the recorded tree.
const HEAD: &str = "# The elements of the admin API that clients rely on. `cargo xtask proto` adds new ones.\n";

/// An element with what clients rely on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Item {
    kind: String,
    /// Identity among its siblings of one kind: a name, or the number of a field or value.
    id: String,
    attributes: Vec<(String, String)>,
    parts: Vec<Item>,
}

impl Item {
    fn new(kind: &str, id: impl ToString, attributes: &[(&str, String)]) -> Self {
        let attribute = |(name, value): &(&str, String)| ((*name).to_owned(), value.clone());
        Self {
            kind: kind.to_owned(),
            id: id.to_string(),
            attributes: attributes.iter().map(attribute).collect(),
            parts: Vec::new(),
        }
    }

    fn print(&self, depth: usize, out: &mut String) {
        *out += &format!("{:width$}{} {}", "", self.kind, self.id, width = depth * 2);
        for (name, value) in &self.attributes {
            *out += &format!(" {name}={value}");
        }
        out.push('\n');
        for part in &self.parts {
            part.print(depth + 1, out);
        }
    }

    fn parse(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let mut next = || words.next().unwrap_or_default().to_owned();
        let (kind, id) = (next(), next());
        let attribute = |word: &str| {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            (name.to_owned(), value.to_owned())
        };
        Self {
            kind,
            id,
            attributes: words.map(attribute).collect(),
            parts: Vec::new(),
        }
    }
}

fn print(items: &[Item]) -> String {
    let mut out = HEAD.to_owned();
    for item in items {
        item.print(0, &mut out);
    }
    out
}

fn parse(text: &str) -> Vec<Item> {
    let lines: Vec<(usize, &str)> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| ((line.len() - line.trim_start().len()) / 2, line.trim()))
        .collect();
    siblings(&lines, 0)
}

/// Parses the lines of one depth, each with the deeper lines after it.
fn siblings(lines: &[(usize, &str)], depth: usize) -> Vec<Item> {
    let mut items = Vec::new();
    let mut rest = lines;
    while let Some(((_, line), after)) = rest.split_first() {
        let end = after.iter().position(|(at, _)| *at <= depth).unwrap_or(after.len());
        let (parts, others) = after.split_at(end);
        let mut item = Item::parse(line);
        item.parts = siblings(parts, depth + 1);
        items.push(item);
        rest = others;
    }
    items
}

/// Returns the elements of our files, in the order of their identity.
fn describe(files: &[FileDescriptorProto]) -> Vec<Item> {
    let ours = files.iter().filter(|file| file.package().starts_with(OURS));
    let mut items: Vec<Item> = ours.map(file_item).collect();
    items.sort_by(|a, b| a.id.cmp(&b.id));
    items
}

fn file_item(file: &FileDescriptorProto) -> Item {
    let package = file.package();
    let mut item = Item::new("file", file.name(), &[("package", package.to_owned())]);
    for service in &file.service {
        let mut of_service = Item::new("service", service.name(), &[]);
        of_service.parts = service
            .method
            .iter()
            .map(|rpc| {
                let mut attributes = vec![
                    ("request", short(rpc.input_type(), package)),
                    ("response", short(rpc.output_type(), package)),
                ];
                let streams = [("client", rpc.client_streaming()), ("server", rpc.server_streaming())];
                attributes.extend(
                    streams
                        .into_iter()
                        .map(|(side, on)| (side, on.then(|| "stream".to_owned())))
                        .filter_map(|(side, stream)| stream.map(|stream| (side, stream))),
                );
                Item::new("rpc", rpc.name(), &attributes)
            })
            .collect();
        item.parts.push(of_service);
    }
    item.parts
        .extend(file.message_type.iter().map(|message| message_item(message, package)));
    item.parts.extend(file.enum_type.iter().map(enum_item));
    item
}

fn message_item(message: &DescriptorProto, package: &str) -> Item {
    let mut item = Item::new("message", message.name(), &[]);
    let fields = message.field.iter().map(|field| field_item(field, message, package));
    item.parts.extend(fields);
    for range in &message.reserved_range {
        let numbers = range.start()..range.end();
        item.parts
            .extend(numbers.map(|number| Item::new("reserved", number, &[])));
    }
    let names = message.reserved_name.iter();
    item.parts.extend(names.map(|name| Item::new("reserved", name, &[])));
    let nested = message.nested_type.iter();
    item.parts.extend(
        nested
            .filter(|nested| !nested.options.as_ref().is_some_and(|options| options.map_entry()))
            .map(|nested| message_item(nested, package)),
    );
    item.parts.extend(message.enum_type.iter().map(enum_item));
    item
}

fn field_item(field: &FieldDescriptorProto, message: &DescriptorProto, package: &str) -> Item {
    let type_of = |field: &FieldDescriptorProto| match field.type_name() {
        "" => format!("{:?}", field.r#type()).to_lowercase(),
        named => short(named, package),
    };
    let entry = message.nested_type.iter().find(|nested| {
        let is_map = nested.options.as_ref().is_some_and(|options| options.map_entry());
        is_map
            && field
                .type_name()
                .ends_with(&format!(".{}.{}", message.name(), nested.name()))
    });
    let spelled = match entry {
        Some(entry) => format!("map<{}>", entry.field.iter().map(type_of).collect::<Vec<_>>().join(",")),
        None => type_of(field),
    };
    let mut attributes = vec![("name", field.name().to_owned()), ("type", spelled)];
    if field.label() == Label::Repeated && entry.is_none() {
        attributes.push(("label", "repeated".to_owned()));
    } else if field.proto3_optional() {
        attributes.push(("label", "optional".to_owned()));
    } else if let Some(index) = field.oneof_index {
        let oneof = usize::try_from(index)
            .ok()
            .and_then(|index| message.oneof_decl.get(index));
        attributes.extend(oneof.map(|oneof| ("oneof", oneof.name().to_owned())));
    }
    if field.json_name() != camel(field.name()) {
        attributes.push(("json", field.json_name().to_owned()));
    }
    Item::new("field", field.number(), &attributes)
}

fn enum_item(choice: &EnumDescriptorProto) -> Item {
    let mut item = Item::new("enum", choice.name(), &[]);
    let values = choice.value.iter();
    item.parts
        .extend(values.map(|value| Item::new("value", value.number(), &[("name", value.name().to_owned())])));
    for range in &choice.reserved_range {
        let numbers = range.start()..=range.end();
        item.parts
            .extend(numbers.map(|number| Item::new("reserved", number, &[])));
    }
    let names = choice.reserved_name.iter();
    item.parts.extend(names.map(|name| Item::new("reserved", name, &[])));
    item
}

/// Returns a type's name without the package of the file.
fn short(name: &str, package: &str) -> String {
    let full = name.trim_start_matches('.');
    let own = full.strip_prefix(package).and_then(|rest| rest.strip_prefix('.'));
    own.unwrap_or(full).to_owned()
}

/// Returns the JSON name that a field has without an option.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |out, word| {
        let mut letters = word.chars();
        let initial = letters.next().map(|letter| letter.to_ascii_uppercase());
        out + &initial.into_iter().chain(letters).collect::<String>()
    })
}

/// Returns one line for each recorded element that is gone or differs: rule, element and fix.
fn breaks(recorded: &[Item], now: &[Item], owner: &str) -> Vec<String> {
    let mut found = Vec::new();
    for old in recorded {
        let element = format!("{owner}{} {}", old.kind, old.id);
        let new = now.iter().find(|new| new.kind == old.kind && new.id == old.id);
        let Some(new) = new else {
            let rule = match old.kind.as_str() {
                "value" => "ENUM_VALUE_NO_DELETE".to_owned(),
                "reserved" if owner.contains("enum ") => "RESERVED_ENUM_NO_DELETE".to_owned(),
                "reserved" => "RESERVED_MESSAGE_NO_DELETE".to_owned(),
                kind => format!("{}_NO_DELETE", kind.to_uppercase()),
            };
            found.push(format!(
                "{rule}: {element} is gone: restore it, and mark it deprecated if it has a successor"
            ));
            continue;
        };
        let names = old.attributes.iter().chain(&new.attributes).map(|(name, _)| name);
        let mut seen = Vec::new();
        for name in names {
            let value = |item: &Item| {
                let found = item.attributes.iter().find(|(of_item, _)| of_item == name);
                found.map_or("none".to_owned(), |(_, value)| value.clone())
            };
            let (was, is) = (value(old), value(new));
            if was != is && !seen.contains(&name) {
                seen.push(name);
                let rule = rule_of(&old.kind, name);
                found.push(format!(
                    "{rule}: {element}: {name} was {was} and is {is}: restore it, and add a new {} beside it",
                    old.kind
                ));
            }
        }
        found.extend(breaks(&old.parts, &new.parts, &format!("{element}, ")));
    }
    found
}

fn rule_of(kind: &str, attribute: &str) -> &'static str {
    match (kind, attribute) {
        ("file", _) => "FILE_SAME_PACKAGE",
        ("rpc", "request") => "RPC_SAME_REQUEST_TYPE",
        ("rpc", "response") => "RPC_SAME_RESPONSE_TYPE",
        ("rpc", "client") => "RPC_SAME_CLIENT_STREAMING",
        ("rpc", _) => "RPC_SAME_SERVER_STREAMING",
        ("value", _) => "ENUM_VALUE_SAME_NAME",
        ("field", "name") => "FIELD_SAME_NAME",
        ("field", "type") => "FIELD_SAME_TYPE",
        ("field", "label") => "FIELD_SAME_CARDINALITY",
        ("field", "oneof") => "FIELD_SAME_ONEOF",
        _ => "FIELD_SAME_JSON_NAME",
    }
}

#[test]
fn the_recorded_api_is_kept() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/admin_api/recorded.txt");
    let recorded = fs::read_to_string(&path).unwrap_or_default();
    let now = describe(&files());
    let found = breaks(&parse(&recorded), &now, "");
    assert!(found.is_empty(), "{}:\n{}", path.display(), found.join("\n"));
    let printed = print(&now);
    if env::var_os("UPDATE_EXPECT").is_some() {
        return fs::write(&path, printed).expect("the record can be written");
    }
    assert!(
        printed == recorded,
        "{} lacks the additions: run `cargo xtask proto`",
        path.display()
    );
}

#[test]
fn the_record_survives_printing() {
    let now = describe(&files());
    assert_eq!(parse(&print(&now)), now);
}

#[test]
fn each_rule_finds_its_example() {
    let before = "message A { int32 x = 1; string y_z = 2; reserved 7; reserved \"old\"; oneof o { int32 p = 3; } }
        enum E { E_UNSPECIFIED = 0; E_ONE = 1; reserved 5; }
        service S { rpc Get(A) returns (A); } message B {}";
    let whole = describe(&compile(before));
    assert_eq!(breaks(&whole, &whole, ""), Vec::<String>::new());
    let edits = [
        ("message B {}", "", "MESSAGE_NO_DELETE"),
        ("int32 x = 1;", "", "FIELD_NO_DELETE"),
        ("int32 x = 1;", "int32 w = 1;", "FIELD_SAME_NAME"),
        ("int32 x = 1;", "int64 x = 1;", "FIELD_SAME_TYPE"),
        ("int32 x = 1;", "repeated int32 x = 1;", "FIELD_SAME_CARDINALITY"),
        ("int32 x = 1;", "optional int32 x = 1;", "FIELD_SAME_CARDINALITY"),
        ("y_z = 2", "y_z = 2 [json_name = \"yz\"]", "FIELD_SAME_JSON_NAME"),
        ("oneof o {", "oneof q {", "FIELD_SAME_ONEOF"),
        ("reserved 7;", "", "RESERVED_MESSAGE_NO_DELETE"),
        ("reserved \"old\";", "", "RESERVED_MESSAGE_NO_DELETE"),
        ("E_ONE = 1;", "", "ENUM_VALUE_NO_DELETE"),
        ("E_ONE", "E_UNO", "ENUM_VALUE_SAME_NAME"),
        ("reserved 5;", "", "RESERVED_ENUM_NO_DELETE"),
        ("rpc Get(A) returns (A);", "", "RPC_NO_DELETE"),
        ("Get(A)", "Get(B)", "RPC_SAME_REQUEST_TYPE"),
        ("returns (A)", "returns (B)", "RPC_SAME_RESPONSE_TYPE"),
        ("Get(A)", "Get(stream A)", "RPC_SAME_CLIENT_STREAMING"),
        ("returns (A)", "returns (stream A)", "RPC_SAME_SERVER_STREAMING"),
        ("service S { rpc Get(A) returns (A); }", "", "SERVICE_NO_DELETE"),
    ];
    for (from, to, rule) in edits {
        let found = breaks(&whole, &describe(&compile(&before.replacen(from, to, 1))), "");
        let rules: Vec<&str> = found.iter().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(rules, [rule], "{from} -> {to}: {found:?}");
    }
    // Additions break nothing.
    let more = before.replace("int32 x = 1;", "int32 x = 1; int32 n = 9;") + " message C {} service T {}";
    assert_eq!(breaks(&whole, &describe(&compile(&more)), ""), Vec::<String>::new());
}

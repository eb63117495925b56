//! Columns of tables, and their cells.

use super::{
    event,
    format::{age, definition, human_duration},
};
use insula_api::{Json, Timestamp};
use insula_catalog::Column;
use serde_json::{Map, json};

const NAME_TEXT: &str = "Name must be unique within a namespace. Is required when creating resources, although some \
    resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended \
    for creation idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const CREATED_TEXT: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It \
    is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is \
    represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The column of the name.
pub(super) const NAME: Cell<'_> = Cell::Name { priority: 0 };

/// A column.
#[derive(Debug)]
pub(super) enum Cell<'a> {
    /// The name; the first but for one kind.
    Name { priority: i64 },
    /// A part of an event, of either API group.
    Event(event::Part),
    /// A column of a definition.
    Column(&'a Column),
    /// Time since creation; the type differs between built-ins (`string`) and custom resources
    /// (`date`).
    Age { kind: &'static str },
    /// Time of creation.
    Created,
    /// Text at a pointer.
    Text {
        name: &'static str,
        pointer: &'static str,
        text: &'static str,
    },
    /// A number at a pointer; zero if it is absent, since a Scale leaves out zero.
    Number {
        name: &'static str,
        pointer: &'static str,
        text: &'static str,
    },
    /// The role of a binding, with its kind.
    Role { text: &'static str },
    /// The subjects of one kind of a binding; a column of the wide table.
    Subjects {
        name: &'static str,
        kind: &'static str,
        text: &'static str,
    },
    /// The number of items of a list.
    Items {
        name: &'static str,
        field: &'static str,
        text: &'static str,
    },
    /// The requested lifetime of a certificate.
    RequestedDuration,
    /// The state of a CertificateSigningRequest.
    Verdict,
    /// The limits of a quota with their usage: `limits.…`, or all others.
    Quota {
        name: &'static str,
        limits: bool,
        text: &'static str,
    },
    /// The number of entries of some maps.
    Count {
        name: &'static str,
        fields: &'static [&'static str],
        text: &'static str,
    },
}

fn subjects(binding: &Json, kind: &str) -> String {
    let all = binding["subjects"].as_array().into_iter().flatten();
    let of_kind = all.filter(|subject| subject["kind"] == kind).map(|subject| {
        let text = |field: &str| subject[field].as_str().unwrap_or_default();
        match kind {
            "ServiceAccount" => format!("{}/{}", text("namespace"), text("name")),
            _ => text("name").to_owned(),
        }
    });
    of_kind.collect::<Vec<_>>().join(", ")
}

fn verdict(request: &Json) -> String {
    let status = &request["status"];
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let is = |kind: &str| conditions.iter().any(|condition| condition["type"] == kind);
    let verdict = match (is("Denied"), is("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    };
    let failed = if is("Failed") { ",Failed" } else { "" };
    let issued = status["certificate"].as_str().is_some_and(|bytes| !bytes.is_empty());
    format!("{verdict}{failed}{}", if issued { ",Issued" } else { "" })
}

fn quota(quota: &Json, limits: bool) -> String {
    let status = &quota["status"];
    let hard = status["hard"].as_object().into_iter().flatten();
    let shown = hard.filter(|(name, _)| name.starts_with("limits.") == limits);
    let pairs = shown.map(|(name, hard)| {
        let used = status["used"][name].as_str().unwrap_or("0");
        format!("{name}: {used}/{}", hard.as_str().unwrap_or_default())
    });
    pairs.collect::<Vec<_>>().join(", ")
}

impl Cell<'_> {
    /// Returns the column's entry of `columnDefinitions`.
    pub(super) fn definition(&self) -> Json {
        match self {
            Cell::Name { priority } => definition("Name", "string", "name", NAME_TEXT, *priority),
            Cell::Event(part) => part.definition(),
            Cell::Column(column) => {
                let given = column.description.as_str();
                let path = format!(
                    "Custom resource definition column (in JSONPath format): {}",
                    column.json_path
                );
                let text = if given.is_empty() { &path } else { given };
                definition(&column.name, &column.kind, &column.format, text, column.priority)
            }
            Cell::Age { kind } => definition("Age", kind, "", CREATED_TEXT, 0),
            Cell::Created => definition("Created At", "date", "", CREATED_TEXT, 0),
            Cell::Number { name, text, .. } | Cell::Items { name, text, .. } => {
                definition(name, "integer", "", text, 0)
            }
            Cell::RequestedDuration => {
                let text = "How long the certificate should be valid.";
                definition("RequestedDuration", "string", "", text, 0)
            }
            Cell::Verdict => definition("Condition", "string", "", "What became of it.", 0),
            Cell::Role { text } => definition("Role", "string", "", text, 0),
            Cell::Subjects { name, text, .. } => definition(name, "string", "", text, 1),
            Cell::Text { name, text, .. } | Cell::Count { name, text, .. } | Cell::Quota { name, text, .. } => {
                definition(name, "string", "", text, 0)
            }
        }
    }

    /// Returns the cell of an object.
    pub(super) fn value(&self, object: &Json, now: Timestamp) -> Json {
        let created = object["metadata"]["creationTimestamp"].as_str();
        match self {
            Cell::Name { .. } => object["metadata"]["name"].clone(),
            Cell::Event(part) => part.value(object, now),
            Cell::Column(column) => column_value(column, object, now),
            Cell::Age { .. } => json!(created.map_or_else(|| "<unknown>".to_owned(), |text| age(text, now))),
            Cell::Created => json!(created),
            Cell::Text { pointer, .. } => json!(object.pointer(pointer).and_then(Json::as_str).unwrap_or_default()),
            Cell::Number { pointer, .. } => json!(object.pointer(pointer).and_then(Json::as_i64).unwrap_or_default()),
            Cell::Items { field, .. } => json!(object[field].as_array().map_or(0, Vec::len)),
            Cell::Role { .. } => {
                let text = |field: &str| object["roleRef"][field].as_str().unwrap_or_default();
                json!(format!("{}/{}", text("kind"), text("name")))
            }
            Cell::Subjects { kind, .. } => json!(subjects(object, kind)),
            Cell::RequestedDuration => {
                let seconds = object["spec"]["expirationSeconds"].as_i64();
                json!(seconds.map_or_else(|| "<none>".to_owned(), human_duration))
            }
            Cell::Verdict => json!(verdict(object)),
            Cell::Quota { limits, .. } => json!(quota(object, *limits)),
            Cell::Count { fields, .. } => {
                let maps = fields.iter().filter_map(|field| object[field].as_object());
                json!(maps.map(Map::len).sum::<usize>())
            }
        }
    }
}

/// Returns the cell of a definition's column; null for a value that is absent or of another type.
fn column_value(column: &Column, object: &Json, now: Timestamp) -> Json {
    let Some(value) = column.path.first(object) else {
        return Json::Null;
    };
    match (column.kind.as_str(), value) {
        ("string", Json::String(text)) => json!(text),
        ("string", Json::Null) => json!("<no value>"),
        ("string", other) => json!(other.to_string()),
        ("integer", Json::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => json!(whole),
            (None, float) => json!(float.map(|float| float as i64)),
        },
        ("number", Json::Number(_)) | ("boolean", Json::Bool(_)) => value.clone(),
        ("date", Json::String(text)) => json!(age(text, now)),
        _ => Json::Null,
    }
}

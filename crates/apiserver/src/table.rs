//! Tables (`Table`) and metadata-only objects (`PartialObjectMetadata`).
//!
//! A [`Layout`] has the columns of a resource; a row is made of one object, so that a list and each
//! event of a watch take the same path. Metadata-only forms read `metadata` alone and never need a
//! conversion.

mod event;

use crate::{
    negotiate::MetaVersion,
    status::{self, StatusReply},
};
use insula_api::{Json, Timestamp};
use insula_registry::{ApiVersion, Column, Served};
use serde_json::{Map, json};

const NAME_TEXT: &str = "Name must be unique within a namespace. Is required when creating resources, although some \
    resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended \
    for creation idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const CREATED_TEXT: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It \
    is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is \
    represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const CONFIG_DATA_TEXT: &str = "Data contains the configuration data. Each key must consist of alphanumeric characters, '-', \
    '_' or '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The keys stored in Data must not overlap \
    with the keys in the BinaryData field, this is enforced during validation process.";
const HOLDER_TEXT: &str = "holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader \
    Election is used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field.";
const ROLE_REF_TEXT: &str = "RoleRef can reference a Role in the current namespace or a ClusterRole in the global \
    namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.";
const CLUSTER_ROLE_REF_TEXT: &str = "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot \
    be resolved, the Authorizer must return an error.";
const SECRET_TYPE_TEXT: &str = "Used to facilitate programmatic handling of secret data. More info: \
    https://kubernetes.io/docs/concepts/configuration/secret/#secret-types";
const SECRET_DATA_TEXT: &str = "Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' or \
    '.'. The serialized form of the secret data is a base64 encoded string, representing the arbitrary (possibly non-string) \
    data value here. Described in https://tools.ietf.org/html/rfc4648#section-4";

const NAME: Cell<'_> = Cell::Name { priority: 0 };

/// The `object` of each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The object's metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Reads the `includeObject` parameter.
    ///
    /// # Errors
    /// 400 for unknown values.
    pub fn parse(query: Option<&str>) -> Result<Self, StatusReply> {
        match query.unwrap_or_default() {
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            "Object" => Ok(IncludeObject::Object),
            "None" => Ok(IncludeObject::None),
            other => Err(status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            ))),
        }
    }
}

/// The columns of a resource in a version.
#[derive(Debug)]
pub struct Layout<'a> {
    cells: Vec<Cell<'a>>,
    /// True if `rows` of an empty table is null, as for resources without a printer of their own.
    null_when_empty: bool,
}

#[derive(Debug)]
enum Cell<'a> {
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

impl<'a> Layout<'a> {
    /// Returns the layout of a resource: that of a built-in, else the definition's columns, else
    /// the age.
    pub fn of(served: &Served, version: &'a ApiVersion) -> Self {
        let names = served.names();
        let age = Cell::Age { kind: "string" };
        let cells = match (&**served.group(), &*names.plural) {
            ("", "namespaces") => vec![
                Cell::Text {
                    name: "Status",
                    pointer: "/status/phase",
                    text: "The status of the namespace",
                },
                age,
            ],
            ("", "configmaps") => {
                vec![
                    Cell::Count {
                        name: "Data",
                        fields: &["data", "binaryData"],
                        text: CONFIG_DATA_TEXT,
                    },
                    age,
                ]
            }
            ("", "secrets") => vec![
                Cell::Text {
                    name: "Type",
                    pointer: "/type",
                    text: SECRET_TYPE_TEXT,
                },
                Cell::Count {
                    name: "Data",
                    fields: &["data"],
                    text: SECRET_DATA_TEXT,
                },
                age,
            ],
            ("coordination.k8s.io", "leases") => vec![
                Cell::Text {
                    name: "Holder",
                    pointer: "/spec/holderIdentity",
                    text: HOLDER_TEXT,
                },
                age,
            ],
            ("admissionregistration.k8s.io", "validatingwebhookconfigurations" | "mutatingwebhookconfigurations") => {
                vec![
                    Cell::Items {
                        name: "Webhooks",
                        field: "webhooks",
                        text: "Webhooks indicates the number of webhooks registered in this configuration",
                    },
                    age,
                ]
            }
            ("rbac.authorization.k8s.io", "rolebindings") => binding(
                ROLE_REF_TEXT,
                [
                    "Users in the roleBinding",
                    "Groups in the roleBinding",
                    "ServiceAccounts in the roleBinding",
                ],
            ),
            ("rbac.authorization.k8s.io", "clusterrolebindings") => binding(
                CLUSTER_ROLE_REF_TEXT,
                [
                    "Users in the clusterRoleBinding",
                    "Groups in the clusterRoleBinding",
                    "ServiceAccounts in the clusterRoleBinding",
                ],
            ),
            ("", "serviceaccounts") => vec![age],
            ("certificates.k8s.io", "certificatesigningrequests") => vec![
                age,
                Cell::Text {
                    name: "SignerName",
                    pointer: "/spec/signerName",
                    text: "Who is asked to sign.",
                },
                Cell::Text {
                    name: "Requestor",
                    pointer: "/spec/username",
                    text: "Who asked.",
                },
                Cell::RequestedDuration,
                Cell::Verdict,
            ],
            ("", "resourcequotas") => vec![
                Cell::Quota {
                    name: "Request",
                    limits: false,
                    text: "Request represents a minimum amount of cpu/memory that a container may consume.",
                },
                Cell::Quota {
                    name: "Limit",
                    limits: true,
                    text: "Limits control the maximum amount of cpu/memory that a container may use independent of \
                           contention on the node.",
                },
                age,
            ],
            ("" | "events.k8s.io", "events") => {
                let parts = event::Part::ALL.into_iter().map(Cell::Event);
                let cells = parts.chain([Cell::Name { priority: 1 }]).collect();
                return Layout {
                    cells,
                    null_when_empty: false,
                };
            }
            ("apiextensions.k8s.io", "customresourcedefinitions")
            | ("rbac.authorization.k8s.io", "roles" | "clusterroles") => {
                return Layout {
                    cells: vec![NAME, Cell::Created],
                    null_when_empty: true,
                };
            }
            _ if version.columns.is_empty() => vec![Cell::Age { kind: "date" }],
            _ => version.columns.iter().map(Cell::Column).collect(),
        };
        Layout {
            cells: std::iter::once(NAME).chain(cells).collect(),
            null_when_empty: false,
        }
    }

    /// Returns the layout of a Scale.
    pub fn of_scale() -> Self {
        let number = |name, pointer, text| Cell::Number { name, pointer, text };
        Layout {
            cells: vec![
                NAME,
                number("Desired", "/spec/replicas", "Number of desired replicas"),
                number("Available", "/status/replicas", "Number of actual replicas"),
                Cell::Age { kind: "date" },
            ],
            null_when_empty: false,
        }
    }

    /// Returns `columnDefinitions`.
    pub fn definitions(&self) -> Json {
        self.cells.iter().map(Cell::definition).collect()
    }

    /// Returns the row of an object.
    pub fn row(&self, object: &Json, include: IncludeObject, version: MetaVersion, now: Timestamp) -> Json {
        let cells: Json = self.cells.iter().map(|cell| cell.value(object, now)).collect();
        let object = match include {
            IncludeObject::None => Json::Null,
            IncludeObject::Metadata => partial(&object["metadata"], version),
            IncludeObject::Object => object.clone(),
        };
        json!({"cells": cells, "object": object})
    }

    /// Returns a table. Of the tables of a watch only the first one has column definitions.
    pub fn table(&self, rows: Vec<Json>, version: MetaVersion, metadata: Json, columns: Columns) -> Json {
        let rows = if rows.is_empty() && self.null_when_empty {
            Json::Null
        } else {
            Json::Array(rows)
        };
        let definitions = match columns {
            Columns::Defined => self.definitions(),
            Columns::Known => Json::Null,
        };
        json!({
            "kind": "Table", "apiVersion": version.api_version(), "metadata": metadata,
            "columnDefinitions": definitions, "rows": rows,
        })
    }

    /// Returns the table of one object.
    pub fn single(
        &self,
        object: &Json,
        include: IncludeObject,
        version: MetaVersion,
        now: Timestamp,
        columns: Columns,
    ) -> Json {
        let revision = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let row = self.row(object, include, version, now);
        self.table(vec![row], version, list_metadata(revision, None, None), columns)
    }
}

/// Column definitions of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// The table has them.
    Defined,
    /// An earlier table of the same stream has them.
    Known,
}

/// Returns the columns of a binding, with texts for users, groups and service accounts.
fn binding(role: &'static str, texts: [&'static str; 3]) -> Vec<Cell<'static>> {
    let [users, groups, accounts] = texts;
    let subjects = |name, kind, text| Cell::Subjects { name, kind, text };
    vec![
        Cell::Role { text: role },
        Cell::Age { kind: "string" },
        subjects("Users", "User", users),
        subjects("Groups", "Group", groups),
        subjects("ServiceAccounts", "ServiceAccount", accounts),
    ]
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
    fn definition(&self) -> Json {
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

    fn value(&self, object: &Json, now: Timestamp) -> Json {
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

fn definition(name: &str, kind: &str, format: &str, text: &str, priority: i64) -> Json {
    json!({"name": name, "type": kind, "format": format, "description": text, "priority": priority})
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

/// Returns the time since a moment in kubectl's form.
pub fn age(moment: &str, now: Timestamp) -> String {
    match Timestamp::parse(moment) {
        Some(then) => human_duration(now.since(then)),
        None => "<invalid>".to_owned(),
    }
}

/// Formats seconds with about two digits of precision: `5s`, `3m20s`, `47h`, `3d2h`, `2y40d`.
pub fn human_duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, below: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{below}"),
    };
    match seconds {
        i64::MIN..-1 => "<invalid>".to_owned(),
        // The clock may be a little behind.
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => two(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// Returns `metadata` of a list, table or metadata list, without empty fields.
pub fn list_metadata(revision: &str, next: Option<&str>, remaining: Option<usize>) -> Json {
    let mut metadata = Map::new();
    if !revision.is_empty() && revision != "0" {
        metadata.insert("resourceVersion".into(), json!(revision));
    }
    if let Some(next) = next.filter(|next| !next.is_empty()) {
        metadata.insert("continue".into(), json!(next));
    }
    if let Some(remaining) = remaining {
        metadata.insert("remainingItemCount".into(), json!(remaining));
    }
    Json::Object(metadata)
}

/// Returns `PartialObjectMetadata` of an object's metadata.
pub fn partial(metadata: &Json, version: MetaVersion) -> Json {
    json!({"kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": metadata})
}

/// Returns `PartialObjectMetadataList` of items of [`partial`].
pub fn partial_list(items: Vec<Json>, version: MetaVersion, metadata: Json) -> Json {
    json!({"kind": "PartialObjectMetadataList", "apiVersion": version.api_version(), "metadata": metadata, "items": items})
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;

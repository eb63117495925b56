//! Managers of an object: reading and writing `metadata.managedFields`.

use crate::fields::FieldSet;
use insula_api::{Json, Timestamp};
use serde_json::{Map, json};
use std::collections::BTreeMap;

/// Maximum number of managers with updates; the oldest beyond are merged into `ancient-changes`.
pub const UPDATE_MANAGERS_MAX: usize = 10;
const ANCIENT: &str = "ancient-changes";

/// Kind of the write that made a manager own its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Any other write.
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// Identity of a manager. Ordered as conflicts are listed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    /// Name of the manager.
    pub name: Box<str>,
    /// Kind of its writes.
    pub operation: Operation,
    /// Version of its updates; empty for apply.
    pub api_version: Box<str>,
    /// Subresource of its writes; empty for the object itself.
    pub subresource: Box<str>,
}

/// Fields of a manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Version in which the fields are named.
    pub api_version: Box<str>,
    /// The fields.
    pub fields: FieldSet,
    /// Time of its last change to the object; `None` if it only took over existing fields.
    pub time: Option<Timestamp>,
}

/// All managers of an object, with their fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Managers(pub BTreeMap<Manager, Entry>);

impl Managers {
    /// Reads `metadata.managedFields`; `None` if it is malformed.
    pub fn read(json: &Json) -> Option<Managers> {
        let entries = match json {
            Json::Null => return Some(Managers::default()),
            Json::Array(entries) => entries,
            _ => return None,
        };
        entries.iter().map(read_entry).collect::<Option<_>>().map(Managers)
    }

    /// Returns true if a client resets the list by sending one empty entry.
    pub fn is_reset(json: &Json) -> bool {
        json.as_array()
            .is_some_and(|entries| matches!(entries.as_slice(), [Json::Object(entry)] if entry.is_empty()))
    }

    /// Returns `metadata.managedFields`, ordered by operation, time, name, version and subresource.
    pub fn to_json(&self) -> Json {
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_by_key(|(manager, entry)| {
            let seconds = entry.time.map_or(0, |time| time.0);
            let Manager { name, operation, .. } = manager;
            (*operation, seconds, name, &entry.api_version, &manager.subresource)
        });
        entries
            .into_iter()
            .map(|(manager, entry)| write_entry(manager, entry))
            .collect()
    }

    /// Returns true if there are no managers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if two differ only in times.
    pub fn same_but_for_times(&self, other: &Managers) -> bool {
        let timeless = |managers: &Managers| {
            let mut timeless = managers.clone();
            timeless.0.values_mut().for_each(|entry| entry.time = None);
            timeless
        };
        timeless(self) == timeless(other)
    }

    /// Removes fields from a manager, and the manager if it has none left.
    pub(super) fn subtract(&mut self, manager: &Manager, fields: &FieldSet) {
        if let Some(entry) = self.0.get_mut(manager) {
            entry.fields.subtract(fields);
            if entry.fields.is_empty() {
                self.0.remove(manager);
            }
        }
    }

    /// Merges the oldest managers with updates, by version, until at most [`UPDATE_MANAGERS_MAX`]
    /// are left.
    pub(super) fn cap(&mut self) {
        let mut updaters: Vec<Manager> = self
            .0
            .keys()
            .filter(|m| m.operation == Operation::Update)
            .cloned()
            .collect();
        let mut count = updaters.len();
        let time = |manager: &Manager| {
            self.0
                .get(manager)
                .and_then(|entry| entry.time)
                .map_or(0, |time| time.0)
        };
        updaters.sort_unstable_by_key(|manager| (time(manager), manager.clone()));
        let mut first: BTreeMap<Box<str>, Manager> = BTreeMap::new();
        for manager in updaters {
            if count <= UPDATE_MANAGERS_MAX {
                return;
            }
            let bucket = Manager {
                name: ANCIENT.into(),
                subresource: "".into(),
                ..manager.clone()
            };
            let Some(oldest) = first.get(&manager.api_version) else {
                first.insert(manager.api_version.clone(), manager);
                continue;
            };
            if !self.0.contains_key(&bucket)
                && let Some(entry) = self.0.remove(oldest)
            {
                self.0.insert(bucket.clone(), entry);
            }
            if manager != bucket
                && let Some(entry) = self.0.remove(&manager)
                && let Some(ancient) = self.0.get_mut(&bucket)
            {
                ancient.fields.unite(entry.fields);
                ancient.time = entry.time;
                count -= 1;
            }
        }
    }
}

fn read_entry(json: &Json) -> Option<(Manager, Entry)> {
    let text = |field: &str| match &json[field] {
        Json::Null => Some(""),
        value => value.as_str(),
    };
    let operation = match text("operation")? {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let api_version = text("apiVersion").filter(|version| !version.is_empty())?;
    if text("fieldsType")? != "FieldsV1" {
        return None;
    }
    let time = match &json["time"] {
        Json::Null => None,
        time => Some(Timestamp::parse(time.as_str()?)?),
    };
    let manager = Manager {
        name: text("manager")?.into(),
        operation,
        api_version: match operation {
            Operation::Update => api_version.into(),
            Operation::Apply => "".into(),
        },
        subresource: text("subresource")?.into(),
    };
    let entry = Entry {
        api_version: api_version.into(),
        fields: FieldSet::from_json(&json["fieldsV1"])?,
        time,
    };
    Some((manager, entry))
}

fn write_entry(manager: &Manager, entry: &Entry) -> Json {
    let mut out = Map::new();
    out.insert("apiVersion".into(), json!(entry.api_version));
    out.insert("fieldsType".into(), json!("FieldsV1"));
    out.insert("fieldsV1".into(), entry.fields.to_json());
    if !manager.name.is_empty() {
        out.insert("manager".into(), json!(manager.name));
    }
    out.insert("operation".into(), json!(manager.operation.as_str()));
    if !manager.subresource.is_empty() {
        out.insert("subresource".into(), json!(manager.subresource));
    }
    if let Some(time) = entry.time {
        out.insert("time".into(), json!(time.to_string()));
    }
    Json::Object(out)
}

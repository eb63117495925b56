//! The messages that are read and written: those of the built-in kinds of Kubernetes, and those
//! that belong to no kind of a server.
//!
//! `messages.txt` is printed by `e2e/clients/messages` from the tags of Kubernetes' own Go types,
//! and a test prints it again. A line `kind API_VERSION KIND MESSAGE` says which message an object
//! is. Below `message MESSAGE` a line `NUMBER NAME TYPE` is a field: its number, its name in JSON
//! (`-` for a struct within a struct, whose fields JSON has among those around it), its type in Go,
//! and `omitempty` where JSON leaves it out when it is empty.

use std::{collections::HashMap, sync::LazyLock};

/// Messages and the kinds whose objects they are.
pub(super) struct Messages {
    messages: Vec<Message>,
    kinds: HashMap<(&'static str, &'static str), MessageId>,
}

/// Index of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MessageId(usize);

/// A message: a struct in Go.
pub(super) struct Message {
    pub(super) name: &'static str,
    /// Its fields by their numbers, in ascending order.
    pub(super) fields: Vec<Field>,
}

/// A field of a message.
pub(super) struct Field {
    pub(super) number: u32,
    /// Its name in JSON; `None` for a struct within a struct.
    pub(super) name: Option<&'static str>,
    pub(super) form: Form,
    pub(super) kind: Kind,
    /// True if JSON leaves it out when it is empty.
    pub(super) omits: bool,
}

/// Presence of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A value of Go, which is always there, if only empty. It is always on the wire.
    Always,
    /// A pointer in Go: an empty value differs from none.
    Optional,
    List,
    /// Entries with a key (1) and a value (2).
    Map,
}

/// Type of a field's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    Bool,
    Double,
    /// Base64 in JSON.
    Bytes,
    /// A message around a list of texts (1).
    Texts,
    /// RFC 3339 in JSON; seconds (1) and nanoseconds (2) on the wire.
    Time,
    /// RFC 3339 in JSON to the microsecond; on the wire as [`Kind::Time`].
    MicroTime,
    /// A message around a text (1).
    Quantity,
    /// Any JSON; a message around its text (1).
    Raw,
    Message(MessageId),
    /// A boolean (1) or a schema (2). Go writes the boolean beside a schema, too.
    SchemaOrBool(MessageId),
    /// A schema (1) or a list of schemas (2).
    SchemaOrList(MessageId),
    /// A schema (1) or a list of texts (2).
    SchemaOrTexts(MessageId),
}

static MESSAGES: LazyLock<Messages> = LazyLock::new(|| {
    // The table is part of the program, and a test parses it.
    Messages::parse(include_str!("messages.txt")).unwrap_or_else(|error| panic!("messages.txt: {error}"))
});

/// Returns the messages of Kubernetes.
pub(super) fn all() -> &'static Messages {
    &MESSAGES
}

impl Messages {
    fn parse(text: &'static str) -> Result<Self, String> {
        let names = text.lines().filter_map(|line| line.strip_prefix("message "));
        let ids: HashMap<&str, MessageId> = names.enumerate().map(|(id, name)| (name, MessageId(id))).collect();
        let mut messages: Vec<Message> = Vec::with_capacity(ids.len());
        let mut kinds = HashMap::new();
        let id = |name: &str| ids.get(name).copied().ok_or_else(|| format!("no message {name}"));
        for line in text.lines().filter(|line| !line.is_empty()) {
            match *line.split(' ').collect::<Vec<_>>() {
                ["kind", api_version, kind, message] => {
                    kinds.insert((api_version, kind), id(message)?);
                }
                ["message", name] => messages.push(Message {
                    name,
                    fields: Vec::new(),
                }),
                [number, name, ref parts @ ..] => {
                    let number = number.parse().map_err(|_| format!("no number: {line}"))?;
                    let (form, kind, omits) = field_type(parts, &id).ok_or_else(|| format!("no type: {line}"))?;
                    let message = messages
                        .last_mut()
                        .ok_or_else(|| format!("a field of no message: {line}"))?;
                    message.fields.push(Field {
                        number,
                        name: Some(name).filter(|name| *name != "-"),
                        form,
                        kind,
                        omits,
                    });
                }
                _ => return Err(format!("a line of another form: {line}")),
            }
        }
        Ok(Messages { messages, kinds })
    }

    /// Returns the message of a kind. Options of a deletion are the same in every group, and
    /// metadata in every version of `meta.k8s.io`.
    pub(super) fn find(&self, api_version: &str, kind: &str) -> Option<MessageId> {
        let key = match (api_version, kind) {
            (_, "DeleteOptions") | ("meta.k8s.io/v1beta1", _) => ("meta.k8s.io/v1", kind),
            _ => (api_version, kind),
        };
        self.kinds.get(&key).copied()
    }

    pub(super) fn get(&self, id: MessageId) -> &Message {
        &self.messages[id.0]
    }
}

/// Parses a type of Go, and `omitempty` behind it.
fn field_type(parts: &[&str], id: &dyn Fn(&str) -> Result<MessageId, String>) -> Option<(Form, Kind, bool)> {
    let (omits, parts) = match parts {
        [parts @ .., "omitempty"] => (true, parts),
        _ => (false, parts),
    };
    let (form, parts) = match parts {
        ["map", parts @ ..] => (Form::Map, parts),
        _ => (Form::Always, parts),
    };
    let (first, schema) = match parts {
        [first] => (*first, None),
        [first, schema] => (*first, Some(id(schema).ok()?)),
        _ => return None,
    };
    let (form, name) = match (first.strip_prefix('*'), first.strip_prefix("[]")) {
        (Some(name), _) => (Form::Optional, name),
        (_, Some(name)) => (Form::List, name),
        _ => (form, first),
    };
    let kind = match (name, schema) {
        ("string", None) => Kind::Text,
        ("int", None) => Kind::Integer,
        ("bool", None) => Kind::Bool,
        ("double", None) => Kind::Double,
        ("bytes", None) => Kind::Bytes,
        ("strings", None) => Kind::Texts,
        ("time", None) => Kind::Time,
        ("microtime", None) => Kind::MicroTime,
        ("quantity", None) => Kind::Quantity,
        ("raw", None) => Kind::Raw,
        ("schema-or-bool", Some(schema)) => Kind::SchemaOrBool(schema),
        ("schema-or-list", Some(schema)) => Kind::SchemaOrList(schema),
        ("schema-or-strings", Some(schema)) => Kind::SchemaOrTexts(schema),
        (message, None) => Kind::Message(id(message).ok()?),
        _ => return None,
    };
    Some((form, kind, omits))
}

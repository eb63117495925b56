//! Fields of messages, and the metadata that every object has.

/// Type of a field.
#[derive(Clone, Copy)]
pub(super) enum Type {
    Text,
    Integer,
    Bool,
    /// RFC 3339 in JSON; seconds (1) and nanoseconds (2) on the wire.
    Time,
    /// RFC 3339 in JSON to the microsecond; on the wire as [`Type::Time`].
    MicroTime,
    /// Any JSON, as text in field 1.
    Raw,
    /// Base64 in JSON.
    Bytes,
    /// A message that is left out when it is empty.
    Message(&'static [Field]),
    /// A message that may be present and empty: an empty selector selects everything.
    Pointer(&'static [Field]),
    /// A struct within a struct in Go: JSON has its fields beside those around it.
    Embedded(&'static [Field]),
    /// Entries of a map: key 1, value 2.
    TextMap,
    /// A map of quantities: each value is a message with a text in field 1.
    Quantities,
    BytesMap,
    /// A map of lists of texts: each value is a message with the texts in field 1.
    TextsMap,
}

/// A field: number, JSON name, type, and true for a repeated one.
pub(super) type Field = (u32, &'static str, Type, bool);

const OWNER: &[Field] = &[
    (1, "kind", Type::Text, false),
    (3, "name", Type::Text, false),
    (4, "uid", Type::Text, false),
    (5, "apiVersion", Type::Text, false),
    (6, "controller", Type::Bool, false),
    (7, "blockOwnerDeletion", Type::Bool, false),
];
const MANAGED: &[Field] = &[
    (1, "manager", Type::Text, false),
    (2, "operation", Type::Text, false),
    (3, "apiVersion", Type::Text, false),
    (4, "time", Type::Time, false),
    (6, "fieldsType", Type::Text, false),
    (7, "fieldsV1", Type::Raw, false),
    (8, "subresource", Type::Text, false),
];
pub(super) const META: &[Field] = &[
    (1, "name", Type::Text, false),
    (2, "generateName", Type::Text, false),
    (3, "namespace", Type::Text, false),
    (5, "uid", Type::Text, false),
    (6, "resourceVersion", Type::Text, false),
    (7, "generation", Type::Integer, false),
    (8, "creationTimestamp", Type::Time, false),
    (9, "deletionTimestamp", Type::Time, false),
    (10, "deletionGracePeriodSeconds", Type::Integer, false),
    (11, "labels", Type::TextMap, false),
    (12, "annotations", Type::TextMap, false),
    (13, "ownerReferences", Type::Message(OWNER), true),
    (14, "finalizers", Type::Text, true),
    (17, "managedFields", Type::Message(MANAGED), true),
];

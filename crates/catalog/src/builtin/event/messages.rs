//! Protobuf messages of events in both API groups.

use crate::kind::message::{Field, META, OBJECT_REFERENCE, Type};

const SOURCE: &[Field] = &[(1, "component", Type::Text, false), (2, "host", Type::Text, false)];
const SERIES: &[Field] = &[
    (1, "count", Type::Integer, false),
    (2, "lastObservedTime", Type::MicroTime, false),
];
pub(super) const CORE: &[Field] = &[
    (1, "metadata", Type::Message(META), false),
    (2, "involvedObject", Type::Message(OBJECT_REFERENCE), false),
    (3, "reason", Type::Text, false),
    (4, "message", Type::Text, false),
    (5, "source", Type::Message(SOURCE), false),
    (6, "firstTimestamp", Type::Time, false),
    (7, "lastTimestamp", Type::Time, false),
    (8, "count", Type::Integer, false),
    (9, "type", Type::Text, false),
    (10, "eventTime", Type::MicroTime, false),
    (11, "series", Type::Message(SERIES), false),
    (12, "action", Type::Text, false),
    (13, "related", Type::Message(OBJECT_REFERENCE), false),
    (14, "reportingComponent", Type::Text, false),
    (15, "reportingInstance", Type::Text, false),
];
/// An event in `events.k8s.io`, whose fields have other names and numbers.
pub(super) const NEW: &[Field] = &[
    (1, "metadata", Type::Message(META), false),
    (2, "eventTime", Type::MicroTime, false),
    (3, "series", Type::Message(SERIES), false),
    (4, "reportingController", Type::Text, false),
    (5, "reportingInstance", Type::Text, false),
    (6, "action", Type::Text, false),
    (7, "reason", Type::Text, false),
    (8, "regarding", Type::Message(OBJECT_REFERENCE), false),
    (9, "related", Type::Message(OBJECT_REFERENCE), false),
    (10, "note", Type::Text, false),
    (11, "type", Type::Text, false),
    (12, "deprecatedSource", Type::Message(SOURCE), false),
    (13, "deprecatedFirstTimestamp", Type::Time, false),
    (14, "deprecatedLastTimestamp", Type::Time, false),
    (15, "deprecatedCount", Type::Integer, false),
];

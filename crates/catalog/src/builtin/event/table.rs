//! The table of events. Events of both API groups give the same row, as do the old and new fields
//! for times and counts.

use crate::{CellValue, Table, TableColumn};
use insula_api::Json;
use serde_json::json;

pub(super) const TABLE: Table = Table::new(&[
    TableColumn::text("Last Seen", LAST_SEEN_TEXT, CellValue::Since(last_seen)),
    TableColumn::text("Type", TYPE_TEXT, CellValue::Text("/type")),
    TableColumn::text("Reason", REASON_TEXT, CellValue::Text("/reason")),
    TableColumn::text(
        "Object",
        "The object that this event is about.",
        CellValue::Computed(object),
    ),
    TableColumn::text("Subobject", SUBOBJECT_TEXT, CellValue::Computed(subobject)).wide(),
    TableColumn::text("Source", SOURCE_TEXT, CellValue::Computed(source)).wide(),
    TableColumn::text("Message", MESSAGE_TEXT, CellValue::Computed(message)),
    TableColumn::text("First Seen", FIRST_SEEN_TEXT, CellValue::Since(first_seen)).wide(),
    TableColumn::text("Count", COUNT_TEXT, CellValue::Computed(count)).wide(),
    TableColumn::NAME.wide(),
]);

const LAST_SEEN_TEXT: &str = "The time at which the most recent occurrence of this event was recorded.";
const TYPE_TEXT: &str = "Type of this event (Normal, Warning), new types could be added in the future";
const REASON_TEXT: &str = "This should be a short, machine understandable string that gives the reason for the \
    transition into the object's current status.";
const SUBOBJECT_TEXT: &str = "If referring to a piece of an object instead of an entire object, this string should \
    contain a valid JSON/Go field access statement, such as desiredState.manifest.containers[2]. For example, if the \
    object reference is to a container within a pod, this would take on a value like: \"spec.containers{name}\" (where \
    \"name\" refers to the name of the container that triggered the event) or if no container name is specified \
    \"spec.containers[2]\" (container with index 2 in this pod). This syntax is chosen only to have some well-defined \
    way of referencing a part of an object.";
const SOURCE_TEXT: &str = "The component reporting this event. Should be a short machine understandable string.";
const MESSAGE_TEXT: &str = "A human-readable description of the status of this operation.";
const FIRST_SEEN_TEXT: &str =
    "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)";
const COUNT_TEXT: &str = "The number of times this event has occurred.";

/// Returns the field by the core group's name if it is present, else by the other group's name.
fn either<'a>(event: &'a Json, core: &str, new: &str) -> &'a Json {
    event.get(core).or_else(|| event.get(new)).unwrap_or(&Json::Null)
}

fn text(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn first_seen(event: &Json) -> Option<&str> {
    either(event, "firstTimestamp", "deprecatedFirstTimestamp")
        .as_str()
        .or_else(|| event["eventTime"].as_str())
}

fn last_seen(event: &Json) -> Option<&str> {
    let last = either(event, "lastTimestamp", "deprecatedLastTimestamp");
    event["series"]["lastObservedTime"]
        .as_str()
        .or_else(|| last.as_str())
        .or_else(|| first_seen(event))
}

fn object(event: &Json) -> Json {
    let about = either(event, "involvedObject", "regarding");
    let (kind, name) = (text(&about["kind"]).to_lowercase(), text(&about["name"]));
    json!(if name.is_empty() {
        kind
    } else {
        format!("{kind}/{name}")
    })
}

fn subobject(event: &Json) -> Json {
    json!(text(&either(event, "involvedObject", "regarding")["fieldPath"]))
}

fn source(event: &Json) -> Json {
    let source = either(event, "source", "deprecatedSource");
    let first = |old: &Json, new: &Json| [text(old), text(new)].into_iter().find(|text| !text.is_empty());
    let controller = either(event, "reportingComponent", "reportingController");
    let component = first(&source["component"], controller).unwrap_or_default();
    json!(match first(&source["host"], &event["reportingInstance"]) {
        Some(instance) => format!("{component}, {instance}"),
        None => component,
    })
}

fn message(event: &Json) -> Json {
    json!(text(either(event, "message", "note")).trim())
}

fn count(event: &Json) -> Json {
    let count = either(event, "count", "deprecatedCount")
        .as_i64()
        .filter(|count| *count != 0);
    json!(event["series"]["count"].as_i64().or(count).unwrap_or(1))
}

//! Events as rows. Events of both API groups give the same row, as do the old and new fields for
//! times and counts.

use super::format::{age, definition};
use insula_api::{Json, Timestamp};
use serde_json::json;

/// A column of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    LastSeen,
    Type,
    Reason,
    Object,
    Subobject,
    Source,
    Message,
    FirstSeen,
    Count,
}

impl Part {
    pub(super) const ALL: [Part; 9] = [
        Part::LastSeen,
        Part::Type,
        Part::Reason,
        Part::Object,
        Part::Subobject,
        Part::Source,
        Part::Message,
        Part::FirstSeen,
        Part::Count,
    ];

    pub(super) fn definition(self) -> Json {
        let (name, priority, text) = match self {
            Part::LastSeen => (
                "Last Seen",
                0,
                "The time at which the most recent occurrence of this event was recorded.",
            ),
            Part::Type => (
                "Type",
                0,
                "Type of this event (Normal, Warning), new types could be added in the future",
            ),
            Part::Reason => (
                "Reason",
                0,
                "This should be a short, machine understandable string that gives the reason for the transition into \
                 the object's current status.",
            ),
            Part::Object => ("Object", 0, "The object that this event is about."),
            Part::Subobject => ("Subobject", 1, SUBOBJECT_TEXT),
            Part::Source => (
                "Source",
                1,
                "The component reporting this event. Should be a short machine understandable string.",
            ),
            Part::Message => (
                "Message",
                0,
                "A human-readable description of the status of this operation.",
            ),
            Part::FirstSeen => (
                "First Seen",
                1,
                "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)",
            ),
            Part::Count => ("Count", 1, "The number of times this event has occurred."),
        };
        definition(name, "string", "", text, priority)
    }

    pub(super) fn value(self, event: &Json, now: Timestamp) -> Json {
        // The first field that is present: by the core group's name, else by the other group's.
        let either = |core: &str, new: &str| event.get(core).or_else(|| event.get(new)).unwrap_or(&Json::Null);
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let about = either("involvedObject", "regarding");
        let series = &event["series"];
        let since = |moments: &[&Json]| {
            let mut times = moments.iter().filter_map(|moment| moment.as_str());
            times
                .next()
                .map_or_else(|| "<unknown>".to_owned(), |moment| age(moment, now))
        };
        let first = [
            either("firstTimestamp", "deprecatedFirstTimestamp"),
            &event["eventTime"],
        ];
        match self {
            Part::LastSeen => {
                let last = either("lastTimestamp", "deprecatedLastTimestamp");
                json!(since(&[&series["lastObservedTime"], last, first[0], first[1]]))
            }
            Part::FirstSeen => json!(since(&first)),
            Part::Type => json!(text(&event["type"])),
            Part::Reason => json!(text(&event["reason"])),
            Part::Object => {
                let (kind, name) = (text(&about["kind"]).to_lowercase(), text(&about["name"]));
                json!(if name.is_empty() {
                    kind
                } else {
                    format!("{kind}/{name}")
                })
            }
            Part::Subobject => json!(text(&about["fieldPath"])),
            Part::Source => {
                let source = either("source", "deprecatedSource");
                let first = |old: &Json, new: &Json| [text(old), text(new)].into_iter().find(|text| !text.is_empty());
                let controller = either("reportingComponent", "reportingController");
                let component = first(&source["component"], controller).unwrap_or_default();
                json!(match first(&source["host"], &event["reportingInstance"]) {
                    Some(instance) => format!("{component}, {instance}"),
                    None => component,
                })
            }
            Part::Message => json!(text(either("message", "note")).trim()),
            Part::Count => {
                let count = either("count", "deprecatedCount").as_i64().filter(|count| *count != 0);
                json!(series["count"].as_i64().or(count).unwrap_or(1))
            }
        }
    }
}

const SUBOBJECT_TEXT: &str = "If referring to a piece of an object instead of an entire object, this string should contain a \
    valid JSON/Go field access statement, such as desiredState.manifest.containers[2]. For example, if the object reference \
    is to a container within a pod, this would take on a value like: \"spec.containers{name}\" (where \"name\" refers to the \
    name of the container that triggered the event) or if no container name is specified \"spec.containers[2]\" (container \
    with index 2 in this pod). This syntax is chosen only to have some well-defined way of referencing a part of an object.";

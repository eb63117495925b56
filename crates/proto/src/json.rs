//! Messages as JSON, in the mapping of proto3: `camelCase` fields, timestamps as RFC 3339.
//!
//! Integers of 64 bits are numbers here, not texts as the mapping has them: programs compare counts
//! and revisions as numbers.

use std::sync::LazyLock;

use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::Value;

/// Largest absolute value up to which a double holds every integer: 2^53.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(crate::FILE_DESCRIPTOR_SET).expect("the build checked the descriptors"));

pub(crate) fn pool() -> &'static DescriptorPool {
    &POOL
}

/// Returns the descriptor of a message of the admin API.
pub(crate) fn descriptor<M: Name>() -> Option<MessageDescriptor> {
    POOL.get_message_by_name(&M::full_name())
}

/// Returns a message of the admin API as JSON. Fields at their default are there, too; messages and
/// optional fields that are not set are left out.
///
/// # Panics
/// For a message that is not one of the admin API.
pub fn from_message<M: Message + Name>(message: &M) -> Value {
    let descriptor = descriptor::<M>().expect("the descriptors have every message of the admin API");
    let mut dynamic = DynamicMessage::new(descriptor);
    dynamic
        .transcode_from(message)
        .expect("the message is one of its descriptor");
    let options = SerializeOptions::new()
        .stringify_64_bit_integers(false)
        .skip_default_fields(false);
    let mut value = dynamic
        .serialize_with_options(serde_json::value::Serializer, &options)
        .expect("every message of the admin API has JSON");
    restore_integers(&mut value);
    value
}

/// Makes integers of numbers without a fraction: a Struct has doubles only, and an object in it has
/// `3` and not `3.0`.
fn restore_integers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(restore_integers),
        Value::Object(fields) => fields.values_mut().for_each(restore_integers),
        Value::Number(number) => {
            let double = number.as_f64().filter(|_| number.is_f64());
            let whole = double.filter(|double| double.fract() == 0.0 && double.abs() < EXACT_INTEGER_MAX);
            if let Some(whole) = whole {
                // No fraction and below 2^53: the cast changes nothing.
                *number = (whole as i64).into();
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::admin::v1::{Operation, OperationProgress};

    #[test]
    fn messages_have_camel_case_and_numbers() {
        let result = json!({"objects": 11, "share": 0.5});
        let operation = Operation {
            result: Some(crate::value::from_json(result.as_object().unwrap()).unwrap()),
            name: "createbackup-1".to_owned(),
            create_time: Some(Timestamp { seconds: 1, nanos: 0 }),
            progress: Some(OperationProgress {
                done: 1 << 60,
                ..OperationProgress::default()
            }),
            ..Operation::default()
        };
        let shown = from_message(&operation);
        assert_eq!(shown["createTime"], "1970-01-01T00:00:01Z");
        assert_eq!(shown["progress"]["done"], json!(1_u64 << 60));
        assert_eq!(shown["cancelRequested"], false);
        assert_eq!(shown["result"], result);
        assert_eq!(shown.get("error"), None);
    }
}

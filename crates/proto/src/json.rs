//! Messages as JSON, in the mapping of proto3: `camelCase` fields, timestamps as RFC 3339.
//!
//! Integers of 64 bits are numbers here, not texts as the mapping has them: programs compare counts
//! and revisions as numbers.

use std::sync::LazyLock;

use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::{Deserializer, Value};

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
    from_dynamic(&dynamic)
}

fn from_dynamic(message: &DynamicMessage) -> Value {
    let options = SerializeOptions::new()
        .stringify_64_bit_integers(false)
        .skip_default_fields(false);
    let mut value = message
        .serialize_with_options(serde_json::value::Serializer, &options)
        .expect("every message of the admin API has JSON");
    restore_integers(&mut value);
    value
}

/// The messages of a method, between JSON and their encoding.
#[derive(Debug, Clone)]
pub struct MethodMessages {
    request: MessageDescriptor,
    response: MessageDescriptor,
    streams: bool,
}

impl MethodMessages {
    /// Finds the method of a path: `/insula.admin.v1.ApiService/GetExport`. None receives a stream.
    pub fn find(path: &str) -> Option<Self> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        let service = POOL.get_service_by_name(service)?;
        let method = service.methods().find(|known| known.name() == method)?;
        if method.is_client_streaming() {
            return None;
        }
        Some(MethodMessages {
            request: method.input(),
            response: method.output(),
            streams: method.is_server_streaming(),
        })
    }

    /// Returns true for a method that answers with a stream.
    pub fn streams(&self) -> bool {
        self.streams
    }

    /// Encodes a request. An empty text is an empty message.
    ///
    /// # Errors
    /// The text is no JSON of the message: the place and the problem.
    pub fn encode_request(&self, json: &[u8]) -> Result<Vec<u8>, String> {
        if json.is_empty() {
            return Ok(Vec::new());
        }
        let mut text = Deserializer::from_slice(json);
        let message = DynamicMessage::deserialize(self.request.clone(), &mut text);
        let message = message.and_then(|message| text.end().map(|()| message));
        Ok(message.map_err(|error| error.to_string())?.encode_to_vec())
    }

    /// Returns the JSON of an encoded response.
    ///
    /// # Errors
    /// The bytes are no such message.
    pub fn decode_response(&self, message: &[u8]) -> Result<Value, String> {
        let message = DynamicMessage::decode(self.response.clone(), message);
        Ok(from_dynamic(&message.map_err(|error| error.to_string())?))
    }
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
    fn messages_of_methods_are_found_and_converted() {
        let path = "/insula.admin.v1.WorkspaceService/ListWorkspaces";
        let messages = MethodMessages::find(path).expect("a method");
        let request = messages
            .encode_request(br#"{"parent": "root:a", "pageSize": 5}"#)
            .unwrap();
        let request = crate::admin::v1::ListWorkspacesRequest::decode(request.as_slice()).unwrap();
        assert_eq!((request.parent.as_str(), request.page_size), ("root:a", 5));
        assert_eq!(messages.encode_request(b""), Ok(Vec::new()));
        for wrong in [
            "{",
            "[]",
            "{} {}",
            r#"{"parents": "a"}"#,
            r#"{"parent": 1}"#,
            r#"{"pageSize": "many"}"#,
        ] {
            assert!(messages.encode_request(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let response = crate::admin::v1::ListWorkspacesResponse::default().encode_to_vec();
        assert_eq!(messages.decode_response(&response).unwrap()["workspaces"], json!([]));
        for path in ["", "/", "insula.admin.v1.WorkspaceService/ListWorkspaces", "/a/b"] {
            assert!(MethodMessages::find(path).is_none(), "{path}");
        }
    }

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

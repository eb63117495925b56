//! The stored form of an operation: an internal object of `root`, invisible to every client.

use super::{Failure, INPUT_BYTES_MAX, MESSAGE_BYTES_MAX, resource};
use insula_api::{ClusterName, Json, Object, ObjectKey, Scope};
use insula_auth::UserInfo;
use insula_catalog::ids;
use insula_proto::{admin::v1 as pb, value};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::{collections::BTreeMap, sync::Arc};
use tonic::Code;

/// An operation as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The RPC that started it.
    pub kind: String,
    /// Path of its workspace; empty for an operation of the installation.
    pub workspace: String,
    /// Name of the logical cluster of its workspace.
    pub cluster: String,
    /// The user who started it.
    pub user: User,
    /// Input of its job.
    pub input: Json,
    /// True if a caller may cancel it.
    pub is_cancellable: bool,
    /// True once a caller has cancelled it.
    pub cancel_requested: bool,
    /// Time of its creation, in seconds since 1970.
    pub created: i64,
    /// Time of its last change.
    pub updated: i64,
    /// The run of a server that works on it.
    pub holder: String,
    /// Number of runs of its job, the present one included.
    pub attempt: u32,
    /// Its progress.
    pub progress: Progress,
    /// Its outcome, once it is done.
    pub outcome: Option<Outcome>,
}

/// The user who started an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct User {
    /// Unique name.
    pub name: String,
    /// Identifier.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Other facts.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Progress of an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Units that are done.
    pub done: u64,
    /// All units; 0 while unknown.
    pub total: u64,
    /// The present step.
    pub text: String,
}

/// Outcome of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It succeeded with this result.
    Result(Json),
    /// It failed.
    Error {
        /// Code of `google.rpc.Code`.
        code: i32,
        /// Reason for programs.
        reason: String,
        /// Cause and remedy.
        message: String,
    },
}

impl From<&UserInfo> for User {
    fn from(user: &UserInfo) -> Self {
        User {
            name: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        }
    }
}

impl From<&User> for UserInfo {
    fn from(user: &User) -> Self {
        UserInfo {
            name: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        }
    }
}

impl From<Result<Json, Failure>> for Outcome {
    fn from(ended: Result<Json, Failure>) -> Self {
        let failure = match ended {
            Ok(result) if result.to_string().len() <= INPUT_BYTES_MAX => return Outcome::Result(result),
            Ok(_) => Failure::new(
                Code::Internal,
                "the operation succeeded, but its result is too large to store",
            ),
            Err(failure) => failure,
        };
        let mut message = failure.message;
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        Outcome::Error {
            code: failure.code as i32,
            reason: failure.reason.to_owned(),
            message,
        }
    }
}

/// Returns the scope of all records.
pub(super) fn scope() -> Scope {
    Scope::cluster(resource(), ClusterName::root())
}

/// Returns the key of a record.
pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::cluster_scoped(resource(), ClusterName::root(), name)
}

/// Returns 16 hexadecimal digits that differ for different texts.
pub(super) fn digest(texts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update(text.len().to_le_bytes());
        hasher.update(text);
    }
    let bytes = hasher.finalize();
    bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

impl Record {
    /// Reads a record; `None` for one that another release wrote in another form.
    pub fn read(object: &Object) -> Option<Arc<Self>> {
        let parsed = object.parsed(|object| {
            let record: Option<Record> = serde_json::from_value(object.body_value()["spec"].take()).ok();
            record.map(Arc::new)
        });
        Option::clone(&parsed)
    }

    /// Returns the record as an object.
    pub fn write(&self, name: &str) -> Object {
        let value = json!({
            "apiVersion": ids::INTERNAL_V1, "kind": "Operation",
            "metadata": {"name": name}, "spec": self,
        });
        Object::new(&value, None).expect("it has apiVersion, kind and metadata")
    }

    /// Returns the state in one word.
    pub(crate) fn state(&self) -> &'static str {
        match &self.outcome {
            None => "running",
            Some(Outcome::Result(_)) => "succeeded",
            Some(Outcome::Error { .. }) => "failed",
        }
    }

    /// Describes the operation for clients.
    pub fn describe(&self, name: &str) -> pb::Operation {
        let time = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
        let count = |number| i64::try_from(number).unwrap_or(i64::MAX);
        let (result, error) = match &self.outcome {
            None => (None, None),
            Some(Outcome::Result(result)) => {
                let map = result.as_object().cloned().unwrap_or_default();
                (Some(value::from_json(&map).unwrap_or_default()), None)
            }
            Some(Outcome::Error { code, reason, message }) => {
                let error = pb::OperationError {
                    code: *code,
                    reason: reason.clone(),
                    message: message.clone(),
                };
                (None, Some(error))
            }
        };
        pb::Operation {
            name: name.to_owned(),
            kind: self.kind.clone(),
            workspace: self.workspace.clone(),
            create_time: time(self.created),
            update_time: time(self.updated),
            done: self.outcome.is_some(),
            progress: Some(pb::OperationProgress {
                done: count(self.progress.done),
                total: count(self.progress.total),
                text: self.progress.text.clone(),
            }),
            error,
            result,
            cancellable: self.is_cancellable && self.outcome.is_none(),
            cancel_requested: self.cancel_requested,
            user: self.user.name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_described() {
        let mut record = Record {
            kind: "CreateBackup".into(),
            workspace: "root:a".into(),
            cluster: "0123".into(),
            user: User::from(&UserInfo::authenticated("alice", "1", Vec::new())),
            input: json!({"workspace": "root:a"}),
            is_cancellable: true,
            cancel_requested: false,
            created: 5,
            updated: 6,
            holder: "h".into(),
            attempt: 1,
            progress: Progress::default(),
            outcome: None,
        };
        for (outcome, done) in [
            (None, false),
            (Some(Outcome::from(Ok(json!({"objects": 3})))), true),
            (Some(Outcome::from(Err(Failure::cancelled()))), true),
        ] {
            record.outcome = outcome;
            let read = Record::read(&record.write("n")).expect("a record");
            assert_eq!(*read, record);
            let described = read.describe("n");
            assert_eq!((described.done, described.cancellable), (done, !done));
        }
    }

    #[test]
    fn a_long_message_is_cut_and_a_long_result_refused() {
        let long = Failure::new(Code::Internal, "ä".repeat(MESSAGE_BYTES_MAX));
        let Outcome::Error { message, .. } = Outcome::from(Err(long)) else {
            panic!("an error");
        };
        assert_eq!(message.len(), MESSAGE_BYTES_MAX);
        let large = Outcome::from(Ok(json!({"a": "x".repeat(INPUT_BYTES_MAX)})));
        assert!(matches!(large, Outcome::Error { code: 13, .. }), "{large:?}");
    }
}

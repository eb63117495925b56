//! Requests for the right to bind an export: APIBindRequests in the export's workspace, one for
//! each export and user.
//!
//! ```text
//! Pending ──decision──> Approved ──role and binding──> Granted
//!    │                     └───another role has the name──> Failed
//!    ├──decision──> Denied
//!    └──expirationTimestamp──> removed
//! ```
//! A decided request is removed as long after its decision as it could have waited for one.

use crate::{
    digest,
    exports::{ExportName, bind_grant},
    ids,
};
use insula_api::{
    ClusterName, ClusterPath, Json, Object, ObjectKey, ResourceId, Timestamp, Uid, condition,
    names::{annotations, api_versions},
};
use insula_auth::{Subject, SubjectKind};
use serde_json::json;

/// Value of the annotation that allows requests.
pub const ALLOWED: &str = "allowed";
/// Seconds that a request waits for a decision by default, 14 days: longer than most absences of
/// an owner, and short enough that nobody decides on a reason that has passed.
pub const SECONDS_DEFAULT: i64 = 14 * 24 * 3_600;
/// Seconds that a request waits at most, 90 days.
pub const SECONDS_MAX: i64 = 90 * 24 * 3_600;
/// Bytes of a request's reason. The schema of APIBindRequests has the same number of characters.
pub const REASON_BYTES_MAX: usize = 1_024;
/// Requests for one export that wait for a decision: more than an owner reads.
pub const PER_EXPORT_MAX: usize = 100;
/// Requests of one user that wait for a decision, over all exports.
pub const PER_USER_MAX: usize = 20;
/// Groups of a user that a request names: more than an owner reads.
const GROUPS_MAX: usize = 32;
/// Bytes of the name of a group that a request names.
const GROUP_BYTES_MAX: usize = 256;
/// Condition of a request whose role binding is there.
pub const GRANTED: &str = "Granted";
/// Name of an export up to which it stands in the name of a request.
const READABLE_BYTES_MAX: usize = 150;
/// Characters of the digest of a user in the name of a request.
const DIGEST_CHARS: usize = 16;

/// An APIBindRequest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindRequest {
    /// Name of the export, in the workspace of the request.
    pub export: String,
    /// UID of the export.
    pub export_uid: String,
    /// Name of the user who asks, as a binding in the workspace of the request names them.
    pub user: String,
    /// Groups of that user, of which an approval may name one.
    pub groups: Vec<String>,
    /// The group that an approval gives the right to; empty for the user alone.
    pub group: String,
    /// Path of the workspace in which the user would bind.
    pub workspace: String,
    /// Logical cluster of that workspace.
    pub cluster: String,
    /// Reason, in the words of the user.
    pub reason: String,
    /// Time at which an undecided request ends.
    pub expires: Timestamp,
    /// Decision, and its time.
    pub decided: Option<(Decision, Timestamp)>,
    /// Note of who decided.
    pub message: String,
    /// Outcome of an approval: true if the user got the right, false if that failed. None until
    /// then.
    pub granted: Option<bool>,
    created: Timestamp,
}

/// The decision on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The user gets the right to bind.
    Approved,
    /// The user does not get it.
    Denied,
}

impl Decision {
    /// Returns the decision as `spec.decision` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Decision::Approved => "Approved",
            Decision::Denied => "Denied",
        }
    }

    /// Reads `spec.decision`.
    pub fn read(spec: &Json) -> Option<Self> {
        [Decision::Approved, Decision::Denied]
            .into_iter()
            .find(|decision| spec["decision"] == decision.as_str())
    }
}

/// A user who asks for the right to bind an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    /// Name, as a binding in the export's workspace names them.
    pub user: String,
    /// Groups, as they count in the export's workspace.
    pub groups: Vec<String>,
    /// Path of the workspace in which they would bind.
    pub workspace: ClusterPath,
    /// Its logical cluster.
    pub cluster: ClusterName,
}

/// Reads a number of seconds from the annotation of an export.
pub fn seconds(text: &str) -> Option<i64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = is_number.then(|| text.parse().ok()).flatten()?;
    (1..=SECONDS_MAX).contains(&seconds).then_some(seconds)
}

/// Returns the seconds that a request waits for a decision, from the annotations of an export. None
/// if they do not allow requests.
pub(super) fn allowed_seconds(given: &Json) -> Option<i64> {
    let wanted = given[annotations::API_REQUEST_SECONDS].as_str().and_then(seconds);
    (given[annotations::API_REQUESTS] == ALLOWED).then(|| wanted.unwrap_or(SECONDS_DEFAULT))
}

/// Reads the names of groups between commas.
pub fn groups(text: &str) -> Vec<String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Returns the groups of which a user needs one to ask, from the annotations of an export.
pub(super) fn allowed_groups(given: &Json) -> Vec<String> {
    groups(given[annotations::API_REQUEST_GROUPS].as_str().unwrap_or_default())
}

/// Returns the groups that a request names: those of a team, not those that the server gives to
/// everybody or to administrators.
fn named_groups(of_user: &[String]) -> Vec<&str> {
    let of_team = of_user.iter().map(String::as_str);
    let of_team = of_team.filter(|group| !group.starts_with("system:") && group.len() <= GROUP_BYTES_MAX);
    of_team.take(GROUPS_MAX).collect()
}

/// Returns the key of the request of a user for an export.
pub fn key(export: &ExportName, user: &str) -> ObjectKey {
    let readable = match export.name.len() <= READABLE_BYTES_MAX {
        true => export.name.to_string(),
        false => digest::base62(&export.name).to_lowercase(),
    };
    let mut user = digest::base62(user).to_lowercase();
    user.truncate(DIGEST_CHARS);
    ObjectKey::cluster_scoped(
        ids::apibindrequests(),
        export.cluster.clone(),
        &format!("{readable}-{user}"),
    )
}

/// Returns a new request.
pub fn request(
    export: (&ExportName, &Uid),
    requester: &Requester,
    reason: &str,
    expires: Timestamp,
) -> (ObjectKey, Json) {
    let (export, uid) = export;
    let key = key(export, &requester.user);
    let mut spec = json!({
        "export": &*export.name,
        "exportUID": uid.to_string(),
        "requester": {
            "username": requester.user,
            "workspace": requester.workspace.to_string(),
            "cluster": requester.cluster.as_str(),
        },
        "expirationTimestamp": expires.to_string(),
    });
    let groups = named_groups(&requester.groups);
    if !groups.is_empty() {
        spec["requester"]["groups"] = json!(groups);
    }
    if !reason.is_empty() {
        spec["reason"] = reason.into();
    }
    let value = json!({
        "apiVersion": api_versions::REQUESTS, "kind": "APIBindRequest",
        "metadata": {"name": &*key.name}, "spec": spec,
    });
    (key, value)
}

impl BindRequest {
    /// Reads an APIBindRequest.
    pub fn read(object: &Object) -> Self {
        let created = object.meta.creation_timestamp.unwrap_or(Timestamp(0));
        BindRequest::of_value(&object.body_value(), created)
    }

    fn of_value(value: &Json, created: Timestamp) -> Self {
        let spec = &value["spec"];
        let text = |field: &Json| field.as_str().unwrap_or_default().to_owned();
        let time = |field: &str| spec[field].as_str().and_then(Timestamp::parse);
        let granted = condition(value, GRANTED).map(|granted| granted["status"] == "True");
        BindRequest {
            export: text(&spec["export"]),
            export_uid: text(&spec["exportUID"]),
            user: text(&spec["requester"]["username"]),
            groups: (spec["requester"]["groups"].as_array().into_iter().flatten())
                .map(text)
                .collect(),
            group: text(&spec["group"]),
            workspace: text(&spec["requester"]["workspace"]),
            cluster: text(&spec["requester"]["cluster"]),
            reason: text(&spec["reason"]),
            expires: time("expirationTimestamp").unwrap_or(created),
            decided: Decision::read(spec).map(|decision| (decision, time("decisionTimestamp").unwrap_or(created))),
            message: text(&spec["message"]),
            granted,
            created,
        }
    }

    /// Returns the role and the binding that give the user, or the group of the approval, the
    /// right, with their resources.
    pub fn right(&self) -> [(ResourceId, Json); 2] {
        let (kind, name) = match self.group.is_empty() {
            true => (SubjectKind::User, &self.user),
            false => (SubjectKind::Group, &self.group),
        };
        let subject = Subject {
            kind,
            name: name.clone(),
            namespace: String::new(),
        };
        [
            (ids::clusterroles(), bind_grant::role(&self.export)),
            (ids::clusterrolebindings(), bind_grant::binding(&self.export, &subject)),
        ]
    }

    /// Returns the time at which the request is removed.
    pub fn end(&self) -> Timestamp {
        match self.decided {
            None => self.expires,
            Some((_, at)) => Timestamp(at.0 + self.expires.since(self.created).max(0)),
        }
    }

    /// Returns true if the request waits for a decision.
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.decided.is_none() && !self.has_ended(now)
    }

    /// Returns true if the request is to be removed.
    pub fn has_ended(&self, now: Timestamp) -> bool {
        now.since(self.end()) >= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(name: &str) -> ExportName {
        ExportName {
            cluster: ClusterName::root(),
            name: name.into(),
        }
    }

    #[test]
    fn a_user_has_one_request_for_an_export_under_a_valid_name() {
        let name = |name: &str, user: &str| key(&export(name), user).name.to_string();
        assert_ne!(name("widgets", "alice"), name("widgets", "bob"));
        assert!(name("widgets", "https://id.example.io/alice").starts_with("widgets-"));
        for given in [name("widgets", "Álice / 1"), name(&"w".repeat(253), "alice")] {
            let problems = crate::names::name_problems(&given, crate::names::NameRule::Subdomain);
            assert!(problems.is_empty(), "{given}: {problems:?}");
        }
    }

    #[test]
    fn a_request_ends_and_a_decision_lasts_as_long_as_it_could_wait() {
        let requester = Requester {
            user: "alice".to_owned(),
            groups: vec!["system:authenticated".to_owned(), "shop".to_owned()],
            workspace: ClusterPath::parse("root:a").expect("a path"),
            cluster: ClusterName::root(),
        };
        let uid = Uid::default();
        let (_, mut value) = request((&export("widgets"), &uid), &requester, "for tests", Timestamp(1_100));
        let read = |value: &Json| BindRequest::of_value(value, Timestamp(1_000));
        let open = read(&value);
        assert_eq!((&*open.user, &*open.reason, open.granted), ("alice", "for tests", None));
        assert_eq!(open.groups, ["shop"]);
        assert!(open.is_open(Timestamp(1_099)) && open.has_ended(Timestamp(1_100)));
        value["spec"]["decision"] = json!("Approved");
        value["spec"]["decisionTimestamp"] = json!(Timestamp(1_050).to_string());
        let decided = read(&value);
        assert!(!decided.is_open(Timestamp(1_060)));
        assert_eq!(decided.end(), Timestamp(1_150));
    }

    #[test]
    fn an_export_allows_requests_by_its_annotation() {
        let allowed = |requests: &str, seconds: &str| {
            allowed_seconds(
                &json!({"apis.insula.io/requests": requests, "apis.insula.io/request-expiration-seconds": seconds}),
            )
        };
        assert_eq!(allowed("allowed", "60"), Some(60));
        assert_eq!(allowed("allowed", "never"), Some(SECONDS_DEFAULT));
        assert_eq!(allowed("true", "60"), None);
        assert_eq!(allowed_seconds(&Json::Null), None);
    }
}

//! One line of the audit log: `audit.k8s.io/v1` Event.

use super::{policy::Verdict, stage::Stage};
use crate::{
    authorize::{Attributes, Decision, Step, Trail},
    user::UserInfo,
};
use insula_api::{ClusterName, ClusterPath, Json, Timestamp};
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::collections::BTreeMap;

/// Annotation: why a request was refused that did not come as far as authorisation.
pub const NOTE_REASON: &str = "insula.io/reason";
/// The domain of what each step of authorisation said, as in kcp
/// (`pkg/authorization/decorator.go`).
const STEP_DOMAIN: &str = "request.auth.kcp.io";
const MICROS_PER_SECOND: i64 = 1_000_000;

/// What is known of a request.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The request's id, as the answer's `Audit-Id` says it.
    pub id: String,
    /// Path and query as they came.
    pub uri: String,
    /// What the client says that it is.
    pub user_agent: String,
    /// Where the request comes from, the far end first.
    pub source_ips: Vec<String>,
    /// When it came, in microseconds since 1970.
    pub received: i64,
    /// How much is recorded; unknown until the sender is.
    pub verdict: Option<Verdict>,
    /// Who showed the credential.
    pub user: UserInfo,
    /// As whom they act, where it is another.
    pub impersonated: Option<UserInfo>,
    /// What was asked for.
    pub attributes: Attributes,
    /// Uid and resourceVersion of the object that was sent.
    pub sent: [String; 2],
    /// Where.
    pub cluster: Option<ClusterName>,
    /// The same as the client wrote it.
    pub path: Option<ClusterPath>,
    /// Whether it was allowed, and why; nothing where it was not decided.
    pub decision: Option<(bool, String)>,
    /// How it came to that.
    pub trail: Trail,
    /// The answer's code; 0 where there is none.
    pub code: u16,
    /// The answer's Status, where it is one.
    pub status: Option<Json>,
    /// What was sent.
    pub request_object: Option<Json>,
    /// What was answered.
    pub response_object: Option<Json>,
    /// Notes of whoever had a say.
    pub annotations: BTreeMap<String, String>,
}

/// A stage of a request.
#[derive(Debug, Clone)]
pub struct Event {
    /// Which.
    pub stage: Stage,
    /// When, in microseconds since 1970.
    pub at: i64,
    /// What is known.
    pub facts: Facts,
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Event { stage, at, facts } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", "Event")?;
        map.serialize_entry("apiVersion", "audit.k8s.io/v1")?;
        map.serialize_entry("level", facts.verdict.unwrap_or_default().level.word())?;
        map.serialize_entry("auditID", &facts.id)?;
        map.serialize_entry("stage", stage.word())?;
        map.serialize_entry("requestURI", &facts.uri)?;
        map.serialize_entry("verb", &facts.attributes.verb)?;
        map.serialize_entry("user", &User(&facts.user))?;
        if let Some(user) = &facts.impersonated {
            map.serialize_entry("impersonatedUser", &User(user))?;
        }
        map.serialize_entry("sourceIPs", &facts.source_ips)?;
        if !facts.user_agent.is_empty() {
            map.serialize_entry("userAgent", &facts.user_agent)?;
        }
        if facts.attributes.is_resource_request {
            map.serialize_entry("objectRef", &ObjectRef(facts))?;
        }
        if facts.code != 0 {
            map.serialize_entry("responseStatus", &ResponseStatus(facts))?;
        }
        if let Some(object) = &facts.request_object {
            map.serialize_entry("requestObject", object)?;
        }
        if let Some(object) = &facts.response_object {
            map.serialize_entry("responseObject", object)?;
        }
        map.serialize_entry("requestReceivedTimestamp", &moment(facts.received))?;
        map.serialize_entry("stageTimestamp", &moment(*at))?;
        map.serialize_entry("annotations", &Annotations(facts))?;
        map.end()
    }
}

/// `metav1.MicroTime`.
fn moment(micros: i64) -> String {
    let whole = Timestamp(micros.div_euclid(MICROS_PER_SECOND)).to_string();
    format!(
        "{}.{:06}Z",
        whole.trim_end_matches('Z'),
        micros.rem_euclid(MICROS_PER_SECOND)
    )
}

struct User<'a>(&'a UserInfo);

impl Serialize for User<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let UserInfo {
            name,
            uid,
            groups,
            extra,
        } = self.0;
        let mut map = serializer.serialize_map(None)?;
        texts(&mut map, &[("username", name), ("uid", uid)])?;
        if !groups.is_empty() {
            map.serialize_entry("groups", groups)?;
        }
        if !extra.is_empty() {
            map.serialize_entry("extra", extra)?;
        }
        map.end()
    }
}

/// Those of the texts that are not empty.
fn texts<M: SerializeMap>(map: &mut M, entries: &[(&'static str, &String)]) -> Result<(), M::Error> {
    for (key, text) in entries {
        if !text.is_empty() {
            map.serialize_entry(key, text)?;
        }
    }
    Ok(())
}

struct ObjectRef<'a>(&'a Facts);

impl Serialize for ObjectRef<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Facts { attributes, sent, .. } = self.0;
        let Attributes {
            group,
            version,
            resource,
            subresource,
            name,
            namespace,
            ..
        } = attributes;
        let [uid, revision] = sent;
        let mut map = serializer.serialize_map(None)?;
        let entries = [
            ("resource", resource),
            ("namespace", namespace),
            ("name", name),
            ("uid", uid),
            ("apiGroup", group),
            ("apiVersion", version),
            ("resourceVersion", revision),
            ("subresource", subresource),
        ];
        texts(&mut map, &entries)?;
        map.end()
    }
}

struct ResponseStatus<'a>(&'a Facts);

impl Serialize for ResponseStatus<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("metadata", &BTreeMap::<&str, &str>::new())?;
        let status = self.0.status.as_ref();
        for field in ["status", "message", "reason", "details"] {
            if let Some(value) = status.and_then(|status| status.get(field)) {
                map.serialize_entry(field, value)?;
            }
        }
        map.serialize_entry("code", &self.0.code)?;
        map.end()
    }
}

/// What a step said: `request.auth.kcp.io/02-content-decision`.
struct StepKey(Step, &'static str);

impl Serialize for StepKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let StepKey(step, what) = self;
        serializer.collect_str(&format_args!("{STEP_DOMAIN}/{}-{what}", step.name()))
    }
}

struct Annotations<'a>(&'a Facts);

impl Serialize for Annotations<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let Facts {
            cluster,
            path,
            decision,
            trail,
            annotations,
            ..
        } = self.0;
        if let Some((allowed, reason)) = decision {
            map.serialize_entry(
                "authorization.k8s.io/decision",
                if *allowed { "allow" } else { "forbid" },
            )?;
            map.serialize_entry("authorization.k8s.io/reason", reason)?;
        }
        if let Some(cluster) = cluster {
            map.serialize_entry("kcp.io/cluster", cluster.as_str())?;
            map.serialize_entry("tenancy.kcp.io/workspace", cluster.as_str())?;
        }
        if let Some(path) = path {
            map.serialize_entry("kcp.io/path", &path.to_string())?;
        }
        // Of what was allowed, the step that did it; of a refusal, how it came to that.
        let allowed = matches!(trail.last(), Some((_, Decision::Allow { .. })));
        let told = if allowed { &trail[trail.len() - 1..] } else { &trail[..] };
        for (step, decision) in told {
            let (word, reason) = match decision {
                Decision::Allow { reason } => ("Allowed", Some(reason)),
                Decision::Deny { reason } => ("Denied", Some(reason)),
                Decision::NoOpinion => ("NoOpinion", None),
            };
            map.serialize_entry(&StepKey(*step, "decision"), word)?;
            if let Some(reason) = reason {
                map.serialize_entry(&StepKey(*step, "reason"), reason)?;
            }
        }
        for (key, note) in annotations {
            map.serialize_entry(key, note)?;
        }
        map.end()
    }
}

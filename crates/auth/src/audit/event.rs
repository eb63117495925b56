//! Audit events: one line of the log, `audit.k8s.io/v1` Event.

use super::{policy::Verdict, stage::Stage};
use crate::{
    attributes::{Attributes, Decision},
    authorize::{Step, Trail},
    user::UserInfo,
};
use insula_api::{ClusterName, ClusterPath, Json, Timestamp};
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::collections::BTreeMap;

/// Annotation with the reason of a refusal before authorization.
pub const NOTE_REASON: &str = "insula.io/reason";
/// Prefix of the annotations with each authorization step's decision, as in kcp
/// (`pkg/authorization/decorator.go`).
const STEP_DOMAIN: &str = "request.auth.kcp.io";
const MICROS_PER_SECOND: i64 = 1_000_000;

/// Facts about a request that an event reports.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Id of the request, also in the answer's `Audit-Id` header.
    pub id: String,
    /// Path and query, as received.
    pub uri: String,
    /// The client's `User-Agent` header.
    pub user_agent: String,
    /// Addresses of the client and of proxies, the farthest first.
    pub source_ips: Vec<String>,
    /// Time of arrival, in microseconds since 1970.
    pub received: i64,
    /// The policy's verdict; `None` until the user is known.
    pub verdict: Option<Verdict>,
    /// The authenticated user.
    pub user: UserInfo,
    /// The impersonated user, if any.
    pub impersonated: Option<UserInfo>,
    /// Attributes of the request.
    pub attributes: Attributes,
    /// UID and resourceVersion of the object in the request.
    pub sent: [String; 2],
    /// The logical cluster of the request.
    pub cluster: Option<ClusterName>,
    /// The cluster's path, as the client wrote it.
    pub path: Option<ClusterPath>,
    /// The authorization decision with its reason; `None` if there was none.
    pub decision: Option<(bool, String)>,
    /// Decisions of the authorization steps.
    pub trail: Trail,
    /// HTTP status code of the answer; 0 if there is none.
    pub code: u16,
    /// The Status object of the answer, if it is one.
    pub status: Option<Json>,
    /// The object in the request, if the level includes it.
    pub request_object: Option<Json>,
    /// The object in the answer, if the level includes it.
    pub response_object: Option<Json>,
    /// Annotations by admission plugins, webhooks and others.
    pub annotations: BTreeMap<String, String>,
}

/// An audit event: a request at one stage.
#[derive(Debug, Clone)]
pub struct Event {
    /// The stage.
    pub stage: Stage,
    /// Time of the event, in microseconds since 1970.
    pub at: i64,
    /// The facts known at this stage.
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
        map.serialize_entry("verb", facts.attributes.verb.name())?;
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

/// Formats a time as `metav1.MicroTime`.
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

/// Writes the texts that are not empty.
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

/// Annotation key of a step: `request.auth.kcp.io/02-content-decision`.
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
        // Of an allowed request, the step that allowed it; of a refusal, all steps.
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

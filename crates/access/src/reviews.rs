//! Access reviews, answered from the snapshot of their request by the authorization chain
//! (`pkg/registry/authorization`, `pkg/registry/authentication`).

use crate::{Target, Unauthenticated, facts, roles::RolesAt};
use insula_api::{ClusterName, FieldError, FieldPath, Json, Timestamp};
use insula_auth::{Attributes, Decision, UserInfo, authorize};
use insula_catalog::{Error, Named, Result, ids};
use insula_store::Snapshot;
use serde_json::{Map, json};

/// Caller and context of a review.
#[derive(Debug, Clone, Copy)]
pub struct Requester<'a> {
    /// The state that answers.
    pub snapshot: &'a Snapshot,
    /// The caller.
    pub user: &'a UserInfo,
    /// By which program, for `managedFields`.
    pub manager: &'a str,
    /// When.
    pub now: Timestamp,
}

/// User of a token and its matching audiences, or the reason for its refusal.
pub type Known = std::result::Result<(UserInfo, Vec<String>), Unauthenticated>;

/// The token that a review asks about, and for which audiences.
pub fn asked_token<'a>(target: &Target, review: &'a Json) -> Option<(&'a str, Vec<String>)> {
    let spec = &review["spec"];
    let token = spec["token"].as_str().filter(|token| !token.is_empty())?;
    (&*target.served.api.names.plural == "tokenreviews").then(|| (token, texts(&spec["audiences"])))
}

/// Answers a review; `known` says whose the token is that it asks about.
///
/// # Errors
/// The question makes no sense.
pub fn answer(requester: Requester<'_>, target: &Target, mut review: Json, known: Option<Known>) -> Result<Json> {
    let Requester {
        snapshot,
        user,
        manager,
        now,
    } = requester;
    let cluster = &target.cluster;
    let spec = review
        .as_object_mut()
        .and_then(|review| review.remove("spec"))
        .unwrap_or_default();
    let status = match &*target.served.api.names.plural {
        "selfsubjectaccessreviews" => {
            check_question(&spec)?;
            decided(snapshot, cluster, user, &spec)
        }
        "subjectaccessreviews" => {
            check_question(&spec)?;
            decided(snapshot, cluster, &subject(&spec)?, &spec)
        }
        "localsubjectaccessreviews" => {
            check_question(&spec)?;
            check_namespace(&spec, target.namespace.as_deref().unwrap_or_default())?;
            decided(snapshot, cluster, &subject(&spec)?, &spec)
        }
        "selfsubjectrulesreviews" => match spec["namespace"].as_str().filter(|named| !named.is_empty()) {
            Some(namespace) => rules(snapshot, cluster, user, namespace),
            None => return Err(Error::BadRequest("no namespace on request".into())),
        },
        "selfsubjectreviews" => {
            review["metadata"]["creationTimestamp"] = json!(now.to_string());
            json!({"userInfo": shown(&user.within(Some(cluster)))})
        }
        _ => match known {
            Some(Ok((user, audiences))) => {
                let mut status = json!({"authenticated": true, "user": shown(&user)});
                if !audiences.is_empty() {
                    status["audiences"] = json!(audiences);
                }
                status
            }
            Some(Err(why)) => json!({"error": why.to_string(), "user": {}}),
            None => {
                let why = "token is required for TokenReview in authentication";
                return Err(Error::BadRequest(why.into()));
            }
        },
    };
    if !review["metadata"].is_object() {
        review["metadata"] = json!({});
    }
    if !spec.is_null() {
        let version = target.served.api_version(&target.version);
        review["metadata"]["managedFields"] = json!([owner(&spec, &version, manager, now)]);
        review["spec"] = spec;
    }
    review["status"] = status;
    Ok(review)
}

fn decided(snapshot: &Snapshot, cluster: &ClusterName, user: &UserInfo, spec: &Json) -> Json {
    let facts = facts(snapshot, cluster);
    // Reasons are the operator's matter, as in kcp.
    match authorize(user, &attributes(cluster, spec), &facts) {
        Decision::Allow { .. } => json!({"allowed": true, "reason": "access granted"}),
        Decision::Deny { .. } | Decision::NoOpinion => json!({"allowed": false, "reason": "access denied"}),
    }
}

fn attributes(cluster: &ClusterName, spec: &Json) -> Attributes {
    let text = |of: &Json, field: &str| of[field].as_str().unwrap_or_default().to_owned();
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    match resource.is_object() {
        true => Attributes {
            verb: text(resource, "verb"),
            group: text(resource, "group"),
            version: text(resource, "version"),
            resource: text(resource, "resource"),
            subresource: text(resource, "subresource"),
            name: text(resource, "name"),
            namespace: text(resource, "namespace"),
            path: String::new(),
            cluster: Some(cluster.clone()),
            is_resource_request: true,
        },
        false => Attributes {
            verb: text(path, "verb"),
            path: text(path, "path"),
            cluster: Some(cluster.clone()),
            ..Attributes::default()
        },
    }
}

/// The user that a review is about.
fn subject(spec: &Json) -> Result<UserInfo> {
    let name = spec["user"].as_str().unwrap_or_default().to_owned();
    let groups = texts(&spec["groups"]);
    if name.is_empty() && groups.is_empty() {
        let why = "at least one of user or group must be specified";
        let at = FieldPath::new("spec").child("user");
        return Err(invalid(FieldError::invalid(&at, &json!(""), why)));
    }
    let extra = spec["extra"].as_object().into_iter().flatten();
    Ok(UserInfo {
        name,
        uid: spec["uid"].as_str().unwrap_or_default().to_owned(),
        groups,
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
    })
}

/// The texts of a list.
pub fn texts(list: &Json) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Json::as_str).map(str::to_owned).collect()
}

fn check_question(spec: &Json) -> Result<()> {
    let at = FieldPath::new("spec");
    let given = |field: &str| spec[field].is_object();
    match (given("resourceAttributes"), given("nonResourceAttributes")) {
        (true, true) => {
            let path = &spec["nonResourceAttributes"];
            let printed = format!("{{\"Path\":{},\"Verb\":{}}}", path["path"], path["verb"]);
            let why = "cannot be specified in combination with resourceAttributes";
            let at = at.child("nonResourceAttributes");
            Err(invalid(FieldError::invalid_text(&at, printed, why)))
        }
        (false, false) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            let at = at.child("resourceAttributes");
            Err(invalid(FieldError::invalid(&at, &Json::Null, why)))
        }
        _ => Ok(()),
    }
}

fn check_namespace(spec: &Json, namespace: &str) -> Result<()> {
    let at = FieldPath::new("spec");
    if spec["nonResourceAttributes"].is_object() {
        let why = "disallowed on this kind of request";
        let at = at.child("nonResourceAttributes");
        return Err(invalid(FieldError::invalid(&at, &spec["nonResourceAttributes"], why)));
    }
    let asked = &spec["resourceAttributes"]["namespace"];
    if asked.as_str().unwrap_or_default() != namespace {
        let at = at.child("resourceAttributes").child("namespace");
        return Err(invalid(FieldError::invalid(
            &at,
            asked,
            "must match metadata.namespace",
        )));
    }
    Ok(())
}

/// Kubernetes names no kind in these refusals.
fn invalid(error: FieldError) -> Error {
    Error::Invalid {
        subject: Named {
            group: ids::AUTHORIZATION.into(),
            resource: "".into(),
        },
        name: String::new(),
        errors: vec![error],
    }
}

fn rules(snapshot: &Snapshot, cluster: &ClusterName, user: &UserInfo, namespace: &str) -> Json {
    let user = user.within(Some(cluster));
    let held = RolesAt::new(snapshot, cluster).rules_for(&user, namespace);
    let (paths, resources): (Vec<_>, Vec<_>) = held.iter().partition(|rule| !rule.non_resource_urls.is_empty());
    let resources = resources.into_iter().map(|rule| {
        let mut shown = json!({"verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources});
        if !rule.resource_names.is_empty() {
            shown["resourceNames"] = json!(rule.resource_names);
        }
        shown
    });
    let paths = paths
        .into_iter()
        .map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
    json!({
        "resourceRules": resources.collect::<Vec<_>>(),
        "nonResourceRules": paths.collect::<Vec<_>>(),
        "incomplete": false,
    })
}

/// The entry of `managedFields` for a question that is answered and not stored: everything is its
/// asker's.
pub fn owner(spec: &Json, api_version: &str, manager: &str, now: Timestamp) -> Json {
    let mut fields = owned(spec);
    // The spec is always there, so that it is nobody's.
    if let Some(fields) = fields.as_object_mut() {
        fields.remove(".");
    }
    let manager = if manager.is_empty() { "unknown" } else { manager };
    json!({
        "manager": manager, "operation": "Update", "apiVersion": api_version, "time": now.to_string(),
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields},
    })
}

fn owned(value: &Json) -> Json {
    let Some(fields) = value.as_object() else {
        return json!({});
    };
    let fields = fields.iter().filter(|(_, value)| !value.is_null());
    let fields = fields.map(|(name, value)| (format!("f:{name}"), owned(value)));
    fields.chain([(".".to_owned(), json!({}))]).collect()
}

fn shown(user: &UserInfo) -> Json {
    let mut shown = Map::new();
    shown.insert("username".into(), json!(user.name));
    if !user.uid.is_empty() {
        shown.insert("uid".into(), json!(user.uid));
    }
    if !user.groups.is_empty() {
        shown.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        shown.insert("extra".into(), json!(user.extra));
    }
    Json::Object(shown)
}

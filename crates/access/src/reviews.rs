//! Access reviews, answered from the snapshot of their request by the authorization chain
//! (`pkg/registry/authorization`, `pkg/registry/authentication`).

use crate::{Target, Unauthenticated, facts, roles::RolesAt};
use insula_api::{ClusterName, FieldError, FieldPath, Json, LabelSelector, Timestamp};
use insula_auth::{
    Attributes, ClusterFacts, Decision, GROUP_MASTERS, Identities, PolicyRule, Roles, UserInfo, authorize,
};
use insula_catalog::{Error, Named, Result, ids, names};
use insula_store::Snapshot;
use serde_json::{Map, json};
use std::sync::Arc;

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
    /// True for a deep review: its subject counts as having entered the workspace.
    pub is_deep: bool,
}

/// Header of a deep SubjectAccessReview. It counts for `system:masters` only: the parts of kcp that
/// ask on behalf of others send it.
pub const DEEP_REVIEW: &str = "x-kcp-internal-deep-subjectaccessreview";

/// The roles of a cluster without the limits that exports set for its users.
#[derive(Debug)]
struct WithoutCeiling(Arc<dyn Roles>);

impl Roles for WithoutCeiling {
    fn find(&self, user: &Identities<'_>, namespace: &str, found: &mut dyn FnMut(&PolicyRule) -> bool) -> bool {
        self.0.find(user, namespace, found)
    }

    fn ceiling(&self, _group: &str, _resource: &str) -> Option<Arc<dyn Roles>> {
        None
    }
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
        is_deep,
    } = requester;
    let cluster = &target.cluster;
    let spec = review
        .as_object_mut()
        .and_then(|review| review.remove("spec"))
        .unwrap_or_default();
    let status = match &*target.served.api.names.plural {
        "selfsubjectaccessreviews" => {
            refuse(check_question(&spec, false))?;
            decided(cluster, user, &spec, &facts(snapshot, cluster))
        }
        "subjectaccessreviews" => {
            refuse(check_question(&spec, true))?;
            let mut facts = facts(snapshot, cluster);
            if is_deep && user.is_in(GROUP_MASTERS) {
                facts.entered = true;
                facts.required_groups = None;
                facts.roles = facts
                    .roles
                    .map(|roles| Arc::new(WithoutCeiling(roles)) as Arc<dyn Roles>);
            }
            decided(cluster, &subject(&spec), &spec, &facts)
        }
        "localsubjectaccessreviews" => {
            let namespace = target.namespace.as_deref().unwrap_or_default();
            review["metadata"]["namespace"] = json!(namespace);
            let mut errors = check_question(&spec, true);
            errors.extend(check_namespace(&spec, namespace));
            refuse(errors)?;
            decided(cluster, &subject(&spec), &spec, &facts(snapshot, cluster))
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
                json!({"authenticated": true, "user": shown(&user), "audiences": audiences})
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

fn decided(cluster: &ClusterName, user: &UserInfo, spec: &Json, facts: &ClusterFacts) -> Json {
    // Reasons are the operator's matter, as in kcp.
    let mut status = match authorize(user, &attributes(cluster, spec), facts) {
        Decision::Allow { .. } => json!({"allowed": true, "reason": "access granted"}),
        Decision::Deny { .. } | Decision::NoOpinion => json!({"allowed": false, "reason": "access denied"}),
    };
    if let Some(unread) = unread_selectors(spec) {
        status["evaluationError"] = json!(unread);
    }
    status
}

fn attributes(cluster: &ClusterName, spec: &Json) -> Attributes {
    let text = |of: &Json, field: &str| of[field].as_str().unwrap_or_default().to_owned();
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    match resource.is_object() {
        true => Attributes {
            verb: text(resource, "verb").into(),
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
            verb: text(path, "verb").into(),
            path: text(path, "path"),
            cluster: Some(cluster.clone()),
            ..Attributes::default()
        },
    }
}

/// The user that a review is about.
fn subject(spec: &Json) -> UserInfo {
    let extra = spec["extra"].as_object().into_iter().flatten();
    UserInfo {
        name: spec["user"].as_str().unwrap_or_default().to_owned(),
        uid: spec["uid"].as_str().unwrap_or_default().to_owned(),
        groups: texts(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
    }
}

/// The texts of a list.
pub fn texts(list: &Json) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Json::as_str).map(str::to_owned).collect()
}

/// Checks what a review asks (`pkg/apis/authorization/validation`), with the subject if the review
/// has one.
fn check_question(spec: &Json, has_subject: bool) -> Vec<FieldError> {
    let at = FieldPath::new("spec");
    let given = |field: &str| spec[field].is_object();
    let mut errors = Vec::new();
    match (given("resourceAttributes"), given("nonResourceAttributes")) {
        (true, true) => {
            let path = &spec["nonResourceAttributes"];
            let text = |field: &str| path[field].as_str().unwrap_or_default();
            let printed = format!("{{\"Path\":{:?},\"Verb\":{:?}}}", text("path"), text("verb"));
            let why = "cannot be specified in combination with resourceAttributes";
            let at = at.child("nonResourceAttributes");
            errors.push(FieldError::invalid_text(&at, printed, why));
        }
        (false, false) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            let at = at.child("resourceAttributes");
            errors.push(FieldError::invalid(&at, &Json::Null, why));
        }
        _ => {}
    }
    let named = |field: &str| match &spec[field] {
        Json::String(text) => !text.is_empty(),
        Json::Array(list) => !list.is_empty(),
        _ => false,
    };
    if has_subject && !named("user") && !named("groups") {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid(&at.child("user"), &json!(""), why));
    }
    for field in ["fieldSelector", "labelSelector"] {
        let selector = &spec["resourceAttributes"][field];
        if selector.is_object() {
            let at = at.child("resourceAttributes").child(field);
            check_asked_selector(selector, field, &at, &mut errors);
        }
    }
    errors
}

fn check_asked_selector(selector: &Json, field: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let requirements = selector["requirements"].as_array().filter(|list| !list.is_empty());
    let raw = &selector["rawSelector"];
    let has_raw = raw.as_str().is_some_and(|raw| !raw.is_empty());
    match requirements {
        Some(_) if has_raw => {
            let why = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(&at.child("rawSelector"), raw, why));
        }
        None if !has_raw => {
            let why = format!("when {at} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(&at.child("requirements"), why));
        }
        _ => {}
    }
    for (i, requirement) in requirements.into_iter().flatten().enumerate() {
        let at = at.child("requirements").index(i);
        let has_key = requirement["key"].as_str().is_some_and(|key| !key.is_empty());
        if field == "fieldSelector" && !has_key {
            errors.push(FieldError::required(&at.child("key"), "must be specified"));
        }
        names::check_values(requirement, &at, errors);
        if field == "labelSelector" {
            names::check_key_and_values(requirement, &at, errors);
        }
    }
}

/// Returns the errors of selectors that cannot be read. They are ignored.
fn unread_selectors(spec: &Json) -> Option<String> {
    let unread = ["fieldSelector", "labelSelector"].into_iter().filter(|field| {
        let selector = &spec["resourceAttributes"][field];
        let mut requirements = selector["requirements"].as_array().into_iter().flatten();
        let raw = selector["rawSelector"].as_str().filter(|_| *field == "labelSelector");
        requirements.any(|requirement| !names::is_operator(requirement))
            || raw.is_some_and(|raw| LabelSelector::parse(raw).is_err())
    });
    let errors: Vec<String> = unread
        .map(|field| format!("spec.resourceAttributes.{field} ignored due to parse error"))
        .collect();
    match &errors[..] {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

fn check_namespace(spec: &Json, namespace: &str) -> Vec<FieldError> {
    let at = FieldPath::new("spec");
    let mut errors = Vec::new();
    let asked = &spec["resourceAttributes"];
    let asked_namespace = asked["namespace"].as_str().unwrap_or_default();
    if asked.is_object() && asked_namespace != namespace {
        let at = at.child("resourceAttributes").child("namespace");
        let why = "must match metadata.namespace";
        errors.push(FieldError::invalid(&at, &json!(asked_namespace), why));
    }
    if spec["nonResourceAttributes"].is_object() {
        let why = "disallowed on this kind of request";
        let at = at.child("nonResourceAttributes");
        errors.push(FieldError::invalid(&at, &spec["nonResourceAttributes"], why));
    }
    errors
}

/// Fails with the errors of a review. Kubernetes names no kind in these refusals.
fn refuse(errors: Vec<FieldError>) -> Result<()> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Error::Invalid {
        subject: Named {
            group: ids::AUTHORIZATION.into(),
            resource: "".into(),
        },
        name: String::new(),
        errors,
    })
}

fn rules(snapshot: &Snapshot, cluster: &ClusterName, user: &UserInfo, namespace: &str) -> Json {
    let held = RolesAt::new(snapshot, cluster).rules_for(user, namespace);
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

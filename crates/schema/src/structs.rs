//! Go's structs of Kubernetes' own kinds: the names of types, and the form in which Go encodes an
//! object. The schema has the fields and their types; these tables have the rest.

use crate::node::{Node, Type};
use crate::structural::Structural;
use insula_api::Json;
use serde_json::{Map, json};
use std::sync::LazyLock;

/// Go types of fields whose name does not tell them: the struct (empty for every other), the field,
/// and its type, without the lists and maps around it.
const TYPES: &[(&str, &str, &str)] = &[
    ("AggregationRule", "clusterRoleSelectors", "v1.LabelSelector"),
    ("CertificateSigningRequestCondition", "type", "v1.RequestConditionType"),
    ("CertificateSigningRequestSpec", "extra", "v1.ExtraValue"),
    ("CertificateSigningRequestSpec", "usages", "v1.KeyUsage"),
    (
        "CertificateSigningRequestStatus",
        "conditions",
        "v1.CertificateSigningRequestCondition",
    ),
    ("ClusterRole", "rules", "v1.PolicyRule"),
    ("ClusterRoleBinding", "subjects", "v1.Subject"),
    ("FieldSelectorAttributes", "requirements", "v1.FieldSelectorRequirement"),
    ("FieldSelectorRequirement", "operator", "v1.FieldSelectorOperator"),
    ("LabelSelectorAttributes", "requirements", "v1.LabelSelectorRequirement"),
    ("LeaseSpec", "strategy", "v1.CoordinatedLeaseStrategy"),
    ("LocalSubjectAccessReview", "spec", "v1.SubjectAccessReviewSpec"),
    ("ManagedFieldsEntry", "operation", "v1.ManagedFieldsOperationType"),
    ("MutatingWebhookConfiguration", "webhooks", "v1.MutatingWebhook"),
    ("Mutation", "jsonPatch", "v1.JSONPatch"),
    ("NamespaceCondition", "type", "v1.NamespaceConditionType"),
    ("NamespaceSpec", "finalizers", "v1.FinalizerName"),
    ("NamespaceStatus", "conditions", "v1.NamespaceCondition"),
    ("NamespaceStatus", "phase", "v1.NamespacePhase"),
    ("ParamRef", "selector", "v1.LabelSelector"),
    ("ResourceAttributes", "fieldSelector", "v1.FieldSelectorAttributes"),
    ("ResourceAttributes", "labelSelector", "v1.LabelSelectorAttributes"),
    ("ResourceQuotaSpec", "scopes", "v1.ResourceQuotaScope"),
    ("Role", "rules", "v1.PolicyRule"),
    (
        "ScopeSelector",
        "matchExpressions",
        "v1.ScopedResourceSelectorRequirement",
    ),
    (
        "ScopedResourceSelectorRequirement",
        "operator",
        "v1.ScopeSelectorOperator",
    ),
    ("Secret", "type", "v1.SecretType"),
    ("ServiceAccount", "secrets", "v1.ObjectReference"),
    ("SubjectAccessReviewSpec", "extra", "v1.ExtraValue"),
    ("TokenReviewStatus", "user", "v1.UserInfo"),
    ("UserInfo", "extra", "v1.ExtraValue"),
    ("ValidatingWebhookConfiguration", "webhooks", "v1.ValidatingWebhook"),
    ("Validation", "reason", "v1.StatusReason"),
    ("", "auditAnnotations", "v1.AuditAnnotation"),
    ("", "boundObjectRef", "v1.BoundObjectReference"),
    ("", "clientConfig", "v1.WebhookClientConfig"),
    ("", "conditions", "v1.Condition"),
    ("", "deprecatedSource", "v1.EventSource"),
    ("", "excludeResourceRules", "v1.NamedRuleWithOperations"),
    ("", "expressionWarnings", "v1.ExpressionWarning"),
    ("", "failurePolicy", "v1.FailurePolicyType"),
    ("", "hard", "v1.ResourceList"),
    ("", "imagePullSecrets", "v1.LocalObjectReference"),
    ("", "involvedObject", "v1.ObjectReference"),
    ("", "managedFields", "v1.ManagedFieldsEntry"),
    ("", "matchConditions", "v1.MatchCondition"),
    ("", "matchConstraints", "v1.MatchResources"),
    ("", "matchExpressions", "v1.LabelSelectorRequirement"),
    ("", "matchPolicy", "v1.MatchPolicyType"),
    ("", "metadata", "v1.ObjectMeta"),
    ("", "mutations", "v1.Mutation"),
    ("", "namespaceSelector", "v1.LabelSelector"),
    ("", "objectSelector", "v1.LabelSelector"),
    ("", "operations", "v1.OperationType"),
    ("", "operator", "v1.LabelSelectorOperator"),
    ("", "ownerReferences", "v1.OwnerReference"),
    ("", "parameterNotFoundAction", "v1.ParameterNotFoundActionType"),
    ("", "regarding", "v1.ObjectReference"),
    ("", "reinvocationPolicy", "v1.ReinvocationPolicyType"),
    ("", "related", "v1.ObjectReference"),
    ("", "resourceRules", "v1.NamedRuleWithOperations"),
    ("", "rules", "v1.RuleWithOperations"),
    ("", "scope", "v1.ScopeType"),
    ("", "scopeName", "v1.ResourceQuotaScope"),
    ("", "series", "v1.EventSeries"),
    ("", "service", "v1.ServiceReference"),
    ("", "sideEffects", "v1.SideEffectClass"),
    ("", "source", "v1.EventSource"),
    ("", "status", "v1.ConditionStatus"),
    ("", "subjects", "v1.Subject"),
    ("", "uid", "types.UID"),
    ("", "used", "v1.ResourceList"),
    ("", "validationActions", "v1.ValidationAction"),
    ("", "validations", "v1.Validation"),
    ("", "variables", "v1.Variable"),
];

/// Fields of structs that others embed: the outer struct, its fields, the embedded struct's path.
const EMBEDDED: &[(&str, &[&str], &str)] = &[
    (
        "RuleWithOperations",
        &["apiGroups", "apiVersions", "resources", "scope"],
        "Rule",
    ),
    (
        "NamedRuleWithOperations",
        &["apiGroups", "apiVersions", "resources", "scope"],
        "RuleWithOperations.Rule",
    ),
    ("NamedRuleWithOperations", &["operations"], "RuleWithOperations"),
];

/// Lists and maps with a Go type of their own.
const COLLECTIONS: &[&str] = &["v1.ResourceList", "v1.ExtraValue"];

/// Structs with a field `uid` that is a plain text.
const PLAIN_UID: &[&str] = &["SubjectAccessReviewSpec", "UserInfo", "CertificateSigningRequestSpec"];

/// Fields without `omitempty`: always encoded, also without a value. Lists that must not be empty
/// are left out here, for a message that says so.
const ENCODED: &[(&str, &[&str])] = &[
    ("AuditAnnotation", &["key", "valueExpression"]),
    ("CertificateSigningRequestCondition", &["type", "status"]),
    ("CertificateSigningRequestSpec", &["signerName"]),
    ("ClusterRole", &["rules"]),
    ("Condition", &["type", "status", "reason", "message"]),
    ("FieldSelectorRequirement", &["key", "operator"]),
    ("LabelSelectorRequirement", &["key", "operator"]),
    ("MatchCondition", &["name", "expression"]),
    ("MutatingWebhook", &["name"]),
    ("Mutation", &["patchType"]),
    ("NamespaceCondition", &["type", "status"]),
    ("OwnerReference", &["apiVersion", "kind", "name", "uid"]),
    ("Role", &["rules"]),
    ("RoleRef", &["apiGroup", "kind", "name"]),
    ("ScopedResourceSelectorRequirement", &["scopeName", "operator"]),
    ("ServiceReference", &["namespace", "name"]),
    ("Subject", &["kind", "name"]),
    ("ValidatingWebhook", &["name"]),
    ("Validation", &["expression"]),
    ("Variable", &["name", "expression"]),
];

/// Fields with pointers to texts, numbers and flags, whose empty value is a value.
const POINTERS: &[&str] = &[
    "automountServiceAccountToken",
    "blockOwnerDeletion",
    "controller",
    "deletionGracePeriodSeconds",
    "expirationSeconds",
    "failurePolicy",
    "holderIdentity",
    "immutable",
    "leaseDurationSeconds",
    "leaseTransitions",
    "matchPolicy",
    "parameterNotFoundAction",
    "path",
    "port",
    "preferredHolder",
    "reason",
    "reinvocationPolicy",
    "scope",
    "sideEffects",
    "strategy",
    "timeoutSeconds",
    "url",
];

/// Structs with a field named in [`POINTERS`] that is none.
const PLAIN: &[(&str, &str)] = &[
    ("Event", "reason"),
    ("NamespaceCondition", "reason"),
    ("Condition", "reason"),
];

/// Schema of metadata: `ObjectMeta`.
static METADATA: LazyLock<Option<Structural>> = LazyLock::new(|| {
    let text = || json!({"type": "string"});
    let texts = || json!({"type": "object", "additionalProperties": text()});
    let time = || json!({"type": "string", "format": "date-time"});
    let flag = || json!({"type": "boolean"});
    let records = |fields: Json| json!({"type": "array", "items": {"type": "object", "properties": fields}});
    Structural::parse_trusted(&json!({"type": "object", "properties": {
        "name": text(), "generateName": text(), "namespace": text(), "selfLink": text(), "uid": text(),
        "resourceVersion": text(), "generation": {"type": "integer"},
        "creationTimestamp": time(), "deletionTimestamp": time(),
        "deletionGracePeriodSeconds": {"type": "integer"}, "labels": texts(), "annotations": texts(),
        "finalizers": {"type": "array", "items": text()},
        "ownerReferences": records(json!({"apiVersion": text(), "kind": text(), "name": text(), "uid": text(),
            "controller": flag(), "blockOwnerDeletion": flag()})),
        "managedFields": records(json!({"manager": text(), "operation": text(), "apiVersion": text(),
            "time": time(), "fieldsType": text(), "subresource": text()})),
    }}))
    .ok()
});

/// Returns the schema of a field of the whole object; `None` for its type and unknown fields.
pub(crate) fn root_field<'s>(schema: &'s Structural, name: &str) -> Option<&'s Node> {
    match (name, &*METADATA) {
        ("apiVersion" | "kind", _) => None,
        ("metadata", Some(metadata)) => Some(metadata.root()),
        _ => schema.root().property(name),
    }
}

/// Returns the Go type of a field of the whole object, without lists and maps around it.
pub(crate) fn root_type(node: &Node, kind: &str, name: &str) -> String {
    match (name, known_type(kind, name)) {
        ("spec" | "status", None | Some("v1.ConditionStatus")) => format!("v1.{kind}{}", capitalized(name)),
        (_, Some(known)) => known.to_owned(),
        (_, None) => default_type(node, name),
    }
}

/// Returns the Go type of a field of a struct, without lists and maps around it.
pub(crate) fn field_type(node: &Node, owner: &str, name: &str) -> String {
    known_type(owner, name).map_or_else(|| default_type(node, name), str::to_owned)
}

/// Returns a field's path below its struct in an error: embedded structs are part of it.
pub(crate) fn go_path(owner: &str, name: &str) -> String {
    let embedded = EMBEDDED
        .iter()
        .find(|(struct_, fields, _)| *struct_ == owner && fields.contains(&name));
    match embedded {
        Some((_, _, path)) => format!("{path}.{name}"),
        None => name.to_owned(),
    }
}

/// Returns the type of a value, with the lists and maps around the type of its field.
pub(crate) fn go_type(node: &Node, type_name: &str) -> String {
    let is_last = |inner: Option<&Node>| inner.is_none_or(|node| node.items.is_none() && node.additional.is_none());
    let inner = node.items().or(node.additional.as_deref());
    if COLLECTIONS.contains(&type_name) && inner.is_some() && is_last(inner) {
        return type_name.to_owned();
    }
    match (node.kind, inner) {
        (Some(Type::Array), Some(item)) => format!("[]{}", go_type(item, type_name)),
        (Some(Type::Object), Some(value)) => format!("map[string]{}", go_type(value, type_name)),
        (Some(Type::String), _) if COLLECTIONS.contains(&type_name) => "string".to_owned(),
        _ => type_name.to_owned(),
    }
}

/// Brings an object into the form in which Go encodes it: a null is an empty value, and an empty
/// value is left out unless its field is always encoded.
pub fn encode_struct(object: &mut Json, schema: &Structural, kind: &str) {
    let Some(map) = object.as_object_mut() else { return };
    let names: Vec<String> = map.keys().cloned().collect();
    let always = always_encoded(kind).iter().map(|name| (*name).to_owned());
    for name in names.into_iter().chain(always) {
        if let Some(node) = root_field(schema, &name) {
            encode_field(map, node, kind, &name, &root_type(node, kind, &name));
        }
    }
}

fn always_encoded(owner: &str) -> &'static [&'static str] {
    ENCODED
        .iter()
        .find(|(struct_, _)| *struct_ == owner)
        .map_or(&[], |(_, fields)| fields)
}

fn encode_field(map: &mut Map<String, Json>, node: &Node, owner: &str, name: &str, type_name: &str) {
    let always = always_encoded(owner).contains(&name);
    if let Some(value) = map.get_mut(name) {
        encode_value(value, node, type_name);
    }
    let is_pointer = POINTERS.contains(&name) && !PLAIN.contains(&(owner, name));
    let empty = map.get(name).is_none_or(|value| match value {
        Json::Null => true,
        Json::String(text) => text.is_empty() && !is_pointer,
        Json::Number(number) => number.as_i64() == Some(0) && !is_pointer,
        Json::Bool(flag) => !flag && !is_pointer,
        Json::Array(list) => list.is_empty(),
        // An empty struct is a value.
        Json::Object(fields) => fields.is_empty() && node.additional.is_some(),
    });
    match (empty, always) {
        (true, false) => map.remove(name),
        (true, true) => map.insert(name.to_owned(), nothing(node)),
        (false, _) => None,
    };
}

/// Returns the encoded form of a field without a value.
fn nothing(node: &Node) -> Json {
    match node.kind {
        Some(Type::String) => json!(""),
        Some(Type::Integer | Type::Number) => json!(0),
        Some(Type::Boolean) => json!(false),
        _ => Json::Null,
    }
}

fn encode_value(value: &mut Json, node: &Node, type_name: &str) {
    match value {
        Json::Object(map) => match &node.additional {
            Some(additional) => map
                .values_mut()
                .for_each(|value| encode_item(value, additional, type_name)),
            None => {
                let owner = type_name.rsplit('.').next().unwrap_or_default();
                for (name, field) in node.properties() {
                    if map.contains_key(name) || always_encoded(owner).contains(&name) {
                        encode_field(map, field, owner, name, &field_type(field, owner, name));
                    }
                }
            }
        },
        Json::Array(items) => {
            if let Some(node) = node.items() {
                items.iter_mut().for_each(|item| encode_item(item, node, type_name));
            }
        }
        _ => {}
    }
}

/// Encodes an item of a list or map, which is never left out.
fn encode_item(value: &mut Json, node: &Node, type_name: &str) {
    if value.is_null() {
        *value = match node.kind {
            Some(Type::Object) if node.additional.is_none() => json!({}),
            // A quantity.
            None if node.int_or_string => json!("0"),
            _ => nothing(node),
        };
    }
    encode_value(value, node, type_name);
}

/// Returns the type of a field that [`TYPES`] has, for its struct before all structs.
fn known_type(owner: &str, field: &str) -> Option<&'static str> {
    let of = |owner: &str| {
        TYPES
            .iter()
            .find(|(struct_, name, _)| *struct_ == owner && *name == field)
    };
    match field {
        "uid" if PLAIN_UID.contains(&owner) => None,
        _ => of(owner).or_else(|| of("")).map(|(_, _, known)| *known),
    }
}

/// Returns the type that a field's schema and name tell.
fn default_type(node: &Node, name: &str) -> String {
    match (node.kind, &node.additional) {
        (Some(Type::String), _) if format_of(node) == "byte" => "[]uint8".to_owned(),
        (Some(Type::String), _) => "string".to_owned(),
        (Some(Type::Boolean), _) => "bool".to_owned(),
        (Some(Type::Number), _) => "float64".to_owned(),
        (Some(Type::Integer), _) if format_of(node) == "int32" => "int32".to_owned(),
        (Some(Type::Integer), _) => "int64".to_owned(),
        (Some(Type::Array), _) => node.items().map(|items| default_type(items, name)).unwrap_or_default(),
        (Some(Type::Object), Some(additional)) => default_type(additional, name),
        (Some(Type::Object), None) => format!("v1.{}", capitalized(name)),
        (None, _) => "interface {}".to_owned(),
    }
}

fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

pub(crate) fn format_of(node: &Node) -> &str {
    node.limits
        .as_ref()
        .and_then(|limits| limits.format.as_deref())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_encoded_as_go_encodes_them() {
        let schema = Structural::parse_trusted(&json!({"type": "object", "properties": {
            "immutable": {"type": "boolean"}, "type": {"type": "string"},
            "data": {"type": "object", "additionalProperties": {"type": "string"}},
            "rules": {"type": "array", "items": {"type": "object", "properties": {
                "verbs": {"type": "array", "items": {"type": "string"}},
                "resourceNames": {"type": "array", "items": {"type": "string"}}}}}}}))
        .expect("a schema");
        let rows = [
            (
                json!({"data": {"a": null, "b": "c"}}),
                json!({"data": {"a": "", "b": "c"}, "rules": null}),
            ),
            (
                json!({"data": {}, "type": "", "immutable": false}),
                json!({"immutable": false, "rules": null}),
            ),
            (
                json!({"data": null, "immutable": null, "rules": []}),
                json!({"rules": null}),
            ),
            (
                json!({"rules": [null, {"verbs": [null], "resourceNames": []}]}),
                json!({"rules": [{}, {"verbs": [""]}]}),
            ),
            (
                json!({"metadata": {"labels": {"a": null}, "finalizers": [], "ownerReferences": [{"controller": null}]},
                    "rules": null, "more": null}),
                json!({"metadata": {"labels": {"a": ""}, "ownerReferences":
                    [{"apiVersion": "", "kind": "", "name": "", "uid": ""}]}, "rules": null, "more": null}),
            ),
        ];
        for (mut object, want) in rows {
            encode_struct(&mut object, &schema, "Role");
            assert_eq!(object, want);
        }
    }
}

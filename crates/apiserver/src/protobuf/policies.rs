//! Tables of the messages of access control: roles and admission policies, their bindings, and
//! reviews of access.

use super::field::{Field, META, Type};

const fn text(number: u32, name: &'static str) -> Field {
    (number, name, Type::Text, false)
}

const fn texts(number: u32, name: &'static str) -> Field {
    (number, name, Type::Text, true)
}

const fn one(number: u32, name: &'static str, fields: &'static [Field]) -> Field {
    (number, name, Type::Message(fields), false)
}

const fn optional(number: u32, name: &'static str, fields: &'static [Field]) -> Field {
    (number, name, Type::Pointer(fields), false)
}

const fn embedded(number: u32, fields: &'static [Field]) -> Field {
    (number, "", Type::Embedded(fields), false)
}

const fn list(number: u32, name: &'static str, fields: &'static [Field]) -> Field {
    (number, name, Type::Message(fields), true)
}

const REQUIREMENT: &[Field] = &[text(1, "key"), text(2, "operator"), texts(3, "values")];
const SELECTOR: &[Field] = &[
    (1, "matchLabels", Type::TextMap, false),
    list(2, "matchExpressions", REQUIREMENT),
];

const POLICY_RULE: &[Field] = &[
    texts(1, "verbs"),
    texts(2, "apiGroups"),
    texts(3, "resources"),
    texts(4, "resourceNames"),
    texts(5, "nonResourceURLs"),
];
const ROLE: &[Field] = &[one(1, "metadata", META), list(2, "rules", POLICY_RULE)];
const AGGREGATION: &[Field] = &[list(1, "clusterRoleSelectors", SELECTOR)];
const CLUSTER_ROLE: &[Field] = &[
    one(1, "metadata", META),
    list(2, "rules", POLICY_RULE),
    optional(3, "aggregationRule", AGGREGATION),
];
const SUBJECT: &[Field] = &[
    text(1, "kind"),
    text(2, "apiGroup"),
    text(3, "name"),
    text(4, "namespace"),
];
const ROLE_REF: &[Field] = &[text(1, "apiGroup"), text(2, "kind"), text(3, "name")];
const BINDING: &[Field] = &[
    one(1, "metadata", META),
    list(2, "subjects", SUBJECT),
    one(3, "roleRef", ROLE_REF),
];

const RULE: &[Field] = &[
    texts(1, "apiGroups"),
    texts(2, "apiVersions"),
    texts(3, "resources"),
    text(4, "scope"),
];
const WITH_OPERATIONS: &[Field] = &[texts(1, "operations"), embedded(2, RULE)];
const NAMED_RULE: &[Field] = &[texts(1, "resourceNames"), embedded(2, WITH_OPERATIONS)];
const MATCH_RESOURCES: &[Field] = &[
    optional(1, "namespaceSelector", SELECTOR),
    optional(2, "objectSelector", SELECTOR),
    list(3, "resourceRules", NAMED_RULE),
    list(4, "excludeResourceRules", NAMED_RULE),
    text(7, "matchPolicy"),
];
const CONDITION: &[Field] = &[text(1, "name"), text(2, "expression")];
const PARAM_KIND: &[Field] = &[text(1, "apiVersion"), text(2, "kind")];
const PARAM_REF: &[Field] = &[
    text(1, "name"),
    text(2, "namespace"),
    optional(3, "selector", SELECTOR),
    text(4, "parameterNotFoundAction"),
];
const VALIDATION: &[Field] = &[
    text(1, "expression"),
    text(2, "message"),
    text(3, "reason"),
    text(4, "messageExpression"),
];
const ANNOTATION: &[Field] = &[text(1, "key"), text(2, "valueExpression")];
const VALIDATING_SPEC: &[Field] = &[
    optional(1, "paramKind", PARAM_KIND),
    optional(2, "matchConstraints", MATCH_RESOURCES),
    list(3, "validations", VALIDATION),
    text(4, "failurePolicy"),
    list(5, "auditAnnotations", ANNOTATION),
    list(6, "matchConditions", CONDITION),
    list(7, "variables", CONDITION),
];
const VALIDATING: &[Field] = &[one(1, "metadata", META), one(2, "spec", VALIDATING_SPEC)];
const BINDING_SPEC: &[Field] = &[
    text(1, "policyName"),
    optional(2, "paramRef", PARAM_REF),
    optional(3, "matchResources", MATCH_RESOURCES),
    texts(4, "validationActions"),
];
const POLICY_BINDING: &[Field] = &[one(1, "metadata", META), one(2, "spec", BINDING_SPEC)];
const EXPRESSION: &[Field] = &[text(1, "expression")];
const MUTATION: &[Field] = &[
    text(2, "patchType"),
    optional(3, "applyConfiguration", EXPRESSION),
    optional(4, "jsonPatch", EXPRESSION),
];
const MUTATING_SPEC: &[Field] = &[
    optional(1, "paramKind", PARAM_KIND),
    optional(2, "matchConstraints", MATCH_RESOURCES),
    list(3, "variables", CONDITION),
    list(4, "mutations", MUTATION),
    text(5, "failurePolicy"),
    list(6, "matchConditions", CONDITION),
    text(7, "reinvocationPolicy"),
];
const MUTATING: &[Field] = &[one(1, "metadata", META), one(2, "spec", MUTATING_SPEC)];

const SELECTED: &[Field] = &[text(1, "rawSelector"), list(2, "requirements", REQUIREMENT)];
const RESOURCE_ASKED: &[Field] = &[
    text(1, "namespace"),
    text(2, "verb"),
    text(3, "group"),
    text(4, "version"),
    text(5, "resource"),
    text(6, "subresource"),
    text(7, "name"),
    one(8, "fieldSelector", SELECTED),
    one(9, "labelSelector", SELECTED),
];
const PATH_ASKED: &[Field] = &[text(1, "path"), text(2, "verb")];
/// The question of an access review; one about the sender names no user.
const ACCESS_ASKED: &[Field] = &[
    optional(1, "resourceAttributes", RESOURCE_ASKED),
    optional(2, "nonResourceAttributes", PATH_ASKED),
    text(3, "user"),
    texts(4, "groups"),
    (5, "extra", Type::TextsMap, false),
    text(6, "uid"),
];
const ACCESS_REVIEW: &[Field] = &[one(1, "metadata", META), one(2, "spec", ACCESS_ASKED)];
const RULES_REVIEW: &[Field] = &[one(1, "metadata", META), one(2, "spec", &[text(1, "namespace")])];
const SELF_REVIEW: &[Field] = &[one(1, "metadata", META)];
const TOKEN_ASKED: &[Field] = &[text(1, "token"), texts(2, "audiences")];
const BOUND_OBJECT: &[Field] = &[text(1, "kind"), text(2, "apiVersion"), text(3, "name"), text(4, "uid")];
const TOKEN_WANTED: &[Field] = &[
    texts(1, "audiences"),
    one(3, "boundObjectRef", BOUND_OBJECT),
    (4, "expirationSeconds", Type::Integer, false),
];
const TOKEN_REQUEST: &[Field] = &[one(1, "metadata", META), one(2, "spec", TOKEN_WANTED)];
const TOKEN_REVIEW: &[Field] = &[one(1, "metadata", META), one(2, "spec", TOKEN_ASKED)];

const SERVICE: &[Field] = &[
    text(1, "namespace"),
    text(2, "name"),
    text(3, "path"),
    (4, "port", Type::Integer, false),
];
const CLIENT_CONFIG: &[Field] = &[
    optional(1, "service", SERVICE),
    (2, "caBundle", Type::Bytes, false),
    text(3, "url"),
];
const VALIDATING_WEBHOOK: &[Field] = &[
    text(1, "name"),
    one(2, "clientConfig", CLIENT_CONFIG),
    list(3, "rules", WITH_OPERATIONS),
    text(4, "failurePolicy"),
    optional(5, "namespaceSelector", SELECTOR),
    text(6, "sideEffects"),
    (7, "timeoutSeconds", Type::Integer, false),
    texts(8, "admissionReviewVersions"),
    text(9, "matchPolicy"),
    optional(10, "objectSelector", SELECTOR),
    list(11, "matchConditions", CONDITION),
];
const MUTATING_WEBHOOK: &[Field] = &[
    text(1, "name"),
    one(2, "clientConfig", CLIENT_CONFIG),
    list(3, "rules", WITH_OPERATIONS),
    text(4, "failurePolicy"),
    optional(5, "namespaceSelector", SELECTOR),
    text(6, "sideEffects"),
    (7, "timeoutSeconds", Type::Integer, false),
    texts(8, "admissionReviewVersions"),
    text(9, "matchPolicy"),
    text(10, "reinvocationPolicy"),
    optional(11, "objectSelector", SELECTOR),
    list(12, "matchConditions", CONDITION),
];
const VALIDATING_WEBHOOKS: &[Field] = &[one(1, "metadata", META), list(2, "webhooks", VALIDATING_WEBHOOK)];
const MUTATING_WEBHOOKS: &[Field] = &[one(1, "metadata", META), list(2, "webhooks", MUTATING_WEBHOOK)];

/// The table of a kind of `rbac.authorization.k8s.io/v1`, `admissionregistration.k8s.io/v1`,
/// `authorization.k8s.io/v1` or `authentication.k8s.io/v1`.
pub(super) fn read(kind: &str) -> Option<&'static [Field]> {
    Some(match kind {
        "SubjectAccessReview" | "LocalSubjectAccessReview" | "SelfSubjectAccessReview" => ACCESS_REVIEW,
        "SelfSubjectRulesReview" => RULES_REVIEW,
        "SelfSubjectReview" => SELF_REVIEW,
        "TokenReview" => TOKEN_REVIEW,
        "TokenRequest" => TOKEN_REQUEST,
        "Role" => ROLE,
        "ClusterRole" => CLUSTER_ROLE,
        "RoleBinding" | "ClusterRoleBinding" => BINDING,
        "ValidatingAdmissionPolicy" => VALIDATING,
        "MutatingAdmissionPolicy" => MUTATING,
        "ValidatingWebhookConfiguration" => VALIDATING_WEBHOOKS,
        "MutatingWebhookConfiguration" => MUTATING_WEBHOOKS,
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => POLICY_BINDING,
        _ => return None,
    })
}

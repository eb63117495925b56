//! Protobuf messages of admission policies, their bindings and webhook configurations.

use crate::kind::message::{Field, META, SELECTOR, Type, embedded, list, one, optional, text, texts};

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
pub(super) const VALIDATING: &[Field] = &[one(1, "metadata", META), one(2, "spec", VALIDATING_SPEC)];
const BINDING_SPEC: &[Field] = &[
    text(1, "policyName"),
    optional(2, "paramRef", PARAM_REF),
    optional(3, "matchResources", MATCH_RESOURCES),
    texts(4, "validationActions"),
];
pub(super) const POLICY_BINDING: &[Field] = &[one(1, "metadata", META), one(2, "spec", BINDING_SPEC)];
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
pub(super) const MUTATING: &[Field] = &[one(1, "metadata", META), one(2, "spec", MUTATING_SPEC)];
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
pub(super) const VALIDATING_WEBHOOKS: &[Field] = &[one(1, "metadata", META), list(2, "webhooks", VALIDATING_WEBHOOK)];
pub(super) const MUTATING_WEBHOOKS: &[Field] = &[one(1, "metadata", META), list(2, "webhooks", MUTATING_WEBHOOK)];

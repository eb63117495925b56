//! Specs of policies and bindings, read from their JSON. Validation happened at admission: a
//! missing field is empty here, and nothing is checked again.

use insula_api::Json;
use serde::Deserialize;

/// `spec` of both kinds of policies.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicySpec {
    /// Kind of the parameter objects; none for a policy without parameters.
    pub param_kind: Option<ParamKind>,
    /// Requests that the policy matches.
    pub match_constraints: Option<MatchResources>,
    /// Conditions in CEL on a request; all must hold.
    pub match_conditions: Vec<Named>,
    /// Variables of the expressions, in order.
    pub variables: Vec<Named>,
    /// `Fail` or `Ignore`: the decision where an expression or a call fails.
    pub failure_policy: String,
    /// Of a ValidatingAdmissionPolicy.
    pub validations: Vec<Validation>,
    /// Of a ValidatingAdmissionPolicy.
    pub audit_annotations: Vec<AuditAnnotation>,
    /// Of a MutatingAdmissionPolicy.
    pub mutations: Vec<Mutation>,
    /// Of a MutatingAdmissionPolicy.
    pub reinvocation_policy: String,
}

/// `spec` of both kinds of bindings.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BindingSpec {
    /// Name of the policy.
    pub policy_name: String,
    /// Reference to the parameter objects.
    pub param_ref: Option<ParamRef>,
    /// Requests that the binding matches, among those of its policy.
    pub match_resources: Option<MatchResources>,
    /// `Deny`, `Warn` or `Audit`.
    pub validation_actions: Vec<String>,
}

/// The kind of parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParamKind {
    /// `group/version`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

/// A reference to the parameter objects.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParamRef {
    /// Name of one object; empty with a selector.
    pub name: String,
    /// Namespace; empty for the namespace of the request.
    pub namespace: String,
    /// Label selector in place of a name.
    pub selector: Option<Json>,
    /// `Allow` or `Deny`: the decision without a parameter object.
    pub parameter_not_found_action: String,
}

/// Criteria that select requests.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MatchResources {
    /// `Exact` or `Equivalent`.
    pub match_policy: String,
    /// Label selector on the namespace of the request.
    pub namespace_selector: Option<Json>,
    /// Label selector on the object of the request.
    pub object_selector: Option<Json>,
    /// Rules; at least one must match.
    pub resource_rules: Vec<Rule>,
    /// Exclusion rules; none may match.
    pub exclude_resource_rules: Vec<Rule>,
}

/// A rule that selects operations on resources.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// API groups, or `*`.
    pub api_groups: Vec<String>,
    /// Versions, or `*`.
    pub api_versions: Vec<String>,
    /// Resources and subresources (`pods/status`), or `*`.
    pub resources: Vec<String>,
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT`, or `*`.
    pub operations: Vec<String>,
    /// Names of objects; empty for all.
    pub resource_names: Vec<String>,
    /// `Cluster`, `Namespaced`, or `*`.
    pub scope: String,
}

/// A named expression: a match condition or a variable.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Named {
    /// Name.
    pub name: String,
    /// Expression in CEL.
    pub expression: String,
}

/// A validation: an expression that must be true.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Validation {
    /// Expression in CEL that must be true.
    pub expression: String,
    /// Message of a refusal.
    pub message: String,
    /// Expression in CEL of the message.
    pub message_expression: String,
    /// Reason of the refusal's Status.
    pub reason: Option<String>,
}

/// A note for the audit log.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditAnnotation {
    /// Last part of the annotation's key.
    pub key: String,
    /// Expression in CEL of the value: a text or null.
    pub value_expression: String,
}

/// A mutation.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Mutation {
    /// `ApplyConfiguration` or `JSONPatch`.
    pub patch_type: String,
    /// Expression of a configuration to apply.
    pub apply_configuration: Option<Source>,
    /// Expression of a JSON patch.
    pub json_patch: Option<Source>,
}

/// A wrapper object around an expression.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Source {
    /// Expression in CEL.
    pub expression: String,
}

/// The webhooks of a webhook configuration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hooks {
    /// Webhooks in order.
    pub webhooks: Vec<WebhookSpec>,
}

/// One webhook of a configuration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WebhookSpec {
    /// Qualified name.
    pub name: String,
    /// URL or service, and the CA bundle.
    pub client_config: Json,
    /// Operations on resources that the webhook is called for.
    pub rules: Vec<Rule>,
    /// `Fail` or `Ignore`: the decision where an expression or a call fails.
    pub failure_policy: String,
    /// `Exact` or `Equivalent`.
    pub match_policy: String,
    /// Label selector on the namespace of the request.
    pub namespace_selector: Option<Json>,
    /// Label selector on the object of the request.
    pub object_selector: Option<Json>,
    /// `None` or `NoneOnDryRun`.
    pub side_effects: String,
    /// Seconds to wait for a response.
    pub timeout_seconds: i64,
    /// Versions of AdmissionReview that the webhook reads, best first.
    pub admission_review_versions: Vec<String>,
    /// Conditions in CEL on a request; all must hold.
    pub match_conditions: Vec<Named>,
    /// `Never` or `IfNeeded`.
    pub reinvocation_policy: String,
}

impl Hooks {
    /// Reads a stored configuration.
    pub fn read(configuration: &Json) -> Hooks {
        Hooks::deserialize(configuration).unwrap_or_default()
    }
}

impl WebhookSpec {
    /// Returns a policy that has only the match conditions and failure policy of this webhook.
    pub fn as_policy(&self) -> PolicySpec {
        PolicySpec {
            match_conditions: self.match_conditions.clone(),
            failure_policy: self.failure_policy.clone(),
            ..PolicySpec::default()
        }
    }

    /// Returns the criteria for the requests that the webhook is called for.
    pub fn constraints(&self) -> MatchResources {
        MatchResources {
            match_policy: self.match_policy.clone(),
            namespace_selector: self.namespace_selector.clone(),
            object_selector: self.object_selector.clone(),
            resource_rules: self.rules.clone(),
            exclude_resource_rules: Vec::new(),
        }
    }
}

impl PolicySpec {
    /// Reads the `spec` of a stored policy.
    pub fn read(policy: &Json) -> PolicySpec {
        PolicySpec::deserialize(&policy["spec"]).unwrap_or_default()
    }

    /// Returns true if requests pass when an expression or a call fails.
    pub fn ignores_failure(&self) -> bool {
        self.failure_policy == "Ignore"
    }
}

impl BindingSpec {
    /// Reads the `spec` of a stored binding.
    pub fn read(binding: &Json) -> BindingSpec {
        BindingSpec::deserialize(&binding["spec"]).unwrap_or_default()
    }
}

impl ParamKind {
    /// Returns the group and the version.
    pub fn group_version(&self) -> (&str, &str) {
        self.api_version.split_once('/').unwrap_or(("", &self.api_version))
    }
}

/// `/v1, Kind=ConfigMap`, as Go prints a kind.
impl std::fmt::Display for ParamKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (group, version) = self.group_version();
        write!(f, "{group}/{version}, Kind={}", self.kind)
    }
}

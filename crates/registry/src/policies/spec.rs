//! What policies and bindings say, read from their JSON. Admission has looked at it before: what is
//! missing here is empty, and nothing is judged.

use insula_api::Json;
use serde::Deserialize;

/// `spec` of both kinds of policies.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PolicySpec {
    pub(crate) param_kind: Option<ParamKind>,
    pub(crate) match_constraints: Option<MatchResources>,
    pub(crate) match_conditions: Vec<Named>,
    pub(crate) variables: Vec<Named>,
    pub(crate) failure_policy: String,
    /// Of a ValidatingAdmissionPolicy.
    pub(crate) validations: Vec<Validation>,
    /// Of a ValidatingAdmissionPolicy.
    pub(crate) audit_annotations: Vec<AuditAnnotation>,
    /// Of a MutatingAdmissionPolicy.
    pub(crate) mutations: Vec<Mutation>,
    /// Of a MutatingAdmissionPolicy.
    pub(crate) reinvocation_policy: String,
}

/// `spec` of both kinds of bindings.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BindingSpec {
    pub(crate) policy_name: String,
    pub(crate) param_ref: Option<ParamRef>,
    pub(crate) match_resources: Option<MatchResources>,
    pub(crate) validation_actions: Vec<String>,
}

/// The kind of parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ParamKind {
    pub(crate) api_version: String,
    pub(crate) kind: String,
}

/// Which objects are parameters.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ParamRef {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) selector: Option<Json>,
    pub(crate) parameter_not_found_action: String,
}

/// Which requests.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct MatchResources {
    pub(crate) match_policy: String,
    pub(crate) namespace_selector: Option<Json>,
    pub(crate) object_selector: Option<Json>,
    pub(crate) resource_rules: Vec<Rule>,
    pub(crate) exclude_resource_rules: Vec<Rule>,
}

/// Operations on resources.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    pub(crate) api_groups: Vec<String>,
    pub(crate) api_versions: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) operations: Vec<String>,
    pub(crate) resource_names: Vec<String>,
    pub(crate) scope: String,
}

/// A condition or a variable.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) expression: String,
}

/// One thing that must be true.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Validation {
    pub(crate) expression: String,
    pub(crate) message: String,
    pub(crate) message_expression: String,
    pub(crate) reason: Option<String>,
}

/// A note for the audit log.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AuditAnnotation {
    pub(crate) key: String,
    pub(crate) value_expression: String,
}

/// One change.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Mutation {
    pub(crate) patch_type: String,
    pub(crate) apply_configuration: Option<Source>,
    pub(crate) json_patch: Option<Source>,
}

/// An expression in an object of its own.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Source {
    pub(crate) expression: String,
}

/// What a webhook configuration says.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Hooks {
    pub(crate) webhooks: Vec<WebhookSpec>,
}

/// One webhook of a configuration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WebhookSpec {
    pub(crate) name: String,
    pub(crate) client_config: Json,
    pub(crate) rules: Vec<Rule>,
    pub(crate) failure_policy: String,
    pub(crate) match_policy: String,
    pub(crate) namespace_selector: Option<Json>,
    pub(crate) object_selector: Option<Json>,
    pub(crate) side_effects: String,
    pub(crate) timeout_seconds: i64,
    pub(crate) admission_review_versions: Vec<String>,
    pub(crate) match_conditions: Vec<Named>,
    pub(crate) reinvocation_policy: String,
}

impl Hooks {
    /// Reads a stored configuration.
    pub(crate) fn read(configuration: &Json) -> Hooks {
        Hooks::deserialize(configuration).unwrap_or_default()
    }
}

impl WebhookSpec {
    /// Its conditions, as a policy without anything else.
    pub(crate) fn as_policy(&self) -> PolicySpec {
        PolicySpec {
            match_conditions: self.match_conditions.clone(),
            failure_policy: self.failure_policy.clone(),
            ..PolicySpec::default()
        }
    }

    /// The requests that it is about.
    pub(crate) fn constraints(&self) -> MatchResources {
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
    pub(crate) fn read(policy: &Json) -> PolicySpec {
        PolicySpec::deserialize(&policy["spec"]).unwrap_or_default()
    }

    /// Whether failures let requests pass.
    pub(crate) fn ignores_failure(&self) -> bool {
        self.failure_policy == "Ignore"
    }
}

impl BindingSpec {
    /// Reads the `spec` of a stored binding.
    pub(crate) fn read(binding: &Json) -> BindingSpec {
        BindingSpec::deserialize(&binding["spec"]).unwrap_or_default()
    }
}

impl ParamKind {
    /// Group and version.
    pub(crate) fn group_version(&self) -> (&str, &str) {
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

//! Issuer configuration in Kubernetes' format (`apiserver.config.k8s.io/v1`, `JWTAuthenticator`).

use serde::Deserialize;

/// One issuer, with the validation and mapping of its tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct JwtAuthenticator {
    /// The issuer.
    pub issuer: IssuerConfig,
    /// Rules for the claims of tokens.
    pub claim_validation_rules: Vec<ClaimRule>,
    /// Mapping of claims to users.
    pub claim_mappings: ClaimMappings,
    /// Rules for the mapped users.
    pub user_validation_rules: Vec<UserRule>,
}

/// An issuer and its audiences.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct IssuerConfig {
    /// The claim `iss`, and the base of the discovery URL.
    pub url: String,
    /// Another discovery URL; empty for the default.
    #[serde(rename = "discoveryURL")]
    pub discovery_url: String,
    /// Certificate authorities of the issuer's server, PEM. Empty: those of the machine.
    pub certificate_authority: String,
    /// Accepted audiences: the claim `aud` must have one of them.
    pub audiences: Vec<String>,
    /// `MatchAny`; may be empty with one audience.
    pub audience_match_policy: String,
}

/// A rule for claims: a claim with its required value, or an expression that must be true.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ClaimRule {
    /// Name of the claim.
    pub claim: String,
    /// Required value of the claim.
    pub required_value: String,
    /// CEL over `claims`.
    pub expression: String,
    /// Log message if the expression is false.
    pub message: String,
}

/// Mapping of claims to the user's attributes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ClaimMappings {
    /// Name of the user.
    pub username: PrefixedMapping,
    /// Groups of the user: a text or a list of texts.
    pub groups: PrefixedMapping,
    /// UID of the user, which differs between users of one name.
    pub uid: Mapping,
    /// Extra attributes of the user.
    pub extra: Vec<ExtraMapping>,
}

/// A claim with a prefix, or an expression.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PrefixedMapping {
    /// Name of the claim.
    pub claim: String,
    /// Prefix of its value; required, but may be empty.
    pub prefix: Option<String>,
    /// CEL over `claims`.
    pub expression: String,
}

/// A claim or an expression.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Mapping {
    /// Name of the claim.
    pub claim: String,
    /// CEL over `claims`.
    pub expression: String,
}

/// One extra attribute of the user.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ExtraMapping {
    /// Key of the attribute: a domain and a path.
    pub key: String,
    /// CEL over `claims` that returns a text, a list of texts, or null.
    pub value_expression: String,
}

/// A rule for users: an expression that must be true.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct UserRule {
    /// CEL over `user`.
    pub expression: String,
    /// Log message if the expression is false.
    pub message: String,
}

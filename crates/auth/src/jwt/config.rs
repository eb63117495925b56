//! What a configuration says, in Kubernetes' words (`apiserver.config.k8s.io/v1`,
//! `JWTAuthenticator`).

use serde::Deserialize;

/// One issuer, and what its tokens count for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct JwtAuthenticator {
    /// Who issues.
    pub issuer: IssuerConfig,
    /// What tokens have to say.
    pub claim_validation_rules: Vec<ClaimRule>,
    /// Which user they stand for.
    pub claim_mappings: ClaimMappings,
    /// What the user has to be.
    pub user_validation_rules: Vec<UserRule>,
}

/// Who issues tokens, and for whom.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct IssuerConfig {
    /// The claim `iss`, and where the keys are found.
    pub url: String,
    /// Where the keys are found, if elsewhere.
    #[serde(rename = "discoveryURL")]
    pub discovery_url: String,
    /// Who may sign the issuer's certificate, PEM. Empty: whom the machine trusts.
    pub certificate_authority: String,
    /// One of them has to be in the claim `aud`.
    pub audiences: Vec<String>,
    /// `MatchAny`, or nothing where there is one audience.
    pub audience_match_policy: String,
}

/// A claim and the value that it must have, or an expression that must be true.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ClaimRule {
    /// The claim's name.
    pub claim: String,
    /// Its value.
    pub required_value: String,
    /// Over `claims`.
    pub expression: String,
    /// What is logged when it is not true.
    pub message: String,
}

/// Which claims are what of the user.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ClaimMappings {
    /// The name.
    pub username: PrefixedMapping,
    /// The groups: a text or a list of texts.
    pub groups: PrefixedMapping,
    /// What tells users of one name apart.
    pub uid: Mapping,
    /// What else is known.
    pub extra: Vec<ExtraMapping>,
}

/// A claim with a prefix, or an expression.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PrefixedMapping {
    /// The claim's name.
    pub claim: String,
    /// Stands before its value; has to be said, if only as an empty text.
    pub prefix: Option<String>,
    /// Over `claims`.
    pub expression: String,
}

/// A claim or an expression.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Mapping {
    /// The claim's name.
    pub claim: String,
    /// Over `claims`.
    pub expression: String,
}

/// One entry of the user's extra information.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ExtraMapping {
    /// Its key: a domain and a path.
    pub key: String,
    /// Over `claims`: a text, a list of texts, or nothing.
    pub value_expression: String,
}

/// An expression that must be true of the user.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct UserRule {
    /// Over `user`.
    pub expression: String,
    /// What is logged when it is not true.
    pub message: String,
}

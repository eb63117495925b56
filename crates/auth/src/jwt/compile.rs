//! Compilation of issuer configurations. Refuses invalid ones in Kubernetes' words.

use super::config::{ClaimMappings, ClaimRule, IssuerConfig, JwtAuthenticator, Mapping, PrefixedMapping, UserRule};
use super::expression::{self, Over, Want};
use crate::service_account;
use insula_api::{FieldError, FieldPath, Json};
use insula_cel::Program;
use std::{collections::BTreeSet, sync::Arc};

/// Maximum number of issuers of one configuration, as in Kubernetes.
pub const ISSUERS_MAX: usize = 64;
/// Maximum number of rules and mappings of one issuer: each is an expression that runs for every
/// request.
const RULES_MAX: usize = 64;
/// Maximum number of bytes of a URL or an audience; the limit of a certificate bundle follows.
const URL_BYTES_MAX: usize = 2048;
const CA_BYTES_MAX: usize = 64 << 10;

/// Origin of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Giver {
    /// The operator, who is trusted and may let the server call any host.
    Operator,
    /// A workspace: the server calls its issuer only where the operator allows it, and its tokens
    /// make no users of the system.
    Workspace,
}

/// An issuer with a valid, compiled configuration.
#[derive(Debug)]
pub struct Issuer {
    /// Origin of its configuration.
    pub giver: Giver,
    /// The claim `iss`.
    pub url: Arc<str>,
    /// URL of its discovery document, which names its keys.
    pub discovery_url: Arc<str>,
    /// Certificate authorities of its server, PEM; `None` for those of the machine.
    pub certificate_authority: Option<Arc<[u8]>>,
    pub(super) audiences: Vec<String>,
    pub(super) required: Vec<(String, String)>,
    pub(super) rules: Vec<Rule>,
    pub(super) username: Source,
    pub(super) groups: Option<Source>,
    pub(super) uid: Option<Source>,
    pub(super) extra: Vec<(String, Program)>,
    pub(super) user_rules: Vec<Rule>,
}

/// Source of a value.
#[derive(Debug)]
pub(super) enum Source {
    Claim { name: String, prefix: String },
    Expression(Box<Program>),
}

/// A validation rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) program: Program,
    pub(super) message: String,
}

/// Compiles one entry of a configuration.
///
/// # Errors
/// Returns an error for each invalid field.
pub fn compile(config: &JwtAuthenticator, giver: Giver, at: &FieldPath) -> Result<Issuer, Vec<FieldError>> {
    let JwtAuthenticator {
        issuer,
        claim_validation_rules,
        claim_mappings,
        user_validation_rules,
    } = config;
    let errors = &mut Vec::new();
    check_issuer(issuer, &at.child("issuer"), errors);
    let (required, rules) = claim_rules(claim_validation_rules, &at.child("claimValidationRules"), errors);
    let mapped = mappings(claim_mappings, &rules, giver, &at.child("claimMappings"), errors);
    let user_rules = user_rules(user_validation_rules, &at.child("userValidationRules"), errors);
    match mapped {
        Some(mapped) if errors.is_empty() => Ok(Issuer {
            giver,
            url: issuer.url.as_str().into(),
            discovery_url: discovery_url(issuer).into(),
            certificate_authority: (!issuer.certificate_authority.is_empty())
                .then(|| issuer.certificate_authority.as_bytes().into()),
            audiences: issuer.audiences.clone(),
            required,
            rules,
            username: mapped.username,
            groups: mapped.groups,
            uid: mapped.uid,
            extra: mapped.extra,
            user_rules,
        }),
        _ => Err(std::mem::take(errors)),
    }
}

fn discovery_url(issuer: &IssuerConfig) -> String {
    match issuer.discovery_url.is_empty() {
        true => format!("{}/.well-known/openid-configuration", issuer.url.trim_end_matches('/')),
        false => issuer.discovery_url.clone(),
    }
}

fn check_issuer(issuer: &IssuerConfig, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let IssuerConfig {
        url,
        discovery_url,
        certificate_authority,
        audiences,
        audience_match_policy,
    } = issuer;
    let url_at = at.child("url");
    match url.is_empty() {
        true => errors.push(FieldError::required(&url_at, "")),
        false => check_url(url, &url_at, errors),
    }
    if url == service_account::ISSUER {
        let why = format!(
            "URL must not overlap with disallowed issuers: [{}]",
            service_account::ISSUER
        );
        errors.push(FieldError::invalid(&url_at, &Json::from(url.as_str()), why));
    }
    if !discovery_url.is_empty() {
        let at = at.child("discoveryURL");
        if url.trim_end_matches('/') == discovery_url.trim_end_matches('/') {
            let why = "discoveryURL must be different from URL";
            errors.push(FieldError::invalid(&at, &Json::from(discovery_url.as_str()), why));
        }
        check_url(discovery_url, &at, errors);
    }
    if certificate_authority.len() > CA_BYTES_MAX {
        errors.push(FieldError::too_long(&at.child("certificateAuthority"), CA_BYTES_MAX));
    } else if !certificate_authority.is_empty() && !certificate_authority.contains("-----BEGIN CERTIFICATE-----") {
        let why = "data does not contain any valid RSA or ECDSA certificates";
        errors.push(FieldError::invalid_text(
            &at.child("certificateAuthority"),
            "\"<omitted>\"",
            why,
        ));
    }
    check_audiences(audiences, audience_match_policy, at, errors);
}

fn check_url(url: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if url.len() > URL_BYTES_MAX {
        return errors.push(FieldError::too_long(at, URL_BYTES_MAX));
    }
    let mut wrong = |why: &str| errors.push(FieldError::invalid(at, &Json::from(url), why));
    let rest = url.strip_prefix("https://");
    if rest.is_none() {
        wrong("URL scheme must be https");
    }
    let authority = rest.unwrap_or(url).split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        wrong("URL must not contain a username or password");
    }
    if authority.is_empty() || url.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\') {
        wrong("URL must name a host, without blanks");
    }
    let (before, fragment) = url.split_once('#').unwrap_or((url, ""));
    if before.contains('?') {
        wrong("URL must not contain a query");
    }
    if !fragment.is_empty() {
        wrong("URL must not contain a fragment");
    }
}

fn check_audiences(audiences: &[String], policy: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let (policy_at, at) = (at.child("audienceMatchPolicy"), at.child("audiences"));
    if audiences.is_empty() {
        return errors.push(FieldError::required(&at, format!("at least one {at} is required")));
    }
    if audiences.len() > RULES_MAX {
        return errors.push(FieldError::too_many(&at, audiences.len(), RULES_MAX));
    }
    let mut seen = BTreeSet::new();
    for (i, audience) in audiences.iter().enumerate() {
        let at = at.index(i);
        if audience.is_empty() {
            errors.push(FieldError::required(&at, ""));
        }
        if !seen.insert(audience) {
            errors.push(FieldError::duplicate(&at, &Json::from(audience.as_str())));
        }
    }
    let why = match (audiences.len(), policy) {
        (_, "MatchAny") | (1, "") => return,
        (1, _) => "audienceMatchPolicy must be empty or MatchAny for single audience",
        _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
    };
    errors.push(FieldError::invalid(&policy_at, &Json::from(policy), why));
}

type Required = Vec<(String, String)>;

fn claim_rules(given: &[ClaimRule], at: &FieldPath, errors: &mut Vec<FieldError>) -> (Required, Vec<Rule>) {
    let (mut required, mut rules) = (Vec::new(), Vec::new());
    if given.len() > RULES_MAX {
        errors.push(FieldError::too_many(at, given.len(), RULES_MAX));
        return (required, rules);
    }
    let mut seen = BTreeSet::new();
    for (i, rule) in given.iter().enumerate() {
        let at = at.index(i);
        let ClaimRule {
            claim,
            required_value,
            expression,
            message,
        } = rule;
        let invalid = |at: &FieldPath, value: &str, why: &str| FieldError::invalid(at, &Json::from(value), why);
        match (claim.is_empty(), expression.is_empty()) {
            (false, false) => errors.push(invalid(&at, claim, "claim and expression can't both be set")),
            (true, true) => errors.push(FieldError::required(&at, "claim or expression is required")),
            (false, true) => {
                if !message.is_empty() {
                    let why = "may not be specified when claim is set";
                    errors.push(invalid(&at.child("message"), message, why));
                }
                if !seen.insert((claim, "")) {
                    errors.push(FieldError::duplicate(&at.child("claim"), &Json::from(claim.as_str())));
                }
                required.push((claim.clone(), required_value.clone()));
            }
            (true, false) => {
                if !required_value.is_empty() {
                    let why = "may not be specified when expression is set";
                    errors.push(invalid(&at.child("requiredValue"), required_value, why));
                }
                let at = at.child("expression");
                if !seen.insert((expression, "expression")) {
                    errors.push(FieldError::duplicate(&at, &Json::from(expression.as_str())));
                    continue;
                }
                rules.extend(one_rule(expression, message, Over::Claims, &at, errors));
            }
        }
    }
    (required, rules)
}

fn user_rules(given: &[UserRule], at: &FieldPath, errors: &mut Vec<FieldError>) -> Vec<Rule> {
    if given.len() > RULES_MAX {
        errors.push(FieldError::too_many(at, given.len(), RULES_MAX));
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    let mut rules = Vec::new();
    for (i, UserRule { expression, message }) in given.iter().enumerate() {
        let at = at.index(i).child("expression");
        if expression.is_empty() {
            errors.push(FieldError::required(&at, ""));
        } else if !seen.insert(expression) {
            errors.push(FieldError::duplicate(&at, &Json::from(expression.as_str())));
        } else {
            rules.extend(one_rule(expression, message, Over::User, &at, errors));
        }
    }
    rules
}

fn one_rule(expression: &str, message: &str, over: Over, at: &FieldPath, errors: &mut Vec<FieldError>) -> Option<Rule> {
    let program = noted(expression::compile(expression, over, Want::Truth, at), errors)?;
    Some(Rule {
        program,
        message: message.to_owned(),
    })
}

fn noted<T>(result: Result<T, FieldError>, errors: &mut Vec<FieldError>) -> Option<T> {
    result.map_err(|error| errors.push(error)).ok()
}

struct Mapped {
    username: Source,
    groups: Option<Source>,
    uid: Option<Source>,
    extra: Vec<(String, Program)>,
}

fn mappings(
    given: &ClaimMappings,
    rules: &[Rule],
    giver: Giver,
    at: &FieldPath,
    errors: &mut Vec<FieldError>,
) -> Option<Mapped> {
    let ClaimMappings {
        username,
        groups,
        uid,
        extra,
    } = given;
    let username_at = at.child("username");
    if username.claim.is_empty() && username.expression.is_empty() {
        errors.push(FieldError::required(&username_at, "claim or expression is required"));
    }
    let name = prefixed(username, &username_at, errors);
    let groups = prefixed(groups, &at.child("groups"), errors);
    let uid = plain(uid, &at.child("uid"), errors);
    let extra = extras(extra, giver, &at.child("extra"), errors);
    if let Some(Source::Expression(name)) = &name {
        let others = extra.iter().map(|(_, program)| program);
        let others = others.chain(rules.iter().map(|rule| &rule.program));
        let verified = std::iter::once(&**name)
            .chain(others)
            .any(|program| reads(program, "email_verified"));
        if reads(name, "email") && !verified {
            let why = "claims.email_verified must be used in claimMappings.username.expression or \
                claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is \
                used in claimMappings.username.expression";
            let at = username_at.child("expression");
            errors.push(FieldError::invalid(&at, &Json::from(username.expression.as_str()), why));
        }
    }
    Some(Mapped {
        username: name?,
        groups,
        uid,
        extra,
    })
}

fn reads(program: &Program, claim: &str) -> bool {
    let first = |path: &[String]| path.first().is_some_and(|first| first == claim);
    program.references().iter().any(|read| first(&read.path))
}

fn prefixed(given: &PrefixedMapping, at: &FieldPath, errors: &mut Vec<FieldError>) -> Option<Source> {
    let PrefixedMapping {
        claim,
        prefix,
        expression,
    } = given;
    if let (false, Some(prefix)) = (expression.is_empty(), prefix) {
        let why = "may not be specified when expression is set";
        errors.push(FieldError::invalid(
            &at.child("prefix"),
            &Json::from(prefix.as_str()),
            why,
        ));
    }
    if !claim.is_empty() && expression.is_empty() && prefix.is_none() {
        let why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
        errors.push(FieldError::required(&at.child("prefix"), why));
    }
    source(claim, prefix.as_deref().unwrap_or_default(), expression, at, errors)
}

fn plain(given: &Mapping, at: &FieldPath, errors: &mut Vec<FieldError>) -> Option<Source> {
    source(&given.claim, "", &given.expression, at, errors)
}

fn source(claim: &str, prefix: &str, expression: &str, at: &FieldPath, errors: &mut Vec<FieldError>) -> Option<Source> {
    match (claim.is_empty(), expression.is_empty()) {
        (true, true) => None,
        (false, false) => {
            let why = "claim and expression can't both be set";
            errors.push(FieldError::invalid(at, &Json::from(""), why));
            None
        }
        (false, true) => Some(Source::Claim {
            name: claim.to_owned(),
            prefix: prefix.to_owned(),
        }),
        (true, false) => {
            let compiled = expression::compile(expression, Over::Claims, Want::Anything, &at.child("expression"));
            noted(compiled, errors).map(|program| Source::Expression(Box::new(program)))
        }
    }
}

fn extras(
    given: &[super::config::ExtraMapping],
    giver: Giver,
    at: &FieldPath,
    errors: &mut Vec<FieldError>,
) -> Vec<(String, Program)> {
    if given.len() > RULES_MAX {
        errors.push(FieldError::too_many(at, given.len(), RULES_MAX));
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    let mut extra = Vec::new();
    for (i, mapping) in given.iter().enumerate() {
        let (at, key) = (at.index(i), mapping.key.as_str());
        check_key(key, &at.child("key"), errors);
        if !seen.insert(key) {
            errors.push(FieldError::duplicate(&at.child("key"), &Json::from(key)));
            continue;
        }
        let at = at.child("valueExpression");
        if mapping.value_expression.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        let compiled = expression::compile(&mapping.value_expression, Over::Claims, Want::Anything, &at);
        let program = noted(compiled, errors).filter(|_| !is_scrubbed(key, giver));
        extra.extend(program.map(|program| (key.to_owned(), program)));
    }
    extra
}

fn check_key(key: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let (domain, path) = key.split_once('/').unwrap_or((key, ""));
    let invalid = |why: &str| FieldError::invalid(at, &Json::from(key), why);
    if key.is_empty() {
        return errors.push(FieldError::required(at, ""));
    }
    if domain.is_empty() || path.is_empty() {
        errors.push(invalid("must be a domain-prefixed path (such as \"acme.io/foo\")"));
    }
    if key != key.to_lowercase() {
        errors.push(invalid("must be lowercase"));
    }
    if in_domain(domain, "kubernetes.io") || in_domain(domain, "k8s.io") {
        let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
        errors.push(invalid(why));
    }
}

/// Returns true for a key that only the server sets in users of a workspace's issuers: it says
/// where an identity counts. As in kcp, its mapping is accepted and has no effect.
fn is_scrubbed(key: &str, giver: Giver) -> bool {
    giver == Giver::Workspace && in_domain(key.split('/').next().unwrap_or_default(), "kcp.io")
}

fn in_domain(domain: &str, of: &str) -> bool {
    domain
        .strip_suffix(of)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

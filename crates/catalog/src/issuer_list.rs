//! Lists of token issuers in configurations: `spec.jwt` of a WorkspaceAuthenticationConfiguration,
//! and the operator's list.

use insula_api::{FieldError, FieldPath, Json};
use insula_auth::jwt::{Giver, ISSUERS_MAX, Issuer, JwtAuthenticator, compile};
use std::collections::BTreeSet;

/// Limit on the issuers of one workspace configuration. A workspace type may name several
/// configurations.
const WORKSPACE_ISSUERS_MAX: usize = 16;

/// Returns the error of a WorkspaceAuthenticationConfiguration with too many issuers.
pub fn check_count(object: &Json) -> Vec<FieldError> {
    let listed = object["spec"]["jwt"].as_array().map_or(0, Vec::len);
    let at = FieldPath::new("spec").child("jwt");
    match listed > WORKSPACE_ISSUERS_MAX {
        true => vec![FieldError::too_many(&at, listed, WORKSPACE_ISSUERS_MAX)],
        false => Vec::new(),
    }
}

/// Returns the reasons why issuers of a WorkspaceAuthenticationConfiguration cannot be used.
pub fn unusable(object: &Json) -> Vec<FieldError> {
    let at = FieldPath::new("spec").child("jwt");
    read_each(&object["spec"]["jwt"], Giver::Workspace, &at).1
}

/// Compiles the issuers of a WorkspaceAuthenticationConfiguration that can be used.
pub fn usable(object: &Json) -> Vec<Issuer> {
    read_each(&object["spec"]["jwt"], Giver::Workspace, &FieldPath::root()).0
}

/// Compiles the operator's list of issuers.
///
/// # Errors
/// Returns all field errors of the list.
pub fn read_all(jwt: &Json, at: &FieldPath) -> Result<Vec<Issuer>, Vec<FieldError>> {
    let listed = jwt.as_array().map_or(0, Vec::len);
    if listed > ISSUERS_MAX {
        return Err(vec![FieldError::too_many(at, listed, ISSUERS_MAX)]);
    }
    let (issuers, errors) = read_each(jwt, Giver::Operator, at);
    if errors.is_empty() { Ok(issuers) } else { Err(errors) }
}

fn read_each(jwt: &Json, giver: Giver, at: &FieldPath) -> (Vec<Issuer>, Vec<FieldError>) {
    let listed = jwt.as_array().map(Vec::as_slice).unwrap_or_default();
    let (mut issuers, mut errors) = (Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    for (i, value) in listed.iter().enumerate() {
        let at = at.index(i);
        let config: JwtAuthenticator = match serde_json::from_value(value.clone()) {
            Ok(config) => config,
            Err(error) => {
                errors.push(FieldError::invalid_text(&at, "object", error.to_string()));
                continue;
            }
        };
        if !seen.insert(config.issuer.url.clone()) {
            let at = at.child("issuer").child("url");
            errors.push(FieldError::duplicate(&at, &Json::from(config.issuer.url.as_str())));
            continue;
        }
        match compile(&config, giver, &at) {
            Ok(issuer) => issuers.push(issuer),
            Err(wrong) => errors.extend(wrong),
        }
    }
    (issuers, errors)
}

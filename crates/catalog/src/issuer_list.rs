//! Lists of token issuers in configurations: `spec.jwt` of a WorkspaceAuthenticationConfiguration,
//! and the operator's list.

use insula_api::{FieldError, FieldPath, Json};
use insula_auth::jwt::{Giver, ISSUERS_MAX, Issuer, JwtAuthenticator, compile};
use std::collections::BTreeSet;

/// Limit on the issuers of one workspace configuration. A workspace type may name several
/// configurations.
const WORKSPACE_ISSUERS_MAX: usize = 16;

/// Returns the errors in a WorkspaceAuthenticationConfiguration.
pub fn check(object: &Json) -> Vec<FieldError> {
    let at = FieldPath::new("spec").child("jwt");
    read_all(&object["spec"]["jwt"], Giver::Workspace, &at)
        .err()
        .unwrap_or_default()
}

/// Compiles a list of issuers.
///
/// # Errors
/// Returns all field errors of the list.
pub fn read_all(jwt: &Json, giver: Giver, at: &FieldPath) -> Result<Vec<Issuer>, Vec<FieldError>> {
    let max = match giver {
        Giver::Operator => ISSUERS_MAX,
        Giver::Workspace => WORKSPACE_ISSUERS_MAX,
    };
    let listed = jwt.as_array().map(Vec::as_slice).unwrap_or_default();
    if listed.len() > max {
        return Err(vec![FieldError::too_many(at, listed.len(), max)]);
    }
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
        }
        match compile(&config, giver, &at) {
            Ok(issuer) => issuers.push(issuer),
            Err(wrong) => errors.extend(wrong),
        }
    }
    if errors.is_empty() { Ok(issuers) } else { Err(errors) }
}

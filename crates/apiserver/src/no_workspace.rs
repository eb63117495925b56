//! Refusals of requests whose URL names no workspace: they say so, with the fix. Paths of the API
//! without one mean all clusters, as in kcp, and what a client sees there is a missing right, or
//! that nothing is served. Clients of Go do not show the Status of a failed discovery, but show
//! warnings.

use insula_pipeline::Refusal;

/// Documents that every client reads first.
const ENTRANCES: [&str; 4] = ["/api", "/apis", "/openapi/v2", "/openapi/v3"];

/// Returns the refusal of a request for a path, with the fix if the path names no workspace.
pub(crate) fn explained(path: &str, refusal: Refusal) -> Refusal {
    let is_entrance = ENTRANCES.contains(&path);
    let is_api = is_entrance || path.starts_with("/api/") || path.starts_with("/apis/");
    let warning = || vec![Refusal::NoWorkspace.to_string()];
    match refusal {
        Refusal::NotServed if is_entrance => Refusal::NoWorkspace.warn(warning()),
        // The token of a service account leads to the account's own workspace.
        Refusal::Forbidden(mut forbidden) if is_api && forbidden.attributes.cluster.is_none() => {
            forbidden.message = format!("{}; {}", forbidden.message, Refusal::NoWorkspace);
            Refusal::Forbidden(forbidden).warn(warning())
        }
        refusal => refusal,
    }
}

//! Admission rules of the server's own kinds, one file a kind. They run on the storage version,
//! after the strategy and before the commit, and read the same snapshot as the rest of the request.
//!
//! A kind's other parts stand in [`insula_catalog::builtin`]. Its rules are here because they ask
//! for permissions, which `insula_access` decides above the catalog.

mod apibinding;
mod apiconversion;
mod apiexport;
mod apiresourceschema;
mod apiservice;
mod bindrequest;
mod catalogue;
mod certificate;
mod definition;
mod endpointslice;
mod event;
mod hidden;
mod logicalcluster;
mod namespace;
mod rbac;
mod release;
mod removal;
mod reserved;
mod review;
mod thirdpartyresource;
mod trial;
mod usage;
mod workspace;
mod workspacetype;

#[cfg(test)]
mod tests;

pub use apiresourceschema::check as check_schema;
pub use catalogue::is_hidden;
pub use review::{Operation, Review};
pub use workspace::user_json;

use insula_api::Json;
use insula_catalog::{Error, Result};
use review::{Rules, WriteRule};

/// Rules of every kind, before the kind's own.
static EVERY_KIND: &[WriteRule] = &[reserved::review];

/// Rules of single kinds.
static RULES: &[Rules] = &[
    apibinding::RULES,
    apiconversion::RULES,
    apiexport::RULES,
    apiresourceschema::RULES,
    apiservice::RULES,
    bindrequest::RULES,
    certificate::RULES,
    definition::RULES,
    endpointslice::RULES,
    event::RULES,
    logicalcluster::RULES,
    namespace::RULES,
    rbac::RULES,
    thirdpartyresource::FIRST,
    thirdpartyresource::SECOND,
    workspace::RULES,
    workspacetype::RULES,
];

/// Returns the rules of the kind under review; several entries may name one kind.
fn rules_of(review: &Review<'_>) -> impl Iterator<Item = &'static Rules> {
    let api = review.served.api.clone();
    RULES
        .iter()
        .filter(move |rules| *rules.group == *api.group && rules.resources.contains(&&*api.names.plural))
}

/// Reviews a write, may complete `new`, and returns warnings for the caller. Refusals have kcp's
/// codes: 403 where its admission plugins refuse, 422 where the rules of a kind do.
pub fn review(review: Review<'_>, new: Option<&mut Json>, old: Option<&Json>) -> Result<Vec<String>> {
    match (new, old) {
        (Some(new), old) => {
            EVERY_KIND.iter().try_for_each(|rule| rule(&review, new, old))?;
            rules_of(&review).try_for_each(|rules| (rules.write)(&review, new, old))?;
        }
        (None, Some(old)) => rules_of(&review).try_for_each(|rules| (rules.deletion)(&review, old))?,
        (None, None) => {}
    }
    Ok(review.warnings.into_inner())
}

/// Adds details from the snapshot to a refusal by a kind's own rules.
pub fn explain(review: &Review<'_>, refusal: Error) -> Error {
    rules_of(review).fold(refusal, |refusal, rules| (rules.explain)(review, refusal))
}

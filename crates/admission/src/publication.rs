//! Publication of APIs: what an author's files become as APIResourceSchemas, APIConversions and an
//! APIExport, and what that changes for consumers.
//!
//! Functions of values. The command line and the gRPC services share them, and each reads and
//! writes objects in its own way: a [`Find`] returns what is stored already.

mod compatible;
mod contents;
mod diff;
mod draft;
mod effects;
mod lint;
mod manifest;
mod plan;
mod removal;
mod steps;

pub use compatible::review;
pub use contents::{has_same_contents, is_accepted, updated};
pub use diff::{Difference, differences};
pub use draft::{Draft, NoVersions, Pair, Side, draft, versions_to_draft};
pub use effects::{
    Acceptance, Effect, Effects, NewVersions, Serving, Times, add as add_effects, is_open, unaccepted, unanswered,
};
pub use lint::{Finding, Severity, lint};
pub use manifest::{Manifest, without_rules};
pub use plan::{
    Published, Refusal, RulesSource, export, join_files, keep_rules, offered, publish, refuse_drafts, with_words,
    withdraw,
};
pub use removal::{Removal, confirm, means_version, removals, withdrawals};
pub use steps::{Step, steps};

use insula_api::{Json, names::api_versions};

/// Returns the stored object of a kind and name, or `None` if there is none.
pub type Find<'a, E> = &'a dyn Fn(&str, &str) -> Result<Option<Json>, E>;

/// Returns the plural and the `apiVersion` in which objects of a published kind are written.
pub fn resource_of(kind: &str) -> Option<(&'static str, &'static str)> {
    Some(match kind {
        "APIResourceSchema" => ("apiresourceschemas", api_versions::APIS_V1ALPHA1),
        "APIConversion" => ("apiconversions", api_versions::APIS_V1ALPHA1),
        "APIConversionRules" => ("apiconversionrules", "apis.kcp.dev/v1alpha1"),
        "APIExport" => ("apiexports", api_versions::APIS_V1ALPHA2),
        _ => return None,
    })
}

/// Returns the text at a JSON pointer, or an empty one.
fn text<'a>(value: &'a Json, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Json::as_str).unwrap_or_default()
}

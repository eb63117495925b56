//! Versions without rules between which fields break: a publication asks for rules, or for
//! `--accept-incompatible`.

use insula_api::names::annotations::ACCEPT_INCOMPATIBLE;
use serde_json::json;

use super::{
    plan::Published,
    target::{Target, is_accepted},
};
use crate::{apis::Source, files::Document};

/// Fields that an error lists.
const LISTED_MAX: usize = 40;

/// Adds an error to every API whose versions are incompatible, unless that is accepted: by the
/// caller, or by the annotation of the published schema.
///
/// # Errors
/// The target cannot be read.
pub(super) fn review(target: &Target, published: &mut [Published], accepted: bool) -> anyhow::Result<()> {
    for api in published {
        let breaks = breaks(api);
        if breaks.is_empty() {
            continue;
        }
        let count = match breaks.len() {
            1 => "1 field breaks".to_owned(),
            n => format!("{n} fields break"),
        };
        let there = target.get("apis.kcp.io/v1alpha1", "APIResourceSchema", api.name())?;
        if accepted || there.as_ref().is_some_and(is_accepted) {
            api.schema["metadata"]["annotations"][ACCEPT_INCOMPATIBLE] = json!("true");
            api.remarks
                .push(format!("{count} between its versions, which have no rules; accepted"));
            continue;
        }
        let mut error = format!(
            "{count} between its versions, which have no rules: write rules (insula conversion suggest drafts them), \
             or accept it by --accept-incompatible"
        );
        for one in breaks.iter().take(LISTED_MAX) {
            error.push_str(&format!("\n  {one}"));
        }
        if breaks.len() > LISTED_MAX {
            error.push_str(&format!("\n  and {} more", breaks.len() - LISTED_MAX));
        }
        api.errors.push(error);
    }
    Ok(())
}

/// Returns the fields that break. A refused API has other errors.
fn breaks(api: &Published) -> Vec<String> {
    if api.conversion.is_some() || !api.errors.is_empty() {
        return Vec::new();
    }
    let document = Document {
        file: String::new(),
        value: api.schema.clone(),
    };
    let source = Source::new(document, None);
    let breaks = source.assemble().map(|api| api.bundle.breaks()).unwrap_or_default();
    breaks.iter().map(ToString::to_string).collect()
}

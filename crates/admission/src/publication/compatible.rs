//! Versions without rules between which fields break: a publication asks for rules, or for the
//! author's consent.

use super::{Find, Manifest, Published, Refusal, is_accepted};
use insula_api::names::annotations::ACCEPT_INCOMPATIBLE;
use serde_json::json;

/// Fields that an error lists.
const LISTED_MAX: usize = 40;

/// Adds an error to every API whose versions are incompatible, unless that is accepted: by the
/// caller, or by the annotation of the published schema. `how` names the caller's way to accept it.
///
/// # Errors
/// A stored schema cannot be read.
pub fn review<E>(find: Find<'_, E>, published: &mut [Published], accepted: bool, how: &str) -> Result<(), E> {
    for api in published {
        let breaks = breaks(api);
        if breaks.is_empty() {
            continue;
        }
        let count = match breaks.len() {
            1 => "1 field breaks".to_owned(),
            n => format!("{n} fields break"),
        };
        let there = find("APIResourceSchema", api.name())?;
        if accepted || there.as_ref().is_some_and(is_accepted) {
            api.schema["metadata"]["annotations"][ACCEPT_INCOMPATIBLE] = json!("true");
            api.remarks
                .push(format!("{count} between its versions, which have no rules; accepted"));
            continue;
        }
        let mut error = format!("{count} between its versions, which have no rules: {how}");
        list(&mut error, &breaks);
        api.errors.push(Refusal::Whole(error));
    }
    Ok(())
}

/// Appends the first items to an error, a line each, and counts the others.
pub(super) fn list(error: &mut String, items: &[String]) {
    for one in items.iter().take(LISTED_MAX) {
        error.push_str(&format!("\n  {one}"));
    }
    if items.len() > LISTED_MAX {
        error.push_str(&format!("\n  and {} more", items.len() - LISTED_MAX));
    }
}

/// Returns the fields that break. A refused API has other errors.
fn breaks(api: &Published) -> Vec<String> {
    if !api.errors.is_empty() {
        return Vec::new();
    }
    let manifest = Manifest {
        schema: &api.schema,
        conversion: api.conversion.as_ref(),
        meter: &api.meter,
    };
    let breaks = manifest.compiled().map(|api| api.bundle.breaks()).unwrap_or_default();
    breaks.iter().map(ToString::to_string).collect()
}

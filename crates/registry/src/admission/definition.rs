//! CustomResourceDefinitions: not in the groups that are the server's own.

use super::{Operation, Review};
use crate::{Result, ids};
use insula_api::Json;

pub(super) fn review(review: &Review<'_>, new: &Json) -> Result<()> {
    if review.operation != Operation::Create {
        return Ok(());
    }
    let group = new["spec"]["group"].as_str().unwrap_or_default();
    let plural = new["spec"]["names"]["plural"].as_str().unwrap_or_default();
    let reserved = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    if reserved("apis.kcp.io") || reserved(ids::INTERNAL) {
        return Err(review.forbid(new, format!("{group} is a reserved group")));
    }
    if review.catalog.system().get(group, plural).is_some() {
        let why = format!("{plural}.{group} is served by every workspace already: choose another name or group");
        return Err(review.forbid(new, why));
    }
    Ok(())
}

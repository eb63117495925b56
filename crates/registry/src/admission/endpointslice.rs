//! APIExportEndpointSlices: the export must be there.

use super::{Operation, Review};
use crate::{Result, ids, locate};
use insula_api::{ClusterPath, Json, ObjectKey};

pub(super) fn review(review: &Review<'_>, new: &Json) -> Result<()> {
    if review.operation != Operation::Create {
        return Ok(());
    }
    let export = &new["spec"]["export"];
    let (path, name) = (
        export["path"].as_str().unwrap_or_default(),
        export["name"].as_str().unwrap_or_default(),
    );
    let cluster = match path.is_empty() {
        true => Some(review.cluster.clone()),
        false => ClusterPath::parse(path)
            .ok()
            .and_then(|path| locate::locate(review.snapshot, &path).ok()),
    };
    let found = cluster.and_then(|c| {
        review
            .snapshot
            .get(&ObjectKey::cluster_scoped(ids::apiexports(), c, name))
    });
    if found.is_none() {
        let place = if path.is_empty() { review.cluster.as_str() } else { path };
        let why = format!("unable to create APIExportEndpointSlice: no permission to bind to export {place}:{name}");
        return Err(review.forbid(new, why));
    }
    Ok(())
}

//! Admission of APIExportEndpointSlices: the export exists and the author may bind it. A caller
//! without that permission cannot learn whether the export exists.

use crate::kinds::review::{Operation, Review, Rules};
use insula_api::{ClusterName, Json};
use insula_catalog::Result;

pub(super) const RULES: Rules = Rules {
    write: |review, new, _| self::review(review, new),
    ..Rules::new("apis.kcp.io", &["apiexportendpointslices"])
};

fn review(review: &Review<'_>, new: &Json) -> Result<()> {
    if review.operation != Operation::Create {
        return Ok(());
    }
    let export = &new["spec"]["export"];
    let (path, name) = (
        export["path"].as_str().unwrap_or_default(),
        export["name"].as_str().unwrap_or_default(),
    );
    let bindable = |cluster: ClusterName| review.has_export(&cluster, name) && review.may_bind(&cluster, name);
    if !review.place_of(path).is_some_and(bindable) {
        let place = if path.is_empty() { review.cluster.as_str() } else { path };
        let why = format!("unable to create APIExportEndpointSlice: no permission to bind to export {place}:{name}");
        return Err(review.forbid(new, why));
    }
    Ok(())
}

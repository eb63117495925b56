//! The resource of a request in metrics, by the rules of Kubernetes' own labels.
//!
//! Only names that the server serves become labels: a path that names an unknown resource or
//! subresource has none.

use crate::{negotiate::PatchType, query::Query, request::Parsed};
use http::{HeaderMap, header::CONTENT_TYPE};
use insula_api::Verb;
use insula_catalog::Api;
use insula_edge::port::{DryRun, RequestScope, RequestedResource};
use insula_pipeline::ObjectPath;

/// Returns the labels of a request for objects of an API, in a version that it serves.
pub(crate) fn requested(parsed: &Parsed, path: &ObjectPath, api: &Api) -> Option<Box<RequestedResource>> {
    let subresource = path.subresource.as_deref().unwrap_or_default();
    if !matches!(subresource, "" | "status" | "scale") && api.subresource(subresource).is_none() {
        return None;
    }
    let scope = match (parsed.verb, &path.name, &path.namespace) {
        (Some(Verb::Create), ..) | (_, Some(_), _) => RequestScope::Resource,
        (_, None, Some(_)) => RequestScope::Namespace,
        (_, None, None) => RequestScope::Cluster,
    };
    let (resource, _identity) = path.resource.split_once(':').unwrap_or((&path.resource, ""));
    Some(Box::new(RequestedResource {
        group: path.group.clone(),
        version: path.version.clone(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        scope,
        applies: parsed.verb == Some(Verb::Patch) && is_configuration(&parsed.headers),
        dry_run: dry_run(&parsed.query),
    }))
}

fn is_configuration(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    // Parameters of the media type do not change the patch.
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim() == PatchType::Apply.media_type())
}

fn dry_run(query: &Query) -> DryRun {
    let mut values = query.pairs().iter().filter(|(name, _)| name == "dryRun").peekable();
    if values.peek().is_none() {
        return DryRun::Absent;
    }
    if values.all(|(_, value)| value == "All") {
        DryRun::All
    } else {
        DryRun::Invalid
    }
}

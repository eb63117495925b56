//! `/scale`: an `autoscaling/v1` Scale that reads and writes the replicas of any resource (seed: subresources for custom
//! resources; rules of kube's `apiextensions-apiserver` `registry/customresource`).

use crate::{
    handle::{Answer, ResourceRequest, apply_patch, header_text},
    negotiate::{self, Offer, Patches},
    reply::{self, Reply},
};
use http::header;
use insula_api::{FieldError, FieldPath, Json};
use insula_registry::{Change, Error, Part, Result, Scale, representation};
use insula_store::Entry;
use serde_json::json;

/// Serves GET, PUT and PATCH.
pub(crate) async fn handle(request: &mut ResourceRequest<'_>, verb: &str) -> Answer {
    let form = request.negotiate(Offer::Object)?;
    let paths = request.target.api_version()?.scale.clone().ok_or(Reply::NotFoundPage)?;
    let scale = match verb {
        "get" => {
            let entry = request
                .server
                .registry
                .get(&request.request.place.snapshot, &request.target, &request.name)?;
            show(request, &entry, &paths)?
        }
        "update" => {
            let wanted = request.body().await?.value;
            write(request, &paths, move |_| Ok(wanted.clone()), "UpdateOptions").await?
        }
        "patch" => {
            let content_type = header_text(&request.request.parsed.headers, header::CONTENT_TYPE);
            let kind = negotiate::patch_type(content_type.as_deref(), Patches::Custom)?;
            let bytes = request.read_body().await?;
            let patch = request.decode_patch(kind, &bytes)?;
            write(
                request,
                &paths,
                move |shown| apply_patch(kind, shown, &patch),
                "PatchOptions",
            )
            .await?
        }
        _ => return Err(Reply::error(&Error::MethodNotAllowed)),
    };
    Ok(reply::document(
        200,
        &scale,
        form.format,
        form.format.content_type(),
        false,
    ))
}

/// The Scale of an object.
fn show(request: &ResourceRequest<'_>, entry: &Entry, paths: &Scale) -> Result<Json> {
    let object = representation::value(&request.target.served, entry, &request.target.version)?;
    of_object(&object, paths)
}

fn of_object(object: &Json, paths: &Scale) -> Result<Json> {
    let replicas = at(object, &paths.spec_replicas).and_then(Json::as_i64).ok_or_else(|| {
        Error::Internal(format!(
            "the spec replicas field {:?} does not exist",
            paths.spec_replicas
        ))
    })?;
    let metadata = &object["metadata"];
    let mut shown = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = metadata.get(field) {
            shown[field] = value.clone();
        }
    }
    let mut status = json!({"replicas": at(object, &paths.status_replicas).and_then(Json::as_i64).unwrap_or(0)});
    let selector = if paths.selector.is_empty() {
        None
    } else {
        at(object, &paths.selector).and_then(Json::as_str)
    };
    if let Some(selector) = selector {
        status["selector"] = json!(selector);
    }
    Ok(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": shown,
        "spec": {"replicas": replicas}, "status": status,
    }))
}

/// Puts the replicas of a wanted Scale into the object: the only thing that a Scale can change.
async fn write(
    request: &mut ResourceRequest<'_>,
    paths: &Scale,
    wanted: impl Fn(&Json) -> Result<Json> + Send + Sync,
    options: &str,
) -> std::result::Result<Json, Reply> {
    let options = request.write_options(options)?;
    let api = request.target.served.api.clone();
    let name = request.name.clone();
    let change = |current: &Json| -> Result<Json> {
        let shown = of_object(current, paths).unwrap_or_else(|_| {
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {
                "name": current["metadata"]["name"], "resourceVersion": current["metadata"]["resourceVersion"]}, "spec": {}})
        });
        let scale = wanted(&shown)?;
        let revision = &scale["metadata"]["resourceVersion"];
        if revision.as_str().is_some_and(|text| !text.is_empty()) && *revision != current["metadata"]["resourceVersion"]
        {
            return Err(api.modified(&name));
        }
        let replicas = scale.pointer("/spec/replicas").and_then(Json::as_i64).unwrap_or(0);
        let at = FieldPath::new("spec").child("replicas");
        if replicas < 0 {
            let error = FieldError::invalid(&at, &json!(replicas), "should be a non-negative integer");
            return Err(api.invalid(&name, vec![error]));
        }
        if replicas > i64::from(i32::MAX) {
            let error = FieldError::invalid(&at, &json!(replicas), "should be less than or equal to 2147483647");
            return Err(api.invalid(&name, vec![error]));
        }
        let mut new = current.clone();
        set(&mut new, &paths.spec_replicas, json!(replicas));
        Ok(new)
    };
    let registry = &request.server.registry;
    let change = Change::Patch(&change);
    let written = registry
        .update(&request.target, &request.name, change, Part::Main, &options)
        .await?;
    Ok(show(request, &written.entry, paths)?)
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.trim_start_matches('.').split('.')
}

fn at<'a>(object: &'a Json, path: &str) -> Option<&'a Json> {
    segments(path).try_fold(object, |value, field| value.get(field))
}

fn set(object: &mut Json, path: &str, value: Json) {
    let mut at = object;
    for field in segments(path) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[field];
    }
    *at = value;
}

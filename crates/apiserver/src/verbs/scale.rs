//! `/scale`: an `autoscaling/v1` Scale that reads and writes the replicas of any resource, by the
//! rules of `registry/customresource` in Kubernetes' `apiextensions-apiserver`.

use super::{ResourceRequest, write::apply_patch};
use crate::{
    apply::configuration,
    body::Expected,
    negotiate::{self, PatchType, Patches, Representation, Supported},
    reply::{self, header_text},
    request::Answer,
    table::{self, Columns, IncludeObject, Layout},
};
use http::header;
use insula_access::Target;
use insula_api::{FieldError, FieldPath, Json, Verb};
use insula_apply::{Element, MergeKeys, Operation};
use insula_catalog::{Api, Error, Part, Result, Scale};
use insula_pipeline::Refusal;
use insula_registry::{Change, Deps, IfAbsent, verbs};
use insula_store::Entry;
use serde_json::json;

const API_VERSION: &str = "autoscaling/v1";

/// Serves GET, PUT and PATCH.
pub(crate) async fn serve(request: &mut ResourceRequest<'_>, verb: Verb) -> Answer {
    let form = request.negotiate_kind(Supported::Object, true)?;
    let paths = request.target.api_version()?.scale.clone().ok_or(Refusal::NotServed)?;
    let scale = match verb {
        Verb::Get => {
            let entry = verbs::get(
                &request.server.registry,
                &request.request.authorized.scope().snapshot,
                &request.target,
                &request.name,
            )?;
            show(&request.server.registry, &request.target, &entry, &paths).await?
        }
        Verb::Update => {
            let expected = Expected {
                kind: "Scale",
                implied: Some(API_VERSION),
                structure: None,
            };
            let wanted = request.body_of_kind(expected).await?.0;
            update(request, &paths, move |_| Ok(wanted.clone()), "UpdateOptions").await?
        }
        Verb::Patch => {
            let content_type = header_text(&request.request.parsed.headers, header::CONTENT_TYPE);
            let kind = negotiate::patch_type(content_type.as_deref(), Patches::Custom)?;
            let bytes = request.read_body().await?;
            if kind == PatchType::Apply {
                apply_scale(request, &paths, &bytes).await?
            } else {
                let patch = request.decode_patch(&bytes)?;
                let meter = request.target.served.meter.clone();
                let wanted = move |shown: &Json| apply_patch(kind, &MergeKeys::default(), shown, &patch, &meter);
                update(request, &paths, wanted, "PatchOptions").await?
            }
        }
        _ => return Err(request.not_supported(verb)),
    };
    let shown = represented(request, scale, form.representation)?;
    Ok(reply::document(200, &shown, form))
}

/// Returns a Scale in a representation: itself, a row, or its metadata.
fn represented(
    request: &ResourceRequest<'_>,
    scale: Json,
    representation: Representation,
) -> std::result::Result<Json, Refusal> {
    Ok(match representation {
        Representation::Table(version) => {
            let include = IncludeObject::parse(request.request.parsed.query.get("includeObject"))?;
            let now = request.server.registry.clock.now();
            Layout::of_scale().single(&scale, include, version, now, Columns::Defined)
        }
        Representation::PartialMetadata(version) => table::partial(&scale["metadata"], version),
        _ => scale,
    })
}

/// Returns the Scale of a stored object.
async fn show(registry: &Deps, target: &Target, entry: &Entry, paths: &Scale) -> Result<Json> {
    let object = verbs::show(registry, target, entry).await?;
    let errors = if paths.strict {
        paths.errors(&object, None, "")
    } else {
        Vec::new()
    };
    match errors.is_empty() {
        true => scale_from(&object, paths),
        false => Err(target.served.api.invalid(&entry.object.meta.name, errors)),
    }
}

/// Returns the replicas of an object, if it has some; values of another type are errors, as in
/// Kubernetes, and are never overwritten.
fn check_types(object: &Json, paths: &Scale) -> Result<Option<i64>> {
    let replicas = Scale::number(object, &paths.spec_replicas).map_err(Error::Mistyped)?;
    Scale::number(object, &paths.status_replicas).map_err(Error::Mistyped)?;
    Scale::text(object, &paths.selector).map_err(Error::Mistyped)?;
    Ok(replicas)
}

fn scale_from(object: &Json, paths: &Scale) -> Result<Json> {
    let replicas = check_types(object, paths)?.ok_or_else(|| {
        let path = &paths.spec_replicas;
        Error::Internal(format!("the spec replicas field {path:?} does not exist"))
    })?;
    let metadata = &object["metadata"];
    let mut shown = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = metadata.get(field) {
            shown[field] = value.clone();
        }
    }
    let mut status =
        json!({"replicas": Scale::value(object, &paths.status_replicas).and_then(Json::as_i64).unwrap_or(0)});
    if let Some(selector) = Scale::value(object, &paths.selector).and_then(Json::as_str) {
        status["selector"] = json!(selector);
    }
    // A Scale leaves out zero replicas.
    let spec = if replicas == 0 {
        json!({})
    } else {
        json!({"replicas": replicas})
    };
    Ok(json!({"kind": "Scale", "apiVersion": API_VERSION, "metadata": shown, "spec": spec, "status": status}))
}

/// Sets the replicas of the object to those of a wanted Scale: nothing else of it can be changed.
async fn update(
    request: &mut ResourceRequest<'_>,
    paths: &Scale,
    wanted: impl Fn(&Json) -> Result<Json> + Send + Sync,
    options: &str,
) -> std::result::Result<Json, Refusal> {
    let patches = options == "PatchOptions";
    let options = request.write_options(options)?;
    let api = request.target.served.api.clone();
    let name = request.name.clone();
    let change = |current: &Json| -> Result<Json> {
        check_types(current, paths)?;
        let shown = scale_from(current, paths).unwrap_or_else(|_| {
            json!({"kind": "Scale", "apiVersion": API_VERSION, "metadata": {
                "name": current["metadata"]["name"], "resourceVersion": current["metadata"]["resourceVersion"]}, "spec": {}})
        });
        let scale = wanted(&shown)?;
        check_scale(&api, &name, &scale, current)?;
        let unset = paths.errors_of_scale(&scale);
        if !unset.is_empty() {
            return Err(api.invalid(&name, unset));
        }
        let replicas = match scale.pointer("/spec/replicas") {
            Some(replicas) => replicas.as_i64().ok_or_else(|| {
                let at = FieldPath::new("spec").child("replicas");
                api.invalid(&name, vec![FieldError::invalid(&at, replicas, "must be an integer")])
            })?,
            None if patches && Scale::value(current, &paths.spec_replicas).is_none() => return Err(no_replicas(paths)),
            None => 0,
        };
        let mut new = current.clone();
        set(&mut new, &paths.spec_replicas, json!(replicas));
        Ok(new)
    };
    let registry = &request.server.registry;
    let change = Change::Patch(&change);
    let written = verbs::update(registry, &request.target, &request.name, change, Part::Scale, &options).await?;
    Ok(show(registry, &request.target, &written.entry, paths).await?)
}

/// Applies a Scale (server-side apply): its replicas alone are applied to the object. Conflicts
/// name the fields of the Scale.
async fn apply_scale(
    request: &mut ResourceRequest<'_>,
    paths: &Scale,
    bytes: &[u8],
) -> std::result::Result<Json, Refusal> {
    let (options, on_conflict) = request.apply_options()?;
    let scale = configuration(bytes, options.field_validation)?.value;
    let text = |field: &str| scale[field].as_str().unwrap_or_default();
    if (text("apiVersion"), text("kind")) != (API_VERSION, "Scale") {
        let version = match text("apiVersion") {
            core if !core.contains('/') => format!("/{core}"),
            version => version.to_owned(),
        };
        let why = format!("invalid object type: {version}, Kind={}", text("kind"));
        return Err(Refusal::from(Error::BadRequest(why)));
    }
    let target = &request.target;
    let Some(replicas) = scale.pointer("/spec/replicas").and_then(Json::as_i64) else {
        return Err(Refusal::from(no_replicas(paths)));
    };
    let mut config = json!({
        "apiVersion": target.served.api_version(&target.version),
        "kind": &*target.served.names().kind,
        "metadata": scale["metadata"],
    });
    set(&mut config, &paths.spec_replicas, json!(replicas));
    let wanted = (&config, on_conflict);
    let part = (Part::Scale, IfAbsent::Refuse);
    let registry = &request.server.registry;
    let current = verbs::get(
        registry,
        &request.request.authorized.scope().snapshot,
        target,
        &request.name,
    )?;
    check_types(&verbs::show(registry, target, &current).await?, paths)?;
    let configured = verbs::apply(registry, target, &request.name, wanted, part, &options).await;
    let configured = configured.map_err(|error| match error {
        Error::ApplyConflict(mut conflicts) => {
            for conflict in &mut conflicts.0 {
                conflict.field = insula_apply::Path(["spec", "replicas"].map(Element::field).to_vec());
                if conflict.manager.operation == Operation::Update {
                    conflict.manager.api_version = API_VERSION.into();
                }
            }
            Error::ApplyConflict(conflicts)
        }
        other => other,
    })?;
    Ok(show(registry, target, &configured.written.entry, paths).await?)
}

fn no_replicas(paths: &Scale) -> Error {
    Error::BadRequest(format!(
        "the spec replicas field {:?} cannot be empty",
        paths.spec_replicas
    ))
}

/// Checks that a written object is a Scale, and that of the object.
fn check_scale(api: &Api, name: &str, scale: &Json, current: &Json) -> Result<()> {
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&scale["apiVersion"]), text(&scale["kind"]));
    if (version.as_str(), kind.as_str()) != (API_VERSION, "Scale") {
        return Err(Error::BadRequest(format!(
            "{version}, Kind={kind} is no {API_VERSION}, Kind=Scale"
        )));
    }
    let (given, now) = (&scale["metadata"], &current["metadata"]);
    let named = text(&given["name"]);
    if named != name {
        return Err(Error::BadRequest(format!(
            "the name of the object ({named}) does not match the name on the URL ({name})"
        )));
    }
    let differs = |field: &str| !text(&given[field]).is_empty() && given[field] != now[field];
    if differs("uid") {
        return Err(Error::Conflict {
            resource: api.named(),
            name: name.to_owned(),
            detail: format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                text(&given["uid"]),
                text(&now["uid"])
            ),
        });
    }
    match differs("resourceVersion") {
        true => Err(api.modified(name)),
        false => Ok(()),
    }
}

fn set(object: &mut Json, path: &str, value: Json) {
    let mut parent = object;
    for name in Scale::segments(path) {
        if !parent.is_object() {
            *parent = json!({});
        }
        parent = &mut parent[name];
    }
    *parent = value;
}

//! Checks of a request body before preparation: its kind and name match the URL, its revision
//! matches the stored object.

use insula_access::{Target, view::ViewScope};
use insula_api::{ClusterName, FieldError, FieldPath, Json, ObjectKey, Verb};
use insula_auth::{GROUP_KCP_ADMIN, GROUP_MASTERS, UserInfo};
use insula_catalog::{Error, Result, freeze, ids, locate, registration};
use insula_store::{Entry, Guard, Snapshot};
use serde_json::json;

/// Refuses changes of objects whose ThirdPartyResource is being deleted. Objects of a
/// CustomResourceDefinition may still change then, so that their finalizers can be removed.
///
/// # Errors
/// 403 that names the verb.
pub(super) fn check_not_terminating(target: &Target, name: &str, verb: Verb) -> Result<()> {
    let served = &target.served;
    match served.terminating && served.is_third_party() {
        true => {
            let why = format!("{verb} not allowed while third party resource is terminating");
            Err(served.api.forbidden(name, why))
        }
        false => Ok(()),
    }
}

/// Refuses changes of objects that are being migrated, and of the definitions behind them.
///
/// # Errors
/// 403 that names the verb.
fn check_not_frozen(snapshot: &Snapshot, target: &Target, name: &str, verb: Verb) -> Result<()> {
    let Target { served, cluster, .. } = target;
    let frozen = match &served.route {
        Some(route) => route.frozen,
        None => registration::is_migrating(snapshot, cluster, &served.resource_id(), name),
    };
    match frozen {
        true => {
            let why = format!("{verb} not allowed while a migration of its third party resource is under way");
            Err(served.api.forbidden(name, why))
        }
        false => Ok(()),
    }
}

/// Refuses writes of kinds that nobody writes, changes of objects that are being migrated, and all
/// writes in a frozen workspace. Returns the guard that keeps a write from committing after a
/// freeze. Platform administrators write the LogicalCluster, by which they thaw the workspace.
///
/// # Errors
/// 403 that names the verb, or the workspace, the reason and those who may thaw it.
pub(super) fn check_thawed(
    snapshot: &Snapshot,
    target: &Target,
    (name, verb): (&str, Verb),
    user: &UserInfo,
) -> Result<Option<Guard>> {
    if target.served.api.strategy.traits().read_only {
        return Err(Error::MethodNotAllowed);
    }
    check_not_frozen(snapshot, target, name, verb)?;
    let Target { served, cluster, .. } = target;
    let itself = served.resource_id() == ids::logicalclusters();
    match freeze::open(snapshot, cluster) {
        // The write has a guard on the LogicalCluster already.
        Ok(_) if itself => Ok(None),
        Ok(open) => Ok(open.map(|(key, revision)| Guard::At(key, revision))),
        Err(_) if itself && is_platform(user, cluster) => Ok(None),
        Err(freeze) => {
            let why = match target.view_scope {
                ViewScope::Within => freeze.refusal(locate::path_of(snapshot, cluster).as_str()),
                _ => freeze.refusal_from_outside(cluster),
            };
            Err(served.api.forbidden(name, why))
        }
    }
}

fn is_platform(user: &UserInfo, cluster: &ClusterName) -> bool {
    let user = user.within(Some(cluster));
    user.is_in(GROUP_MASTERS) || user.is_in(GROUP_KCP_ADMIN)
}

/// Returns true for a conflict on the route of the resource, on the LogicalCluster, on an export
/// whose release ends, or on what serves a definition: the object of the write is as it was.
pub(super) fn is_about_others(target: &Target, key: &ObjectKey) -> bool {
    let written = target.served.resource_id();
    let is_workspace = *key == ids::logical_cluster(&target.cluster) && written != ids::logicalclusters();
    let is_export = key.resource == ids::apiexports() && written != ids::apiexports();
    let is_serving =
        written == ids::customresourcedefinitions() && [ids::resource_routes(), ids::bundles()].contains(&key.resource);
    target.is_routed_by(key) || is_workspace || is_export || is_serving
}

/// Checks that the body's `apiVersion` and `kind` match the URL.
pub(super) fn check_type(target: &Target, body: &Json) -> Result<()> {
    let want = target.served.api_version(&target.version);
    let got = body["apiVersion"].as_str().unwrap_or_default();
    if got != want {
        return Err(Error::BadRequest(format!(
            "the API version in the data ({got}) does not match the expected API version ({want})"
        )));
    }
    let (kind, want) = (&body["kind"], &target.served.names().kind);
    if kind.as_str() != Some(want) {
        let at = FieldPath::new("kind");
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let given = kind.as_str().unwrap_or_default();
        if target.served.api.strategy.traits().built_in {
            return Err(Error::BadRequest(format!(
                "{given} in version {:?} cannot be handled as a {want}: converting (v1.{given}) to (core.{want}): \
                 unknown conversion",
                target.version
            )));
        }
        let errors = vec![FieldError::invalid(&at, &json!(given), format!("must be {want}"))];
        // The message names the kind that was sent.
        let subject = insula_catalog::Named {
            resource: given.into(),
            ..target.served.api.kind()
        };
        return Err(Error::Invalid { subject, name, errors });
    }
    match undecodable(target, body)? {
        Some(why) => Err(not_handled(target, &why)),
        None => Ok(()),
    }
}

/// Returns the reason why a body cannot be decoded: an invalid embedded object, or a value that the
/// kind cannot hold. Bodies that do not fit a struct are refused when they are read.
fn undecodable(target: &Target, body: &Json) -> Result<Option<String>> {
    let schema = &target.api_version()?.schema;
    Ok(insula_schema::check_embedded(body, schema)
        .map(|error| error.to_string())
        .or_else(|| target.served.api.strategy.undecodable(body)))
}

pub(super) fn not_handled(target: &Target, why: &str) -> Error {
    let kind = &target.served.names().kind;
    Error::BadRequest(format!(
        "{kind} in version {:?} cannot be handled as a {kind}: {why}",
        target.version
    ))
}

/// Checks for changes that only a patch can make: another `apiVersion`, or metadata of an invalid
/// type.
pub(super) fn check_patched(target: &Target, name: &str, new: &Json) -> Result<()> {
    let api = &target.served.api;
    let (given, want) = (&new["apiVersion"], target.served.api_version(&target.version));
    if *given != json!(want) {
        let error = FieldError::invalid(&FieldPath::new("apiVersion"), given, format!("must be {want}"));
        return Err(api.invalid(name, vec![error]));
    }
    let is_struct = api.strategy.traits().is_struct;
    let mistyped = match is_struct {
        true => insula_schema::decode_error(new, &target.api_version()?.schema, &target.served.names().kind),
        false => insula_schema::metadata_type_error(&new["metadata"]),
    };
    let wrong = match mistyped {
        Some(why) => Some(why),
        None => undecodable(target, new)?,
    };
    match wrong {
        Some(why) => {
            let error = FieldError::invalid_text(&FieldPath::new("patch"), new.to_string(), why);
            Err(nameless(error))
        }
        None => Ok(()),
    }
}

/// Checks name, namespace, uid and resourceVersion of a new object against the URL and the old
/// object.
pub(super) fn check_identity(target: &Target, name: &str, new: &Json, old: &Entry, patched: bool) -> Result<()> {
    if patched {
        check_type(target, new)?;
    }
    check_address(target, name, new)?;
    let api = &target.served.api;
    let text = |field: &str| new["metadata"][field].as_str().unwrap_or_default();
    let uid = old.object.meta.uid.to_string();
    if !text("uid").is_empty() && text("uid") != uid {
        if patched {
            let at = FieldPath::new("metadata").child("uid");
            return Err(api.invalid(
                name,
                vec![FieldError::invalid(&at, &json!(text("uid")), "field is immutable")],
            ));
        }
        let detail = format!(
            "Precondition failed: UID in precondition: {}, UID in object meta: {uid}",
            text("uid")
        );
        return Err(Error::Conflict {
            resource: api.named(),
            name: name.to_owned(),
            detail,
        });
    }
    check_revision(target, name, text("resourceVersion"), old)
}

/// Checks name and namespace of a new object against the URL.
pub(super) fn check_address(target: &Target, name: &str, new: &Json) -> Result<()> {
    let text = |field: &str| new["metadata"][field].as_str().unwrap_or_default();
    if text("name") != name {
        return Err(Error::BadRequest(if text("name").is_empty() {
            format!("the name of the object ({name} based on URL) was undeterminable: name must be provided")
        } else {
            format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                text("name")
            )
        }));
    }
    let namespace = target.namespace.as_deref().unwrap_or_default();
    if !text("namespace").is_empty() && !namespace.is_empty() && text("namespace") != namespace {
        return Err(Error::BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request".into(),
        ));
    }
    Ok(())
}

fn check_revision(target: &Target, name: &str, given: &str, old: &Entry) -> Result<()> {
    let api = &target.served.api;
    let at = FieldPath::new("metadata").child("resourceVersion");
    if given.is_empty() || given == "0" {
        if api.strategy.traits().unconditional_update {
            return Ok(());
        }
        let error = FieldError::invalid_text(&at, "0", "must be specified for an update");
        return Err(Error::Invalid {
            subject: api.named(),
            name: name.to_owned(),
            errors: vec![error],
        });
    }
    match given.parse::<u64>() {
        Ok(revision) if revision == old.revision.0 => Ok(()),
        Ok(_) => Err(api.modified(name)),
        Err(_) => Err(Error::BadRequest(format!("invalid resource version: {given:?}"))),
    }
}

/// Returns the refusal of a whole patch. Kubernetes names neither kind nor object in it.
pub(super) fn nameless(error: FieldError) -> Error {
    Error::Invalid {
        subject: insula_catalog::Named::default(),
        name: String::new(),
        errors: vec![error],
    }
}

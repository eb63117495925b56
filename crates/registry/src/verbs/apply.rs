//! Server-side apply: a configuration changes an object or creates it.

use super::{
    change::Change,
    check::check_address,
    create,
    options::{WriteOptions, Written},
    update::update,
};
use crate::{
    built_in_rbac, calls,
    context::{By, Context},
    deps::Deps,
    owners,
};
use futures_util::future::BoxFuture;
use insula_access::Target;
use insula_admission::policy::WriteBudget;
use insula_api::Json;
use insula_apply::OnConflict;
use insula_catalog::{Error, Part, Result, object::group_version};

/// Maximum attempts while the object is created and deleted concurrently.
const ATTEMPTS_MAX: usize = 5;

/// The behaviour of an apply if the object is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfAbsent {
    /// Creates the object. The caller may do so.
    Create,
    /// Refuses with 404.
    Refuse,
}

/// The result of an apply.
#[derive(Debug)]
pub struct Configured {
    /// The object.
    pub written: Written,
    /// True if the apply created the object.
    pub created: bool,
}

/// Applies a configuration of `options.manager` to an object.
///
/// # Errors
/// The configuration is malformed, conflicts with another manager, or is refused like any other
/// write. The object is absent and may not be created (404).
pub fn apply<'a>(
    deps: &'a Deps,
    target: &'a Target,
    name: &'a str,
    (config, on_conflict): (&'a Json, OnConflict),
    (part, if_absent): (Part, IfAbsent),
    options: &'a WriteOptions<'_>,
) -> BoxFuture<'a, Result<Configured>> {
    Box::pin(async move {
        check_configuration(target, config)?;
        let mut last = Err(Error::Internal("no attempt was made".into()));
        for _ in 0..ATTEMPTS_MAX {
            let exists = deps.store.latest().get(&target.key(name)).is_some();
            let tried = if exists {
                update(deps, target, name, Change::Apply(config, on_conflict), part, options).await
            } else if if_absent == IfAbsent::Create {
                let target = &*calls::attach_for_write(deps, target);
                let budget = &WriteBudget::new(&target.served.meter);
                calls::run_until_resolved(target, || {
                    create_configured(deps, target, name, config, options, budget)
                })
                .await
            } else {
                Err(built_in_rbac::absent(target, name))
            };
            match tried.as_ref().map_err(Error::bare) {
                Err(Error::AlreadyExists { .. }) if !exists => {}
                Err(Error::NotFound { .. }) if exists => {}
                _ => {
                    let created = !exists;
                    return tried.map(|written| Configured { written, created });
                }
            }
            last = tried;
        }
        last.map(|written| Configured {
            written,
            created: false,
        })
    })
}

async fn create_configured(
    deps: &Deps,
    target: &Target,
    name: &str,
    config: &Json,
    options: &WriteOptions<'_>,
    budget: &WriteBudget,
) -> Result<Written> {
    let api = &target.served.api;
    let version = target.api_version()?;
    let context = Context::new(deps, target, version, Part::Main, By::Update(&options.manager));
    let (object, managers) = owners::apply(&context, &options.manager, None, config, OnConflict::Refuse)?;
    check_address(target, name, &object)?;
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    if !uid.is_empty() {
        return Err(Error::Conflict {
            resource: api.named(),
            name: name.to_owned(),
            detail: format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found"),
        });
    }
    create::create_owned(deps, target, object, options, By::Applied(&managers), budget).await
}

/// Checks that the configuration has the kind of the URL and no `managedFields`.
fn check_configuration(target: &Target, config: &Json) -> Result<()> {
    let want = (target.served.api_version(&target.version), &*target.served.names().kind);
    let text = |field: &str| config[field].as_str().unwrap_or_default();
    if (text("apiVersion"), text("kind")) != (want.0.as_str(), want.1) {
        let version = group_version(text("apiVersion"));
        return Err(Error::BadRequest(format!(
            "invalid object type: {version}, Kind={}",
            text("kind")
        )));
    }
    match config["metadata"].get("managedFields") {
        Some(sent) if !sent.is_null() => Err(Error::BadRequest("metadata.managedFields must be nil".into())),
        _ => Ok(()),
    }
}

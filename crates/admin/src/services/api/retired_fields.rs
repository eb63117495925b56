//! `ApiService.RetireField`: removal of what objects hold in a field that their API has no more, be
//! it of an export or of a definition in a workspace.

use super::objects::{self, or_root, required};
use crate::{
    pages::Page,
    session::{AdminService, Located, Session, right},
    status::{self, Fault},
};
use insula_access::WorkspaceNames;
use insula_api::{ObjectKey, Scope, Verb, names::groups};
use insula_catalog::{Origin, Served, exports::ExportName, ids};
use insula_conversion::SchemaPath;
use insula_proto::admin::v1::{ErrorReason, FieldHolder, RetireFieldRequest, RetireFieldResponse};
use insula_registry::{
    Deps,
    retire::{self, Field, Holder},
    rewrite,
};
use insula_store::Snapshot;
use std::sync::Arc;
use tonic::{Code, Status};

/// The owner of an API whose objects hold something.
#[derive(Debug, Clone)]
pub(super) enum Owner {
    /// An export: the objects of all workspaces that bind it.
    Export(ExportName),
    /// The key of a CustomResourceDefinition: the objects of its workspace.
    Definition(ObjectKey),
}

/// A resource of an owner, with or without a version: `widgets.example.io/v1`.
#[derive(Debug, Clone)]
pub(super) struct Target {
    owner: Owner,
    resource: String,
}

/// Splits `widgets.example.io/v1`.
fn name_and_version(resource: &str) -> (&str, Option<&str>) {
    match resource.split_once('/') {
        Some((name, version)) => (name, Some(version)),
        None => (resource, None),
    }
}

impl Session {
    /// Finds the API of a request, whose objects the caller may list, or update.
    pub(super) fn locate_retired(&self, request: &RetireFieldRequest) -> Result<(Located, Target), Status> {
        let apply = !request.validate_only;
        if request.definition.is_empty() {
            let (located, export) = self.locate_content((&request.workspace, &request.export), apply)?;
            required("resource", &request.resource)?;
            required("field", &request.field)?;
            let (owner, resource) = (Owner::Export(export), request.resource.clone());
            return Ok((located, Target { owner, resource }));
        }
        let (name, _) = name_and_version(&request.definition);
        let definition = right(
            if apply { Verb::Update } else { Verb::Get },
            groups::APIEXTENSIONS,
            "customresourcedefinitions",
            name,
        );
        let located = self.locate(or_root(&request.workspace), &definition)?;
        for (field, value) in [("export", &request.export), ("resource", &request.resource)] {
            if !value.is_empty() {
                return Err(status::invalid(field, "must be absent with definition"));
            }
        }
        required("field", &request.field)?;
        let (plural, group) = name.split_once('.').ok_or_else(|| {
            let problem = "is the name of a CustomResourceDefinition, such as widgets.example.io";
            status::invalid("definition", problem)
        })?;
        let verb = if apply { Verb::Update } else { Verb::List };
        self.permit(&located.cluster, right(verb, group, plural, ""))?;
        let key = ObjectKey::cluster_scoped(ids::customresourcedefinitions(), located.cluster.clone(), name);
        if self.snapshot.get(&key).is_none() {
            return Err(no_definition(name, &located));
        }
        let (owner, resource) = (Owner::Definition(key), request.definition.clone());
        Ok((located, Target { owner, resource }))
    }
}

fn no_definition(name: &str, located: &Located) -> Status {
    let resource = "customresourcedefinitions.apiextensions.k8s.io";
    let message = format!("{resource} {name:?} not found in workspace {}", located.path);
    let fault = Fault::new(Code::NotFound, ErrorReason::NotFound, message);
    fault.resource(resource, name).status()
}

impl Target {
    /// Returns the texts that tell the target from others, for page tokens.
    fn texts(&self) -> [&str; 4] {
        match &self.owner {
            Owner::Export(export) => ["export", export.cluster.as_str(), &export.name, &self.resource],
            Owner::Definition(key) => ["definition", key.cluster.as_str(), &key.name, &self.resource],
        }
    }

    /// Returns the API that is served now.
    fn api(&self, registry: &Deps, snapshot: &Snapshot) -> Result<Served, Status> {
        match &self.owner {
            Owner::Export(export) => offered(registry, snapshot, export, &self.resource),
            Owner::Definition(key) => defined(registry, snapshot, key),
        }
    }

    /// Returns the objects of the API.
    fn scope(&self, api: &Served) -> Scope {
        match &self.owner {
            Owner::Export(_) => Scope::everywhere(api.resource_id()),
            Owner::Definition(key) => Scope::cluster(api.resource_id(), key.cluster.clone()),
        }
    }

    fn field(&self, path: &str) -> Result<Field, Status> {
        let (_, version) = name_and_version(&self.resource);
        let path = SchemaPath::parse(path).map_err(|why| status::invalid("field", why))?;
        let version = version.map(str::to_owned);
        Ok(Field { version, path })
    }

    /// Refuses a field that the API has: what it shows is not retired.
    fn check_gone(&self, api: &Served, field: &Field, path: &str) -> Result<(), Status> {
        let bundle = &api.api.bundle;
        let lacking: Vec<&str> = bundle.lacking(&field.path).collect();
        let has = |version: &&str| !lacking.contains(version);
        let having: Vec<&str> = match &field.version {
            Some(version) => bundle.versions().filter(|name| name == version).filter(has).collect(),
            None if lacking.is_empty() => bundle.versions().filter(has).collect(),
            None => Vec::new(),
        };
        if having.is_empty() {
            return Ok(());
        }
        let first = match self.owner {
            Owner::Export(_) => "publish a release without it first",
            Owner::Definition(_) => "apply a definition without it first",
        };
        let (resource, having) = (&self.resource, having.join(", "));
        Err(Status::failed_precondition(format!(
            "{resource} has {path} in {having}: {first}"
        )))
    }
}

impl AdminService {
    /// Examines one page of objects, and removes what they hold unless the request only asks.
    pub(super) async fn retired(
        &self,
        session: &Session,
        (located, target): (Located, Target),
        request: RetireFieldRequest,
    ) -> Result<RetireFieldResponse, Status> {
        let filter = [&target.texts()[..], &[&*request.field]].concat();
        let page = Page::read(session, &filter, 0, &request.page_token)?;
        let field = target.field(&request.field)?;
        let (apply, position) = (
            !request.validate_only,
            page.after.as_ref().map(|(_, position)| position.clone()),
        );
        let (registry, snapshot, wanted) = (Arc::clone(&self.api.registry), session.snapshot.clone(), field.clone());
        let scan = move || {
            let api = target.api(&registry, &snapshot)?;
            let is_first = position.is_none();
            let after = position.map(|position| {
                rewrite::key_at(api.resource_id(), &position)
                    .ok_or_else(|| status::invalid("page_token", "is none that this server gave out"))
            });
            let scope = target.scope(&api);
            let after = after.transpose()?;
            let found = retire::scan(&registry, &snapshot, &scope, &wanted, after.as_ref());
            // A field that has another type now may have held something before.
            if is_first && found.holders.is_empty() && found.next.is_none() {
                target.check_gone(&api, &wanted, &request.field)?;
            }
            Ok(found)
        };
        let found = self.run_blocking(session, &located, scan).await?;
        let names = session.names(&session.snapshot)?;
        let mut objects = Vec::with_capacity(found.holders.len());
        for mut holder in found.holders {
            if apply {
                let done = retire::apply(self.registry(), holder, &field).await;
                holder = done.map_err(|error| Status::unavailable(error.to_string()))?;
            }
            objects.push(shown(&names, &holder));
        }
        let next = found.next.map(|key| rewrite::position(&key));
        Ok(RetireFieldResponse {
            header: match apply {
                true => crate::services::header_after(session),
                false => session.header(),
            },
            objects,
            examined: i64::try_from(found.examined).unwrap_or(i64::MAX),
            next_page_token: next
                .map(|position| page.next(session.snapshot.revision(), &position))
                .unwrap_or_default(),
        })
    }
}

/// Returns the API that an export offers under `widgets.example.io`, or `widgets`.
fn offered(registry: &Deps, snapshot: &Snapshot, export: &ExportName, named: &str) -> Result<Served, Status> {
    let (named, _) = name_and_version(named);
    let value = snapshot.get(&export.key()).map(|entry| entry.object.body_value());
    let resources = objects::offered(&value.unwrap_or_default()).into_iter();
    let mut apis = resources
        .filter(|offered| {
            offered.resource == named || named.strip_prefix(&offered.resource) == Some(&format!(".{}", offered.group))
        })
        .filter_map(|offered| {
            let api = export.resolve(&registry.catalog, snapshot, &offered.group, &offered.resource)?;
            export.owns(snapshot, &api).then_some(api)
        });
    apis.next()
        .ok_or_else(|| Status::not_found(format!("APIExport {:?} offers no {named}", export.name)))
}

/// Returns the API that a CustomResourceDefinition defines in its workspace.
fn defined(registry: &Deps, snapshot: &Snapshot, key: &ObjectKey) -> Result<Served, Status> {
    let (plural, group) = key.name.split_once('.').unwrap_or_default();
    let served = registry.catalog.resolve(snapshot, &key.cluster, group, plural);
    let is_own = |served: &Served| match &served.origin {
        Origin::Local { definition } => definition.is_custom_resource(&key.name),
        Origin::Bound { .. } | Origin::System => false,
    };
    served.filter(is_own).ok_or_else(|| {
        let message = format!(
            "CustomResourceDefinition {:?} is not served: see its conditions",
            key.name
        );
        Status::failed_precondition(message)
    })
}

fn shown(names: &WorkspaceNames, holder: &Holder) -> FieldHolder {
    let key = &holder.entry.key;
    FieldHolder {
        workspace: names.name(&key.cluster).to_string(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        message: holder.failed.clone(),
    }
}

//! `ApiService.RetireField`: removal of what objects hold in a field that their API has no more.

use super::objects;
use crate::{
    pages::Page,
    session::{AdminService, Located, Session},
    status,
};
use insula_catalog::{Served, exports::ExportName, locate};
use insula_conversion::SchemaPath;
use insula_proto::admin::v1::{FieldHolder, RetireFieldRequest, RetireFieldResponse};
use insula_registry::{
    Deps,
    retire::{self, Field, Holder},
    rewrite,
};
use insula_store::Snapshot;
use std::sync::Arc;
use tonic::Status;

impl AdminService {
    /// Examines one page of objects, and removes what they hold unless the request only asks.
    pub(super) async fn retired(
        &self,
        session: &Session,
        (located, export): (Located, ExportName),
        request: RetireFieldRequest,
    ) -> Result<RetireFieldResponse, Status> {
        let of = [export.cluster.as_str(), &export.name, &request.resource, &request.field];
        let page = Page::read(session, &of, 0, &request.page_token)?;
        let field = field(&request)?;
        let (apply, position) = (
            !request.validate_only,
            page.after.as_ref().map(|(_, position)| position.clone()),
        );
        let (registry, snapshot, wanted) = (Arc::clone(&self.api.registry), session.snapshot.clone(), field.clone());
        let scan = move || {
            let api = offered(&registry, &snapshot, &export, &request.resource)?;
            check_gone(&api, &wanted, &request)?;
            let after = position.map(|position| {
                rewrite::key_at(api.resource_id(), &position)
                    .ok_or_else(|| status::invalid("page_token", "is none that this server gave out"))
            });
            Ok(retire::scan(
                &registry,
                &snapshot,
                &api,
                &wanted,
                after.transpose()?.as_ref(),
            ))
        };
        let found = self.run_blocking(session, &located, scan).await?;
        let mut objects = Vec::with_capacity(found.holders.len());
        for mut holder in found.holders {
            if apply {
                let done = retire::apply(self.registry(), holder, &field).await;
                holder = done.map_err(|error| Status::unavailable(error.to_string()))?;
            }
            objects.push(shown(&session.snapshot, &holder));
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

fn field(request: &RetireFieldRequest) -> Result<Field, Status> {
    let version = request.resource.split_once('/').map(|(_, version)| version.to_owned());
    let path = SchemaPath::parse(&request.field).map_err(|why| status::invalid("field", why))?;
    Ok(Field { version, path })
}

/// Returns the API that an export offers under `widgets.example.io`, or `widgets`.
fn offered(registry: &Deps, snapshot: &Snapshot, export: &ExportName, named: &str) -> Result<Served, Status> {
    let named = named.split('/').next().unwrap_or_default();
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

/// Refuses a field that the API still has: it shows what it holds.
fn check_gone(api: &Served, field: &Field, request: &RetireFieldRequest) -> Result<(), Status> {
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
    Err(Status::failed_precondition(format!(
        "{} has {} in {}: publish a release without it first",
        request.resource,
        request.field,
        having.join(", ")
    )))
}

fn shown(snapshot: &Snapshot, holder: &Holder) -> FieldHolder {
    let key = &holder.entry.key;
    FieldHolder {
        workspace: locate::path_of(snapshot, &key.cluster).to_string(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        message: holder.failed.clone(),
    }
}

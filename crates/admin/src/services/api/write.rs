//! Writes of `ApiService`: requests as the caller.

use super::{manifests::text, objects::published, publication::Plan};
use crate::{
    api_request::{ApiRequest, ObjectPath, deletion},
    session::{Located, Session},
};
use insula_admission::publication::{resource_of, updated};
use insula_api::{Json, names::groups};
use insula_apiserver::call::CallPath;
use insula_catalog::exports::bind_grant;
use insula_registry::DeleteOptions;
use tonic::{Code, Status};

/// Attempts to update an object that the server writes at the same time.
const ATTEMPTS: usize = 5;

/// Returns the path of an object, or of its collection for an empty name.
fn path(located: &Located, kind: &str, name: &str) -> CallPath {
    let (resource, api_version) = match kind {
        "APIBinding" => ("apibindings", "apis.kcp.io/v1alpha2"),
        "ClusterRole" => ("clusterroles", "rbac.authorization.k8s.io/v1"),
        "ClusterRoleBinding" => ("clusterrolebindings", "rbac.authorization.k8s.io/v1"),
        kind => resource_of(kind).unwrap_or(("apiexports", "apis.kcp.io/v1alpha2")),
    };
    let (group, version) = api_version.split_once('/').unwrap_or((groups::APIS, api_version));
    let path = ObjectPath {
        group,
        version,
        resource,
        name,
        ..ObjectPath::default()
    };
    path.in_cluster(&located.cluster)
}

impl Session {
    /// Writes the objects of a plan in order. Returns the export as it is afterwards.
    pub(super) async fn write_plan(
        &self,
        located: &Located,
        plan: &Plan,
        dry_run: bool,
    ) -> Result<Option<Json>, Status> {
        let mut export = plan.existing.clone();
        for object in &plan.writes {
            let written = self.write(located, object, dry_run).await?;
            if text(object, "/kind") == "APIExport" {
                export = Some(written);
            }
        }
        Ok(export)
    }

    /// Creates an object, or updates one that has a resourceVersion. Where only metadata or status
    /// have changed since, as the server does by itself, the update is made again.
    pub(super) async fn write(&self, located: &Located, object: &Json, dry_run: bool) -> Result<Json, Status> {
        let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
        if text(object, "/metadata/resourceVersion").is_empty() {
            let request = ApiRequest::create(path(located, kind, ""), object);
            return match self.run(request.validate_only(dry_run)).await {
                Err(refusal) if refusal.code() == Code::AlreadyExists && self.has_earlier_run() => {
                    let found = self.made_before(located, object).await;
                    found.ok_or(refusal)
                }
                answered => answered,
            };
        }
        let mut new = object.clone();
        for _ in 1..ATTEMPTS {
            let request = ApiRequest::replace(path(located, kind, name), &new);
            match self.run(request.validate_only(dry_run)).await {
                Err(refusal) if refusal.code() == Code::Aborted => match self.renewed(located, object) {
                    Some(renewed) => new = renewed,
                    None => return Err(refusal),
                },
                done => return done,
            }
        }
        let request = ApiRequest::replace(path(located, kind, name), &new);
        self.run(request.validate_only(dry_run)).await
    }

    /// Returns an object that an earlier run of the same request has created: it has the `spec`
    /// that is asked for. The caller needs the right to read it.
    async fn made_before(&self, located: &Located, object: &Json) -> Option<Json> {
        let path = path(located, text(object, "/kind"), text(object, "/metadata/name"));
        let found = self.run(ApiRequest::get(path)).await.ok()?;
        let is_same = match object["spec"].as_object() {
            Some(asked) => asked.iter().all(|(field, value)| found["spec"][field] == *value),
            None => bind_grant::grants_the_same(&found, object),
        };
        (is_same && self.is_of_earlier_run(&found)).then_some(found)
    }

    /// Returns an update for the object as it is now; `None` if its `spec` has changed.
    fn renewed(&self, located: &Located, object: &Json) -> Option<Json> {
        let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
        let there = published(&self.api.registry.store.latest(), &located.cluster, kind, name)?;
        let is_same = |field: &str| there["metadata"][field] == object["metadata"][field];
        (is_same("uid") && is_same("generation")).then(|| updated(there, object))
    }

    /// Deletes an object: with an etag, as it was read. Returns it as it is then; `grace_seconds`
    /// are those of the request, if it names some.
    pub(super) async fn delete(
        &self,
        located: &Located,
        object: &Json,
        (etag, grace_seconds): (&str, Option<u64>),
        dry_run: bool,
    ) -> Result<Json, Status> {
        let meta = &object["metadata"];
        let revision = meta["resourceVersion"].as_str().filter(|_| !etag.is_empty());
        let how = DeleteOptions {
            grace_seconds,
            ..deletion(meta["uid"].as_str(), revision)
        };
        let path = path(located, text(object, "/kind"), text(object, "/metadata/name"));
        self.run(ApiRequest::delete(path, how).validate_only(dry_run)).await
    }
}

//! Objects of a workspace as the calls of `ApiService` read and write them.

use super::manifests::text;
use crate::{
    fields,
    pages::Page,
    services::workspace::{conditions, delete_time},
    session::{Located, Session, right},
    status::{Fault, forbidden, forbidden_because, invalid},
};
use insula_api::{
    ClusterName, ClusterPath, Json, ObjectKey, Revision, Scope, Timestamp, Verb,
    kinds::{self, ApiExportRollout},
    names::groups,
};
use insula_catalog::{
    exports::{ExportName, bind_grant},
    ids, locate,
};
use insula_proto::admin::v1::{
    BoundExport, ErrorReason, FormerRelease, HeldBinding, OfferedResource, PublishedExport, Rollout,
};
use insula_store::{Pinned, Snapshot};
use tonic::{Code, Status};

/// The name of the core group in names of resources.
const CORE: &str = "core";

/// Returns a workspace, or `root` for an empty one.
pub(super) fn or_root(workspace: &str) -> &str {
    if workspace.is_empty() { "root" } else { workspace }
}

/// Returns the object at a key with its resourceVersion, which guards its next write.
pub(super) fn stored(snapshot: &Pinned, key: &ObjectKey) -> Option<Json> {
    let entry = snapshot.get(key)?;
    let mut value = entry.object.body_value();
    let Revision(revision) = entry.revision;
    value["metadata"]["resourceVersion"] = revision.to_string().into();
    Some(value)
}

/// Returns the object of a published kind and a name.
pub(super) fn published(snapshot: &Pinned, cluster: &ClusterName, kind: &str, name: &str) -> Option<Json> {
    let resource = match kind {
        "APIResourceSchema" => ids::apiresourceschemas(),
        "APIExport" => ids::apiexports(),
        "APIBinding" => ids::apibindings(),
        "ClusterRole" => ids::clusterroles(),
        "ClusterRoleBinding" => ids::clusterrolebindings(),
        // Both spellings are one stored object.
        _ => ids::apiconversions(),
    };
    stored(snapshot, &ObjectKey::cluster_scoped(resource, cluster.clone(), name))
}

/// Refuses an empty name.
pub(in crate::services) fn required(field: &str, value: &str) -> Result<(), Status> {
    match value {
        "" => Err(invalid(field, "is required")),
        _ => Ok(()),
    }
}

/// Refuses an object that has changed since the caller saw it.
pub(super) fn check_etag(etag: &str, (resource, name): (&str, &str), object: Option<&Json>) -> Result<(), Status> {
    let Some(etag) = fields::etag(etag)? else { return Ok(()) };
    let now = object.map(fields::etag_of).unwrap_or_default();
    if etag == now {
        return Ok(());
    }
    let problem = match object {
        Some(_) => format!("etag: the object has changed: its etag is {now:?}, not {etag:?}; read it again"),
        None => format!("etag: there is no object with the etag {etag:?}: to create one, send none"),
    };
    let fault = Fault::new(Code::Aborted, ErrorReason::StaleEtag, problem);
    Err(fault.resource(&format!("{resource}.apis.kcp.io"), name).status())
}

impl Session {
    /// Finds the workspace of an export that the caller may use in this way.
    pub(in crate::services) fn export_workspace(
        &self,
        workspace: &str,
        name: &str,
        verb: Verb,
        subresource: &str,
    ) -> Result<Located, Status> {
        let mut attributes = right(verb, groups::APIS, "apiexports", name);
        subresource.clone_into(&mut attributes.subresource);
        let located = self.locate(or_root(workspace), &attributes)?;
        required("export", name)?;
        Ok(located)
    }

    /// Finds the workspace of an export that the caller may bind in a workspace where they may
    /// write bindings. As for an APIBinding, they need no access to the workspace of the export.
    /// Without the right, the answer is the same for a workspace that exists and one that does not.
    pub(in crate::services) fn exporter(
        &self,
        binder: &ClusterName,
        (field, workspace): (&str, &str),
        name: &str,
    ) -> Result<Located, Status> {
        let path = ClusterPath::parse(workspace)
            .map_err(|error| invalid(field, format!("{error}; write a path such as root:org:team")))?;
        let bind = right("bind", groups::APIS, "apiexports", name);
        let Ok((cluster, _)) = locate::locate_view(&self.snapshot, &path) else {
            let refused = self.locate(workspace, &bind);
            return refused.map_err(|refused| self.with_way_to_the_right(refused, None, (workspace, name)));
        };
        let record = self.caller.record();
        match self.caller.permit_offer(&self.snapshot, (binder, &cluster), bind) {
            Ok(permit) => record.decided(true, permit.reason(), permit.trail()),
            Err(refused) => {
                record.decided(false, &refused.reason, &refused.trail);
                record.refused(&refused.message);
                let refused = forbidden(refused);
                return Err(self.with_way_to_the_right(refused, Some(&cluster), (workspace, name)));
            }
        }
        Ok(Located { cluster, path })
    }

    /// Adds to a missing right to bind an export the way to it, for whoever may grant it.
    pub(super) fn with_way_to_the_right(
        &self,
        refused: Status,
        cluster: Option<&ClusterName>,
        (workspace, name): (&str, &str),
    ) -> Status {
        if refused.code() != Code::PermissionDenied {
            return refused;
        }
        let user = self.user().ok().and_then(|user| user.name_within(cluster));
        match user.and_then(|user| bind_grant::way_to_the_right(workspace, name, &user)) {
            Some(way) => forbidden_because(format!("{}; {way}", refused.message())),
            None => refused,
        }
    }

    /// Finds an export in a workspace.
    pub(in crate::services) fn find_export(
        &self,
        snapshot: &Snapshot,
        located: &Located,
        name: &str,
    ) -> Result<(ExportName, Json), Status> {
        let export = ExportName {
            cluster: located.cluster.clone(),
            name: name.into(),
        };
        let value = stored(snapshot, &export.key());
        let value = value.ok_or_else(|| not_found("apiexports", name, &located.path))?;
        Ok((export, value))
    }

    /// Finds the workspace of a binding that the caller may use in this way.
    pub(super) fn locate_binding(&self, workspace: &str, name: &str, verb: Verb) -> Result<Located, Status> {
        let located = self.locate(or_root(workspace), &right(verb, groups::APIS, "apibindings", name))?;
        required("binding", name)?;
        Ok(located)
    }

    /// Finds a binding in a workspace.
    pub(super) fn find_binding(&self, snapshot: &Snapshot, located: &Located, name: &str) -> Result<Json, Status> {
        let key = ObjectKey::cluster_scoped(ids::apibindings(), located.cluster.clone(), name);
        stored(snapshot, &key).ok_or_else(|| not_found("apibindings", name, &located.path))
    }

    /// Asks for the rights to read what a publication replaces.
    pub(super) fn may_read_published(&self, located: &Located) -> Result<(), Status> {
        for resource in ["apiresourceschemas", "apiconversions", "apiexports"] {
            self.permit(&located.cluster, right(Verb::Get, groups::APIS, resource, ""))?;
        }
        Ok(())
    }
}

/// Returns the refusal of an object of `apis.kcp.io` that a workspace does not have.
pub(in crate::services) fn not_found(resource: &str, name: &str, path: &ClusterPath) -> Status {
    let message = format!("{resource}.apis.kcp.io {name:?} not found in workspace {path}");
    let fault = Fault::new(Code::NotFound, ErrorReason::NotFound, message);
    fault.resource(&format!("{resource}.apis.kcp.io"), name).status()
}

/// Returns the items at a JSON pointer.
pub(super) fn items<'a>(value: &'a Json, pointer: &str) -> impl Iterator<Item = &'a Json> {
    value.pointer(pointer).and_then(Json::as_array).into_iter().flatten()
}

/// Returns the time at a JSON pointer.
pub(super) fn time(value: &Json, pointer: &str) -> Option<prost_types::Timestamp> {
    Timestamp::parse(text(value, pointer)).map(moment)
}

pub(super) fn moment(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.0,
        nanos: 0,
    }
}

/// Returns a resource's name with its group: `widgets.example.io`, `widgets.core`.
pub(super) fn resource_name(group: &str, resource: &str) -> String {
    let group = if group.is_empty() { CORE } else { group };
    format!("{resource}.{group}")
}

/// Returns the group that a request names: `core` is the core group, as in a resource's name.
pub(in crate::services) fn group_named(group: &str) -> &str {
    if group == CORE { "" } else { group }
}

fn strings(value: &Json, pointer: &str) -> String {
    text(value, pointer).to_owned()
}

fn number(value: &Json, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Json::as_i64).unwrap_or_default()
}

/// Returns the message of an export.
pub(super) fn export_message(workspace: &ClusterPath, value: &Json) -> PublishedExport {
    let held = items(value, "/status/rollout/heldBindings").map(|held| HeldBinding {
        workspace: strings(held, "/workspace"),
        binding: strings(held, "/name"),
        message: strings(held, "/message"),
    });
    let small = |pointer| i32::try_from(number(value, pointer)).unwrap_or(i32::MAX);
    let strategy = match text(value, "/spec/rollout/strategy") {
        "" => "PerBinding",
        strategy => strategy,
    };
    let settings: ApiExportRollout = kinds::read(&value["spec"]["rollout"]);
    let rollout = Rollout {
        strategy: strategy.to_owned(),
        paused: value["spec"]["rollout"]["paused"] == true,
        bindings: number(value, "/status/rollout/bindings"),
        current: number(value, "/status/rollout/current"),
        held: number(value, "/status/rollout/held"),
        waiting: number(value, "/status/rollout/waiting"),
        step: small("/status/rollout/step"),
        steps: small("/status/rollout/steps"),
        release: strings(value, "/status/rollout/release"),
        held_bindings: held.collect(),
        reason: strings(value, "/status/rollout/reason"),
        message: strings(value, "/status/rollout/message"),
        unbound: number(value, "/status/rollout/unbound"),
        history: items(value, "/status/rollout/history").map(former).collect(),
        max_held: settings.max_held.map(|max| max.to_string()).unwrap_or_default(),
    };
    PublishedExport {
        name: strings(value, "/metadata/name"),
        workspace: workspace.to_string(),
        identity_hash: strings(value, "/status/identityHash"),
        resources: offered(value),
        rollout: Some(rollout),
        conditions: conditions(value),
        etag: strings(value, "/metadata/resourceVersion"),
    }
}

fn former(release: &Json) -> FormerRelease {
    FormerRelease {
        release: strings(release, "/release"),
        end_time: time(release, "/endTime"),
        resources: resources(release, "/resources"),
    }
}

/// Returns the resources that an export offers.
pub(super) fn offered(export: &Json) -> Vec<OfferedResource> {
    resources(export, "/spec/resources")
}

fn resources(value: &Json, pointer: &str) -> Vec<OfferedResource> {
    let resources = items(value, pointer).map(|resource| OfferedResource {
        group: strings(resource, "/group"),
        resource: strings(resource, "/name"),
        schema: strings(resource, "/schema"),
    });
    resources.collect()
}

/// Returns the resources that a binding serves.
pub(super) fn bound(binding: &Json) -> Vec<OfferedResource> {
    let resources = items(binding, "/status/boundResources").map(|resource| OfferedResource {
        group: strings(resource, "/group"),
        resource: strings(resource, "/resource"),
        schema: strings(resource, "/schema/name"),
    });
    resources.collect()
}

/// Returns the message of a binding.
pub(super) fn binding_message(value: &Json) -> BoundExport {
    BoundExport {
        name: strings(value, "/metadata/name"),
        export_workspace: strings(value, "/spec/reference/export/path"),
        export: strings(value, "/spec/reference/export/name"),
        phase: strings(value, "/status/phase"),
        resources: bound(value),
        conditions: conditions(value),
        etag: strings(value, "/metadata/resourceVersion"),
        delete_time: delete_time(value),
    }
}

/// Returns a page of the exports of a workspace, and the token of the next one.
pub(super) fn list_exports(snapshot: &Snapshot, located: &Located, page: &Page) -> (Vec<PublishedExport>, String) {
    let after = page.after.as_ref();
    let after = after.map(|(_, name)| ObjectKey::cluster_scoped(ids::apiexports(), located.cluster.clone(), name));
    let scope = Scope::cluster(ids::apiexports(), located.cluster.clone());
    let mut found = snapshot.range(&scope, after.as_ref(), page.size + 1);
    let more = found.len() > page.size;
    found.truncate(page.size);
    let last = found.last().filter(|_| more);
    let next = last.map(|last| page.next(snapshot.revision(), &last.key.name));
    let values = found.iter().filter_map(|entry| stored(snapshot, &entry.key));
    let exports = values.map(|value| export_message(&located.path, &value));
    (exports.collect(), next.unwrap_or_default())
}

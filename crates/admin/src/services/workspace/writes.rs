//! Writes of workspaces: requests as the caller in the parent.

use super::{canonical, content::Content, delete_time, describe, describe_object, or_root, reading, workspaces};
use crate::{
    api_request::{ApiRequest, deletion},
    fields::{self, Mask},
    pages::hash,
    requests::Once,
    session::{AdminService, Located, Session, right, workspace_path},
    status::{self, Fault, FieldNames},
};
use insula_api::{
    ClusterName, ClusterPath, Json, ObjectKey, Revision, Scope, Verb,
    names::{annotations, api_versions, groups},
};
use insula_apiserver::call::CallPath;
use insula_catalog::{ids, locate};
use insula_proto::admin::v1::{
    CreateWorkspaceRequest, CreateWorkspaceResponse, DeleteWorkspaceRequest, DeleteWorkspaceResponse, ErrorReason,
    UpdateWorkspaceRequest, UpdateWorkspaceResponse, Workspace,
};
use insula_registry::DeleteOptions;
use serde_json::json;
use std::collections::BTreeMap;
use tonic::{Code, Status};

/// Domains of the labels and annotations that the system sets.
const SYSTEM_DOMAINS: [&str; 4] = ["kcp.io", "insula.io", "k8s.io", "kubernetes.io"];

/// Fields of a Workspace in requests.
const FIELDS: FieldNames = &[
    ("metadata.name", "name"),
    ("metadata.generateName", "name_prefix"),
    ("metadata.labels", "labels"),
    ("metadata.annotations", "annotations"),
    ("spec.type", "type"),
];

impl AdminService {
    /// Creates a workspace, and waits until it is ready if the request says so.
    pub(super) async fn created(
        &self,
        session: &Session,
        request: CreateWorkspaceRequest,
    ) -> Result<CreateWorkspaceResponse, Status> {
        let create = right(Verb::Create, groups::TENANCY, "workspaces", "");
        let Located { cluster, path } = session.locate_field("parent", or_root(&request.parent), &create)?;
        let path = canonical(&session.snapshot, &cluster, path);
        if request.wait {
            let read = right(Verb::Get, groups::TENANCY, "workspaces", &request.name);
            session.permit(&cluster, read)?;
        }
        let object = new_workspace(&request)?;
        let once = Once {
            request_id: &request.request_id,
            validate_only: request.validate_only,
        };
        let work = async {
            let create = ApiRequest::create(workspaces("").in_cluster(&cluster), &object).names(FIELDS);
            let created = match session.run(create.validate_only(request.validate_only)).await {
                Err(refusal) if refusal.code() == Code::AlreadyExists && session.has_earlier_run() => {
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    let found = self.made_before(session, &cluster, name);
                    found.ok_or(refusal)?
                }
                answered => answered?,
            };
            Ok(CreateWorkspaceResponse {
                header: session.header_of(&created),
                workspace: Some(describe_object(&created, &path)),
            })
        };
        let mut answer = self.once(session, once, &request, work).await?;
        if request.wait && !request.validate_only {
            let name = answer.workspace.take().unwrap_or_default().name;
            let (revision, workspace) = tokio::select! {
                ready = self.ready(&cluster, &path, &name) => ready?,
                // The workspace exists, and nobody waits for it.
                () = session.caller.gone() => return Err(Status::cancelled("the client is gone")),
            };
            answer.header = session.header_at(revision);
            answer.workspace = Some(workspace);
        }
        Ok(answer)
    }

    /// Returns a workspace that an earlier run of the same request has created.
    fn made_before(&self, session: &Session, cluster: &ClusterName, name: &str) -> Option<Json> {
        let key = ObjectKey::cluster_scoped(ids::workspaces(), cluster.clone(), name);
        let entry = self.registry().store.latest().get(&key)?;
        let object = entry.object.value(entry.revision);
        let owner = object["metadata"]["annotations"][annotations::WORKSPACE_OWNER].as_str();
        let owner: Option<Json> = owner.and_then(|owner| serde_json::from_str(owner).ok());
        let is_own = owner.is_some_and(|owner| owner["username"] == session.caller.name());
        (is_own && session.is_of_earlier_run(&object)).then_some(object)
    }

    /// Waits until a workspace is ready. The deadline of the call ends the wait.
    async fn ready(
        &self,
        cluster: &ClusterName,
        path: &ClusterPath,
        name: &str,
    ) -> Result<(Revision, Workspace), Status> {
        let store = &self.registry().store;
        let key = ObjectKey::cluster_scoped(ids::workspaces(), cluster.clone(), name);
        let scope = Scope::cluster(ids::workspaces(), cluster.clone());
        loop {
            let snapshot = store.latest();
            let entry = snapshot.get(&key).ok_or_else(|| status::no_workspace(name))?;
            let workspace = describe(&entry, path);
            if entry.object.meta.is_deleting() {
                let message = format!("workspace {path}:{name} is being deleted, and will not be ready");
                return Err(Fault::new(Code::FailedPrecondition, ErrorReason::WrongState, message).status());
            }
            if workspace.phase == "Ready" {
                return Ok((snapshot.revision(), workspace));
            }
            // A cursor that is trimmed is as good as a change: the state is read again.
            if let Ok(mut changes) = store.watch(scope.clone(), snapshot.revision()) {
                let _ = changes.next().await;
            }
        }
    }

    /// Changes labels and annotations of a workspace.
    pub(super) async fn updated(
        &self,
        session: &Session,
        request: UpdateWorkspaceRequest,
    ) -> Result<UpdateWorkspaceResponse, Status> {
        let named = Named::find(session, &request.workspace, Verb::Patch)?;
        let known = [
            ("labels", !request.labels.is_empty()),
            ("annotations", !request.annotations.is_empty()),
        ];
        let mask = Mask::read(request.update_mask.as_ref(), &known)?;
        let etag = fields::etag(&request.etag)?;
        let once = Once {
            request_id: &request.request_id,
            validate_only: request.validate_only,
        };
        let work = async {
            let entry = named.entry(session)?;
            let object = entry.object.value(entry.revision);
            let mut patch = json!({"metadata": {}});
            for (field, wanted) in [("labels", &request.labels), ("annotations", &request.annotations)] {
                if mask.has(field) {
                    patch["metadata"][field] = replacement(&object["metadata"][field], wanted);
                }
            }
            if let Some(etag) = etag {
                patch["metadata"]["resourceVersion"] = json!(etag);
            }
            let patch = ApiRequest::merge(named.path(), &patch).names(FIELDS);
            let patch = patch.validate_only(request.validate_only);
            let updated = session.run(patch).await?;
            Ok(UpdateWorkspaceResponse {
                header: session.header_of(&updated),
                workspace: Some(describe_object(&updated, &named.parent_path)),
            })
        };
        self.once(session, once, &request, work).await
    }

    /// Deletes a workspace, and says what goes with it.
    pub(super) async fn deleted(
        &self,
        session: &Session,
        request: DeleteWorkspaceRequest,
    ) -> Result<DeleteWorkspaceResponse, Status> {
        let named = Named::find(session, &request.workspace, Verb::Delete)?;
        let how = DeleteOptions {
            grace_seconds: request.immediately.then_some(0),
            ..deletion(None, fields::etag(&request.etag)?)
        };
        let once = Once {
            request_id: &request.request_id,
            validate_only: request.validate_only,
        };
        let work = async {
            let entry = named.entry(session)?;
            let workspace = describe(&entry, &named.parent_path);
            let content = Content::below(self.registry(), session, &workspace);
            let delete = ApiRequest::delete(named.path(), how.clone()).validate_only(request.validate_only);
            let deleted = session.run(delete).await?;
            Ok(DeleteWorkspaceResponse {
                header: session.header_of(&deleted),
                workspace: Some(workspace),
                workspaces: content.workspaces,
                objects: content.counts(),
                paths: content.paths,
                hidden_workspaces: content.hidden,
                truncated: content.truncated,
                delete_time: delete_time(&deleted),
            })
        };
        self.once(session, once, &request, work).await
    }
}

/// A Workspace in its parent.
pub(super) struct Named {
    pub(super) parent: ClusterName,
    pub(super) parent_path: ClusterPath,
    pub(super) name: String,
}

impl Named {
    /// Finds a workspace by its path or its cluster, for a caller with a right in its parent. A
    /// caller who names the cluster has to read it from within.
    pub(super) fn find(session: &Session, workspace: &str, verb: Verb) -> Result<Named, Status> {
        let given = workspace_path("workspace", workspace)?;
        let given = match given.parent() {
            Some(_) => given,
            None => {
                let located = session.locate(given.as_str(), &reading())?;
                locate::path_of(&session.snapshot, &located.cluster)
            }
        };
        let Some(parent) = given.parent() else {
            let problem = format!("{given} has no parent: it can be neither changed nor deleted");
            return Err(status::invalid("workspace", problem));
        };
        let above = right(verb, groups::TENANCY, "workspaces", given.base());
        let located = session.locate(parent.as_str(), &above)?;
        Ok(Named {
            parent_path: canonical(&session.snapshot, &located.cluster, located.path),
            parent: located.cluster,
            name: given.base().to_owned(),
        })
    }

    fn entry(&self, session: &Session) -> Result<insula_store::Entry, Status> {
        let key = ObjectKey::cluster_scoped(ids::workspaces(), self.parent.clone(), &self.name);
        let entry = session.snapshot.get(&key);
        entry.ok_or_else(|| status::no_workspace(&self.name))
    }

    fn path(&self) -> CallPath {
        workspaces(&self.name).in_cluster(&self.parent)
    }
}

/// Returns the Workspace that a request creates.
fn new_workspace(request: &CreateWorkspaceRequest) -> Result<Json, Status> {
    let mut object = json!({
        "apiVersion": api_versions::TENANCY, "kind": "Workspace",
        "metadata": {"labels": request.labels, "annotations": request.annotations},
        "spec": {},
    });
    let metadata = &mut object["metadata"];
    match (request.name.as_str(), request.name_prefix.as_str()) {
        ("", "") => return Err(status::invalid("name", "is required, or name_prefix")),
        ("", prefix) if request.request_id.is_empty() => metadata["generateName"] = json!(prefix),
        // The same name again, if the request runs a second time.
        ("", prefix) => {
            let rest = hash([request.request_id.as_str()].into_iter());
            metadata["name"] = json!(format!("{prefix}{:08x}", rest >> 32));
        }
        (name, "") => metadata["name"] = json!(name),
        _ => return Err(status::invalid("name_prefix", "is for workspaces without name")),
    }
    if !request.r#type.is_empty() {
        object["spec"]["type"] = match request.r#type.rsplit_once(':') {
            Some(("", _) | (_, "")) => {
                let problem = format!("{:?} is none: write root:universal, or a name alone", request.r#type);
                return Err(status::invalid("type", problem));
            }
            Some((path, name)) => json!({"path": path, "name": name}),
            None => json!({"name": request.r#type}),
        };
    }
    Ok(object)
}

/// Returns the merge patch that makes a map of labels or annotations the wanted one, except for
/// those of the system that the caller does not name.
fn replacement(present: &Json, wanted: &BTreeMap<String, String>) -> Json {
    let mut patch = json!(wanted);
    let present = present.as_object().into_iter().flatten();
    for (key, _) in present.filter(|(key, _)| !wanted.contains_key(*key) && !is_of_system(key)) {
        patch[key] = Json::Null;
    }
    patch
}

fn is_of_system(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else {
        return false;
    };
    SYSTEM_DOMAINS.into_iter().any(|system| {
        let below = domain.strip_suffix(system);
        below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_made_up_follow_from_the_request() {
        let mut request = CreateWorkspaceRequest {
            name_prefix: "team-".to_owned(),
            r#type: "root:org:special".to_owned(),
            ..CreateWorkspaceRequest::default()
        };
        let made = new_workspace(&request).expect("a workspace");
        assert_eq!(made["metadata"]["generateName"], "team-");
        assert_eq!(made["spec"]["type"], json!({"path": "root:org", "name": "special"}));
        request.request_id = "6f1b3ad0-94a5-4f4e-9d3a-0a7d3c5f2b11".to_owned();
        let [first, second] = [(); 2].map(|()| new_workspace(&request).expect("a workspace")["metadata"].clone());
        assert_eq!(first, second);
        assert_eq!(first["name"].as_str().map(str::len), Some("team-".len() + 8));
        request.name = "a".to_owned();
        assert_eq!(
            new_workspace(&request).expect_err("two names").code(),
            Code::InvalidArgument
        );
    }

    #[test]
    fn labels_are_replaced_except_for_those_of_the_system() {
        let present = json!({"a": "1", "b": "2", "kcp.io/cluster": "x", "x.kubernetes.io/y": "z", "mykcp.io/a": "b"});
        let wanted = BTreeMap::from([("b".to_owned(), "3".to_owned())]);
        let patch = replacement(&present, &wanted);
        assert_eq!(patch, json!({"a": null, "b": "3", "mykcp.io/a": null}));
    }
}

//! `WorkspaceService`: the tree of workspaces, as far as the caller may read and change it.

mod content;
mod explain;
mod undelete;
mod writes;

pub(super) use undelete::not_undeleted;

use super::{
    object::{after, change_type, revision_of},
    or_root,
};
use crate::{
    api_request::{ObjectPath, WatchEvent},
    fields,
    pages::Page,
    session::{AdminService, Located, Session, right, workspace_path},
    status,
};
use futures_util::StreamExt;
use insula_api::{
    ClusterName, ClusterPath, Json, ObjectKey, Scope, Timestamp, Verb,
    names::{annotations, groups},
};
use insula_apiserver::call::WatchRequest;
use insula_auth::Attributes;
use insula_catalog::{ids, locate};
use insula_proto::admin::v1::{
    ChangeType, Condition, CreateWorkspaceRequest, CreateWorkspaceResponse, DeleteWorkspaceRequest,
    DeleteWorkspaceResponse, ExplainWorkspaceRequest, ExplainWorkspaceResponse, FreezeWorkspaceRequest,
    FreezeWorkspaceResponse, GetWorkspaceRequest, GetWorkspaceResponse, ListWorkspacesRequest, ListWorkspacesResponse,
    ResponseHeader, ThawWorkspaceRequest, ThawWorkspaceResponse, TreeWorkspacesRequest, TreeWorkspacesResponse,
    UndeleteWorkspaceRequest, UndeleteWorkspaceResponse, UpdateWorkspaceRequest, UpdateWorkspaceResponse,
    WatchWorkspacesRequest, WatchWorkspacesResponse, Workspace, workspace_service_server::WorkspaceService,
};
use insula_store::{Entry, Scan, Snapshot};
use std::{collections::BTreeMap, pin::Pin};
use tokio_stream::{Stream, iter};
use tonic::{Request, Response, Status};

/// Workspaces that one `Tree` returns.
const TREE_MAX: usize = 100_000;

#[tonic::async_trait]
impl WorkspaceService for AdminService {
    async fn list_workspaces(
        &self,
        request: Request<ListWorkspacesRequest>,
    ) -> Result<Response<ListWorkspacesResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.locate_field("parent", or_root(&request.parent), &listing())?;
        let entered = self.enter(&session, &located.cluster).await?;
        entered.run(list(&session, &located, &request)).await
    }

    async fn get_workspace(
        &self,
        request: Request<GetWorkspaceRequest>,
    ) -> Result<Response<GetWorkspaceResponse>, Status> {
        let session = self.begin(&request).await?;
        let workspace = self.readable(&session, &request.into_inner().workspace).await?;
        let cluster = ClusterName::parse(&workspace.cluster).ok();
        let view = cluster
            .as_ref()
            .and_then(|cluster| locate::logical_cluster(&session.snapshot, cluster));
        let freeze = view.as_ref().and_then(|view| view.freeze());
        Ok(Response::new(GetWorkspaceResponse {
            header: session.header(),
            workspace: Some(workspace),
            freeze: freeze.map(super::freeze::answer),
            freeze_etag: match &cluster {
                Some(cluster) => super::freeze::state(&session.snapshot, cluster),
                None => String::new(),
            },
        }))
    }

    async fn freeze_workspace(
        &self,
        request: Request<FreezeWorkspaceRequest>,
    ) -> Result<Response<FreezeWorkspaceResponse>, Status> {
        self.freeze(request).await
    }

    async fn thaw_workspace(
        &self,
        request: Request<ThawWorkspaceRequest>,
    ) -> Result<Response<ThawWorkspaceResponse>, Status> {
        self.thaw(request).await
    }

    type TreeWorkspacesStream = Pin<Box<dyn Stream<Item = Result<TreeWorkspacesResponse, Status>> + Send>>;

    async fn tree_workspaces(
        &self,
        request: Request<TreeWorkspacesRequest>,
    ) -> Result<Response<Self::TreeWorkspacesStream>, Status> {
        let session = self.begin(&request).await?;
        let TreeWorkspacesRequest { root, max_depth } = request.into_inner();
        let Located { cluster, path } = session.locate_field("root", or_root(&root), &listing())?;
        let entered = self.enter(&session, &cluster).await?;
        let first = entered
            .run(async { describe_cluster(&session, &cluster, &path) })
            .await?;
        let walk = Walk {
            header: session.header(),
            session,
            max_depth,
            next: Some(first),
            open: Vec::new(),
            left: TREE_MAX,
            is_cut: false,
        };
        Ok(Response::new(Box::pin(iter(walk))))
    }

    async fn create_workspace(
        &self,
        request: Request<CreateWorkspaceRequest>,
    ) -> Result<Response<CreateWorkspaceResponse>, Status> {
        let session = self.begin(&request).await?;
        let answer = self.created(&session, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn update_workspace(
        &self,
        request: Request<UpdateWorkspaceRequest>,
    ) -> Result<Response<UpdateWorkspaceResponse>, Status> {
        let session = self.begin(&request).await?;
        let answer = self.updated(&session, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn delete_workspace(
        &self,
        request: Request<DeleteWorkspaceRequest>,
    ) -> Result<Response<DeleteWorkspaceResponse>, Status> {
        let session = self.begin(&request).await?;
        let answer = self.deleted(&session, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn undelete_workspace(
        &self,
        request: Request<UndeleteWorkspaceRequest>,
    ) -> Result<Response<UndeleteWorkspaceResponse>, Status> {
        let session = self.begin(&request).await?;
        let answer = self.undeleted(&session, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    type WatchWorkspacesStream = Pin<Box<dyn Stream<Item = Result<WatchWorkspacesResponse, Status>> + Send>>;

    async fn watch_workspaces(
        &self,
        request: Request<WatchWorkspacesRequest>,
    ) -> Result<Response<Self::WatchWorkspacesStream>, Status> {
        let session = self.begin(&request).await?;
        let WatchWorkspacesRequest { parent, revision } = request.into_inner();
        let watching = right(Verb::Watch, groups::TENANCY, "workspaces", "");
        let Located { cluster, path } = session.locate_field("parent", or_root(&parent), &watching)?;
        let path = canonical(&session.snapshot, &cluster, path);
        let watch = WatchRequest {
            path: workspaces("").in_cluster(&cluster),
            labels: String::new(),
            fields: String::new(),
            after: after(revision),
        };
        let events = session.watch(&watch, &[]).await?;
        let answer = move |event: Result<WatchEvent, Status>| {
            let event = event?;
            let kind = change_type(&event);
            let has_object = !matches!(kind, ChangeType::Bookmark | ChangeType::Synced);
            Ok(WatchWorkspacesResponse {
                header: session.header_at(revision_of(&event.object)),
                r#type: kind.into(),
                workspace: has_object.then(|| describe_object(&event.object, &path)),
            })
        };
        Ok(Response::new(Box::pin(events.map(answer))))
    }

    async fn explain_workspace(
        &self,
        request: Request<ExplainWorkspaceRequest>,
    ) -> Result<Response<ExplainWorkspaceResponse>, Status> {
        let session = self.begin(&request).await?;
        let path = request.into_inner().workspace;
        let workspace = self.readable(&session, &path).await?;
        let answer = explain::explain(self.registry(), &session, workspace);
        Ok(Response::new(answer))
    }
}

impl AdminService {
    /// Returns a workspace that the caller may read, in its parent or from within.
    async fn readable(&self, session: &Session, path: &str) -> Result<Workspace, Status> {
        let path = workspace_path("workspace", path)?;
        let (located, named) = match path.parent() {
            None => (session.locate(path.as_str(), &reading())?, None),
            Some(parent) => {
                let above = right(Verb::Get, groups::TENANCY, "workspaces", path.base());
                let located = session.locate(parent.as_str(), &above).or_else(|refusal| {
                    // An owner may read their workspace without a right in its parent.
                    let own = session.locate(path.as_str(), &reading());
                    own.map_err(|_| refusal)
                })?;
                (located, Some(parent))
            }
        };
        let entered = self.enter(session, &located.cluster).await?;
        entered.run(async { get(session, &located, &path, named) }).await
    }
}

/// Returns the path of a Workspace in its parent; an empty name stands for all of them.
fn workspaces(name: &str) -> ObjectPath<'_> {
    ObjectPath {
        group: groups::TENANCY,
        version: "v1alpha1",
        resource: "workspaces",
        name,
        ..ObjectPath::default()
    }
}

fn listing() -> Attributes {
    right(Verb::List, groups::TENANCY, "workspaces", "")
}

/// The right by which a user reads a workspace from within.
fn reading() -> Attributes {
    right(Verb::Get, groups::CORE, "logicalclusters", "cluster")
}

async fn list(
    session: &Session,
    located: &Located,
    request: &ListWorkspacesRequest,
) -> Result<Response<ListWorkspacesResponse>, Status> {
    let cluster = &located.cluster;
    let page = Page::read(session, &[cluster.as_str()], request.page_size, &request.page_token)?;
    let snapshot = page.snapshot(session).await?;
    let after = page.after.as_ref();
    let after = after.map(|(_, name)| ObjectKey::cluster_scoped(ids::workspaces(), cluster.clone(), name));
    let scope = Scope::cluster(ids::workspaces(), cluster.clone());
    let mut found = snapshot.range(&scope, after.as_ref(), page.size + 1);
    let more = found.len() > page.size;
    found.truncate(page.size);
    let last = found.last().filter(|_| more);
    let next = last.map(|last| page.next(snapshot.revision(), &last.key.name));
    let path = canonical(&snapshot, cluster, located.path.clone());
    Ok(Response::new(ListWorkspacesResponse {
        header: session.header_at(snapshot.revision()),
        workspaces: found.iter().map(|entry| describe(entry, &path)).collect(),
        next_page_token: next.unwrap_or_default(),
    }))
}

/// Describes a workspace by its Workspace in the parent; one without a parent by its
/// LogicalCluster.
fn get(
    session: &Session,
    located: &Located,
    path: &ClusterPath,
    parent: Option<ClusterPath>,
) -> Result<Workspace, Status> {
    let Some(parent) = parent else {
        return describe_cluster(session, &located.cluster, path);
    };
    // A caller without a right in the parent was located in the workspace itself.
    let above = locate::locate(&session.snapshot, &parent).unwrap_or_else(|_| located.cluster.clone());
    let key = ObjectKey::cluster_scoped(ids::workspaces(), above.clone(), path.base());
    let entry = session.snapshot.get(&key);
    let entry = entry.ok_or_else(|| status::no_workspace(path.base()))?;
    Ok(describe(&entry, &canonical(&session.snapshot, &above, parent)))
}

/// A walk through a tree of workspaces at one state: parents before their children, siblings by
/// name. It holds a few children of each level, whatever the number of workspaces.
struct Walk {
    session: Session,
    header: Option<ResponseHeader>,
    max_depth: u32,
    /// The first workspace, until it is returned.
    next: Option<Workspace>,
    /// Workspaces whose children are being returned, the first one at the bottom.
    open: Vec<Level>,
    left: usize,
    /// True once the end of the request has been told.
    is_cut: bool,
}

/// A workspace whose children are being returned.
struct Level {
    path: ClusterPath,
    children: Scan,
}

impl Walk {
    /// Descends into a workspace, if the caller may list its children. A workspace without a
    /// cluster has none.
    fn descend(&mut self, workspace: &Workspace) {
        let depth = u32::try_from(self.open.len()).unwrap_or(u32::MAX);
        let (Ok(cluster), Ok(path)) = (
            ClusterName::parse(&workspace.cluster),
            ClusterPath::parse(&workspace.path),
        ) else {
            return;
        };
        let Session { caller, snapshot, .. } = &self.session;
        let within = (self.max_depth == 0 || depth < self.max_depth) && !locate::awaits_deletion(snapshot, &cluster);
        if within && caller.permit(snapshot, &cluster, listing()).is_ok() {
            let children = snapshot.scan(Scope::cluster(ids::workspaces(), cluster));
            self.open.push(Level { path, children });
        }
    }

    /// Returns the next child of the deepest workspace that has one left.
    fn child(&mut self) -> Option<Workspace> {
        while let Some(Level { path, children }) = self.open.last_mut() {
            if let Some(entry) = children.next() {
                return Some(describe(&entry, path));
            }
            self.open.pop();
        }
        None
    }
}

impl Iterator for Walk {
    type Item = Result<TreeWorkspacesResponse, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.next.take().or_else(|| self.child());
        // A walk that ended early is not the end of the tree.
        if let Err(ended) = self.session.check_walks() {
            self.open.clear();
            let is_told = std::mem::replace(&mut self.is_cut, true);
            return (!is_told).then_some(Err(ended));
        }
        let workspace = found?;
        if self.left == 0 {
            self.open.clear();
            let text = format!("more than {TREE_MAX} workspaces: ask for a subtree");
            return Some(Err(Status::resource_exhausted(text)));
        }
        self.left -= 1;
        let depth = u32::try_from(self.open.len()).unwrap_or(u32::MAX);
        self.descend(&workspace);
        Some(Ok(TreeWorkspacesResponse {
            header: self.header.clone(),
            workspace: Some(workspace),
            depth,
        }))
    }
}

fn canonical(snapshot: &Snapshot, cluster: &ClusterName, given: ClusterPath) -> ClusterPath {
    let known = locate::path_of(snapshot, cluster);
    if known.as_str() == cluster.as_str() {
        given
    } else {
        known
    }
}

fn time(value: &Json) -> Option<prost_types::Timestamp> {
    let moment = Timestamp::parse(value.as_str()?)?;
    Some(prost_types::Timestamp {
        seconds: moment.0,
        nanos: 0,
    })
}

/// Returns the end of the grace period of a deleted Workspace or APIBinding.
pub(super) fn delete_time(object: &Json) -> Option<prost_types::Timestamp> {
    let metadata = &object["metadata"];
    let has_grace = metadata["deletionGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds > 0);
    has_grace.then(|| time(&metadata["deletionTimestamp"])).flatten()
}

fn text(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn conditions(object: &Json) -> Vec<Condition> {
    let list = object.pointer("/status/conditions").and_then(Json::as_array);
    list.into_iter()
        .flatten()
        .map(|condition| Condition {
            r#type: text(&condition["type"]),
            status: text(&condition["status"]),
            reason: text(&condition["reason"]),
            message: text(&condition["message"]),
            last_transition_time: time(&condition["lastTransitionTime"]),
        })
        .collect()
}

fn texts(object: &Json, field: &str) -> BTreeMap<String, String> {
    let map = object["metadata"][field].as_object();
    let pairs = map.into_iter().flatten();
    pairs.map(|(key, value)| (key.clone(), text(value))).collect()
}

fn describe(entry: &Entry, parent: &ClusterPath) -> Workspace {
    describe_object(&entry.object.value(entry.revision), parent)
}

/// Describes a workspace by its Workspace object.
fn describe_object(object: &Json, parent: &ClusterPath) -> Workspace {
    let kind = &object["spec"]["type"];
    let name = text(&object["metadata"]["name"]);
    Workspace {
        path: parent.join(&name).to_string(),
        cluster: text(&object["spec"]["cluster"]),
        phase: text(&object["status"]["phase"]),
        url: text(&object["spec"]["URL"]),
        r#type: match kind["path"].as_str().filter(|path| !path.is_empty()) {
            Some(path) => format!("{path}:{}", text(&kind["name"])),
            None => text(&kind["name"]),
        },
        parent: parent.to_string(),
        create_time: time(&object["metadata"]["creationTimestamp"]),
        uid: text(&object["metadata"]["uid"]),
        revision: revision_of(object).0,
        conditions: conditions(object),
        labels: texts(object, "labels"),
        annotations: texts(object, "annotations"),
        etag: fields::etag_of(object),
        delete_time: delete_time(object),
        name,
    }
}

/// Describes a cluster by its LogicalCluster: `root`, or one that is named directly.
fn describe_cluster(session: &Session, cluster: &ClusterName, path: &ClusterPath) -> Result<Workspace, Status> {
    let entry = session.snapshot.get(&ids::logical_cluster(cluster));
    let entry = entry.ok_or_else(|| Status::not_found(format!("workspace {path} has no LogicalCluster")))?;
    let object = entry.object.body_value();
    let path = locate::path_of(&session.snapshot, cluster);
    Ok(Workspace {
        path: path.to_string(),
        name: path.base().to_owned(),
        cluster: cluster.to_string(),
        phase: text(&object["status"]["phase"]),
        url: text(&object["status"]["URL"]),
        r#type: text(&object["metadata"]["annotations"][annotations::WORKSPACE_TYPE]),
        parent: path.parent().map(|parent| parent.to_string()).unwrap_or_default(),
        create_time: time(&object["metadata"]["creationTimestamp"]),
        uid: entry.object.meta.uid.to_string(),
        revision: entry.revision.0,
        conditions: conditions(&object),
        labels: texts(&object, "labels"),
        annotations: texts(&object, "annotations"),
        etag: String::new(),
        delete_time: None,
    })
}

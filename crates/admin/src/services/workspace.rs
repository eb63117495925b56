//! `WorkspaceService`: the tree of workspaces, as far as the caller may see it.

use crate::door::{Door, Visit};
use insula_api::{ClusterName, ClusterPath, Json, ObjectKey, Scope, Timestamp};
use insula_proto::admin::v1::{
    Condition, GetRequest, GetResponse, ListRequest, ListResponse, TreeRequest, TreeResponse, Workspace,
    workspace_service_server::WorkspaceService,
};
use insula_registry::{ids, locate};
use insula_store::Entry;
use std::pin::Pin;
use tokio_stream::{Stream, iter};
use tonic::{Request, Response, Status};

/// Workspaces in a page where the caller names no size, and the most that a page holds.
const PAGE_DEFAULT: usize = 100;
const PAGE_MAX: usize = 1000;
/// Workspaces that one `Tree` tells.
const TREE_MAX: usize = 100_000;

/// Who names no workspace means the one at the top.
fn or_root(path: &str) -> &str {
    if path.is_empty() { "root" } else { path }
}

#[tonic::async_trait]
impl WorkspaceService for Door {
    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let visit = self.enter(&request, or_root(&request.get_ref().parent)).await?;
        let ListRequest {
            parent,
            page_size,
            page_token,
        } = request.into_inner();
        let (cluster, path) = self.locate(&visit, or_root(&parent))?;
        self.permit(&visit, Some(&cluster), "list", "tenancy.kcp.io", "workspaces", "")?;
        let size = match usize::try_from(page_size) {
            Ok(0) => PAGE_DEFAULT,
            Ok(size) => size.min(PAGE_MAX),
            Err(_) => return Err(Status::invalid_argument("page_size: must not be negative")),
        };
        // The token is the last name of the page before, with the parent it belongs to.
        let after = match page_token.as_str() {
            "" => None,
            token => {
                let name = token.strip_prefix(&format!("{cluster}/"));
                let name = name.ok_or_else(|| Status::invalid_argument("page_token: is not of this list"))?;
                Some(ObjectKey::cluster_scoped(ids::workspaces(), cluster.clone(), name))
            }
        };
        let scope = Scope::cluster(ids::workspaces(), cluster.clone());
        let mut found = visit.snapshot.range(&scope, after.as_ref(), size + 1);
        let more = found.len() > size;
        found.truncate(size);
        let next = found
            .last()
            .filter(|_| more)
            .map(|last| format!("{cluster}/{}", last.key.name));
        let path = canonical(&visit, &cluster, path);
        Ok(Response::new(ListResponse {
            header: visit.header(),
            workspaces: found.iter().map(|entry| describe(entry, &path)).collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let visit = self.enter(&request, &request.get_ref().workspace).await?;
        let path = request.into_inner().workspace;
        let path =
            ClusterPath::parse(&path).map_err(|error| Status::invalid_argument(format!("workspace: {error}")))?;
        let workspace = match path.parent() {
            None => {
                let (cluster, path) = self.locate(&visit, path.as_str())?;
                self.permit(
                    &visit,
                    Some(&cluster),
                    "get",
                    "core.kcp.io",
                    "logicalclusters",
                    "cluster",
                )?;
                describe_cluster(&visit, &cluster, &path)?
            }
            Some(parent) => {
                let (cluster, parent) = self.locate(&visit, parent.as_str())?;
                // An owner sees their workspace even where they may not see its parent.
                if let Err(refusal) = self.permit(
                    &visit,
                    Some(&cluster),
                    "get",
                    "tenancy.kcp.io",
                    "workspaces",
                    path.base(),
                ) {
                    let (own, _) = self.locate(&visit, path.as_str()).map_err(|_| refusal.clone())?;
                    self.permit(&visit, Some(&own), "get", "core.kcp.io", "logicalclusters", "cluster")
                        .map_err(|_| refusal)?;
                }
                let key = ObjectKey::cluster_scoped(ids::workspaces(), cluster.clone(), path.base());
                let entry = visit.snapshot.get(&key).ok_or_else(|| {
                    Status::not_found(format!("workspaces.tenancy.kcp.io {:?} not found", path.base()))
                })?;
                describe(&entry, &canonical(&visit, &cluster, parent))
            }
        };
        Ok(Response::new(GetResponse {
            header: visit.header(),
            workspace: Some(workspace),
        }))
    }

    type TreeStream = Pin<Box<dyn Stream<Item = Result<TreeResponse, Status>> + Send>>;

    async fn tree(&self, request: Request<TreeRequest>) -> Result<Response<Self::TreeStream>, Status> {
        let visit = self.enter(&request, or_root(&request.get_ref().root)).await?;
        let TreeRequest { root, max_depth } = request.into_inner();
        let (cluster, path) = self.locate(&visit, or_root(&root))?;
        self.permit(&visit, Some(&cluster), "list", "tenancy.kcp.io", "workspaces", "")?;
        let mut out = Vec::new();
        let mut open = vec![(describe_cluster(&visit, &cluster, &path)?, 0u32)];
        while let Some((workspace, depth)) = open.pop() {
            if out.len() + open.len() >= TREE_MAX {
                return Err(Status::resource_exhausted(format!(
                    "more than {TREE_MAX} workspaces: ask for a subtree"
                )));
            }
            if max_depth == 0 || depth < max_depth {
                // The first by name is taken next, before its siblings.
                let children = self.children(&visit, &workspace);
                open.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
            }
            out.push(Ok(TreeResponse {
                header: visit.header(),
                workspace: Some(workspace),
                depth,
            }));
        }
        Ok(Response::new(Box::pin(iter(out))))
    }
}

impl Door {
    /// Children are told only to those who may list them. One that has no cluster yet has none.
    fn children(&self, visit: &Visit, workspace: &Workspace) -> Vec<Workspace> {
        let (Ok(cluster), Ok(path)) = (
            ClusterName::parse(&workspace.cluster),
            ClusterPath::parse(&workspace.path),
        ) else {
            return Vec::new();
        };
        if self
            .permit(visit, Some(&cluster), "list", "tenancy.kcp.io", "workspaces", "")
            .is_err()
        {
            return Vec::new();
        }
        let scope = Scope::cluster(ids::workspaces(), cluster);
        visit
            .snapshot
            .range(&scope, None, TREE_MAX)
            .iter()
            .map(|entry| describe(entry, &path))
            .collect()
    }
}

fn canonical(visit: &Visit, cluster: &ClusterName, asked: ClusterPath) -> ClusterPath {
    let known = locate::path_of(&visit.snapshot, cluster);
    if known.as_str() == cluster.as_str() {
        asked
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

fn text(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn conditions(object: &Json) -> Vec<Condition> {
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

fn describe(entry: &Entry, parent: &ClusterPath) -> Workspace {
    let object = entry.object.body_value();
    let kind = &object["spec"]["type"];
    Workspace {
        path: parent.join(&entry.key.name).to_string(),
        name: entry.key.name.to_string(),
        cluster: text(&object["spec"]["cluster"]),
        phase: text(&object["status"]["phase"]),
        url: text(&object["spec"]["URL"]),
        r#type: match kind["path"].as_str().filter(|path| !path.is_empty()) {
            Some(path) => format!("{path}:{}", text(&kind["name"])),
            None => text(&kind["name"]),
        },
        parent: parent.to_string(),
        create_time: time(&object["metadata"]["creationTimestamp"]),
        uid: entry.object.meta.uid.to_string(),
        revision: entry.revision.0,
        conditions: conditions(&object),
    }
}

/// A cluster without a Workspace above it: `root`, or one asked for by its own name.
fn describe_cluster(visit: &Visit, cluster: &ClusterName, path: &ClusterPath) -> Result<Workspace, Status> {
    let entry = visit.snapshot.get(&ids::logical_cluster(cluster));
    let entry = entry.ok_or_else(|| Status::not_found(format!("workspace {path} has no LogicalCluster")))?;
    let object = entry.object.body_value();
    let path = locate::path_of(&visit.snapshot, cluster);
    Ok(Workspace {
        path: path.to_string(),
        name: path.base().to_owned(),
        cluster: cluster.to_string(),
        phase: text(&object["status"]["phase"]),
        url: text(&object["status"]["URL"]),
        r#type: text(&object["metadata"]["annotations"]["internal.tenancy.kcp.io/type"]),
        parent: path.parent().map(|parent| parent.to_string()).unwrap_or_default(),
        create_time: time(&object["metadata"]["creationTimestamp"]),
        uid: entry.object.meta.uid.to_string(),
        revision: entry.revision.0,
        conditions: conditions(&object),
    })
}

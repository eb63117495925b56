//! The workspaces and resources that a subject sees, without acting as them.

use super::{check_groups, cut, reviewing, subject};
use crate::{
    pages::Page,
    session::{AdminService, Located, Session},
    status,
};
use insula_access::{facts, roles::holders::as_user};
use insula_api::{ClusterName, ClusterPath, Scope, Verb};
use insula_auth::{Attributes, ClusterFacts, UserInfo, permit};
use insula_catalog::{Catalog, ids, locate};
use insula_proto::admin::v1::{ListVisibleRequest, ListVisibleResponse, VisibleResource, VisibleWorkspace};
use insula_store::Snapshot;
use std::ops::ControlFlow;
use tonic::{Response, Status};

/// Workspaces that one call looks at. A larger tree is asked for by subtrees.
const LOOKED_AT_MAX: usize = 5_000;

pub(super) async fn list(
    service: &AdminService,
    session: &Session,
    located: &Located,
    request: ListVisibleRequest,
) -> Result<Response<ListVisibleResponse>, Status> {
    let subject = subject(request.subject)?;
    check_groups(&request.groups)?;
    let user = as_user(&subject, &request.groups);
    let filter = format!(
        "{} {subject:?} {:?} {}",
        located.cluster, request.groups, request.max_depth
    );
    let page = Page::read(session, &[&filter], request.page_size, &request.page_token)?;
    let snapshot = &page.snapshot(session).await?;
    let seen = walk(session, snapshot, located, &user, request.max_depth)?;
    let (seen, next_page_token) = cut(&page, snapshot, seen);
    let catalog = &service.registry().catalog;
    let workspaces = seen.into_iter().map(|(cluster, path)| VisibleWorkspace {
        path: path.to_string(),
        resources: resources(catalog, snapshot, &cluster, &user),
        cluster: cluster.to_string(),
    });
    Ok(Response::new(ListVisibleResponse {
        header: session.header_at(snapshot.revision()),
        workspaces: workspaces.collect(),
        next_page_token,
    }))
}

/// Returns the workspaces of a tree that the subject can enter, and about which the caller may ask.
fn walk(
    session: &Session,
    snapshot: &Snapshot,
    located: &Located,
    user: &UserInfo,
    max_depth: u32,
) -> Result<Vec<(ClusterName, ClusterPath)>, Status> {
    let mut seen = Vec::new();
    let first = located.cluster.clone();
    let mut open = vec![(first, locate::path_of(snapshot, &located.cluster), 0)];
    let mut looked_at = 0;
    while let Some((cluster, path, depth)) = open.pop() {
        looked_at += 1;
        // The answer tells the caller nothing that a review in the workspace would not.
        let asks = session.caller.permit(snapshot, &cluster, reviewing()).is_ok();
        if asks && allowed(user, &cluster, Attributes::entering(), &facts(snapshot, &cluster)) {
            seen.push((cluster.clone(), path.clone()));
        }
        if max_depth > 0 && depth >= max_depth {
            continue;
        }
        let from = open.len();
        snapshot.for_each(&Scope::cluster(ids::workspaces(), cluster.clone()), |entry| {
            if let Some(below) = locate::cluster_of(snapshot, &cluster, &entry.key.name) {
                open.push((below, path.join(&entry.key.name), depth + 1));
            }
            match open.len() + looked_at > LOOKED_AT_MAX {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        if open.len() + looked_at > LOOKED_AT_MAX {
            let text = format!("has more than {LOOKED_AT_MAX} workspaces below it: ask for a subtree");
            return Err(status::invalid("workspace", text));
        }
        open[from..].reverse();
    }
    Ok(seen)
}

fn allowed(user: &UserInfo, cluster: &ClusterName, right: Attributes, facts: &ClusterFacts) -> bool {
    let right = Attributes {
        cluster: Some(cluster.clone()),
        ..right
    };
    permit(user, right, facts).is_ok()
}

fn resources(catalog: &Catalog, snapshot: &Snapshot, cluster: &ClusterName, user: &UserInfo) -> Vec<VisibleResource> {
    let facts = facts(snapshot, cluster);
    let served = catalog.served(snapshot, cluster);
    let seen = served
        .iter()
        .filter(|served| served.alias.is_none())
        .filter_map(|served| {
            let (group, resource) = (served.api.group.to_string(), served.api.names.plural.to_string());
            let is_allowed = |verb: &Verb| {
                allowed(
                    user,
                    cluster,
                    crate::session::right(*verb, &group, &resource, ""),
                    &facts,
                )
            };
            let verbs: Vec<String> = Verb::ALL
                .into_iter()
                .filter(is_allowed)
                .map(|verb| verb.name().to_owned())
                .collect();
            (!verbs.is_empty()).then_some(VisibleResource { group, resource, verbs })
        });
    let mut seen: Vec<VisibleResource> = seen.collect();
    seen.sort_unstable_by(|a, b| (&a.group, &a.resource).cmp(&(&b.group, &b.resource)));
    seen
}

//! The right to bind an export of the workspace: a ClusterRole for each export, and a
//! ClusterRoleBinding for each subject.

use anyhow::bail;
use insula_catalog::exports::bind_grant;
use serde_json::Value;

use super::{CLUSTER_ROLES, GROUP, Grant, Revoke, Subject, grants};
use crate::{
    client::{Client, message},
    files::text,
};

const EXPORTS: &str = "/apis/apis.kcp.io/v1alpha2/apiexports";
const CLUSTER_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Returns the objects that let subjects bind an export; none without subjects.
pub(crate) fn objects(export: &str, subjects: &[Subject]) -> Vec<Value> {
    let subjects: Vec<_> = subjects.iter().map(Subject::of_binding).collect();
    bind_grant::objects(export, &subjects)
}

/// Grants the right, and returns its objects as they are stored.
pub(super) async fn grant_all(client: &Client, workspace: &str, grant: &Grant) -> anyhow::Result<Vec<Value>> {
    let subjects = grant.subjects.all();
    let mut granted = Vec::new();
    for export in &grant.bind {
        check_export(client, workspace, export).await?;
        for object in objects(export, &subjects) {
            granted.push(create(client, &object).await?);
        }
        for Subject { kind, name } in &subjects {
            let kind = kind.to_lowercase();
            let remark = grant.dry_run.remark();
            grant
                .output
                .note(&format!("{kind} {name} may bind {workspace}:{export}{remark}"))?;
        }
    }
    Ok(granted)
}

/// Refuses an export that the workspace does not have: RBAC would take the role, and it would mean
/// nothing.
async fn check_export(client: &Client, workspace: &str, export: &str) -> anyhow::Result<()> {
    let (code, answer) = client.get(&format!("{EXPORTS}/{export}")).await?;
    match code.as_u16() {
        200 => Ok(()),
        404 if answer["details"]["kind"] != "workspaces" => {
            bail!("{workspace} has no APIExport {export:?}: `insula export publish` makes one")
        }
        _ => bail!("{}", message(&answer)),
    }
}

/// Creates an object, or finds it, and returns it as it is stored.
async fn create(client: &Client, object: &Value) -> anyhow::Result<Value> {
    let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
    let collection = match kind {
        "ClusterRole" => CLUSTER_ROLES,
        _ => CLUSTER_BINDINGS,
    };
    let (code, answer) = client.post(collection, object).await?;
    if code.is_success() {
        return Ok(answer);
    }
    if answer["reason"] != "AlreadyExists" {
        bail!("{kind}.{GROUP} {name}: {}", message(&answer));
    }
    let (_, there) = client.get(&format!("{collection}/{name}")).await?;
    match bind_grant::grants_the_same(&there, object) {
        true => Ok(there),
        false => bail!("{}", bind_grant::other_grant(&there)),
    }
}

/// Takes the right back, and returns the bindings that gave it, as they were.
pub(super) async fn revoke_all(client: &Client, workspace: &str, revoke: &Revoke) -> anyhow::Result<Vec<Value>> {
    let subjects = revoke.subjects.all();
    let mut revoked = Vec::new();
    for export in &revoke.bind {
        for subject in &subjects {
            let binding = bind_grant::binding_name(export, &subject.of_binding());
            let path = format!("{CLUSTER_BINDINGS}/{binding}");
            // Who may delete it need not be allowed to read it.
            let (code, there) = client.get(&path).await?;
            let is_gone = grants::delete(client, &path).await?;
            revoked.extend(Some(there).filter(|_| is_gone && code.is_success()));
            let Subject { kind, name } = subject;
            let (kind, export) = (kind.to_lowercase(), format!("{workspace}:{export}"));
            let remark = revoke.dry_run.remark();
            revoke.output.note(&match is_gone {
                true => format!("{kind} {name} may not bind {export} by this grant any more{remark}"),
                false => format!("{kind} {name} has no grant to bind {export}"),
            })?;
        }
    }
    Ok(revoked)
}

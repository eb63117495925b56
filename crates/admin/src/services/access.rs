//! `AccessService`: grants of access to workspaces, and questions about access.

mod grants;
mod kubeconfig;
mod questions;
mod visible;

use crate::{
    pages::Page,
    session::{AdminService, right},
    status,
};
use insula_access::roles::holders::{Holder, Origin};
use insula_api::{ClusterName, ObjectKey, Verb};
use insula_auth::{Attributes, Subject, SubjectKind};
use insula_catalog::{ids, locate};
use insula_proto::admin::v1::{
    self as proto, AccessBinding, AccessLevel, AccessQuestion, CheckAccessRequest, CheckAccessResponse,
    GetKubeconfigRequest, GetKubeconfigResponse, GrantAccessRequest, GrantAccessResponse, ListAccessRequest,
    ListAccessResponse, ListVisibleRequest, ListVisibleResponse, RevokeAccessRequest, RevokeAccessResponse,
    WhoCanRequest, WhoCanResponse, access_service_server::AccessService,
};
use insula_store::Snapshot;
use tonic::{Request, Response, Status};

/// Bytes of the name of a subject.
const NAME_BYTES_MAX: usize = 1024;
/// Groups that a question may name.
const GROUPS_MAX: usize = 100;

#[tonic::async_trait]
impl AccessService for AdminService {
    async fn grant_access(
        &self,
        request: Request<GrantAccessRequest>,
    ) -> Result<Response<GrantAccessResponse>, Status> {
        self.grant(request).await
    }

    async fn revoke_access(
        &self,
        request: Request<RevokeAccessRequest>,
    ) -> Result<Response<RevokeAccessResponse>, Status> {
        self.revoke(request).await
    }

    async fn list_access(&self, request: Request<ListAccessRequest>) -> Result<Response<ListAccessResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.locate(or_root(&request.workspace), &listing_bindings())?;
        let entered = self.enter(&session, &located.cluster).await?;
        entered.run(questions::list(&session, &located, request)).await
    }

    async fn who_can(&self, request: Request<WhoCanRequest>) -> Result<Response<WhoCanResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.locate(or_root(&request.workspace), &listing_bindings())?;
        let entered = self.enter(&session, &located.cluster).await?;
        entered.run(questions::who_can(&session, &located, request)).await
    }

    async fn check_access(
        &self,
        request: Request<CheckAccessRequest>,
    ) -> Result<Response<CheckAccessResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let needed = match &request.subject {
            Some(_) => reviewing(),
            None => Attributes::entering(),
        };
        let located = session.locate(or_root(&request.workspace), &needed)?;
        let entered = self.enter(&session, &located.cluster).await?;
        entered
            .run(async { questions::check(&session, &located, request) })
            .await
    }

    async fn get_kubeconfig(
        &self,
        request: Request<GetKubeconfigRequest>,
    ) -> Result<Response<GetKubeconfigResponse>, Status> {
        self.kubeconfig(request).await
    }

    async fn list_visible(
        &self,
        request: Request<ListVisibleRequest>,
    ) -> Result<Response<ListVisibleResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.locate(or_root(&request.workspace), &reviewing())?;
        let entered = self.enter(&session, &located.cluster).await?;
        entered.run(visible::list(self, &session, &located, request)).await
    }
}

/// Returns a path, or `root` for an empty one.
fn or_root(path: &str) -> &str {
    if path.is_empty() { "root" } else { path }
}

/// The right to ask what others may do.
fn reviewing() -> Attributes {
    right(Verb::Create, ids::AUTHORIZATION, "subjectaccessreviews", "")
}

/// The right to know who has which role.
fn listing_bindings() -> Attributes {
    right(Verb::List, ids::RBAC, "clusterrolebindings", "")
}

/// Reads a subject.
fn subject(given: Option<proto::Subject>) -> Result<Subject, Status> {
    let given = given.ok_or_else(|| status::invalid("subject", "is required"))?;
    subject_in("subject", given)
}

/// Reads the subject in a field.
pub(super) fn subject_in(field: &str, given: proto::Subject) -> Result<Subject, Status> {
    let proto::Subject { kind, name, namespace } = given;
    let invalid = |part: &str, why: &str| Err(status::invalid(&format!("{field}.{part}"), why));
    let kind = match proto::SubjectKind::try_from(kind) {
        Ok(proto::SubjectKind::User) => SubjectKind::User,
        Ok(proto::SubjectKind::Group) => SubjectKind::Group,
        Ok(proto::SubjectKind::ServiceAccount) => SubjectKind::ServiceAccount,
        Ok(proto::SubjectKind::Unspecified) => {
            return invalid("kind", "is required: a user, a group or a service account");
        }
        Err(_) => return invalid("kind", status::UNKNOWN_VALUE),
    };
    if name.is_empty() {
        return invalid("name", "is required");
    }
    if name.len() > NAME_BYTES_MAX {
        return invalid("name", &format!("must have at most {NAME_BYTES_MAX} bytes"));
    }
    match (kind, namespace.is_empty()) {
        (SubjectKind::ServiceAccount, true) => invalid("namespace", "is required for a service account"),
        (SubjectKind::User | SubjectKind::Group, false) => invalid("namespace", "must be empty for users and groups"),
        _ => Ok(Subject { kind, name, namespace }),
    }
}

/// Checks the groups that a question names.
fn check_groups(groups: &[String]) -> Result<(), Status> {
    let fits = groups.len() <= GROUPS_MAX && groups.iter().all(|group| group.len() <= NAME_BYTES_MAX);
    match fits {
        true => Ok(()),
        false => {
            let why = format!("at most {GROUPS_MAX}, each of at most {NAME_BYTES_MAX} bytes");
            Err(status::invalid("groups", why))
        }
    }
}

/// Reads a question, for one cluster.
fn question(asked: Option<AccessQuestion>, cluster: &ClusterName) -> Result<Attributes, Status> {
    let asked = asked.ok_or_else(|| status::invalid("question", "is required"))?;
    let AccessQuestion {
        verb,
        group,
        resource,
        subresource,
        name,
        namespace,
        path,
    } = asked;
    if verb.is_empty() {
        return Err(status::invalid("question.verb", "is required"));
    }
    if resource.is_empty() == path.is_empty() {
        return Err(status::invalid(
            "question.resource",
            "exactly one of resource and path is required",
        ));
    }
    Ok(Attributes {
        is_resource_request: path.is_empty(),
        verb: verb.into(),
        group,
        version: String::new(),
        resource,
        subresource,
        name,
        namespace,
        path,
        cluster: Some(cluster.clone()),
    })
}

/// Cuts a page out of an answer that is computed whole, and returns the token of the next one. The
/// position in the token is the number of items before it.
fn cut<T>(page: &Page, snapshot: &Snapshot, all: Vec<T>) -> (Vec<T>, String) {
    let from = page
        .after
        .as_ref()
        .and_then(|(_, from)| from.parse().ok())
        .unwrap_or(0_usize);
    let end = from.saturating_add(page.size);
    let next = match all.len() > end {
        true => page.next(snapshot.revision(), &end.to_string()),
        false => String::new(),
    };
    (all.into_iter().skip(from).take(page.size).collect(), next)
}

fn level_of(label: &str) -> AccessLevel {
    match label {
        "access" => AccessLevel::Access,
        "view" => AccessLevel::View,
        "edit" => AccessLevel::Edit,
        "admin" => AccessLevel::Admin,
        _ => AccessLevel::Unspecified,
    }
}

/// Returns a holder as an answer.
fn answer(snapshot: &Snapshot, cluster: &ClusterName, holder: &Holder) -> AccessBinding {
    let Subject { kind, name, namespace } = &holder.subject;
    let kind = match kind {
        SubjectKind::User => proto::SubjectKind::User,
        SubjectKind::Group => proto::SubjectKind::Group,
        SubjectKind::ServiceAccount => proto::SubjectKind::ServiceAccount,
    };
    let namespace = match kind {
        proto::SubjectKind::ServiceAccount => namespace.clone(),
        _ => String::new(),
    };
    let role_kind = if holder.role_is_namespaced {
        "Role"
    } else {
        "ClusterRole"
    };
    let home = match holder.origin {
        Origin::Platform => ClusterName::system_admin(),
        Origin::Owner | Origin::Bootstrap | Origin::Workspace => cluster.clone(),
    };
    let resource = match holder.namespace.is_empty() {
        true => ids::clusterrolebindings(),
        false => ids::rolebindings(),
    };
    let key = ObjectKey {
        namespace: holder.namespace.as_str().into(),
        ..ObjectKey::cluster_scoped(resource, home, &holder.binding)
    };
    let is_stored = matches!(holder.origin, Origin::Workspace | Origin::Platform);
    let stored = is_stored.then(|| snapshot.get(&key)).flatten();
    let binding_kind = match (holder.origin, holder.namespace.is_empty()) {
        (Origin::Owner, _) => "",
        (_, true) => "ClusterRoleBinding",
        (_, false) => "RoleBinding",
    };
    AccessBinding {
        subject: Some(proto::Subject {
            kind: kind.into(),
            name: name.clone(),
            namespace,
        }),
        role_kind: role_kind.to_owned(),
        role: holder.role.clone(),
        binding_kind: binding_kind.to_owned(),
        binding: holder.binding.clone(),
        namespace: holder.namespace.clone(),
        workspace: match holder.origin {
            Origin::Bootstrap => String::new(),
            Origin::Platform => ClusterName::system_admin().to_string(),
            Origin::Owner | Origin::Workspace => locate::path_of(snapshot, cluster).to_string(),
        },
        level: holder
            .level
            .as_deref()
            .map_or(AccessLevel::Unspecified, level_of)
            .into(),
        etag: stored.map(|entry| entry.revision.to_string()).unwrap_or_default(),
    }
}

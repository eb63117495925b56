//! Grants of access: one ClusterRoleBinding a level and subject, with a name that says both.
//!
//! ```text
//! insula:access:edit:user:bob     to the ClusterRole edit
//! insula:access:access:user:bob   to system:kcp:workspace:access, by which bob enters
//! ```
//! The label `insula.io/access` has the level. Bindings are written as by any client of the HTTP
//! API, so nobody grants rights that they do not hold.

use super::{answer, level_of, subject};
use crate::{
    api_request::{ApiRequest, ObjectPath, deletion},
    fields,
    requests::Once,
    session::{AdminService, Located, Session, right},
    status,
};
use insula_access::roles::holders::{Bindings, Holder, Namespaces, Origin, holders};
use insula_api::{ClusterName, Json, ObjectKey, Verb, names::labels};
use insula_apiserver::call::CallPath;
use insula_auth::Subject;
use insula_catalog::{exports::bind_grant, ids};
use insula_meter::ServerWork;
use insula_proto::admin::v1::{
    AccessLevel, GrantAccessRequest, GrantAccessResponse, RevokeAccessRequest, RevokeAccessResponse,
};
use insula_store::Snapshot;
use serde_json::json;
use tonic::{Code, Request, Response, Status};

/// The level that lets a subject enter a workspace, and no more.
const ENTER: &str = "access";

/// The label and the role of the level that lets a subject enter.
const ENTERING: (&str, &str) = (ENTER, "system:kcp:workspace:access");

/// Returns the label and the role of a level; `None` for none.
fn level(level: i32) -> Result<Option<(&'static str, &'static str)>, Status> {
    match AccessLevel::try_from(level) {
        Ok(AccessLevel::Access) => Ok(Some(ENTERING)),
        Ok(AccessLevel::View) => Ok(Some(("view", "view"))),
        Ok(AccessLevel::Edit) => Ok(Some(("edit", "edit"))),
        Ok(AccessLevel::Admin) => Ok(Some(("admin", "admin"))),
        Ok(AccessLevel::Unspecified) => Ok(None),
        Err(_) => Err(status::invalid("level", status::UNKNOWN_VALUE)),
    }
}

/// Returns the name of the binding of a level. A name that cannot stand in a path, or is long, is
/// replaced by its digest.
fn binding_name(level: &str, subject: &Subject) -> String {
    format!("insula:access:{level}:{}", bind_grant::subject_name(subject))
}

fn binding(level: &str, role: &str, subject: &Subject) -> Json {
    let metadata = json!({"name": binding_name(level, subject), "labels": {labels::ACCESS: level}});
    bind_grant::cluster_role_binding(metadata, role, subject)
}

/// Returns the path of a ClusterRoleBinding, or of all of them for an empty name.
fn path(cluster: &ClusterName, name: &str) -> CallPath {
    let path = ObjectPath {
        group: ids::RBAC,
        version: "v1",
        resource: "clusterrolebindings",
        name,
        ..ObjectPath::default()
    };
    path.in_cluster(cluster)
}

impl AdminService {
    pub(super) async fn grant(
        &self,
        request: Request<GrantAccessRequest>,
    ) -> Result<Response<GrantAccessResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let creating = right(Verb::Create, ids::RBAC, "clusterrolebindings", "");
        let Located { cluster, .. } = session.locate(&request.workspace, &creating)?;
        let subject = subject(request.subject.clone())?;
        let own = level(request.level)?.ok_or_else(|| status::invalid("level", "is required"))?;
        let once = Once {
            request_id: &request.request_id,
            validate_only: request.validate_only,
        };
        let work = self.granted(&session, &cluster, (subject, own), request.validate_only);
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn granted(
        &self,
        session: &Session,
        cluster: &ClusterName,
        (subject, own): (Subject, (&'static str, &'static str)),
        validate_only: bool,
    ) -> Result<GrantAccessResponse, Status> {
        let enter = Some(ENTERING).filter(|enter| *enter != own);
        let (mut made, mut created) = (Vec::new(), false);
        for (label, role) in std::iter::once(own).chain(enter) {
            let manifest = binding(label, role, &subject);
            let request = ApiRequest::create(path(cluster, ""), &manifest).validate_only(validate_only);
            match session.run(request).await {
                Ok(_) => created = true,
                Err(refused) if refused.code() == Code::AlreadyExists => {
                    check_same(session, cluster, &manifest).await?;
                }
                Err(refused) => return Err(refused),
            }
            made.push(Holder {
                subject: subject.clone(),
                role: role.to_owned(),
                role_is_namespaced: false,
                binding: binding_name(label, &subject),
                namespace: String::new(),
                origin: Origin::Workspace,
                level: Some(label.to_owned()),
            });
        }
        let snapshot = self.registry().store.latest().charged_to(session.caller.work());
        Ok(GrantAccessResponse {
            header: session.header_at(snapshot.revision()),
            bindings: made.iter().map(|holder| answer(&snapshot, cluster, holder)).collect(),
            created,
        })
    }

    pub(super) async fn revoke(
        &self,
        request: Request<RevokeAccessRequest>,
    ) -> Result<Response<RevokeAccessResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let deleting = right(Verb::Delete, ids::RBAC, "clusterrolebindings", "");
        let Located { cluster, .. } = session.locate(&request.workspace, &deleting)?;
        let subject = subject(request.subject.clone())?;
        let once = Once {
            request_id: &request.request_id,
            validate_only: request.validate_only,
        };
        let work = self.revoked(&session, &cluster, &subject, &request);
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn revoked(
        &self,
        session: &Session,
        cluster: &ClusterName,
        subject: &Subject,
        request: &RevokeAccessRequest,
    ) -> Result<RevokeAccessResponse, Status> {
        let wanted = level(request.level)?.map(|(label, _)| label);
        let etag = fields::etag(&request.etag)?;
        if etag.is_some() && wanted.is_none() {
            return Err(status::invalid(
                "level",
                "is required with etag, which is that of one binding",
            ));
        }
        let granted = grants(&session.snapshot, cluster, subject);
        let revoked = to_revoke(&granted, wanted);
        if revoked.is_empty() {
            let of_level = wanted
                .map(|level| format!(" of the level {level:?}"))
                .unwrap_or_default();
            let message = format!(
                "{:?} has no grant{of_level} in workspace {}",
                subject.name, request.workspace
            );
            let resource = format!("clusterrolebindings.{}", ids::RBAC);
            let name = wanted.map(|level| binding_name(level, subject));
            return Err(status::not_found(&resource, &name.unwrap_or_default(), message));
        }
        for holder in &revoked {
            check_alone(&session.snapshot, cluster, &holder.binding)?;
        }
        for holder in &revoked {
            // The binding by which the subject enters goes with the level, in whatever state.
            let etag = etag.filter(|_| holder.level.as_deref() == wanted);
            let delete = ApiRequest::delete(path(cluster, &holder.binding), deletion(None, etag));
            match session.run(delete.validate_only(request.validate_only)).await {
                Err(refused) if refused.code() == Code::NotFound && etag.is_some() => return Err(refused),
                Err(refused) if refused.code() != Code::NotFound => return Err(refused),
                _ => {}
            }
        }
        // A repetition gets the answer of what has happened, even if the caller has left.
        let snapshot = self.registry().store.latest().for_server(ServerWork::Operation);
        let remaining = remaining(&snapshot, cluster, subject, &revoked);
        let shown = |holder: &Holder| answer(&snapshot, cluster, holder);
        Ok(RevokeAccessResponse {
            header: session.header_at(snapshot.revision()),
            revoked: revoked.iter().map(shown).collect(),
            remaining: remaining.iter().map(shown).collect(),
        })
    }
}

/// Checks that an object that has the name of a grant is that grant.
async fn check_same(session: &Session, cluster: &ClusterName, wanted: &Json) -> Result<(), Status> {
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    let found = session.run(ApiRequest::get(path(cluster, name))).await?;
    let names = |binding: &Json| {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        let subjects: Vec<[Json; 3]> = subjects
            .map(|subject| ["kind", "name", "namespace"].map(|field| subject[field].clone()))
            .collect();
        let role = &binding["roleRef"];
        (role["kind"].clone(), role["name"].clone(), subjects)
    };
    match names(&found) == names(wanted) {
        true => Ok(()),
        false => Err(Status::failed_precondition(format!(
            "clusterrolebindings {name:?} exists and is another grant: it was edited; delete it, or choose another \
             level"
        ))),
    }
}

/// Returns the grants of a subject.
fn grants(snapshot: &Snapshot, cluster: &ClusterName, subject: &Subject) -> Vec<Holder> {
    let which = Bindings {
        namespaces: Namespaces::None,
        platform: false,
        bootstrap: false,
    };
    let mut found = holders(snapshot, cluster, which);
    found.retain(|holder| {
        let level = holder.level.as_deref().map_or(AccessLevel::Unspecified, level_of);
        holder.subject == *subject && level != AccessLevel::Unspecified
    });
    found
}

/// Returns the grants to revoke: those of the level, and the one to enter with the last of the
/// others.
fn to_revoke(granted: &[Holder], wanted: Option<&str>) -> Vec<Holder> {
    let is_meant = |holder: &&Holder| wanted.is_none_or(|level| holder.level.as_deref() == Some(level));
    let mut revoked: Vec<Holder> = granted.iter().filter(is_meant).cloned().collect();
    let is_entry = |holder: &&Holder| holder.level.as_deref() == Some(ENTER);
    let stays = |holder: &Holder| !is_entry(&holder) && !revoked.contains(holder);
    if !revoked.is_empty() && !revoked.iter().any(|holder| is_entry(&holder)) && !granted.iter().any(stays) {
        let entries: Vec<Holder> = granted.iter().filter(is_entry).cloned().collect();
        revoked.extend(entries);
    }
    revoked
}

/// Refuses to delete a binding that has other subjects.
fn check_alone(snapshot: &Snapshot, cluster: &ClusterName, name: &str) -> Result<(), Status> {
    let key = ObjectKey::cluster_scoped(ids::clusterrolebindings(), cluster.clone(), name);
    let count = snapshot.get(&key).map_or(0, |entry| {
        entry.object.body_value()["subjects"].as_array().map_or(0, Vec::len)
    });
    match count {
        0 | 1 => Ok(()),
        _ => Err(Status::failed_precondition(format!(
            "clusterrolebindings {name:?} has {count} subjects: it was edited; remove the subject from it"
        ))),
    }
}

/// Returns the roles that the subject still has by bindings of the workspace.
fn remaining(snapshot: &Snapshot, cluster: &ClusterName, subject: &Subject, revoked: &[Holder]) -> Vec<Holder> {
    let which = Bindings {
        namespaces: Namespaces::None,
        platform: false,
        bootstrap: false,
    };
    let mut found = holders(snapshot, cluster, which);
    found.retain(|holder| holder.subject == *subject && !revoked.contains(holder));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_auth::SubjectKind;

    fn subject_of(kind: SubjectKind, name: &str, namespace: &str) -> Subject {
        Subject {
            kind,
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        }
    }

    #[test]
    fn names_of_grants_are_predictable() {
        let name = |subject: Subject| binding_name("edit", &subject);
        assert_eq!(
            name(subject_of(SubjectKind::User, "bob@example.com", "")),
            "insula:access:edit:user:bob@example.com"
        );
        assert_eq!(
            name(subject_of(SubjectKind::ServiceAccount, "robot", "default")),
            "insula:access:edit:serviceaccount:default:robot"
        );
        for hard in ["https://issuer.example.com/#1", "a b", "100%", "ü", &"x".repeat(151)] {
            let one = name(subject_of(SubjectKind::Group, hard, ""));
            let rest = one.strip_prefix("insula:access:edit:group:").expect("the prefix");
            assert!(rest.chars().all(|c| c.is_ascii_alphanumeric()), "{one}");
            assert_eq!(one, name(subject_of(SubjectKind::Group, hard, "")));
        }
    }

    #[test]
    fn the_right_to_enter_goes_with_the_last_level() {
        let granted = |levels: &[&str]| -> Vec<Holder> {
            let one = |level: &&str| Holder {
                subject: subject_of(SubjectKind::User, "bob", ""),
                role: (*level).to_owned(),
                role_is_namespaced: false,
                binding: format!("insula:access:{level}:user:bob"),
                namespace: String::new(),
                origin: Origin::Workspace,
                level: Some((*level).to_owned()),
            };
            levels.iter().map(one).collect()
        };
        let revoked = |levels: &[&str], wanted: Option<&str>| -> Vec<String> {
            let gone = to_revoke(&granted(levels), wanted);
            gone.into_iter().filter_map(|holder| holder.level).collect()
        };
        assert_eq!(revoked(&["access", "edit"], Some("edit")), ["edit", "access"]);
        assert_eq!(revoked(&["access", "edit", "view"], Some("edit")), ["edit"]);
        assert_eq!(revoked(&["access", "edit", "view"], None), ["access", "edit", "view"]);
        assert_eq!(revoked(&["access"], Some("access")), ["access"]);
        assert!(revoked(&["access"], Some("view")).is_empty());
    }
}

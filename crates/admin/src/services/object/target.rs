//! Targets of requests about objects: a resource in a logical cluster, with checks of the fields
//! that name an object of it.

use crate::{
    api_request::{ApiRequest, ObjectPath},
    services::or_root,
    session::{Session, right},
    status::{self, Fault},
};
use insula_api::{ClusterName, ClusterPath, Json, ObjectKey, Verb, is_printable};
use insula_apiserver::call::{CallPath, Done};
use insula_auth::Attributes;
use insula_catalog::{ScopeKind, Served};
use insula_proto::admin::v1::{ErrorReason, ObjectType};
use tonic::{Code, Status};

/// Bytes of the name of a field manager.
const MANAGER_BYTES_MAX: usize = 128;

/// A resource in a logical cluster.
pub(super) struct Target {
    cluster: ClusterName,
    /// The workspace as the caller wrote it.
    workspace: ClusterPath,
    group: String,
    version: String,
    resource: String,
    /// Resource of this server; `None` for one of an extension server, and for one that is not
    /// served.
    served: Option<Served>,
}

/// The fields of a request that name an object, with their paths.
#[derive(Clone, Copy)]
pub(super) struct Address<'a> {
    /// Path of the field with the namespace, and the namespace.
    pub(super) namespace: (&'a str, &'a str),
    /// Path of the field with the name, and the name.
    pub(super) name: (&'a str, &'a str),
}

impl Target {
    /// Finds the resource of a request in a workspace in which the caller has the right to a verb
    /// on a name in a namespace.
    pub(super) async fn of_type(
        session: &Session,
        of: Option<ObjectType>,
        wanted: (Verb, &str, &str),
    ) -> Result<Target, Status> {
        let ObjectType {
            workspace,
            api_version,
            resource,
            kind,
        } = of.unwrap_or_default();
        let (group, version) = group_version("type.api_version", &api_version)?;
        if resource.is_empty() && kind.is_empty() {
            return Err(status::invalid("type.resource", "is required, or kind"));
        }
        let workspace = ("type.workspace", &*workspace);
        match resource.is_empty() {
            true => Target::of_kind(session, workspace, (group, version), ("type.kind", &kind)).await,
            false => Target::of_resource(
                session,
                workspace,
                (group, version),
                ("type.resource", &resource),
                wanted,
            ),
        }
    }

    /// Finds a resource that the request names.
    pub(super) fn of_resource(
        session: &Session,
        (field, workspace): (&str, &str),
        (group, version): (&str, &str),
        (resource_field, resource): (&str, &str),
        (verb, namespace, name): (Verb, &str, &str),
    ) -> Result<Target, Status> {
        if !is_segment(resource) {
            let problem = format!("{resource:?} is no plural resource, such as \"configmaps\"");
            return Err(status::invalid(resource_field, problem));
        }
        let right = namespaced(right(verb, group, resource, name), namespace);
        let located = session.locate_field(field, or_root(workspace), &right)?;
        let catalog = &session.api.registry.catalog;
        let served = catalog.resolve(&session.snapshot, &located.cluster, group, resource);
        Ok(Target {
            served: served.filter(|served| served.served_versions().any(|served| *served.name == *version)),
            cluster: located.cluster,
            workspace: located.path,
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
        })
    }

    /// Finds the resource of a kind by discovery.
    pub(super) async fn of_kind(
        session: &Session,
        (field, workspace): (&str, &str),
        (group, version): (&str, &str),
        (kind_field, kind): (&str, &str),
    ) -> Result<Target, Status> {
        let of_group = ObjectPath {
            group,
            version,
            ..ObjectPath::default()
        };
        let path = match group.is_empty() {
            true => format!("/api/{version}"),
            false => format!("/apis/{group}/{version}"),
        };
        let discovery = Attributes {
            verb: Verb::Get.into(),
            path,
            ..Attributes::default()
        };
        let located = session.locate_field(field, or_root(workspace), &discovery)?;
        let not_served = || {
            let api_version = joined(group, version);
            let message = format!(
                "{kind_field}: workspace {} serves no {kind} in {api_version}",
                located.path
            );
            Fault::new(Code::InvalidArgument, ErrorReason::NotServed, message).status()
        };
        let of_group = of_group.in_cluster(&located.cluster);
        let listed = session.discover(&of_group);
        let listed = listed.await.map_err(|refusal| match refusal.code() {
            // The group or the version is not served.
            Code::InvalidArgument | Code::NotFound => not_served(),
            _ => refusal,
        })?;
        let resources = listed["resources"].as_array().map(Vec::as_slice);
        let is_wanted = |resource: &&Json| {
            let name = resource["name"].as_str().unwrap_or_default();
            resource["kind"] == kind && !name.contains('/')
        };
        let found = resources.unwrap_or_default().iter().find(is_wanted);
        let found = found.and_then(|resource| resource["name"].as_str());
        let resource = found.ok_or_else(not_served)?;
        let catalog = &session.api.registry.catalog;
        Ok(Target {
            served: catalog.resolve(&session.snapshot, &located.cluster, group, resource),
            cluster: located.cluster,
            workspace: located.path,
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
        })
    }

    /// Checks that the resource is that of a kind.
    pub(super) fn check_kind(&self, field: &str, kind: &str) -> Result<(), Status> {
        let known = self.served.as_ref().map(|served| &*served.names().kind);
        match known.filter(|known| *known != kind) {
            None => Ok(()),
            Some(known) => {
                let problem = format!("{kind:?} is not the kind of {}, which is {known:?}", self.qualified());
                Err(status::invalid(field, problem))
            }
        }
    }

    fn path(&self, namespace: &str, name: &str) -> CallPath {
        let path = ObjectPath {
            group: &self.group,
            version: &self.version,
            resource: &self.resource,
            namespace,
            name,
            subresource: "",
        };
        path.in_cluster(&self.cluster)
    }

    /// Returns the path of the objects of a namespace; an empty one stands for all.
    pub(super) fn collection(&self, namespace: &str) -> Result<CallPath, Status> {
        if !namespace.is_empty() {
            self.check_namespace("namespace", namespace)?;
        }
        Ok(self.path(namespace, ""))
    }

    /// Returns the path of an object.
    pub(super) fn object(&self, address: Address<'_>) -> Result<CallPath, Status> {
        let (field, name) = address.name;
        if name.is_empty() {
            return Err(status::invalid(field, "is required"));
        }
        if !is_segment(name) {
            let problem = format!("{name:?} is no name of an object");
            return Err(status::invalid(field, problem));
        }
        let (field, namespace) = address.namespace;
        self.check_namespace(field, namespace)?;
        Ok(self.path(namespace, name))
    }

    /// Checks that a namespace is given where objects have one, and nowhere else.
    fn check_namespace(&self, field: &str, namespace: &str) -> Result<(), Status> {
        let namespaced = self
            .served
            .as_ref()
            .map(|served| served.api.scope == ScopeKind::Namespaced);
        let problem = match (namespaced, namespace) {
            (Some(true), "") => format!("is required: objects of {} have a namespace", self.qualified()),
            (Some(false), given) if !given.is_empty() => {
                format!("must be empty: objects of {} have no namespace", self.qualified())
            }
            (_, "") => return Ok(()),
            (_, given) if !is_segment(given) => format!("{given:?} is no name of a namespace"),
            _ => return Ok(()),
        };
        Err(status::invalid(field, problem))
    }

    /// Makes a request about the resource. The refusal of one that is not served names it and the
    /// workspace.
    pub(super) async fn request(&self, session: &Session, request: ApiRequest) -> Result<Done, Status> {
        let answer = session.done(request).await;
        answer.map_err(|refusal| self.explained(refusal))
    }

    /// Returns a refusal, with the resource and the workspace in it if these do not fit together.
    pub(super) fn explained(&self, refusal: Status) -> Status {
        if self.served.is_some() || status::reason_in(&refusal).as_deref() != Some("NOT_SERVED") {
            return refusal;
        }
        let message = format!(
            "workspace {} serves no {} in {}: look at its API groups and their versions",
            self.workspace,
            self.resource,
            joined(&self.group, &self.version)
        );
        Fault::new(Code::InvalidArgument, ErrorReason::NotServed, message).status()
    }

    /// Returns the UID of an object that an etag is that of.
    ///
    /// # Errors
    /// ABORTED if the object has another state, or does not exist. The caller lacks the right to
    /// apply it, who must not learn its state.
    pub(super) async fn uid_at(
        &self,
        session: &Session,
        (namespace, name): (&str, &str),
        etag: &str,
    ) -> Result<String, Status> {
        let right = right(Verb::Patch, &self.group, &self.resource, name);
        session.permit(&self.cluster, namespaced(right, namespace))?;
        let (revision, uid) = match &self.served {
            Some(served) => {
                let key = ObjectKey {
                    namespace: namespace.into(),
                    ..ObjectKey::cluster_scoped(served.resource_id(), self.cluster.clone(), name)
                };
                let entry = session.snapshot.get(&key);
                let entry = entry.ok_or_else(|| status::stale(&self.qualified(), name))?;
                (entry.revision.to_string(), entry.object.meta.uid.to_string())
            }
            None => {
                let read = session.run(ApiRequest::get(self.path(namespace, name))).await;
                let read = read.map_err(|refusal| match refusal.code() {
                    Code::NotFound => status::stale(&self.qualified(), name),
                    _ => self.explained(refusal),
                })?;
                let text = |field: &str| read["metadata"][field].as_str().unwrap_or_default().to_owned();
                (text("resourceVersion"), text("uid"))
            }
        };
        match revision == etag {
            true => Ok(uid),
            false => Err(status::stale(&self.qualified(), name)),
        }
    }

    /// Returns the resource with its group.
    fn qualified(&self) -> String {
        match self.group.is_empty() {
            true => self.resource.clone(),
            false => format!("{}.{}", self.resource, self.group),
        }
    }
}

/// Returns a right in a namespace.
fn namespaced(right: Attributes, namespace: &str) -> Attributes {
    Attributes {
        namespace: namespace.to_owned(),
        ..right
    }
}

/// Checks the name of a field manager.
pub(super) fn check_manager(manager: &str) -> Result<(), Status> {
    let problem = match manager {
        "" => "is required: name your program".to_owned(),
        long if long.len() > MANAGER_BYTES_MAX => format!("must have at most {MANAGER_BYTES_MAX} bytes"),
        odd if !odd.chars().all(is_printable) => "must have printable characters alone".to_owned(),
        _ => return Ok(()),
    };
    Err(status::invalid("field_manager", problem))
}

/// Splits an apiVersion into group and version.
pub(super) fn group_version<'a>(field: &str, api_version: &'a str) -> Result<(&'a str, &'a str), Status> {
    let (group, version) = match api_version.rsplit_once('/') {
        None => ("", api_version),
        // A group that is not empty.
        Some((group, version)) if is_segment(group) => (group, version),
        Some(_) => ("", ""),
    };
    match is_segment(version) {
        true => Ok((group, version)),
        false => Err(status::invalid(
            field,
            "is required: write group/version, or v1 for the core group",
        )),
    }
}

fn joined(group: &str, version: &str) -> String {
    match group.is_empty() {
        true => version.to_owned(),
        false => format!("{group}/{version}"),
    }
}

/// Returns true for a text that can be a segment of a path of the HTTP API.
fn is_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '\\', '%', '\0', ';'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_versions_are_group_and_version() {
        for (text, want) in [
            ("v1", Some(("", "v1"))),
            ("example.io/v1", Some(("example.io", "v1"))),
            ("", None),
            ("example.io/", None),
            ("/v1", None),
            ("a/b/v1", None),
        ] {
            assert_eq!(group_version("type.api_version", text).ok(), want, "{text}");
        }
    }
}

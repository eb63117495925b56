//! `ObjectService`: objects of any kind, by requests of the HTTP API.

use super::or_root;
use crate::{
    api_request::{ApiRequest, ObjectPath, WatchEvent},
    fields,
    pages::Page,
    requests::Once,
    session::{AdminService, Session, right},
    status::{self, Fault},
};
use futures_util::StreamExt;
use insula_api::{ClusterName, Json, Revision};
use insula_auth::Attributes;
use insula_proto::admin::v1::{
    ApplyObjectRequest, ApplyObjectResponse, ChangeType, DeleteObjectRequest, DeleteObjectResponse, ErrorReason,
    GetObjectRequest, GetObjectResponse, ListObjectsRequest, ListObjectsResponse, ObjectType, Propagation,
    WatchObjectsRequest, WatchObjectsResponse, object_service_server::ObjectService,
};
use serde_json::json;
use std::pin::Pin;
use tokio_stream::Stream;
use tonic::{Code, Request, Response, Status};

/// Annotation of the bookmark after the initial state of a watch.
const INITIAL_END: &str = "k8s.io/initial-events-end";

#[tonic::async_trait]
impl ObjectService for AdminService {
    async fn get_object(&self, request: Request<GetObjectRequest>) -> Result<Response<GetObjectResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let target = Target::of_type(&session, request.r#type, "get", &request.name).await?;
        let path = target.object(&request.namespace, &request.name)?;
        let object = session.http(ApiRequest::get(path)).await?;
        Ok(Response::new(GetObjectResponse {
            header: session.header_of(&object),
            etag: fields::etag_of(&object),
            object: Some(fields::structure(&object)?),
        }))
    }

    async fn list_objects(
        &self,
        request: Request<ListObjectsRequest>,
    ) -> Result<Response<ListObjectsResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let target = Target::of_type(&session, request.r#type.clone(), "list", "").await?;
        list(&session, &target, &request).await.map(Response::new)
    }

    async fn apply_object(
        &self,
        request: Request<ApplyObjectRequest>,
    ) -> Result<Response<ApplyObjectResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let (target, object) = applied(&session, &request).await?;
        let once = Once {
            request_id: &request.request_id,
            validate_only: request.validate_only,
        };
        let answer = self.once(&session, once, &request, apply(&session, &target, object, &request));
        answer.await.map(Response::new)
    }

    async fn delete_object(
        &self,
        request: Request<DeleteObjectRequest>,
    ) -> Result<Response<DeleteObjectResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let target = Target::of_type(&session, request.r#type.clone(), "delete", &request.name).await?;
        let once = Once {
            request_id: &request.request_id,
            validate_only: request.validate_only,
        };
        let answer = self.once(&session, once, &request, delete(&session, &target, &request));
        answer.await.map(Response::new)
    }

    type WatchObjectsStream = Pin<Box<dyn Stream<Item = Result<WatchObjectsResponse, Status>> + Send>>;

    async fn watch_objects(
        &self,
        request: Request<WatchObjectsRequest>,
    ) -> Result<Response<Self::WatchObjectsStream>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let target = Target::of_type(&session, request.r#type, "watch", "").await?;
        let watch = ApiRequest::get(target.collection(&request.namespace))
            .query("labelSelector", &request.label_selector)
            .query("fieldSelector", &request.field_selector);
        let events = session.watch(from_revision(watch, request.revision)).await?;
        let answer = move |event: Result<WatchEvent, Status>| {
            let event = event?;
            let kind = change_type(&event);
            let has_object = !matches!(kind, ChangeType::Bookmark | ChangeType::Synced);
            Ok(WatchObjectsResponse {
                header: session.header_at(revision_of(&event.object)),
                r#type: kind.into(),
                object: has_object.then(|| fields::structure(&event.object)).transpose()?,
            })
        };
        Ok(Response::new(Box::pin(events.map(answer))))
    }
}

/// Returns a watch after a revision; 0 stands for the state and all that follows.
pub(super) fn from_revision(watch: ApiRequest, revision: u64) -> ApiRequest {
    let watch = watch.query("allowWatchBookmarks", "true");
    match revision {
        0 => watch
            .query("sendInitialEvents", "true")
            .query("resourceVersionMatch", "NotOlderThan"),
        revision => watch.query("resourceVersion", &revision.to_string()),
    }
}

/// Returns the kind of an event.
pub(super) fn change_type(event: &WatchEvent) -> ChangeType {
    match event.kind.as_str() {
        "ADDED" => ChangeType::Added,
        "MODIFIED" => ChangeType::Modified,
        "DELETED" => ChangeType::Deleted,
        "BOOKMARK" if event.object["metadata"]["annotations"][INITIAL_END] == "true" => ChangeType::Synced,
        "BOOKMARK" => ChangeType::Bookmark,
        _ => ChangeType::Unspecified,
    }
}

/// Returns the revision of an object or a list.
pub(super) fn revision_of(object: &Json) -> Revision {
    let revision = object["metadata"]["resourceVersion"].as_str();
    Revision(revision.and_then(|revision| revision.parse().ok()).unwrap_or_default())
}

/// A resource in a logical cluster.
struct Target {
    cluster: ClusterName,
    group: String,
    version: String,
    resource: String,
}

impl Target {
    /// Finds the resource of a request in a workspace in which the caller has the right to a verb.
    async fn of_type(session: &Session, of: Option<ObjectType>, verb: &str, name: &str) -> Result<Target, Status> {
        let ObjectType {
            workspace,
            api_version,
            resource,
            kind,
        } = of.unwrap_or_default();
        let (group, version) = group_version("type.api_version", &api_version)?;
        if !resource.is_empty() {
            let located = session.locate(or_root(&workspace), &right(verb, group, &resource, name))?;
            return Ok(Target {
                cluster: located.cluster,
                group: group.to_owned(),
                version: version.to_owned(),
                resource,
            });
        }
        if kind.is_empty() {
            return Err(status::invalid("type.resource", "is required, or kind"));
        }
        Target::of_kind(session, &workspace, (group, version, &kind)).await
    }

    /// Finds the resource of a kind by discovery.
    async fn of_kind(
        session: &Session,
        workspace: &str,
        (group, version, kind): (&str, &str, &str),
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
            verb: "get".into(),
            path,
            ..Attributes::default()
        };
        let located = session.locate(or_root(workspace), &discovery)?;
        let resources = session
            .http(ApiRequest::get(of_group.in_cluster(&located.cluster)))
            .await?;
        let resources = resources["resources"].as_array().map(Vec::as_slice);
        let is_wanted = |resource: &&Json| {
            let name = resource["name"].as_str().unwrap_or_default();
            resource["kind"] == kind && !name.contains('/')
        };
        let found = resources.unwrap_or_default().iter().find(is_wanted);
        let found = found.and_then(|resource| resource["name"].as_str());
        let resource = found.ok_or_else(|| {
            let message = format!("kind: workspace {} serves no {kind} in {group}/{version}", located.path);
            Fault::new(Code::InvalidArgument, ErrorReason::NotServed, message).status()
        })?;
        Ok(Target {
            cluster: located.cluster,
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
        })
    }

    fn path(&self, namespace: &str, name: &str) -> String {
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

    fn collection(&self, namespace: &str) -> String {
        self.path(namespace, "")
    }

    fn object(&self, namespace: &str, name: &str) -> Result<String, Status> {
        match name.is_empty() {
            true => Err(status::invalid("name", "is required")),
            false => Ok(self.path(namespace, name)),
        }
    }
}

/// Splits an apiVersion into group and version.
fn group_version<'a>(field: &str, api_version: &'a str) -> Result<(&'a str, &'a str), Status> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let is_part = |part: &str| !part.contains('/');
    match !version.is_empty() && is_part(group) && (!group.is_empty() || !api_version.contains('/')) {
        true => Ok((group, version)),
        false => Err(status::invalid(
            field,
            "is required: write group/version, or v1 for the core group",
        )),
    }
}

async fn list(session: &Session, target: &Target, request: &ListObjectsRequest) -> Result<ListObjectsResponse, Status> {
    let collection = target.collection(&request.namespace);
    let filter = [&*collection, &request.label_selector, &request.field_selector];
    let page = Page::read(session, &filter, request.page_size, &request.page_token)?;
    let position = page.after.as_ref().map(|(_, position)| position.as_str());
    let list = ApiRequest::get(collection.clone())
        .query("labelSelector", &request.label_selector)
        .query("fieldSelector", &request.field_selector)
        .query("limit", &page.size.to_string())
        .query("continue", position.unwrap_or_default());
    let list = session.http(list).await?;
    let revision = revision_of(&list);
    let next = list["metadata"]["continue"].as_str().filter(|next| !next.is_empty());
    let next = next.map(|next| page.next(revision, next));
    // Items of built-in lists have neither apiVersion nor kind, as in Kubernetes.
    let kind = list["kind"].as_str().and_then(|kind| kind.strip_suffix("List"));
    let item = |item: &Json| {
        let mut item = item.clone();
        for (key, value) in [("apiVersion", list["apiVersion"].as_str()), ("kind", kind)] {
            if item[key].is_null() {
                item[key] = json!(value);
            }
        }
        fields::structure(&item)
    };
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(ListObjectsResponse {
        header: session.header_at(revision),
        objects: items.iter().map(item).collect::<Result<_, _>>()?,
        next_page_token: next.unwrap_or_default(),
    })
}

/// Reads the object of an apply, and finds its resource.
async fn applied(session: &Session, request: &ApplyObjectRequest) -> Result<(Target, Json), Status> {
    let mut object = fields::object("object", request.object.clone())?;
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if kind.is_empty() {
        return Err(status::invalid("object.kind", "is required"));
    }
    let (group, version) = group_version("object.apiVersion", &api_version)?;
    if request.field_manager.is_empty() {
        return Err(status::invalid("field_manager", "is required: name your program"));
    }
    if let Some(etag) = fields::etag(&request.etag)? {
        object["metadata"]["resourceVersion"] = json!(etag);
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        return Err(status::invalid("object.metadata.name", "is required"));
    }
    let target = match request.resource.is_empty() {
        true => Target::of_kind(session, &request.workspace, (group, version, &kind)).await?,
        false => {
            let right = right("patch", group, &request.resource, name);
            let located = session.locate(or_root(&request.workspace), &right)?;
            Target {
                cluster: located.cluster,
                group: group.to_owned(),
                version: version.to_owned(),
                resource: request.resource.clone(),
            }
        }
    };
    Ok((target, object))
}

async fn apply(
    session: &Session,
    target: &Target,
    object: Json,
    request: &ApplyObjectRequest,
) -> Result<ApplyObjectResponse, Status> {
    let metadata = &object["metadata"];
    let text = |key: &str| metadata[key].as_str().unwrap_or_default();
    let path = target.object(text("namespace"), text("name"))?;
    let apply = ApiRequest::apply(path, &object)
        .query("fieldManager", &request.field_manager)
        .query("fieldValidation", "Strict")
        .query("force", if request.force { "true" } else { "" })
        .validate_only(request.validate_only);
    let applied = session.http(apply).await?;
    Ok(ApplyObjectResponse {
        header: session.header_of(&applied),
        etag: fields::etag_of(&applied),
        object: Some(fields::structure(&applied)?),
    })
}

async fn delete(
    session: &Session,
    target: &Target,
    request: &DeleteObjectRequest,
) -> Result<DeleteObjectResponse, Status> {
    let path = target.object(&request.namespace, &request.name)?;
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    if let Some(etag) = fields::etag(&request.etag)? {
        options["preconditions"]["resourceVersion"] = json!(etag);
    }
    if !request.uid.is_empty() {
        options["preconditions"]["uid"] = json!(request.uid);
    }
    options["propagationPolicy"] = match Propagation::try_from(request.propagation) {
        Ok(Propagation::Unspecified) => Json::Null,
        Ok(Propagation::Background) => json!("Background"),
        Ok(Propagation::Foreground) => json!("Foreground"),
        Ok(Propagation::Orphan) => json!("Orphan"),
        Err(_) => return Err(status::invalid("propagation", "is none that this server knows")),
    };
    let delete = ApiRequest::delete(path, &options).validate_only(request.validate_only);
    let deleted = session.http(delete).await?;
    let gone = deleted["kind"] == "Status" && deleted["apiVersion"] == "v1";
    Ok(DeleteObjectResponse {
        header: session.header_of(&deleted),
        gone,
        object: (!gone).then(|| fields::structure(&deleted)).transpose()?,
    })
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

    #[test]
    fn the_bookmark_after_the_initial_state_is_told_apart() {
        let event = |kind: &str, object: Json| {
            change_type(&WatchEvent {
                kind: kind.to_owned(),
                object,
            })
        };
        let end = json!({"metadata": {"annotations": {"k8s.io/initial-events-end": "true"}}});
        assert_eq!(event("BOOKMARK", end.clone()), ChangeType::Synced);
        assert_eq!(event("BOOKMARK", json!({})), ChangeType::Bookmark);
        assert_eq!(event("ADDED", end), ChangeType::Added);
    }
}

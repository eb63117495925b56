//! Requests for objects that a call makes as its caller. They have no wire format; another server
//! that serves the objects is sent them over HTTP.

use http::{Method, Request, header};
use insula_api::{ClusterName, Json};
use insula_apply::OnConflict;
use insula_catalog::Error;
use insula_pipeline::{ObjectPath, Refusal};
use insula_registry::{DeleteOptions, Propagation};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::json;
use std::fmt;

/// Media types of bodies.
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

/// Bytes that need encoding in some part of a URI.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':');

fn encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, ENCODED)
}

/// Objects of a resource in a logical cluster. Displays as their path over HTTP, in which no name
/// is more than a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPath {
    /// The logical cluster.
    pub cluster: ClusterName,
    /// The objects; an empty resource stands for the versions of a group.
    pub objects: ObjectPath,
}

impl fmt::Display for CallPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects = &self.objects;
        write!(f, "/clusters/{}", encoded(self.cluster.as_str()))?;
        if objects.group.is_empty() {
            f.write_str("/api")?;
        } else {
            write!(f, "/apis/{}", encoded(&objects.group))?;
        }
        write!(f, "/{}", encoded(&objects.version))?;
        if let Some(namespace) = &objects.namespace {
            write!(f, "/namespaces/{}", encoded(namespace))?;
        }
        let resource = Some(&objects.resource).filter(|resource| !resource.is_empty());
        let segments = [resource, objects.name.as_ref(), objects.subresource.as_ref()];
        for segment in segments.into_iter().flatten() {
            write!(f, "/{}", encoded(segment))?;
        }
        Ok(())
    }
}

/// The action of a request on one object.
#[derive(Debug, Clone)]
pub enum Action {
    /// Reads it.
    Get,
    /// Creates it in a collection.
    Create(Json),
    /// Replaces it.
    Replace(Json),
    /// Merges a patch into it (RFC 7386).
    Merge(Json),
    /// Applies a configuration with strict validation of fields.
    Apply {
        /// The configuration.
        config: Json,
        /// The field manager.
        manager: String,
        /// The treatment of other managers' fields.
        on_conflict: OnConflict,
    },
    /// Deletes it.
    Delete(DeleteOptions),
}

impl Action {
    /// Returns the object that is sent.
    pub(super) fn body(&self) -> Option<&Json> {
        match self {
            Action::Create(body) | Action::Replace(body) | Action::Merge(body) | Action::Apply { config: body, .. } => {
                Some(body)
            }
            Action::Get | Action::Delete(_) => None,
        }
    }
}

/// A request for one object.
#[derive(Debug, Clone)]
pub struct ObjectRequest {
    /// The object; its collection for a creation.
    pub path: CallPath,
    /// The action.
    pub action: Action,
    /// True to do everything except the commit.
    pub dry_run: bool,
}

/// A request for a page of a collection.
#[derive(Debug, Clone)]
pub struct PageRequest {
    /// The collection.
    pub path: CallPath,
    /// Label selector.
    pub labels: String,
    /// Field selector.
    pub fields: String,
    /// Objects at most.
    pub limit: usize,
    /// Token of the page; `None` for the first one.
    pub token: Option<String>,
}

/// A watch of a collection.
#[derive(Debug, Clone)]
pub struct WatchRequest {
    /// The collection.
    pub path: CallPath,
    /// Label selector.
    pub labels: String,
    /// Field selector.
    pub fields: String,
    /// The revision after which it begins; `None` for the state and all that follows.
    pub after: Option<u64>,
}

/// Returns the path with query parameters; those without a value are left out.
fn target(path: &CallPath, parameters: &[(&str, &str)]) -> String {
    let mut target = path.to_string();
    for (key, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
        target.push(if target.contains('?') { '&' } else { '?' });
        target += key;
        target.push('=');
        target.extend(encoded(value));
    }
    target
}

fn http(
    method: Method,
    target: &str,
    content_type: &'static str,
    body: Option<&Json>,
) -> Result<Request<Vec<u8>>, Refusal> {
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header(header::ACCEPT, JSON)
        .header(header::CONTENT_TYPE, content_type)
        .body(body.map(|body| body.to_string().into_bytes()).unwrap_or_default());
    // Segments and values are encoded; only their length can be wrong.
    request.map_err(|error| Refusal::from(Error::BadRequest(format!("the request cannot be made: {error}"))))
}

impl ObjectRequest {
    /// Returns the path and query over HTTP.
    pub(super) fn target(&self) -> String {
        let dry_run = ("dryRun", if self.dry_run { "All" } else { "" });
        match &self.action {
            Action::Apply {
                manager, on_conflict, ..
            } => {
                let force = if *on_conflict == OnConflict::Force { "true" } else { "" };
                let parameters = [
                    ("fieldManager", &**manager),
                    ("fieldValidation", "Strict"),
                    ("force", force),
                    dry_run,
                ];
                target(&self.path, &parameters)
            }
            _ => target(&self.path, &[dry_run]),
        }
    }

    /// Returns the request over HTTP.
    ///
    /// # Errors
    /// A path that is too long.
    pub(super) fn to_http(&self) -> Result<Request<Vec<u8>>, Refusal> {
        let options;
        let (method, content_type, body) = match &self.action {
            Action::Get => (Method::GET, JSON, None),
            Action::Create(object) => (Method::POST, JSON, Some(object)),
            Action::Replace(object) => (Method::PUT, JSON, Some(object)),
            Action::Merge(patch) => (Method::PATCH, MERGE, Some(patch)),
            Action::Apply { config, .. } => (Method::PATCH, APPLY, Some(config)),
            Action::Delete(how) => {
                options = delete_options(how);
                (Method::DELETE, JSON, Some(&options))
            }
        };
        http(method, &self.target(), content_type, body)
    }
}

fn delete_options(how: &DeleteOptions) -> Json {
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    let of = &how.preconditions;
    for (field, value) in [("uid", &of.uid), ("resourceVersion", &of.revision)] {
        if let Some(value) = value {
            options["preconditions"][field] = json!(value);
        }
    }
    if let Some(seconds) = how.grace_seconds {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    if let Some(propagation) = how.propagation {
        options["propagationPolicy"] = json!(match propagation {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        });
    }
    options
}

impl PageRequest {
    /// Returns the path and query over HTTP.
    pub(super) fn target(&self) -> String {
        let parameters = [
            ("limit", &*self.limit.to_string()),
            ("continue", self.token.as_deref().unwrap_or_default()),
            ("labelSelector", &self.labels),
            ("fieldSelector", &self.fields),
        ];
        target(&self.path, &parameters)
    }

    /// Returns the request over HTTP.
    ///
    /// # Errors
    /// A path that is too long.
    pub(super) fn to_http(&self) -> Result<Request<Vec<u8>>, Refusal> {
        http(Method::GET, &self.target(), JSON, None)
    }
}

impl WatchRequest {
    /// Returns the request over HTTP.
    ///
    /// # Errors
    /// A path that is too long.
    pub(super) fn to_http(&self) -> Result<Request<Vec<u8>>, Refusal> {
        let revision = self.after.map(|after| after.to_string()).unwrap_or_default();
        let state = |text| if self.after.is_none() { text } else { "" };
        let parameters = [
            ("labelSelector", &*self.labels),
            ("fieldSelector", &self.fields),
            ("allowWatchBookmarks", "true"),
            ("sendInitialEvents", state("true")),
            ("resourceVersionMatch", state("NotOlderThan")),
            ("resourceVersion", &revision),
            ("watch", "true"),
        ];
        http(Method::GET, &target(&self.path, &parameters), JSON, None)
    }
}

/// Returns the request for the resources of a group in a version, over HTTP.
///
/// # Errors
/// A path that is too long.
pub(super) fn discovery(path: &CallPath) -> Result<Request<Vec<u8>>, Refusal> {
    http(Method::GET, &path.to_string(), JSON, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(resource: &str, name: &str) -> CallPath {
        CallPath {
            cluster: ClusterName::root(),
            objects: ObjectPath {
                version: "v1".to_owned(),
                resource: resource.to_owned(),
                name: Some(name.to_owned()).filter(|name| !name.is_empty()),
                ..ObjectPath::default()
            },
        }
    }

    #[test]
    fn names_cannot_change_the_path() {
        let mut widget = path("widgets", "x?y=1#%2f");
        widget.objects.group = "example.io".to_owned();
        widget.objects.namespace = Some("a/../b".to_owned());
        widget.objects.subresource = Some("status".to_owned());
        assert_eq!(
            widget.to_string(),
            "/clusters/root/apis/example.io/v1/namespaces/a%2F..%2Fb/widgets/x%3Fy%3D1%23%252f/status"
        );
        assert_eq!(path("configmaps", "").to_string(), "/clusters/root/api/v1/configmaps");
    }

    #[test]
    fn empty_parameters_are_left_out() {
        let page = PageRequest {
            path: path("a", ""),
            labels: "a in (b,c)".to_owned(),
            fields: String::new(),
            limit: 2,
            token: None,
        };
        assert_eq!(
            page.target(),
            "/clusters/root/api/v1/a?limit=2&labelSelector=a%20in%20%28b%2Cc%29"
        );
        let deletion = ObjectRequest {
            path: path("a", "b"),
            action: Action::Delete(DeleteOptions::default()),
            dry_run: true,
        };
        assert_eq!(deletion.target(), "/clusters/root/api/v1/a/b?dryRun=All");
    }
}

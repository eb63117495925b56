//! Requests in no wire format.

use crate::scope::ScopePath;
use insula_api::{Revision, Verb};
use insula_auth::{Attributes, UserInfo};
use insula_catalog::Error;
use insula_edge::port::ClientKind;
use insula_meter::Meter;
use insula_registry::verbs::Token;

/// The sender of a request, whom the edge has authenticated.
#[derive(Debug, Clone)]
pub struct Sender {
    /// The user as whom the sender acts.
    pub user: UserInfo,
    /// The owner of the credential, where they act as another user.
    pub impersonator: Option<UserInfo>,
    /// Kind of the sender's client.
    pub client: ClientKind,
}

/// A request of a sender who is known.
#[derive(Debug, Clone)]
pub struct Call {
    /// The part of the installation that it names.
    pub scope: ScopePath,
    /// The request in the terms of authorization, without a cluster: that is known when the request
    /// is located.
    pub attributes: Attributes,
    /// The state that a list or a get answers from.
    pub at: ReadAt,
    /// The token of the page that a list goes on from.
    pub token: Option<String>,
    /// Pays for the work of the request.
    pub meter: Meter,
}

impl Call {
    /// Returns the verb of a request for objects; `None` for other requests, and for methods
    /// without one.
    pub fn verb(&self) -> Option<Verb> {
        verb(&self.attributes)
    }
}

/// Returns the verb of a request for objects.
pub(crate) fn verb(attributes: &Attributes) -> Option<Verb> {
    attributes.verb.request().filter(|_| attributes.is_resource_request)
}

/// The objects that a request names, as its path does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectPath {
    /// API group; empty for the core group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Namespace, if the path has one.
    pub namespace: Option<String>,
    /// Plural resource. May carry `:identity` in wildcard requests.
    pub resource: String,
    /// Object name, if the path has one.
    pub name: Option<String>,
    /// `status`, `scale`, …
    pub subresource: Option<String>,
    /// The old `/watch/` prefix.
    pub watch_prefix: bool,
    /// The prefix `/thirdparty` in the place of `/apis`.
    pub third_party: bool,
}

impl ObjectPath {
    /// Returns the request in the terms of authorization, without a cluster. `selected` is the name
    /// of the one object that a list or a watch selects by its fields: a right to objects of
    /// certain names covers it. The identity that a resource may be named with selects the API's
    /// exporter, and is no part of its name here: roles and policies would not know it.
    pub fn attributes(&self, verb: Option<Verb>, selected: Option<String>) -> Attributes {
        let is_namespace = self.resource == "namespaces" && self.group.is_empty();
        let name = self.name.clone().unwrap_or_default();
        // A namespace's own requests are judged inside it, as Kubernetes does.
        let inside = || if is_namespace { name.clone() } else { String::new() };
        Attributes {
            verb: verb.into(),
            group: self.group.clone(),
            version: self.version.clone(),
            resource: without_identity(&self.resource).to_owned(),
            subresource: self.subresource.clone().unwrap_or_default(),
            namespace: self.namespace.clone().unwrap_or_else(inside),
            name: selected.unwrap_or(name),
            path: String::new(),
            cluster: None,
            is_resource_request: true,
        }
    }
}

/// Returns a plural resource without the identity of its exporter (`widgets:1f3a…`).
pub fn without_identity(resource: &str) -> &str {
    resource.split_once(':').map_or(resource, |(name, _)| name)
}

/// The state at which a read looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadAt {
    /// The latest, including every write acknowledged before.
    Latest,
    /// The latest state that this server has seen.
    Any,
    /// A state at a revision or a later one.
    NotOlderThan(Revision),
    /// The state at a revision.
    Exactly(Revision),
}

impl ReadAt {
    /// Returns the state of the page that a token leads to.
    ///
    /// # Errors
    /// The text is not a valid token (400).
    pub fn of_page(token: &str) -> Result<ReadAt, Error> {
        let revision = Token::decode(token)?.revision;
        Ok(revision.map_or(ReadAt::Latest, ReadAt::Exactly))
    }
}

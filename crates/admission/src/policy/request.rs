//! A write as policies see it: in the version that a policy matched, with its surroundings.

use super::{
    budget::{HomeBudget, WriteBudget},
    matching::{ResourceVersion, Subject},
};
use crate::kinds::Operation;
use insula_access::Target;
use insula_api::{ClusterName, Json, Labels, ObjectKey};
use insula_auth::{UserInfo, audit::Record};
use insula_catalog::{Named, Part, Result, Served, exports, ids, stored};
use insula_cel::ResourceCheck;
use insula_conversion::Stored;
use insula_store::{Entry, Snapshot};
use serde::Deserialize;
use serde_json::json;
use std::{cell::OnceCell, sync::Arc};

/// A write.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Snapshot that decides the write.
    pub snapshot: &'a Snapshot,
    /// Resource, cluster and namespace.
    pub target: &'a Target,
    /// User of the request.
    pub user: &'a UserInfo,
    /// Operation on the object.
    pub operation: Operation,
    /// Part of the object that changes.
    pub part: Part,
    /// True for a request that is not committed.
    pub dry_run: bool,
    /// Name of the object; empty where it is generated.
    pub name: &'a str,
    /// The object as it was.
    pub old: Option<&'a Entry>,
    /// Audit record of the request.
    pub record: &'a Record,
    /// CEL budget of the write.
    pub budget: &'a WriteBudget,
}

/// The object that is about to be written.
#[derive(Clone, Copy)]
pub enum New<'a> {
    /// There is none: a deletion.
    Nothing,
    /// As it will be stored.
    Stored {
        value: &'a Json,
        residual: Option<&'a [u8]>,
    },
    /// As it was sent, in the request's version.
    Sent(&'a Json),
}

impl New<'_> {
    fn value(&self) -> Option<&Json> {
        match self {
            New::Nothing => None,
            New::Stored { value, .. } | New::Sent(value) => Some(value),
        }
    }
}

impl Operation {
    fn word(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }

    fn options_kind(self) -> &'static str {
        match self {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
        }
    }
}

impl<'a> Request<'a> {
    fn served(&self) -> &'a Served {
        &self.target.served
    }

    /// Returns the clusters whose policies and webhooks apply to the write.
    pub(crate) fn homes_of_hooks(&self) -> Vec<ClusterName> {
        exports::homes_of_hooks(self.snapshot, &self.target.cluster, self.served())
    }

    /// Returns the CEL budget of the policies and webhooks of a cluster.
    pub(crate) fn budget_of(&self, home: &ClusterName) -> &'a HomeBudget {
        self.budget.of_home(home, &self.target.cluster)
    }

    /// Returns true for the resources of admission policies themselves: a policy that refuses all
    /// policies could not be removed.
    pub(crate) fn is_exempt(&self) -> bool {
        &*self.served().api.group == "admissionregistration.k8s.io"
    }

    /// Returns the resource as refusals name it.
    pub(crate) fn named(&self) -> Named {
        Named {
            group: self.served().group().clone(),
            resource: self.served().names().plural.clone(),
        }
    }

    fn is_namespace(&self) -> bool {
        let api = &self.served().api;
        api.group.is_empty() && &*api.names.plural == "namespaces"
    }

    /// Returns the namespace of the object; an existing Namespace is in itself.
    pub(crate) fn namespace(&self) -> &'a str {
        match self.is_namespace() && self.operation != Operation::Create {
            true => self.name,
            false => self.target.namespace.as_deref().unwrap_or_default(),
        }
    }

    fn subresource(&self) -> &'static str {
        match self.part {
            // Scaling changes the object, so policies see all of it.
            Part::Main | Part::Scale => "",
            Part::Status => "status",
            Part::Approval => "approval",
            Part::Finalizers => "finalize",
        }
    }

    /// Returns the resource that `authorizer.requestResource` checks.
    pub(crate) fn checked(&self) -> ResourceCheck {
        let named = self.named();
        ResourceCheck {
            group: named.group.to_string(),
            resource: named.resource.to_string(),
            subresource: self.subresource().to_owned(),
            namespace: self.namespace().to_owned(),
            name: self.name.to_owned(),
            ..ResourceCheck::default()
        }
    }

    /// Returns the properties of the request that matching uses.
    pub(crate) fn subject(&self, new: New<'_>) -> Subject<'a> {
        let served = self.served();
        let own = ResourceVersion {
            group: served.group().clone(),
            version: self.target.version.clone(),
            resource: served.names().plural.clone(),
            kind: served.names().kind.clone(),
        };
        let api = &served.api;
        let others = api
            .versions
            .iter()
            .filter(|version| version.served)
            .map(|version| ResourceVersion {
                group: api.group.clone(),
                version: version.name.clone(),
                resource: api.names.plural.clone(),
                kind: api.names.kind.clone(),
            });
        let equivalents = others.filter(|other| *other != own).collect();
        let new_labels = new.value().map(labels);
        let old_labels = self.old.map(|old| old.object.meta.labels.clone());
        let namespace_labels = match self.is_namespace() {
            true => new_labels.clone().or_else(|| old_labels.clone()),
            false => self.namespace_entry().map(|entry| entry.object.meta.labels.clone()),
        };
        Subject {
            operation: self.operation.word(),
            resource: own,
            equivalents,
            subresource: self.subresource(),
            namespace: self.namespace(),
            name: self.name,
            namespace_labels,
            object_labels: new_labels.into_iter().chain(old_labels).collect(),
        }
    }

    fn namespace_entry(&self) -> Option<Entry> {
        let name = self.target.namespace.as_deref().filter(|name| !name.is_empty())?;
        let key = ObjectKey::cluster_scoped(ids::namespaces(), self.target.cluster.clone(), name);
        self.snapshot.get(&key)
    }

    /// Returns `namespaceObject`: null outside of namespaces, and for Namespaces themselves.
    pub(crate) fn namespace_object(&self) -> Json {
        let Some(entry) = self.namespace_entry() else {
            return Json::Null;
        };
        let mut namespace = stored::stored_value(&entry);
        for hidden in ["managedFields", "ownerReferences", "selfLink"] {
            namespace["metadata"]
                .as_object_mut()
                .map(|metadata| metadata.remove(hidden));
        }
        namespace
    }

    /// Returns the CEL variable `request` in a version.
    pub(crate) fn describe(&self, seen_as: &ResourceVersion, own: &ResourceVersion) -> Json {
        let user = self.user.within(Some(&self.target.cluster));
        let mut options = json!({"apiVersion": "meta.k8s.io/v1", "kind": self.operation.options_kind()});
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        let mut request = json!({
            "kind": kind(seen_as),
            "resource": resource(seen_as),
            "requestKind": kind(own),
            "requestResource": resource(own),
            "name": self.name,
            "operation": self.operation.word(),
            "userInfo": {"username": user.name, "groups": user.groups},
            "dryRun": self.dry_run,
            "options": options,
        });
        // Empty texts are left out of an AdmissionRequest.
        for (field, value) in [
            ("subResource", self.subresource()),
            ("requestSubResource", self.subresource()),
            ("namespace", self.namespace()),
        ] {
            if !value.is_empty() {
                request[field] = json!(value);
            }
        }
        if !user.uid.is_empty() {
            request["userInfo"]["uid"] = json!(user.uid);
        }
        if !user.extra.is_empty() {
            request["userInfo"]["extra"] = json!(user.extra);
        }
        request
    }

    /// Returns the new object in a version; null for a deletion.
    pub(crate) fn object(&self, new: New<'_>, seen_as: &ResourceVersion) -> Result<Json> {
        let mut object = match new {
            New::Nothing => return Ok(Json::Null),
            New::Sent(value) if seen_as.version == self.target.version => value.clone(),
            New::Sent(value) => {
                let own = stored::unalias(self.served(), value);
                self.served()
                    .convert(own.as_ref().unwrap_or(value), &seen_as.version)
                    .map_err(|failed| failed.or(|error| stored::write_error(self.served(), value, error)))?
            }
            New::Stored { value, residual } => {
                // The residual belongs to the storage version.
                let named = value["apiVersion"].as_str().unwrap_or_default();
                let version = insula_api::names::version_of(named);
                match *version == *seen_as.version {
                    true => value.clone(),
                    false => {
                        let stored = Stored {
                            value,
                            version,
                            residual,
                        };
                        self.served()
                            .get(stored, &seen_as.version)
                            .map_err(|failed| failed.or(|error| stored::write_error(self.served(), value, error)))?
                    }
                }
            }
        };
        if let Some(old) = self.old.filter(|_| self.operation == Operation::Update) {
            object["metadata"]["resourceVersion"] = json!(old.revision.to_string());
        }
        self.name_kind(&mut object, seen_as);
        Ok(object)
    }

    /// Returns the old object in a version; null for a creation.
    pub(crate) fn old_object(&self, seen_as: &ResourceVersion) -> Result<Json> {
        let Some(old) = self.old else { return Ok(Json::Null) };
        let served = Served {
            alias: None,
            ..self.served().clone()
        };
        let mut object = stored::value(&served, old, &seen_as.version)?;
        self.name_kind(&mut object, seen_as);
        Ok(object)
    }

    fn name_kind(&self, object: &mut Json, seen_as: &ResourceVersion) {
        let group = match seen_as.group.is_empty() {
            true => String::new(),
            false => format!("{}/", seen_as.group),
        };
        object["apiVersion"] = json!(format!("{group}{}", seen_as.version));
        object["kind"] = json!(&*seen_as.kind);
    }
}

fn kind(of: &ResourceVersion) -> Json {
    json!({"group": &*of.group, "version": &*of.version, "kind": &*of.kind})
}

fn resource(of: &ResourceVersion) -> Json {
    json!({"group": &*of.group, "version": &*of.version, "resource": &*of.resource})
}

fn labels(object: &Json) -> Labels {
    Labels::deserialize(&object["metadata"]["labels"]).unwrap_or_default()
}

/// Cache of a request's objects in the versions that policies use.
pub(crate) struct Views<'a> {
    request: &'a Request<'a>,
    new: New<'a>,
    own: ResourceVersion,
    namespace: OnceCell<Json>,
    made: Vec<(ResourceVersion, Result<Arc<VersionedRequest>>)>,
}

/// A request in one version.
#[derive(Debug)]
pub(crate) struct VersionedRequest {
    pub(crate) object: Json,
    pub(crate) old_object: Json,
    pub(crate) request: Json,
}

impl<'a> Views<'a> {
    pub(crate) fn new(request: &'a Request<'a>, new: New<'a>, own: ResourceVersion) -> Self {
        Views {
            request,
            new,
            own,
            namespace: OnceCell::new(),
            made: Vec::new(),
        }
    }

    /// Returns the request in a version.
    pub(crate) fn view(&mut self, seen_as: &ResourceVersion) -> Result<Arc<VersionedRequest>> {
        if let Some((_, made)) = self.made.iter().find(|(version, _)| version == seen_as) {
            return made.clone();
        }
        let make = || {
            Ok(Arc::new(VersionedRequest {
                object: self.request.object(self.new, seen_as)?,
                old_object: self.request.old_object(seen_as)?,
                request: self.request.describe(seen_as, &self.own),
            }))
        };
        let made = make();
        self.made.push((seen_as.clone(), made.clone()));
        made
    }

    /// Returns `namespaceObject`.
    pub(crate) fn namespace(&self) -> &Json {
        self.namespace.get_or_init(|| self.request.namespace_object())
    }
}

/// Converts an object that was sent, or changed by a policy, to another version.
pub(super) fn convert(target: &Target, object: &Json, to: &str) -> Result<Json> {
    let own = stored::unalias(&target.served, object);
    target
        .served
        .convert(own.as_ref().unwrap_or(object), to)
        .map_err(|failed| failed.or(|error| stored::write_error(&target.served, object, error)))
}

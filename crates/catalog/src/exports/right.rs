//! Permissions of a provider in a consumer's cluster, and the objects they cover.

use crate::{
    exports::{
        ExportName, is_identity_of,
        offer::{Binding, ExportOffer, Selection},
    },
    ids, locate,
    routes::ResourceRoute,
};
use insula_api::{ClusterName, ClusterPath, Json, Object, ObjectKey, Revision, Scope, Verb};
use insula_store::{Entry, Guard, Snapshot};
use std::sync::Arc;

/// The resource and verb of a provider's request.
#[derive(Debug, Clone, Copy)]
pub struct AccessRequest<'a> {
    /// Group, empty for the core group.
    pub group: &'a str,
    /// Plural resource name.
    pub resource: &'a str,
    /// Verb; `None` for a method that has none.
    pub verb: Option<Verb>,
}

/// The reason for a denial. Contains no data of the cluster, so the provider may see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The cluster does not bind the export.
    NoBinding,
    /// No accepted permission claim allows the request.
    NoReason,
    /// The owner of a claimed API does not grant it to the caller.
    Policy,
}

impl Denied {
    /// Returns the message of the denial, as in kcp.
    pub fn why(self) -> &'static str {
        match self {
            Denied::NoBinding => "could not find suitable APIBinding in target logical cluster",
            Denied::NoReason => "failed to find suitable reason to allow access in APIBinding",
            Denied::Policy => "access denied",
        }
    }
}

/// The permission of a provider for one resource of a cluster.
#[derive(Debug, Clone)]
pub struct Grant {
    objects: Objects,
    /// Source of the grant: the route to the export, or the binding.
    given_by: (ObjectKey, Revision),
}

/// The objects that a grant covers.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Objects {
    /// All objects of the provider's own API.
    Own,
    /// The bindings to the export, read-only, and those that an accepted claim selects.
    Bindings { of: ExportName, claimed: Option<Selection> },
    /// The objects of an accepted permission claim. `identity` is that of the claimed resource's
    /// export. `besides` excludes the bindings to the provider's own export, in which it could
    /// accept its own claims.
    Claimed {
        of: Selection,
        identity: String,
        besides: Option<ExportName>,
    },
}

impl Grant {
    /// Returns true if the grant covers an object.
    pub fn covers(&self, object: &Object) -> bool {
        match &self.objects {
            Objects::Own => true,
            Objects::Bindings { of, claimed } => {
                of.is_bound_by(&object.parsed(Binding::read))
                    || claimed
                        .as_ref()
                        .is_some_and(|claimed| claimed.matches(&object.meta.labels))
            }
            Objects::Claimed { of, besides, .. } => {
                let is_beside = |export: &ExportName| export.is_bound_by(&object.parsed(Binding::read));
                of.matches(&object.meta.labels) && !besides.as_ref().is_some_and(is_beside)
            }
        }
    }

    /// Returns true if both grants cover the same objects.
    pub fn is_as_wide_as(&self, other: &Grant) -> bool {
        self.objects == other.objects
    }

    /// Returns the guard for writes under the grant: its source must still be at the same revision.
    pub fn guard(&self) -> Guard {
        let (key, revision) = self.given_by.clone();
        Guard::At(key, revision)
    }

    /// Adds the labels that keep a written object within the grant.
    ///
    /// # Errors
    /// The object is outside the selector of the accepted claim.
    pub fn keep(&self, object: &mut Json) -> Result<(), String> {
        match &self.objects {
            Objects::Own | Objects::Bindings { claimed: None, .. } => Ok(()),
            Objects::Claimed { of, .. } | Objects::Bindings { claimed: Some(of), .. } => of.keep(object),
        }
    }

    /// Returns true for a claimed API of another export, whose owner may grant less to the provider
    /// than to consumers.
    pub fn is_to_anothers(&self) -> bool {
        matches!(&self.objects, Objects::Claimed { identity, .. } if !identity.is_empty())
    }

    /// Returns the identity that the resource must have. `own` is the identity of the provider's
    /// export.
    pub fn identity<'a>(&'a self, own: &'a str) -> &'a str {
        match &self.objects {
            Objects::Own => own,
            Objects::Bindings { .. } => "",
            Objects::Claimed { identity, .. } => identity,
        }
    }
}

impl ExportName {
    /// Returns true if a binding in a cluster references this export.
    pub fn is_named_by(&self, snapshot: &Snapshot, cluster: &ClusterName, binding: &Json) -> bool {
        let export = &binding["spec"]["reference"]["export"];
        let path = export["path"].as_str().unwrap_or_default();
        let named = match path.is_empty() {
            true => Some(cluster.clone()),
            false => ClusterPath::parse(path)
                .ok()
                .and_then(|path| locate::locate(snapshot, &path).ok()),
        };
        export["name"] == *self.name && named.as_ref() == Some(&self.cluster)
    }

    /// Returns the permission of the export's provider in a cluster.
    ///
    /// # Errors
    /// The cluster has no binding to the export, or none that allows the request.
    pub fn right(
        &self,
        snapshot: &Snapshot,
        cluster: &ClusterName,
        access_request: AccessRequest<'_>,
    ) -> Result<Grant, Denied> {
        let Some(spec) = self.spec(snapshot) else {
            return Err(Denied::NoBinding);
        };
        let offer = &spec.offer;
        // System clusters are never consumers, even if they contain a binding.
        if cluster.is_system() || !locate::exists(snapshot, cluster) {
            return Err(Denied::NoBinding);
        }
        if let Some(right) = self.own_right(snapshot, cluster, offer, access_request) {
            return Ok(right);
        }
        let mut denied = Denied::NoBinding;
        let scope = Scope::cluster(ids::apibindings(), cluster.clone());
        for entry in snapshot.range(&scope, None, usize::MAX) {
            let binding = entry.object.parsed(Binding::read);
            if !self.is_bound_by(&binding) {
                continue;
            }
            match self.right_by((snapshot, offer), &entry, &binding, access_request) {
                Some(right) => return Ok(right),
                None => denied = Denied::NoReason,
            }
        }
        Err(denied)
    }

    /// Returns the grant on the export's own API, if the route of the resource leads to a binding
    /// to the export with its identity.
    fn own_right(
        &self,
        snapshot: &Snapshot,
        cluster: &ClusterName,
        offer: &ExportOffer,
        access_request: AccessRequest<'_>,
    ) -> Option<Grant> {
        let key = ids::resource_route(cluster, access_request.group, access_request.resource);
        let found = snapshot.get(&key)?;
        let route = found.object.parsed(ResourceRoute::read);
        let is_own =
            !offer.identity.is_empty() && *route.identity == *offer.identity && route.export.as_ref() == Some(self);
        is_own.then_some(Grant {
            objects: Objects::Own,
            given_by: (key, found.revision),
        })
    }

    /// Returns the grant that one binding gives: by its accepted claims, or to read bindings to the
    /// export.
    pub fn right_by(
        &self,
        (snapshot, offer): (&Snapshot, &ExportOffer),
        entry: &Entry,
        binding: &Arc<Binding>,
        access_request: AccessRequest<'_>,
    ) -> Option<Grant> {
        let AccessRequest { group, resource, verb } = access_request;
        let claims = offer.claims.iter();
        let mut claims = claims.filter(|claim| claim.covers(group, resource));
        let accepted = claims.find_map(|claim| {
            let (terms, selection) = binding.accepted.iter().find(|(terms, _)| terms.is_about(claim))?;
            // Built-in kinds have no identity of their own.
            let identity = match is_identity_of(snapshot, (group, resource), &terms.identity) {
                true => String::new(),
                false => terms.identity.clone(),
            };
            claim.agree_on(terms, verb).then(|| (selection.clone(), identity))
        });
        let is_bindings = group == "apis.kcp.io" && resource == "apibindings";
        let objects = match accepted {
            claimed if is_bindings && verb.is_some_and(Verb::reads) => Objects::Bindings {
                of: self.clone(),
                claimed: claimed.map(|(selection, _)| selection),
            },
            Some((of, identity)) => Objects::Claimed {
                of,
                identity,
                besides: is_bindings.then(|| self.clone()),
            },
            None => return None,
        };
        Some(Grant {
            objects,
            given_by: (entry.key.clone(), entry.revision),
        })
    }
}

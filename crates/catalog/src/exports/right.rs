//! What a provider may do in one cluster, and with which objects.

use crate::{
    exports::{
        ExportName,
        offer::{Binding, ExportOffer, Selection},
    },
    ids, locate,
    routes::ResourceRoute,
};
use insula_api::{ClusterName, ClusterPath, Json, Object, ObjectKey, Revision, Scope};
use insula_store::{Entry, Guard, Snapshot};
use std::sync::Arc;

/// Verbs that change nothing.
const READING: [&str; 3] = ["get", "list", "watch"];

/// What is to be done with which resource.
#[derive(Debug, Clone, Copy)]
pub struct AccessRequest<'a> {
    /// Group, empty for the core group.
    pub group: &'a str,
    /// Plural.
    pub resource: &'a str,
    /// Kubernetes' verb.
    pub verb: &'a str,
}

/// Why not, for those who look: nothing in it is from the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The cluster does not bind the export.
    NoBinding,
    /// It does not let it do this.
    NoReason,
    /// The owner of a claimed API does not leave it to the caller.
    Policy,
}

impl Denied {
    /// kcp's words.
    pub fn why(self) -> &'static str {
        match self {
            Denied::NoBinding => "could not find suitable APIBinding in target logical cluster",
            Denied::NoReason => "failed to find suitable reason to allow access in APIBinding",
            Denied::Policy => "access denied",
        }
    }
}

/// What a cluster lets a provider do.
#[derive(Debug, Clone)]
pub struct Grant {
    objects: Objects,
    /// What gives it: the claim that routes to the export, or the binding.
    given_by: (ObjectKey, Revision),
}

/// The objects that a right is about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Objects {
    /// The provider's own API: all.
    Own,
    /// The bindings to the export, to look at; with a claim also others.
    Bindings { of: ExportName, claimed: Option<Selection> },
    /// Those that a claim was accepted for. The identity is whose API it is; the bindings of an
    /// export are not its provider's to change, who could answer its own claims in them.
    Claimed {
        of: Selection,
        identity: String,
        besides: Option<ExportName>,
    },
}

impl Grant {
    /// Whether it is about an object.
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

    /// Whether another right is about the same objects.
    pub fn is_as_wide_as(&self, other: &Grant) -> bool {
        self.objects == other.objects
    }

    /// What must still be there when something is written by it.
    pub fn guard(&self) -> Guard {
        let (key, revision) = self.given_by.clone();
        Guard::At(key, revision)
    }

    /// Keeps a written object within the right.
    pub fn keep(&self, object: &mut Json) -> Result<(), String> {
        match &self.objects {
            Objects::Own | Objects::Bindings { claimed: None, .. } => Ok(()),
            Objects::Claimed { of, .. } | Objects::Bindings { claimed: Some(of), .. } => of.keep(object),
        }
    }

    /// Whether it is about an API of another export, whose owner may leave less to those who are
    /// not its tenants.
    pub fn is_to_anothers(&self) -> bool {
        matches!(&self.objects, Objects::Claimed { identity, .. } if !identity.is_empty())
    }

    /// Whose API the resource has to be.
    pub fn identity<'a>(&'a self, own: &'a str) -> &'a str {
        match &self.objects {
            Objects::Own => own,
            Objects::Bindings { .. } => "",
            Objects::Claimed { identity, .. } => identity,
        }
    }
}

impl ExportName {
    /// Whether a binding in a cluster names this export.
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

    /// What a cluster lets the provider do.
    ///
    /// # Errors
    /// The cluster does not let it.
    pub fn right(&self, snapshot: &Snapshot, cluster: &ClusterName, wish: AccessRequest<'_>) -> Result<Grant, Denied> {
        let Some(said) = self.said(snapshot) else {
            return Err(Denied::NoBinding);
        };
        let offer = &said.offer;
        // System clusters are nobody's consumers, whatever somebody wrote into them.
        if cluster.is_system() || !locate::exists(snapshot, cluster) {
            return Err(Denied::NoBinding);
        }
        if let Some(right) = self.own_right(snapshot, cluster, offer, wish) {
            return Ok(right);
        }
        let mut denied = Denied::NoBinding;
        let scope = Scope::cluster(ids::apibindings(), cluster.clone());
        for entry in snapshot.range(&scope, None, usize::MAX) {
            let binding = entry.object.parsed(Binding::read);
            if !self.is_bound_by(&binding) {
                continue;
            }
            match self.right_by(offer, &entry, &binding, wish) {
                Some(right) => return Ok(right),
                None => denied = Denied::NoReason,
            }
        }
        Err(denied)
    }

    /// The right to the export's own API: the claim on the name leads to a binding to the export,
    /// with its identity.
    fn own_right(
        &self,
        snapshot: &Snapshot,
        cluster: &ClusterName,
        offer: &ExportOffer,
        wish: AccessRequest<'_>,
    ) -> Option<Grant> {
        let key = ids::claim(cluster, wish.group, wish.resource);
        let claim = snapshot.get(&key)?;
        let said = claim.object.parsed(ResourceRoute::read);
        let is_own =
            !offer.identity.is_empty() && *said.identity == *offer.identity && said.export.as_ref() == Some(self);
        is_own.then_some(Grant {
            objects: Objects::Own,
            given_by: (key, claim.revision),
        })
    }

    /// The right that one binding gives by its accepted claims.
    pub fn right_by(
        &self,
        offer: &ExportOffer,
        entry: &Entry,
        binding: &Arc<Binding>,
        wish: AccessRequest<'_>,
    ) -> Option<Grant> {
        let AccessRequest { group, resource, verb } = wish;
        let claims = offer.claims.iter();
        let mut claims = claims.filter(|claim| claim.group == group && claim.resource == resource);
        let accepted = claims.find_map(|claim| {
            let (terms, selection) = binding.accepted.iter().find(|(terms, _)| terms.is_about(claim))?;
            claim
                .agree_on(terms, verb)
                .then(|| (selection.clone(), terms.identity.clone()))
        });
        let is_bindings = group == "apis.kcp.io" && resource == "apibindings";
        let objects = match accepted {
            claimed if is_bindings && READING.contains(&verb) => Objects::Bindings {
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

//! The context of a write, which preparation and field ownership read.

use crate::deps::Deps;
use insula_access::Target;
use insula_api::{Clock, ClusterName, Rng};
use insula_apply::Managers;
use insula_catalog::{ApiVersion, Part, Served};

/// The context of a write: its resource, version, cluster and namespace.
pub(crate) struct Context<'a> {
    /// The resource.
    pub(crate) served: &'a Served,
    /// The request's version.
    pub(crate) version: &'a ApiVersion,
    /// The cluster.
    pub(crate) cluster: &'a ClusterName,
    /// The namespace, empty for cluster-scoped resources.
    pub(crate) namespace: &'a str,
    /// The time.
    pub(crate) clock: &'a dyn Clock,
    /// Randomness for UIDs and generated names.
    pub(crate) rng: &'a dyn Rng,
    /// The part of the object that is written.
    pub(crate) part: Part,
    /// The change of field ownership.
    pub(crate) by: By<'a>,
}

impl<'a> Context<'a> {
    /// Returns the context of a write to a part of an object. All runs of a request with pending
    /// calls see the same time and random numbers, and so make the same object.
    pub(crate) fn new(deps: &'a Deps, target: &'a Target, version: &'a ApiVersion, part: Part, by: By<'a>) -> Self {
        let (clock, rng): (&dyn Clock, &dyn Rng) = match target.served.pending_calls.as_deref() {
            Some(calls) => (calls, calls),
            None => (&*deps.clock, &*deps.rng),
        };
        Context {
            part,
            by,
            served: &target.served,
            version,
            cluster: &target.cluster,
            namespace: target.namespace.as_deref().unwrap_or_default(),
            clock,
            rng,
        }
    }
}

/// The way in which a write changes field ownership.
#[derive(Debug, Clone, Copy)]
pub(crate) enum By<'a> {
    /// The manager owns the fields that the write changes.
    Update(&'a str),
    /// Server-side apply has computed the owners.
    Applied(&'a Managers),
}

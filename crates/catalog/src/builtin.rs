//! The built-in kinds, one file for each kind or group of kinds that share code.
//!
//! A file describes its kinds as data ([`Builtin`]): definition, strategy, and more where a kind
//! needs it. Strategies are pure functions. Checks that read other objects belong to admission;
//! work that takes more than one write belongs to a controller.

mod apis;
mod apiservice;
mod certificatesigningrequest;
mod config_data;
mod configmap;
mod customresourcedefinition;
mod event;
mod flowcontrol;
mod lease;
mod namespace;
mod policies;
mod rbac;
mod resourcequota;
mod reviews;
mod secret;
mod serviceaccount;
mod shard;
mod storageversionmigration;
mod thirdpartyresource;
mod workspace;
mod workspaceauthenticationconfiguration;

#[cfg(test)]
mod tests;

pub use certificatesigningrequest::request as certificate_request;
pub use event::review as review_event;
pub use secret::{TOKEN_SECRET, encoded as secret_data};

use crate::{Builtin, kind::crd};

/// All built-in kinds.
static KINDS: &[&[Builtin]] = &[
    apis::KINDS,
    apiservice::KINDS,
    certificatesigningrequest::KINDS,
    configmap::KINDS,
    customresourcedefinition::KINDS,
    event::KINDS,
    flowcontrol::KINDS,
    lease::KINDS,
    namespace::KINDS,
    policies::KINDS,
    rbac::KINDS,
    resourcequota::KINDS,
    reviews::KINDS,
    secret::KINDS,
    serviceaccount::KINDS,
    shard::KINDS,
    storageversionmigration::KINDS,
    thirdpartyresource::KINDS,
    workspace::KINDS,
    workspaceauthenticationconfiguration::KINDS,
    // Kinds that their definition describes completely.
    &[
        Builtin::new(crd!("apis.insula.io_apibindrequests")),
        Builtin::new(crd!("core.kcp.io_logicalclusters")).claimable(),
        Builtin::new(crd!("tenancy.kcp.io_workspacetypes")),
        Builtin::new(crd!("topology.kcp.io_partitions")),
        Builtin::new(crd!("topology.kcp.io_partitionsets")),
    ],
];

/// Returns all built-in kinds.
pub(crate) fn all() -> impl Iterator<Item = &'static Builtin> {
    KINDS.iter().copied().flatten()
}

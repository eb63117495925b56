//! The API server: the parts that every request shares.

use crate::{extensions::Extensions, health::HealthReports, hosts::HostPattern, mounts::Forward, openapi};
use insula_access::Authenticator;
use insula_edge::guard::{fair_share, limits};
use insula_pipeline::TenantLimits;
use insula_registry::Deps;
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

/// The API server of a registry, over HTTP and gRPC.
pub struct ApiServer {
    /// The objects.
    pub registry: Arc<Deps>,
    /// Forwards requests to the servers that workspaces are mounted from.
    pub mounts: Arc<dyn Forward>,
    /// Reports of the server's health, for workspaces.
    pub health: Arc<dyn HealthReports>,
    /// Extension servers of APIServices.
    pub extensions: Extensions,
    /// Hosts of workspaces, if they have some.
    pub hosts: Option<HostPattern>,
    /// Authenticates the senders of requests.
    pub authenticator: Arc<Authenticator>,
    /// Limits of each user and each workspace.
    pub limits: limits::Limits,
    /// TenantLimits of CPU time between tenants.
    pub fair_share: fair_share::FairShare,
    /// True if ThirdPartyResources of both generations are served.
    pub third_party_resources: bool,
    /// OpenAPI documents, made when they are requested.
    pub openapi: openapi::Cache,
    /// Turns true when the server drains: watches end.
    pub closing: watch::Receiver<bool>,
    /// Period of a watch's bookmarks. At each bookmark the user's right to the watch is checked
    /// again.
    pub bookmark_period: Duration,
}

impl ApiServer {
    /// Returns the limits and shares of tenants.
    pub(crate) fn tenants(&self) -> TenantLimits<'_> {
        TenantLimits {
            limits: &self.limits,
            fair_share: &self.fair_share,
        }
    }
}

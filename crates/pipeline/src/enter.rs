//! The third stage of a [`crate::Call`]: the permits of the workspace that it enters.

use crate::{Authorized, Refusal};
use insula_api::ClusterName;
use insula_catalog::{Error, Named, locate::LogicalClusterView};
use insula_edge::guard::{
    Limit,
    fair_share::{Charged, ConnectionMeter, FairShare, ThrottleSlot},
    limits::{Budget, CountedPermit, Limits},
};
use std::sync::Arc;

/// The permits of a request that has entered its workspace.
pub struct Entered {
    /// The permit of the workspace, if the request is in one.
    pub permit: Option<CountedPermit>,
    /// Bytes in flight of the request.
    pub budget: Budget,
    /// The right to run.
    pub slot: ThrottleSlot,
}

/// Limits and shares of all tenants.
#[derive(Clone, Copy)]
pub struct TenantLimits<'a> {
    /// The limits.
    pub limits: &'a Limits,
    /// The shares of CPU time.
    pub fair_share: &'a FairShare,
}

impl TenantLimits<'_> {
    /// Enters a workspace. Its LogicalCluster has its own limits and its owner; system clusters
    /// have none. From here on the connection is charged to the workspace and its owner.
    ///
    /// # Errors
    /// The limit that the workspace has reached.
    pub async fn enter(
        self,
        cluster: &ClusterName,
        view: Option<&LogicalClusterView>,
        meter: Option<&ConnectionMeter>,
    ) -> Result<(CountedPermit, ThrottleSlot), Limit> {
        let own = view.and_then(|view| view.limits.as_deref());
        let permit = self.limits.in_workspace(cluster, own)?;
        let owner = view.and_then(|view| view.payer().cloned());
        let slot = self.slot(meter, &Charged::workspace(cluster.clone(), owner)).await?;
        Ok((permit, slot))
    }

    /// Waits until a request of the tenant may run, and charges the connection to the tenant.
    ///
    /// # Errors
    /// The tenant is above its share of CPU time.
    pub async fn slot(self, meter: Option<&ConnectionMeter>, charged: &Charged) -> Result<ThrottleSlot, Limit> {
        let Some(meter) = meter else {
            return Ok(ThrottleSlot::default());
        };
        let slot = self.fair_share.throttle_slot(meter, charged).await;
        slot.map_err(|refusal| self.limits.over_compute(&refusal.to_string()))
    }
}

impl Authorized {
    /// Enters the workspace of the request; outside of any, the account of the payer.
    ///
    /// # Errors
    /// The limit that the workspace has reached, and a workspace that is switched off.
    pub async fn enter(
        &self,
        tenants: TenantLimits<'_>,
        payer: &Arc<str>,
        meter: Option<&ConnectionMeter>,
    ) -> Result<Entered, Refusal> {
        self.refuse_inactive()?;
        let (permit, slot) = match &self.scope().cluster {
            Some(cluster) => {
                let (permit, slot) = tenants
                    .enter(cluster, self.scope().logical_cluster.as_deref(), meter)
                    .await?;
                (Some(permit), slot)
            }
            None => (None, tenants.slot(meter, &Charged::user(payer.clone())).await?),
        };
        let budget = tenants.limits.budget(payer, permit.as_ref());
        Ok(Entered { permit, budget, slot })
    }

    /// Refuses requests to a cluster that is switched off, except for its OpenAPI documents and
    /// those about its LogicalCluster, by which it is switched on again.
    fn refuse_inactive(&self) -> Result<(), Refusal> {
        let Some(cluster) = &self.scope().cluster else {
            return Ok(());
        };
        let right = self.attributes();
        let about_itself = match right.is_resource_request {
            true => right.group == "core.kcp.io" && right.resource == "logicalclusters",
            false => right.path.starts_with("/openapi/"),
        };
        if about_itself || !self.scope().is_inactive() {
            return Ok(());
        }
        Err(Refusal::Verb(Error::Forbidden {
            resource: Named {
                group: "core.kcp.io".into(),
                resource: "logicalclusters".into(),
            },
            name: cluster.as_str().to_owned(),
            why: "logical cluster is marked inactive".to_owned(),
            cause: None,
        }))
    }
}

//! The second stage of a [`crate::Call`]: the right to it.

use crate::{Refusal, call::Sender, impersonation, locate::Located, scope::Scope};
use insula_access::delegate::{self, Delegate};
use insula_auth::{Attributes, ClusterFacts, Forbidden, Permit, UserInfo, audit::Record, forbidden_message, permit};
use insula_catalog::Error;
use insula_edge::port::ClientKind;
use std::sync::Arc;

/// A request that may be served: the only one that leads to objects. Only [`Located::authorize`]
/// makes one.
pub struct Authorized {
    user: Arc<UserInfo>,
    writer: Arc<UserInfo>,
    client: ClientKind,
    scope: Scope,
    attributes: Arc<Attributes>,
    permit: Permit,
}

impl Authorized {
    /// The user.
    pub fn user(&self) -> &Arc<UserInfo> {
        &self.user
    }

    /// The user as the cluster sees them in which they write: with the warrant of the virtual
    /// workspace that let them in.
    pub fn writer(&self) -> &Arc<UserInfo> {
        &self.writer
    }

    /// Kind of the client that sent the request.
    pub(crate) fn client(&self) -> ClientKind {
        self.client
    }

    /// The state and the cluster.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The request in the terms of authorization.
    pub fn attributes(&self) -> &Arc<Attributes> {
        &self.attributes
    }

    /// The right that was granted.
    pub fn permit(&self) -> &Permit {
        &self.permit
    }
}

impl Located {
    /// Asks the chain of authorizers, and the delegate where the chain leaves it to one.
    ///
    /// # Errors
    /// The missing right, a virtual workspace that does not exist, or a delegate that does not
    /// answer.
    pub async fn authorize(self, delegate: Option<&dyn Delegate>, record: &Record) -> Result<Authorized, Refusal> {
        let Located {
            sender,
            scope,
            attributes,
        } = self;
        let Sender {
            user,
            impersonator,
            client,
        } = sender;
        let (required, mut facts) = required_right(&scope, &attributes)?;
        add_decision(
            delegate.filter(|_| impersonator.is_none()),
            &user,
            &required,
            &mut facts,
        )
        .await?;
        let refused = |forbidden: Forbidden| {
            tracing::info!(user = user.name, reason = forbidden.reason, "forbidden");
            record.decided(false, &forbidden.reason, &forbidden.trail);
            Refusal::forbidden(forbidden_message(&user, &attributes), &attributes)
        };
        if let Some(caller) = &impersonator {
            impersonation::allowed(caller, &user, required.cluster.as_ref(), &facts).map_err(|refused| {
                let (impersonation, forbidden) = *refused;
                record.decided(false, &forbidden.reason, &forbidden.trail);
                record.refused(&forbidden.message);
                Refusal::forbidden(forbidden.message, &impersonation)
            })?;
        }
        let permit = permit(&user, required, &facts).map_err(refused)?;
        record.decided(true, permit.reason(), permit.trail());
        let user = Arc::new(user);
        let writer = match &scope.view {
            Some(view) => {
                view.check(&scope, &user, &attributes).map_err(|refusal| {
                    tracing::info!(user = user.name, reason = refusal.reason(), "forbidden");
                    record.decided(false, refusal.reason(), permit.trail());
                    refusal.refusal(&user, &attributes)
                })?;
                Arc::new(view.warranted(&scope, &user, &attributes))
            }
            None => user.clone(),
        };
        Ok(Authorized {
            user,
            writer,
            client,
            scope,
            attributes: Arc::new(attributes),
            permit,
        })
    }
}

/// Returns the right that a request needs, with the facts to decide about it: its own attributes,
/// or the right to use the virtual workspace that it goes through.
pub(crate) fn required_right(scope: &Scope, attributes: &Attributes) -> Result<(Attributes, ClusterFacts), Refusal> {
    let required = match &scope.view {
        Some(view) => view.required_right(attributes).ok_or(Refusal::NotServed)?,
        None => attributes.clone(),
    };
    let facts = match &required.cluster {
        Some(cluster) => scope.facts(cluster),
        None => ClusterFacts::default(),
    };
    Ok((required, facts))
}

/// Adds the decision of the delegate to the facts, where it is left to one.
pub(crate) async fn add_decision(
    delegate: Option<&dyn Delegate>,
    user: &UserInfo,
    required: &Attributes,
    facts: &mut ClusterFacts,
) -> Result<(), Refusal> {
    let decided = delegate::add_decision(delegate, user, required, facts).await;
    decided.map_err(|why| Refusal::Verb(Error::Unavailable(why)))
}

//! The right to create the object that a path names: a PUT or an apply of an object that does not
//! exist takes the verb `create` as well.

use crate::{
    Refusal,
    authorize::{Authorized, add_decision, required_right},
};
use insula_access::delegate::Delegate;
use insula_api::Verb;
use insula_auth::{Attributes, ClusterFacts, UserInfo, audit::Record, forbidden_message, permit};
use std::sync::Arc;

/// The right to create the object that a path names, with the facts to decide about it.
pub struct CreateRight {
    user: Arc<UserInfo>,
    attributes: Attributes,
    required: Attributes,
    facts: ClusterFacts,
}

impl CreateRight {
    /// Adds the decision of the delegate, where it is left to one.
    ///
    /// # Errors
    /// A delegate that does not answer.
    pub async fn with_decision(mut self, delegate: Option<&dyn Delegate>) -> Result<Self, Refusal> {
        add_decision(delegate, &self.user, &self.required, &mut self.facts).await?;
        Ok(self)
    }
}

impl Authorized {
    /// Returns the right to create the object that the path names.
    ///
    /// # Errors
    /// A virtual workspace that does not exist.
    pub fn right_to_create(&self) -> Result<CreateRight, Refusal> {
        let attributes = Attributes {
            verb: Verb::Create.into(),
            ..Attributes::clone(self.attributes())
        };
        let (required, facts) = required_right(self.scope(), &attributes)?;
        Ok(CreateRight {
            user: Arc::clone(self.user()),
            attributes,
            required,
            facts,
        })
    }

    /// Checks that the user has the right, for an update or a patch that comes to a creation.
    ///
    /// # Errors
    /// The missing right.
    pub fn may_create(&self, right: CreateRight, record: &Record) -> Result<(), Refusal> {
        let CreateRight {
            attributes,
            required,
            facts,
            ..
        } = right;
        permit(self.user(), required, &facts).map_err(|forbidden| {
            record.decided(false, &forbidden.reason, &forbidden.trail);
            record.refused("the object does not exist, and making it takes the verb create");
            Refusal::forbidden(forbidden_message(self.user(), &attributes), &attributes)
        })?;
        match &self.scope().view {
            Some(view) => view.check(self.scope(), self.user(), &attributes).map_err(|refusal| {
                record.decided(false, refusal.reason(), self.permit().trail());
                refusal.refusal(self.user(), &attributes)
            }),
            None => Ok(()),
        }
    }
}

//! The CEL variable `authorizer`: checks of the sender's, or a service account's, rights in the
//! workspace. The authorization chain of the request answers them.

use super::request::Request;
use insula_access::facts;
use insula_auth::{Attributes, ClusterFacts, Decision, UserInfo, authorize};
use insula_cel::{Authorize, AuthorizerCheck, AuthorizerDecision, CheckTarget};

/// Authorizer for one request.
#[derive(Debug)]
pub(crate) struct Authorizer<'a> {
    user: &'a UserInfo,
    facts: ClusterFacts,
}

impl<'a> Authorizer<'a> {
    pub(crate) fn new(request: &Request<'a>) -> Self {
        Authorizer {
            user: request.user,
            facts: facts(request.snapshot, &request.target.cluster),
        }
    }
}

impl Authorize for Authorizer<'_> {
    fn check(&self, check: &AuthorizerCheck<'_>) -> AuthorizerDecision {
        let account = check.service_account.map(|(namespace, name)| {
            let groups = vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ];
            UserInfo::authenticated(format!("system:serviceaccount:{namespace}:{name}"), "", groups)
        });
        let cluster = self.facts.cluster.clone();
        let attributes = match check.target {
            CheckTarget::Path(path) => Attributes {
                verb: check.verb.to_owned().into(),
                path: path.to_owned(),
                cluster,
                ..Attributes::default()
            },
            CheckTarget::Resource(resource) => Attributes {
                verb: check.verb.to_owned().into(),
                group: resource.group.clone(),
                // Rights do not depend on the version.
                version: "*".to_owned(),
                resource: resource.resource.clone(),
                subresource: resource.subresource.clone(),
                name: resource.name.clone(),
                namespace: resource.namespace.clone(),
                cluster,
                is_resource_request: true,
                ..Attributes::default()
            },
        };
        let decision = authorize(account.as_ref().unwrap_or(self.user), &attributes, &self.facts);
        let (allowed, reason) = match decision {
            Decision::Allow { reason } => (true, reason),
            Decision::Deny { reason } => (false, reason),
            Decision::NoOpinion => (false, String::new()),
        };
        AuthorizerDecision {
            allowed,
            reason,
            error: None,
        }
    }
}

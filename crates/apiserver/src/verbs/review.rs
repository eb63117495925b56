//! Requests that are answered and not stored: reviews, and tokens for service accounts.

use super::ResourceRequest;
use crate::{
    body,
    negotiate::{Negotiated, Supported},
    reply,
    request::Answer,
};
use axum::response::Response;
use insula_access::{
    AccountLookup,
    accounts::{self, Asked},
    reviews::{self, Requester},
};
use insula_api::{Json, Verb};
use insula_catalog::Error;
use insula_pipeline::Refusal;

impl ResourceRequest<'_> {
    /// Answers a review of access or of a token.
    pub(crate) async fn review(&mut self, verb: Verb) -> Answer {
        if verb != Verb::Create {
            return Err(Refusal::from(Error::MethodNotAllowed));
        }
        // Neither a table nor metadata is an answer.
        let form = self.negotiate(Supported::Document)?;
        let mut sent = self.body().await?.0;
        self.objects().check_namespace(&sent)?;
        let schema = &self.target.api_version()?.schema;
        insula_schema::encode_struct(&mut sent, schema, &self.target.served.names().kind);
        let requester = Requester {
            snapshot: &self.request.authorized.scope().snapshot,
            user: self.request.authorized.user(),
            manager: &self.manager(),
            now: self.server.registry.clock.now(),
            is_deep: self
                .request
                .parsed
                .headers
                .get(reviews::DEEP_REVIEW)
                .is_some_and(|value| value == "true"),
        };
        let scope = || {
            Some((
                self.request.authorized.scope().snapshot.clone(),
                self.target.cluster.clone(),
            ))
        };
        let lookup = AccountLookup::default();
        let authenticated = match reviews::asked_token(&self.target, &sent) {
            Some((token, audiences)) => Some(
                self.server
                    .authenticator
                    .by_token(token, &audiences, scope, &lookup)
                    .await,
            ),
            None => None,
        };
        let answer = reviews::answer(requester, &self.target, sent, authenticated)?;
        Ok(created(&answer, form))
    }

    /// Issues a token for a service account.
    pub(crate) async fn token(&mut self, verb: Verb) -> Answer {
        let authenticator = self.server.authenticator.clone();
        let (Some(accounts), Verb::Create) = (&authenticator.accounts, verb) else {
            return Err(Refusal::from(Error::MethodNotAllowed));
        };
        let form = self.negotiate_kind(Supported::Document, true)?;
        let (version, kind) = accounts::TOKEN_REQUEST;
        let expected = body::Expected {
            kind,
            implied: Some(version),
            structure: None,
        };
        let sent = self.body_of_kind(expected).await?.0;
        let asked = Asked {
            snapshot: &self.request.authorized.scope().snapshot,
            target: &self.target,
            name: &self.name,
            manager: &self.manager(),
        };
        let answer = accounts.token(&*self.server.registry.rng, &asked, sent)?;
        Ok(created(&answer, form))
    }
}

/// Answers a creation that stores nothing.
fn created(answer: &Json, form: Negotiated) -> Response {
    reply::document(201, answer, form)
}

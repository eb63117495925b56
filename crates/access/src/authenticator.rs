//! Authentication of requests by bearer token or client certificate, shared by all endpoints.

use crate::{
    AccountLookup,
    accounts::Accounts,
    delegate::{Delegate, adopted},
    issuers::{At, Issuers},
    static_tokens::StaticTokens,
    unauthenticated::Unauthenticated,
};
use bytes::Bytes;
use insula_api::Timestamp;
use insula_auth::{
    GROUP_AUTHENTICATED, UserInfo, bearer,
    certificate::{self, Mark},
    jwt,
    service_account::ISSUER,
};
use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, OnceLock},
};

/// The certificate (DER) that a client showed on its connection, already verified against our CA.
///
/// The user is parsed once for the connection, not for each request.
#[derive(Debug, Clone)]
pub struct PeerCertificate(Arc<Peer>);

/// The user whom a certificate names, the last second in which it is valid, and the mark of the
/// credential that it ends with.
type Named = (UserInfo, Timestamp, Option<Mark>);

#[derive(Debug)]
struct Peer {
    der: Bytes,
    user: OnceLock<Result<Named, Unauthenticated>>,
    roles: PeerRoles,
}

/// Purposes for which a trusted CA signed a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerRoles {
    /// The certificate names a user.
    pub user: bool,
    /// The certificate is of a front proxy, which names users in headers.
    pub proxy: bool,
}

impl PeerCertificate {
    /// The certificate of a user's new connection.
    pub fn new(der: Bytes) -> Self {
        let roles = PeerRoles {
            user: true,
            proxy: false,
        };
        Self::with_roles(der, roles, &[])
    }

    /// The certificate of a new connection, with the roles that its CA gives it. A front proxy must
    /// have one of some common names as well.
    pub fn with_roles(der: Bytes, roles: PeerRoles, proxies: &[String]) -> Self {
        let user = OnceLock::new();
        let mut peer = Peer { der, user, roles };
        let is_listed = |(user, ..): &Named| proxies.contains(&user.name);
        peer.roles.proxy = roles.proxy && peer.user().as_ref().is_ok_and(is_listed);
        PeerCertificate(Arc::new(peer))
    }

    /// Returns true for the certificate of a front proxy.
    pub fn is_front_proxy(&self) -> bool {
        self.0.roles.proxy
    }

    /// Returns the last second in which the certificate is valid, if it names a user.
    pub fn end(&self) -> Option<Timestamp> {
        self.0.user().as_ref().ok().map(|(_, end, _)| *end)
    }

    /// The account of the user, if the certificate names one.
    pub fn account(&self) -> Option<Cow<'_, str>> {
        self.0.user().as_ref().ok().map(|(user, ..)| user.account_name())
    }

    /// Returns the mark of the credential with which the certificate was made.
    fn mark(&self) -> Option<Mark> {
        self.0.user().as_ref().ok().and_then(|(.., mark)| *mark)
    }
}

impl Peer {
    fn user(&self) -> &Result<Named, Unauthenticated> {
        let read = || {
            let (user, end) = certificate::user(&self.der)?;
            Ok((user, end, certificate::mark(&self.der)?))
        };
        let refused = |error: certificate::CertificateError| Unauthenticated::Refused(error.to_string());
        self.user.get_or_init(|| read().map_err(refused))
    }
}

/// Request extension that reports an authenticated user to the connection. When there are too many
/// connections, those without one are closed first.
#[derive(Clone)]
pub struct OnAuthenticated(Arc<dyn Fn(&str) + Send + Sync>);

impl OnAuthenticated {
    /// Creates the extension from a callback for the account's name.
    pub fn new(told: impl Fn(&str) + Send + Sync + 'static) -> Self {
        OnAuthenticated(Arc::new(told))
    }

    /// Reports the user unless it is anonymous.
    pub fn tell(&self, user: &UserInfo) {
        if user.is_in(GROUP_AUTHENTICATED) {
            (self.0)(&user.account_name());
        }
    }
}

/// Turns credentials into users.
#[derive(Default)]
pub struct Authenticator {
    /// Static tokens.
    pub tokens: StaticTokens,
    /// Tokens of service accounts.
    pub accounts: Option<Accounts>,
    /// Tokens of other issuers.
    pub issuers: Option<Issuers>,
    /// Another server, for tokens that this one does not know.
    pub delegate: Option<Arc<dyn Delegate>>,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Returns the user of a request: the one that a front proxy names, else by bearer token, else
    /// by client certificate, else anonymous. A bad credential is refused and never falls back to
    /// anonymous. The token counts before the certificate, since it comes with the request and the
    /// certificate with the connection. `named` is the user in the headers of proxies, which counts
    /// from proxies alone. `at` is the workspace that the request is for, whose own issuers may
    /// know a token, and `lookup` the state in which an account is looked up. It waits only where
    /// that state or an issuer's keys have to be fetched.
    pub async fn authenticate<'a>(
        &self,
        peer: Option<&PeerCertificate>,
        named: impl FnOnce() -> Result<Option<UserInfo>, Unauthenticated>,
        authorization: impl IntoIterator<Item = &'a [u8]>,
        at: impl FnOnce() -> Option<At>,
        lookup: &AccountLookup,
    ) -> Result<UserInfo, Unauthenticated> {
        if let Some(proxy) = peer.filter(|peer| peer.is_front_proxy())
            && let Some(user) = named()?
        {
            return self.valid(proxy).map(|_| self.foreign(user));
        }
        match bearer::token(authorization).map_err(|error| Unauthenticated::Refused(error.to_string()))? {
            Some(token) => self.by_token(token, &[], at, lookup).await.map(|(user, _)| user),
            None => peer.map_or_else(|| Ok(UserInfo::anonymous()), |peer| self.by_certificate(peer)),
        }
    }

    /// Returns a user for whom a proxy or the delegate vouches.
    fn foreign(&self, user: UserInfo) -> UserInfo {
        match self.delegate {
            Some(_) => adopted(user),
            None => user,
        }
    }

    fn by_certificate(&self, peer: &PeerCertificate) -> Result<UserInfo, Unauthenticated> {
        match peer.0.roles.user {
            true => self.valid(peer),
            false => Err(Unauthenticated::Refused(
                "the client certificate is signed by the CA of front proxies, and names no user".to_owned(),
            )),
        }
    }

    /// The user whom the certificate of a connection names. A connection may last longer than the
    /// certificate that began it.
    fn valid(&self, peer: &PeerCertificate) -> Result<UserInfo, Unauthenticated> {
        let (user, last, mark) = peer.0.user().clone()?;
        if mark.is_some_and(|mark| !self.tokens.has(&mark)) {
            return Err(Unauthenticated::Refused(
                "the token with which the client certificate was made is not valid any more".to_owned(),
            ));
        }
        let now = self.accounts.as_ref().map(|accounts| accounts.clock.now());
        match now.is_some_and(|now| now > last) {
            true => Err(Unauthenticated::Refused(
                "the client certificate has expired".to_owned(),
            )),
            false => Ok(user),
        }
    }

    /// Returns the mark for a certificate that is made for a request: of the static token that it
    /// comes with, else of the certificate of its connection. `None` if neither has one.
    pub fn mark<'a>(
        &self,
        peer: Option<&PeerCertificate>,
        authorization: impl IntoIterator<Item = &'a [u8]>,
    ) -> Option<Mark> {
        match bearer::token(authorization) {
            Ok(Some(token)) => self.tokens.mark(token),
            Ok(None) | Err(_) => peer.and_then(PeerCertificate::mark),
        }
    }

    /// Returns the user of a token that is for one of `audiences`, and those that it is for; no
    /// audience means this server. Static tokens and those of other issuers are for this server
    /// (Kubernetes' `WrapAudienceAgnosticToken`).
    pub async fn by_token(
        &self,
        token: &str,
        audiences: &[String],
        at: impl FnOnce() -> Option<At>,
        lookup: &AccountLookup,
    ) -> Result<(UserInfo, Vec<String>), Unauthenticated> {
        let server = [ISSUER.to_owned()];
        let audiences = if audiences.is_empty() { &server } else { audiences };
        let for_server = audiences.contains(&server[0]);
        if let Some(user) = self.tokens.user(token).filter(|_| for_server) {
            return Ok((user, server.to_vec()));
        }
        let mut refused = Unauthenticated::Refused("invalid bearer token".to_owned());
        // Other tokens have no dots.
        if token.contains('.') {
            let named = jwt::issuer_of(token).filter(|named| for_server && named != ISSUER);
            if let (Some(issuers), Some(named)) = (&self.issuers, named)
                && let Some(answered) = issuers.user(token, &named, at).await
            {
                return answered.map(|user| (user, server.to_vec()));
            }
            if let Some(accounts) = &self.accounts {
                match accounts.user(token, audiences, lookup).await {
                    Ok(known) => return Ok(known),
                    Err(why @ Unauthenticated::Unavailable(_)) => return Err(why),
                    Err(why) => refused = why,
                }
            }
        }
        match &self.delegate {
            Some(delegate) if for_server => match delegate.user(token).await {
                Ok(Some(user)) => Ok((self.foreign(user), server.to_vec())),
                Ok(None) => Err(refused),
                Err(why) => Err(Unauthenticated::Unavailable(why)),
            },
            _ => Err(refused),
        }
    }
}

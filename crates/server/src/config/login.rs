//! Settings of the console's sign-in by a provider of OpenID Connect.

use std::path::PathBuf;

use insula_auth::jwt::Issuer;
use serde::{Deserialize, Serialize};

/// Scopes without which a provider gives no ID token, or no name.
const SCOPES: &str = "openid profile email";

/// Sign-in to the console by a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConsoleLogin {
    /// URL of the provider, one of the issuers of the authentication configuration. `None` for
    /// sign-in with tokens alone.
    pub issuer: Option<String>,
    /// Identifier of the console at the provider, one of the issuer's audiences.
    pub client_id: Option<String>,
    /// File with the client's secret, mode 0600; `None` for a public client.
    pub client_secret_file: Option<PathBuf>,
    /// Scopes, with spaces between.
    pub scopes: String,
}

impl Default for ConsoleLogin {
    fn default() -> Self {
        Self {
            issuer: None,
            client_id: None,
            client_secret_file: None,
            scopes: SCOPES.to_owned(),
        }
    }
}

impl ConsoleLogin {
    /// Returns the key of a setting that contradicts another one, and the mistake.
    pub(super) fn mistake(&self) -> Option<(&'static str, String)> {
        if self.issuer.is_some() != self.client_id.is_some() {
            let why = "`consoleLogin.issuer` and `consoleLogin.clientId` go together";
            return Some(("consoleLogin.issuer", why.to_owned()));
        }
        if self.issuer.is_some() && !self.scopes.split(' ').any(|scope| scope == "openid") {
            let why = "without the scope `openid` a provider gives no ID token";
            return Some(("consoleLogin.scopes", why.to_owned()));
        }
        None
    }

    /// Returns the mistake if the issuers of the server do not vouch for those who sign in.
    pub(crate) fn mismatch(&self, issuers: &[Issuer]) -> Option<String> {
        let (issuer, client) = (self.issuer.as_deref()?, self.client_id.as_deref()?);
        let mut named = issuers.iter().filter(|known| *known.url == *issuer).peekable();
        if named.peek().is_none() {
            return Some(format!(
                "consoleLogin.issuer: the file of authenticationConfig has no issuer {issuer}"
            ));
        }
        let is_audience = named.any(|known| known.has_audience(client));
        (!is_audience).then(|| format!("consoleLogin.clientId: {client} is none of the audiences of {issuer}"))
    }
}

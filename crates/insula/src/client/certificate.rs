//! Client certificates of users: their dates, and the server's reason to refuse one.
//!
//! In TLS 1.3 the server refuses a certificate after the client has begun to send, so that a
//! request fails with a closed connection as often as with the server's alert. A second handshake,
//! which sends nothing after it, gets the alert every time.

use std::{
    io::{self, Read},
    net::{TcpStream, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use http::Uri;
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, Stream,
    pki_types::{CertificateDer, ServerName},
};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::kubeconfig::Entry;

/// Longest wait for the alert of a server.
const ALERT_TIMEOUT: Duration = Duration::from_secs(3);
/// Port of a URL without one.
pub(crate) const HTTPS_PORT: u16 = 443;

/// Client certificate that a user shows.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    /// The user, and the file that has it.
    whose: String,
    /// First and last second in which it is valid, since 1970.
    begins: i64,
    ends: i64,
}

impl Shown {
    /// Reads the certificate of a user.
    pub(super) fn read(user: &Entry, certificate: &CertificateDer<'_>) -> anyhow::Result<Self> {
        let whose = whose(user);
        let (_, parsed) = X509Certificate::from_der(certificate)
            .map_err(io::Error::other)
            .with_context(|| format!("the client certificate of {whose} is malformed"))?;
        let validity = parsed.validity();
        Ok(Self {
            whose,
            begins: validity.not_before.timestamp(),
            ends: validity.not_after.timestamp(),
        })
    }

    /// Returns the fault of a certificate that is not valid at a time, with the fix.
    pub(crate) fn fault(&self, now: i64) -> Option<String> {
        let Self { whose, begins, ends } = self;
        if *ends < now {
            return Some(format!(
                "the client certificate of {whose} ended on {}: {RENEW}",
                day(*ends)
            ));
        }
        (*begins > now).then(|| {
            let begin = day(*begins);
            format!("the client certificate of {whose} begins on {begin}: set the clock of this machine")
        })
    }

    /// Returns the certificate in words: whose it is and when it ends.
    pub(crate) fn described(&self) -> String {
        format!("the client certificate of {} ends on {}", self.whose, day(self.ends))
    }

    /// Returns the reason of a refusal by the server, with the fix.
    fn refused(&self, alert: AlertDescription) -> String {
        let whose = &self.whose;
        match alert {
            AlertDescription::CertificateExpired => {
                format!("the server says that the client certificate of {whose} has ended: {RENEW}")
            }
            AlertDescription::UnknownCA => format!(
                "the client certificate of {whose} is of a CA that the server does not know: it belongs to another \
                 server, or the server has a new CA; {RENEW}"
            ),
            other => format!("the server refuses the client certificate of {whose} ({other:?}): {RENEW}"),
        }
    }

    /// Returns the reason why a server at a URL refuses the certificate; `None` if it takes it.
    pub(super) async fn refusal(&self, tls: &Tls, url: &str) -> Option<String> {
        let (tls, url) = (tls.clone(), url.to_owned());
        let asked = tokio::task::spawn_blocking(move || alert(&tls, &url)).await;
        Some(self.refused(asked.ok()??))
    }
}

/// Fix of a certificate that is not accepted.
const RENEW: &str = "get a new one, as with a new copy of the server's admin.kubeconfig, or name another user with \
                     --user, --token or --kubeconfig";

/// Settings of a connection.
#[derive(Debug, Clone)]
pub(super) struct Tls {
    pub(super) config: Arc<ClientConfig>,
    /// The name that the server's certificate must have, where it is not that of the URL.
    pub(super) name: Option<ServerName<'static>>,
}

/// Returns a user for messages: `user "bob" in FILE`.
pub(super) fn whose(user: &Entry) -> String {
    match user.origin.as_str() {
        "" => "the user".to_owned(),
        origin => format!("user {origin}"),
    }
}

fn day(seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds);
    time.map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

/// Returns the alert by which a server ends a handshake, or the connection after it.
fn alert(tls: &Tls, url: &str) -> Option<AlertDescription> {
    let uri: Uri = url.parse().ok()?;
    let (host, port) = (
        uri.host()?.trim_matches(['[', ']']),
        uri.port_u16().unwrap_or(HTTPS_PORT),
    );
    let name = match &tls.name {
        Some(name) => name.clone(),
        None => ServerName::try_from(host.to_owned()).ok()?,
    };
    let address = (host, port).to_socket_addrs().ok()?.next()?;
    let mut tcp = TcpStream::connect_timeout(&address, ALERT_TIMEOUT).ok()?;
    tcp.set_read_timeout(Some(ALERT_TIMEOUT)).ok()?;
    let mut connection = ClientConnection::new(Arc::clone(&tls.config), name).ok()?;
    let read = Stream::new(&mut connection, &mut tcp).read(&mut [0]);
    let failed = read.err()?;
    match failed.get_ref()?.downcast_ref()? {
        rustls::Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_valid_between_their_dates() {
        let shown = Shown {
            whose: "user \"bob\" in config".to_owned(),
            begins: 86_400,
            ends: 2 * 86_400,
        };
        assert_eq!(shown.fault(100_000), None);
        let ended = shown.fault(200_000).unwrap();
        assert!(
            ended.starts_with("the client certificate of user \"bob\" in config ended on 1970-01-03T00:00:00Z: get"),
            "{ended}"
        );
        let early = shown.fault(0).unwrap();
        assert!(early.contains("begins on 1970-01-02T00:00:00Z"), "{early}");
    }
}

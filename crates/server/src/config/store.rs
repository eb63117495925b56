//! Choice of the storage engine.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Storage engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StoreChoice {
    /// A file in the data directory: durable, for one server.
    Embedded,
    /// Memory: all objects are lost at exit.
    Memory,
    /// An etcd cluster: for any number of servers.
    Etcd(Endpoints),
}

/// Members of an etcd cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// The connections are encrypted: `etcds://`.
    pub tls: bool,
    /// `host:port` of each.
    pub hosts: Vec<String>,
}

impl Endpoints {
    /// Returns the URL of each member.
    pub fn urls(&self) -> impl Iterator<Item = String> {
        let scheme = if self.tls { "https" } else { "http" };
        self.hosts.iter().map(move |host| format!("{scheme}://{host}"))
    }
}

impl FromStr for StoreChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected `embedded`, `memory` or `etcd://HOST:PORT[,HOST:PORT…]` (`etcds://` with TLS)";
        match text {
            "embedded" => Ok(Self::Embedded),
            "memory" => Ok(Self::Memory),
            _ => {
                let (tls, list) = match (text.strip_prefix("etcd://"), text.strip_prefix("etcds://")) {
                    (Some(list), _) => (false, list),
                    (None, Some(list)) => (true, list),
                    (None, None) => return Err(format!("`{text}`: {expected}")),
                };
                let hosts: Vec<String> = list.trim_end_matches('/').split(',').map(str::to_owned).collect();
                match hosts.iter().find(|host| !is_host_and_port(host)) {
                    // A name and password before the host are not repeated.
                    Some(bad) if bad.contains('@') => Err(format!("a user belongs into `etcd.user`: {expected}")),
                    Some(bad) => Err(format!("`{bad}` in `{text}` is not HOST:PORT: {expected}")),
                    None => Ok(Self::Etcd(Endpoints { tls, hosts })),
                }
            }
        }
    }
}

fn is_host_and_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let clean = !host.is_empty() && !host.contains(['/', ' ', '@']);
        clean && port.parse::<u16>().is_ok_and(|port| port != 0)
    })
}

impl TryFrom<String> for StoreChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<StoreChoice> for String {
    fn from(choice: StoreChoice) -> Self {
        choice.to_string()
    }
}

impl std::fmt::Display for StoreChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embedded => f.write_str("embedded"),
            Self::Memory => f.write_str("memory"),
            Self::Etcd(Endpoints { tls, hosts }) => {
                let scheme = if *tls { "etcds" } else { "etcd" };
                write!(f, "{scheme}://{}", hosts.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_read_as_they_are_printed() {
        for text in [
            "embedded",
            "memory",
            "etcd://127.0.0.1:2379",
            "etcd://a:1,[::1]:2",
            "etcds://a:1",
        ] {
            assert_eq!(
                text.parse::<StoreChoice>().map(|choice| choice.to_string()),
                Ok(text.to_owned())
            );
        }
        for bad in [
            "",
            "etcd",
            "etcd://",
            "etcd://a",
            "etcd://a:0",
            "etcd://a:1,,b:2",
            "etcd://u@h:1",
            "etcds://u:p@h:1",
            "redis://a:1",
        ] {
            let refusal = bad.parse::<StoreChoice>().expect_err(bad);
            assert!(refusal.contains("expected `embedded`"), "{refusal}");
            assert!(!refusal.contains("u:p"), "{refusal}");
        }
    }
}

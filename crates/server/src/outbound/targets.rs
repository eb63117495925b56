//! Allowed targets of webhooks. The check applies to the address of the connection, not to a name.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

/// Lowest allowed port besides 443: lower ports belong to services that a tenant must not reach.
const PORT_MIN: u16 = 1024;
const HTTPS: u16 = 443;

/// List of allowed targets; empty for none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Targets(Vec<Target>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    /// Every public address, on port 443 or from 1024 on.
    Public,
    /// The addresses of a network.
    Network(IpAddr, u8),
    /// A host by name, whatever its address.
    Host(String),
    /// The hosts below a name.
    Below(String),
}

impl Default for Targets {
    fn default() -> Self {
        Targets(vec![Target::Public])
    }
}

impl Targets {
    /// Returns an empty list, the default.
    pub(crate) fn nobody() -> Self {
        Targets(Vec::new())
    }

    /// Returns a list of all addresses, for targets that the operator configures one by one.
    pub(super) fn everybody() -> Self {
        let network = |address: IpAddr| Target::Network(address, 0);
        Targets(vec![
            network(Ipv4Addr::UNSPECIFIED.into()),
            network(Ipv6Addr::UNSPECIFIED.into()),
        ])
    }

    /// Returns true if a URL with this host may connect to this address.
    pub(super) fn allow(&self, host: &str, address: IpAddr, port: u16) -> bool {
        // `::ffff:127.0.0.1` is 127.0.0.1.
        let address = address.to_canonical();
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.0.iter().any(|target| match target {
            Target::Public => is_public(address) && (port == HTTPS || port >= PORT_MIN),
            Target::Network(network, bits) => contains(*network, *bits, address),
            Target::Host(name) => host == *name,
            Target::Below(suffix) => host.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.')),
        })
    }
}

/// Returns true if the first `bits` bits of both addresses are equal.
fn contains(network: IpAddr, bits: u8, address: IpAddr) -> bool {
    let (network, address, width) = match (network, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    (network ^ address).checked_shr(width - u32::from(bits)).unwrap_or(0) == 0
}

/// Returns true for a public address: not local to the machine, a link or a site, and without a
/// special purpose (RFC 6890 and its registries).
fn is_public(address: IpAddr) -> bool {
    const SPECIAL_V4: [([u8; 4], u8); 14] = [
        ([0, 0, 0, 0], 8),
        ([10, 0, 0, 0], 8),
        ([100, 64, 0, 0], 10),
        ([127, 0, 0, 0], 8),
        ([169, 254, 0, 0], 16),
        ([172, 16, 0, 0], 12),
        ([192, 0, 0, 0], 24),
        ([192, 0, 2, 0], 24),
        ([192, 88, 99, 0], 24),
        ([192, 168, 0, 0], 16),
        ([198, 18, 0, 0], 15),
        ([198, 51, 100, 0], 24),
        ([203, 0, 113, 0], 24),
        // Multicast, reserved, broadcast.
        ([224, 0, 0, 0], 3),
    ];
    // Ranges within 2000::/3 with a special purpose: protocols and Teredo, documentation, 6to4.
    const SPECIAL_V6: [([u16; 8], u8); 4] = [
        ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
        ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
        ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),
        ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
    ];
    match address {
        IpAddr::V4(_) => !SPECIAL_V4
            .iter()
            .any(|(network, bits)| contains(Ipv4Addr::from(*network).into(), *bits, address)),
        IpAddr::V6(_) => {
            let global = Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0);
            contains(global.into(), 3, address)
                && !SPECIAL_V6
                    .iter()
                    .any(|(network, bits)| contains(Ipv6Addr::from(*network).into(), *bits, address))
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "public" {
            return Ok(Target::Public);
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        if let Ok(address) = address.parse::<IpAddr>() {
            let width = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.map_or(Ok(width), |bits| bits.parse());
            return match bits {
                Ok(bits) if bits <= width => Ok(Target::Network(address, bits)),
                _ => Err(format!("`{text}` is not a network: 0 to {width} bits follow its slash")),
            };
        }
        let name = text.strip_prefix("*.").unwrap_or(text).to_ascii_lowercase();
        let is_label =
            |label: &str| !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        if !name.split('.').all(is_label) {
            return Err(format!(
                "`{text}` is neither `public`, an address, a network such as 10.0.0.0/8, a host such as \
                 hooks.example.com, nor all hosts below one, *.example.com"
            ));
        }
        Ok(match text.starts_with("*.") {
            true => Target::Below(name),
            false => Target::Host(name),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Public => f.write_str("public"),
            Target::Network(address, bits) => write!(f, "{address}/{bits}"),
            Target::Host(name) => f.write_str(name),
            Target::Below(name) => write!(f, "*.{name}"),
        }
    }
}

impl TryFrom<String> for Targets {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(str::parse).collect::<Result<_, _>>().map(Targets)
    }
}

impl From<Targets> for String {
    fn from(targets: Targets) -> Self {
        let entries: Vec<String> = targets.0.iter().map(Target::to_string).collect();
        entries.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(targets: &str, host: &str, address: &str, port: u16) -> bool {
        let targets = Targets::try_from(targets.to_owned()).expect(targets);
        targets.allow(host, address.parse().expect(address), port)
    }

    #[test]
    fn the_internet_is_public_and_nothing_else_is() {
        for address in [
            "1.1.1.1",
            "93.184.216.34",
            "172.32.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
        ] {
            assert!(allows("public", "hooks.example.com", address, 443), "{address}");
        }
        for address in [
            "0.0.0.0",
            "127.0.0.1",
            "127.8.8.8",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:0:4136:e378::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
        ] {
            assert!(!allows("public", "hooks.example.com", address, 443), "{address}");
        }
        for (port, want) in [(22, false), (25, false), (443, true), (1023, false), (8443, true)] {
            assert_eq!(allows("public", "a", "1.1.1.1", port), want, "{port}");
        }
    }

    #[test]
    fn operators_allow_networks_and_hosts() {
        for (targets, host, address, want) in [
            ("", "a", "1.1.1.1", false),
            ("10.0.0.0/8", "a", "10.9.9.9", true),
            ("10.0.0.0/8", "a", "11.0.0.0", false),
            ("10.0.0.0/8", "a", "1.1.1.1", false),
            ("127.0.0.1", "a", "127.0.0.1", true),
            ("127.0.0.1", "a", "127.0.0.2", false),
            ("127.0.0.1", "a", "::ffff:127.0.0.1", true),
            ("0.0.0.0/0", "a", "127.0.0.1", true),
            ("fd00::/8", "a", "fd12::1", true),
            ("fd00::/8", "a", "10.0.0.1", false),
            ("hooks.example.com", "Hooks.Example.com.", "10.0.0.1", true),
            ("hooks.example.com", "a.hooks.example.com", "10.0.0.1", false),
            ("*.example.com", "a.b.example.com", "10.0.0.1", true),
            ("*.example.com", "example.com", "10.0.0.1", false),
            ("*.example.com", "badexample.com", "10.0.0.1", false),
            ("public, 10.0.0.0/8", "a", "1.1.1.1", true),
        ] {
            assert_eq!(allows(targets, host, address, 443), want, "{targets} {host} {address}");
        }
    }

    #[test]
    fn lists_are_read_as_they_are_printed() {
        for text in [
            "",
            "public",
            "public,10.0.0.0/8,::1/128,hooks.example.com,*.example.com",
        ] {
            assert_eq!(String::from(Targets::try_from(text.to_owned()).expect(text)), text);
        }
        for bad in ["https://a", "10.0.0.0/33", "10.0.0.0/x", "a b", "*", "a..b", "a:443"] {
            assert!(Targets::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}

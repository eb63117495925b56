//! Addresses of this machine, and the URL that follows from the address to listen on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::config::ExternalUrl;

/// Maximum number of addresses of the machine that a certificate names: a machine with many
/// containers has hundreds.
const ADDRESSES_MAX: usize = 32;
/// Addresses of documentation (RFC 5737, RFC 3849), which a default route leads to. No packet is
/// sent.
const FAR: [(IpAddr, IpAddr); 2] = [
    (
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    ),
    (
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    ),
];

/// Returns the URL of a server without a configured one: its address, or for all addresses the one
/// of the machine on its network.
pub(crate) fn url(listen: SocketAddr) -> ExternalUrl {
    let address = match listen.ip().is_unspecified() {
        true => outward(listen.ip()).unwrap_or_else(|| loopback(listen.ip())),
        false => listen.ip(),
    };
    ExternalUrl {
        url: format!("https://{}", SocketAddr::new(address, listen.port())),
        host: address.to_string(),
    }
}

/// Returns true for an address to listen on, `HOST:PORT`, that only this machine can reach.
pub(crate) fn is_loopback(listen: &str) -> bool {
    let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Returns the addresses of the machine that others may reach, those of its default route first.
pub(crate) fn of_machine() -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = FAR.iter().filter_map(|(from, to)| routed(*from, *to)).collect();
    // Files of Linux; on other systems the addresses can be given in `tls.names`.
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    found.extend(ipv4(&read("/proc/net/fib_trie")).into_iter().map(IpAddr::V4));
    found.extend(ipv6(&read("/proc/net/if_inet6")).into_iter().map(IpAddr::V6));
    let mut addresses = Vec::new();
    for address in found {
        if !addresses.contains(&address) && addresses.len() < ADDRESSES_MAX {
            addresses.push(address);
        }
    }
    addresses
}

/// Returns the address by which others reach a server that listens on all addresses.
fn outward(listen: IpAddr) -> Option<IpAddr> {
    let addresses = of_machine();
    // `::` accepts IPv4 as well; 0.0.0.0 does not accept IPv6.
    addresses
        .into_iter()
        .find(|address| address.is_ipv4() || listen.is_ipv6())
}

fn loopback(listen: IpAddr) -> IpAddr {
    match listen {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    }
}

/// Returns the address that the kernel would send from.
fn routed(from: IpAddr, to: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((from, 0)).ok()?;
    socket.connect((to, 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// Reads the local addresses in the kernel's routing table: `|-- ADDRESS`, and on the next line
/// `/32 host LOCAL`.
fn ipv4(table: &str) -> Vec<Ipv4Addr> {
    let lines = table.lines().zip(table.lines().skip(1));
    let local = lines.filter(|(_, kind)| kind.trim() == "/32 host LOCAL");
    let addresses = local.filter_map(|(line, _)| line.trim().strip_prefix("|-- ")?.parse().ok());
    addresses
        .filter(|address: &Ipv4Addr| !address.is_loopback() && !address.is_link_local())
        .collect()
}

/// Reads the addresses of scope global: `2001…0001 02 40 00 80 eth0`, the fourth column is the
/// scope.
fn ipv6(table: &str) -> Vec<Ipv6Addr> {
    let address = |line: &str| {
        let mut columns = line.split_whitespace();
        let address = u128::from_str_radix(columns.next()?, 16).ok()?;
        (columns.nth(2)? == "00").then(|| Ipv6Addr::from_bits(address))
    };
    table.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_told_from_other_addresses() {
        for (listen, want) in [
            ("127.0.0.1:6443", true),
            ("127.8.8.8:0", true),
            ("[::1]:6443", true),
            ("localhost:6443", true),
            ("0.0.0.0:6443", false),
            ("[::]:6443", false),
            (":6443", false),
            ("10.0.0.1:6443", false),
            ("localhost.example.com:6443", false),
        ] {
            assert_eq!(is_loopback(listen), want, "{listen}");
        }
    }

    #[test]
    fn a_given_address_is_the_url() {
        for (address, want) in [
            ("127.0.0.1:6443", "https://127.0.0.1:6443"),
            ("[fd00::1]:1", "https://[fd00::1]:1"),
        ] {
            assert_eq!(url(address.parse().expect("an address")).url, want);
        }
    }

    #[test]
    fn all_addresses_are_no_url() {
        for address in ["0.0.0.0:1", "[::]:1"] {
            let external = url(address.parse().expect("an address"));
            let host: IpAddr = external.host.parse().expect("an address");
            assert!(!host.is_unspecified(), "{external:?}");
            assert!(external.url.ends_with(":1"), "{external:?}");
        }
    }

    #[test]
    fn addresses_are_read_from_the_kernels_tables() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.2.0\n        /24 link UNICAST\n     \
            |-- 10.1.2.3\n        /32 host LOCAL\n     |-- 10.1.2.255\n        /32 link BROADCAST\n     \
            |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 169.254.0.1\n        /32 host LOCAL\n";
        assert_eq!(ipv4(trie), [Ipv4Addr::new(10, 1, 2, 3)]);
        let table = "00000000000000000000000000000001 01 80 10 80       lo\n\
            fe800000000000000000000000000001 02 40 20 80     eth0\n\
            fd000000000000000000000000000001 02 40 00 80     eth0\n";
        assert_eq!(ipv6(table), ["fd00::1".parse::<Ipv6Addr>().expect("an address")]);
    }
}

//! Slots: fixed shares of the logical clusters, by which servers divide work.
//!
//! The slot of a cluster follows from its name, and the server of a slot from the names of the
//! servers that are there (rendezvous hashing): nobody has to agree on a table, and when a server
//! comes or goes only the slots move that it takes or had.

use insula_api::ClusterName;
use twox_hash::XxHash3_64;

/// Number of slots.
pub const SLOTS: u16 = 16_384;

/// Characters of a cluster's name that choose its slot: clusters that share them share a slot.
const CHARACTERS: usize = 3;

/// Returns the slot of a cluster, below [`SLOTS`].
pub fn slot(cluster: &ClusterName) -> u16 {
    // Names are ASCII.
    let name = cluster.as_str().as_bytes();
    let slot = XxHash3_64::oneshot(&name[..name.len().min(CHARACTERS)]) % u64::from(SLOTS);
    u16::try_from(slot).unwrap_or_default()
}

/// Returns the server that a slot falls to, of those with these names; all servers that know the
/// same names agree.
pub fn server_of(slot: u16, names: impl Iterator<Item = impl AsRef<str>>) -> Option<String> {
    let weight = |name: &str| {
        let mut text = name.as_bytes().to_vec();
        text.extend(slot.to_be_bytes());
        XxHash3_64::oneshot(&text)
    };
    let names = names.map(|name| name.as_ref().to_owned());
    names.max_by_key(|name| (weight(name), name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clusters() -> impl Iterator<Item = ClusterName> {
        let digit = |n: u32| char::from_digit(n % 36, 36).unwrap_or('a');
        (0..46_656).filter_map(move |n| {
            let name: String = [n / 1296, n / 36, n, 7].map(digit).into_iter().collect();
            ClusterName::parse(&name).ok()
        })
    }

    #[test]
    fn servers_have_about_equal_shares() {
        let names = ["a", "b", "c"];
        let mut shares = [0; 3];
        for cluster in clusters() {
            let server = server_of(slot(&cluster), names.iter());
            shares[names
                .iter()
                .position(|name| Some(*name) == server.as_deref())
                .expect("one of them")] += 1;
        }
        let all: usize = shares.iter().sum();
        assert!(
            shares.iter().all(|share| share * 10 > all * 3 && share * 10 < all * 4),
            "{shares:?}"
        );
    }

    #[test]
    fn slots_move_to_a_new_server_alone() {
        for slot in 0..SLOTS {
            let before = server_of(slot, ["a", "b", "c"].iter());
            let after = server_of(slot, ["d", "c", "b", "a"].iter());
            assert!(after == before || after.as_deref() == Some("d"), "{slot}");
        }
    }

    /// Other versions on the same store must choose the same.
    #[test]
    fn the_choice_is_the_same_for_ever() {
        let slots = ["root", "system:bound-crds", "2xj8k1p0q9z7w3ab"].map(|name| {
            let cluster = ClusterName::parse(name).expect("a name");
            (
                slot(&cluster),
                server_of(slot(&cluster), ["a", "b", "c"].iter()).expect("one"),
            )
        });
        let known = [(12_613, "c"), (10_541, "a"), (271, "b")].map(|(slot, server)| (slot, server.to_owned()));
        assert_eq!(slots, known);
    }
}

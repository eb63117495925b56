//! Words in messages for people.

use std::{collections::HashSet, fmt::Display, hash::Hash};

/// Returns a number with the thing that it counts: `1 object`, `2 objects`.
pub fn counted<N: Display + PartialEq + From<u8>>(number: N, thing: &str) -> String {
    let ending = if number == N::from(1) { "" } else { "s" };
    format!("{number} {thing}{ending}")
}

/// Returns the items in their order, repeats once: without a search for each in a list that
/// somebody else fills.
pub fn distinct<T: Clone + Eq + Hash>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = HashSet::new();
    items.into_iter().filter(|item| seen.insert(item.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_left_out() {
        assert_eq!(distinct(["b", "a", "b", "c", "a"]), ["b", "a", "c"]);
    }

    #[test]
    fn one_thing_has_no_ending() {
        let texts = [0, 1, 2].map(|number| counted(number, "object"));
        assert_eq!(texts, ["0 objects", "1 object", "2 objects"]);
    }
}

//! Words in messages for people.

use std::fmt::Display;

/// Returns a number with the thing that it counts: `1 object`, `2 objects`.
pub fn counted<N: Display + PartialEq + From<u8>>(number: N, thing: &str) -> String {
    let ending = if number == N::from(1) { "" } else { "s" };
    format!("{number} {thing}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_has_no_ending() {
        let texts = [0, 1, 2].map(|number| counted(number, "object"));
        assert_eq!(texts, ["0 objects", "1 object", "2 objects"]);
    }
}

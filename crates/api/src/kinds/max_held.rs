//! `spec.rollout.maxHeld` of an APIExport.

use crate::Json;
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::json;
use std::{fmt, str::FromStr};

/// Bindings that may stay when a step of a rollout ends: `2`, or `10%` of all bindings. JSON has a
/// number or the text of a share.
///
/// ```text
/// 2  →  2      10%  →  "10%"      a few, -1, 05%, 101%  →  error
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxHeld {
    /// Number of bindings, at most `i64::MAX`, the largest integer of an object.
    Number(u64),
    /// A share of all bindings in percent, 0 to 100.
    Share(u8),
}

/// Largest number, as that of integers in objects.
const NUMBER_MAX: u64 = i64::MAX as u64;

/// Error for a text that is neither a number nor a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("choose a number of bindings as 2, or a share of all as 10%")]
pub struct MaxHeldError;

impl MaxHeld {
    /// Returns the number of bindings that may stay, of all.
    pub fn allowed(self, bindings: usize) -> usize {
        match self {
            MaxHeld::Number(number) => usize::try_from(number).unwrap_or(usize::MAX),
            MaxHeld::Share(percent) => bindings.saturating_mul(usize::from(percent)) / 100,
        }
    }

    /// Returns the value of the field.
    pub fn to_json(self) -> Json {
        match self {
            MaxHeld::Number(number) => json!(number),
            MaxHeld::Share(_) => json!(self.to_string()),
        }
    }
}

impl FromStr for MaxHeld {
    type Err = MaxHeldError;

    fn from_str(text: &str) -> Result<Self, MaxHeldError> {
        let (digits, is_share) = match text.strip_suffix('%') {
            Some(digits) => (digits, true),
            None => (text, false),
        };
        // As in JSON: no sign, and no zero before other digits.
        let is_canonical =
            digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
        let number: Option<u64> = digits.parse().ok().filter(|_| is_canonical);
        match (number, is_share) {
            (Some(percent @ 0..=100), true) => u8::try_from(percent).map(MaxHeld::Share).map_err(|_| MaxHeldError),
            (Some(number @ 0..=NUMBER_MAX), false) => Ok(MaxHeld::Number(number)),
            _ => Err(MaxHeldError),
        }
    }
}

impl fmt::Display for MaxHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MaxHeld::Number(number) => write!(f, "{number}"),
            MaxHeld::Share(percent) => write!(f, "{percent}%"),
        }
    }
}

impl<'de> Deserialize<'de> for MaxHeld {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let read = match Json::deserialize(input)? {
            Json::Number(number) => number.as_u64().filter(|it| *it <= NUMBER_MAX).map(MaxHeld::Number),
            Json::String(text) => text.parse().ok().filter(|read| matches!(read, MaxHeld::Share(_))),
            Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => None,
        };
        read.ok_or_else(|| D::Error::custom(MaxHeldError))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_numbers_or_shares() {
        for (text, value) in [
            ("0", json!(0)),
            ("2", json!(2)),
            ("9223372036854775807", json!(i64::MAX)),
            ("0%", json!("0%")),
            ("10%", json!("10%")),
            ("100%", json!("100%")),
        ] {
            let read: MaxHeld = text.parse().expect(text);
            assert_eq!((read.to_string(), read.to_json()), (text.to_owned(), value));
        }
        for wrong in [
            "",
            "%",
            "a few",
            "-1",
            "+1",
            "1.5",
            "02",
            "05%",
            "101%",
            "256%",
            "2 %",
            "9223372036854775808",
        ] {
            wrong.parse::<MaxHeld>().expect_err(wrong);
        }
    }

    #[test]
    fn a_value_is_a_number_or_the_text_of_a_share() {
        let read = |value: Json| MaxHeld::deserialize(&value).ok();
        assert_eq!(read(json!(3)), Some(MaxHeld::Number(3)));
        assert_eq!(read(json!("5%")), Some(MaxHeld::Share(5)));
        for wrong in [json!("3"), json!(-1), json!(1.5), json!("many"), json!(null), json!({})] {
            assert_eq!(read(wrong.clone()), None, "{wrong}");
        }
    }
}

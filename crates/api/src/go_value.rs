//! Values in messages as Go prints them.

use crate::{Json, error::go_quoted};
use serde::Serialize;
use serde_json::{
    Number, Serializer,
    ser::{CharEscape, CompactFormatter, Formatter},
};
use std::io;

/// Returns a value as Kubernetes' `field.Error` prints it: a text as `%q`, a number as `%v`, a list
/// or map as Go's JSON.
pub fn go_shown(value: &Json) -> String {
    match value {
        Json::String(text) => go_quoted(text),
        Json::Number(number) => go_number(number),
        Json::Array(_) | Json::Object(_) => go_json(value),
        Json::Null | Json::Bool(_) => value.to_string(),
    }
}

fn go_number(number: &Number) -> String {
    match number.as_i64() {
        Some(_) => number.to_string(),
        None => go_float(number.as_f64().unwrap_or(f64::NAN)),
    }
}

/// Returns a float as Go's `%v` prints it.
///
/// ```text
/// 0.0001 → 0.0001   0.00001 → 1e-05   999999 → 999999   1234567.5 → 1.2345675e+06
/// ```
pub fn go_float(float: f64) -> String {
    match exponent(float) {
        -4..6 => format!("{float}"),
        _ => in_powers(float, 2),
    }
}

/// Returns a value as Go's `json.Marshal` writes it: characters of HTML are escaped, and floats
/// have exponents below 1e-6 and from 1e21 on.
fn go_json(value: &Json) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, GoJson);
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => value.to_string(),
    }
}

/// The decimal exponent of the first digit.
fn exponent(float: f64) -> i32 {
    let text = format!("{float:e}");
    let exponent = text.split_once('e').and_then(|(_, exponent)| exponent.parse().ok());
    exponent.unwrap_or_default()
}

/// Returns a float with an exponent of at least so many digits.
fn in_powers(float: f64, digits_min: usize) -> String {
    let text = format!("{float:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
            format!("{digits}e{sign}{exponent:0>digits_min$}")
        }
        None => text,
    }
}

struct GoJson;

impl Formatter for GoJson {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, float: f64) -> io::Result<()> {
        let text = match exponent(float) {
            -6..21 => format!("{float}"),
            _ => in_powers(float, 1),
        };
        writer.write_all(text.as_bytes())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let (plain, from) = rest.split_at(at);
            let Some(escaped) = from.chars().next() else { break };
            writer.write_all(plain.as_bytes())?;
            write!(writer, "\\u{:04x}", u32::from(escaped))?;
            rest = &from[escaped.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }

    fn write_char_escape<W: ?Sized + io::Write>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()> {
        CompactFormatter.write_char_escape(writer, escape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_print_as_in_go() {
        let rows = [
            (json!(1_000_000), "1000000", "1000000"),
            (json!(1_234_567.5), "1.2345675e+06", "1234567.5"),
            (json!(999_999.5), "999999.5", "999999.5"),
            (json!(0.0001), "0.0001", "0.0001"),
            (json!(0.00001), "1e-05", "0.00001"),
            (json!(1e-7), "1e-07", "1e-7"),
            (json!(-2.5e16), "-2.5e+16", "-25000000000000000"),
            (json!(1e21), "1e+21", "1e+21"),
            (json!(0.5), "0.5", "0.5"),
        ];
        for (number, alone, inside) in rows {
            assert_eq!(go_shown(&number), alone);
            assert_eq!(go_shown(&json!({ "a": [number] })), format!("{{\"a\":[{inside}]}}"));
        }
    }

    #[test]
    fn json_escapes_what_html_reads() {
        let value = json!({"<a>": "b & c\u{2028}\n", "d": null});
        assert_eq!(go_shown(&value), r#"{"\u003ca\u003e":"b \u0026 c\u2028\n","d":null}"#);
    }
}

//! Texts and the verdicts of Go 1.26 about them (`time.ParseDuration`): edges of the syntax and of
//! 64 bits, and random texts of the same atoms.
#![allow(clippy::unwrap_used)]

use insula_goformat::duration;

#[test]
fn durations_are_those_of_go() {
    let table = include_str!("data/durations.tsv");
    let rows: Vec<_> = table.lines().skip(1).map(|row| row.split_once('\t').unwrap()).collect();
    assert!(rows.len() > 500, "{}", rows.len());
    for (text, want) in rows {
        let text: String = serde_json::from_str(text).unwrap();
        let got = match duration::parse(&text) {
            Ok(nanos) => nanos.to_string(),
            Err(error) => serde_json::to_string(&error.to_string()).unwrap(),
        };
        assert_eq!(got, want, "{text:?}");
    }
}

//! Tests of limits and of work; `tests/patterns.rs` compares with Go.

use super::*;
use insula_meter::Meter;

const SMALL: Limits = Limits {
    pattern_bytes: 100,
    compiled_bytes: 10_000,
    nesting: 20,
};

fn refusal(pattern: &str, limits: &Limits) -> String {
    let compiled = Syntax::parse(pattern, limits).and_then(|syntax| syntax.compile());
    compiled.map_or_else(|error| error.to_string(), |_| String::new())
}

#[test]
fn a_pattern_beyond_a_limit_is_refused() {
    let nested = |n| format!("{}a{}", "(".repeat(n), ")".repeat(n));
    let rows = [
        ("a".repeat(101), "expression too large: it has more than 100 bytes"),
        ("(?:a*b".repeat(11) + &")*".repeat(11), "expression nests too deeply"),
        ("[a-z]{999}".to_owned(), "more than 10000 bytes when it is compiled"),
        (
            "\\pL\\pM\\pN".repeat(10),
            "expression too large: it takes more than 10000 bytes when it is compiled",
        ),
        (
            "(?i)".to_owned() + &"[b-\\x{10ffff}]".repeat(5),
            "more than 10000 bytes",
        ),
    ];
    for (pattern, want) in rows {
        let got = refusal(&pattern, &SMALL);
        assert!(
            got.starts_with("error parsing regexp: ") && got.contains(want),
            "{pattern}: {got}"
        );
    }
    assert_eq!(refusal(&nested(999), &Limits::USUAL), "");
    assert!(refusal(&nested(1000), &Limits::USUAL).contains("expression nests too deeply: `((("));
}

#[test]
fn the_deepest_pattern_compiles_on_the_stack_of_a_thread() {
    let deepest = format!("{}a{}", "(?:".repeat(59), "b)*c".repeat(59));
    assert_eq!(refusal(&deepest, &Limits::USUAL), "");
    let deeper = format!("{}a{}", "(?:".repeat(60), "b)*c".repeat(60));
    assert!(refusal(&deeper, &Limits::USUAL).contains("nests too deeply"));
    let open = "(".repeat(Limits::USUAL.pattern_bytes);
    assert!(refusal(&open, &Limits::USUAL).contains("missing closing )"));
    let flags = "(?i:".repeat(Limits::USUAL.pattern_bytes / 4);
    assert!(refusal(&flags, &Limits::USUAL).contains("missing closing )"));
}

/// Returns a pattern whose automaton has a state of its own for nearly every byte of a random text.
fn costly() -> String {
    let branches: Vec<String> = (0..20).map(|i| format!("[01]*{}[01]{{{}}}2", i % 2, 300 + i)).collect();
    format!("^(?:[01]*1[01]{{700}}$|{})", branches.join("|"))
}

/// Returns a text of zeros and ones without a pattern.
fn noise(bytes: usize) -> String {
    let mut state = 1_u64;
    (0..bytes)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            if state >> 63 == 0 { '0' } else { '1' }
        })
        .collect()
}

#[test]
fn a_costly_match_ends_at_its_limit() {
    let regexp = Syntax::parse(&costly(), &Limits::USUAL).unwrap().compile().unwrap();
    let text = noise(2_000_000);
    let mut work = Work::new(5_000_000, &Meter::unbounded());
    assert_eq!(regexp.is_match(&text, &mut work), Err(Exhausted));
    assert_eq!(work.done(), work.limit());
    assert_eq!(regexp.is_match("0", &mut work), Err(Exhausted), "nothing is left");
    assert_eq!(
        regexp.is_match("0", &mut Work::new(1_000_000, &Meter::unbounded())),
        Ok(false)
    );
}

#[test]
fn work_of_a_plain_pattern_grows_with_the_text_only() {
    let name = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
    for pattern in [name, r"^\p{L}[\p{L}\p{N} .-]*$", "^.{0,200}(?s:.)*$", "(?i)^[^X]*$"] {
        let regexp = Syntax::parse(pattern, &Limits::USUAL).unwrap().compile().unwrap();
        let mut work = Work::for_object(&Meter::unbounded());
        assert_eq!(regexp.is_match(&"na-me".repeat(400_000), &mut work), Ok(true));
        assert!(work.done() < 5_000_000, "{pattern}: {}", work.done());
    }
}

#[test]
fn matches_are_found_as_go_finds_them() {
    let rows = [
        ("a+", "baaac", "1..4"),
        ("a+?", "baaac", "1..2"),
        ("a*", "baa", "0..0"),
        ("(a|ab)(c|bcd)", "abcd", "0..4"),
        ("a|ab", "ab", "0..1"),
        (r"\Bé*", "aéb", "none"),
        (r"é", "aéb", "1..3"),
        ("x*$", "axx", "1..3"),
        ("(?m)^b", "a\nb", "2..3"),
        ("q", "abc", "none"),
    ];
    for (pattern, text, want) in rows {
        let syntax = Syntax::parse(pattern, &Limits::USUAL).unwrap();
        let finder = Finder::compile_within(&syntax, Limits::USUAL.compiled_bytes).unwrap();
        let found = finder
            .find_at(text, 0, &mut Work::for_object(&Meter::unbounded()))
            .unwrap();
        let got = found.map_or("none".to_owned(), |range| format!("{range:?}"));
        assert_eq!(got, want, "{pattern} in {text}");
    }
}

#[test]
fn no_character_is_cased_but_those_of_the_table() {
    let known: std::collections::BTreeSet<char> = unicode::other_cases(&unicode::any(true))
        .iter()
        .map(|range| range.start())
        .collect();
    for c in ('\0'..='\u{2ffff}').filter(|c| !known.contains(c)) {
        let mut class = regex_syntax::hir::ClassUnicode::new([regex_syntax::hir::ClassUnicodeRange::new(c, c)]);
        class.case_fold_simple();
        let same = class.ranges().len() == 1 && class.ranges()[0].start() == class.ranges()[0].end();
        assert!(same, "{c:?}");
    }
}

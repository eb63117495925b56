//! Tests of patterns that Go matches, and of patterns that it refuses.

use super::*;

#[test]
fn patterns_match_as_go_matches_them() {
    let rows = [
        (r"^\d+$", "12", true),
        (r"^\d+$", "१२", false),
        (r"^\w+\s\w+$", "ab cd", true),
        (r"^\w$", "é", false),
        (r"(?i)^yes$", "YeS", true),
        (r"^yes$", "yes\n", false),
        (r"a{,2}", "a{,2}", true),
        (r"x{", "x{", true),
        (r"^[[]$", "[", true),
        (r"^[a&&b]$", "&", true),
        (r"^[]a]+$", "a]", true),
        (r"^[^\d\s]$", "x", true),
        (r"^[\w-]+$", "a-b", true),
        (r"^\Qa.b\E$", "a.b", true),
        (r"^\Qa.b\E$", "axb", false),
        (r"(?P<a>x)(?P<a>y)", "xy", true),
        (r"\bfoo\b", "a foo b", true),
        (r"^[[:alpha:]]+$", "abc", true),
        (r"^\<$", "<", true),
        (r"^[\x{41}-\x43]$", "B", true),
        (r"^\pL$", "é", true),
        (r"^.$", "日", true),
        (r"^\\$", "\\", true),
        (r"^[\]\-]+$", "]-", true),
        (r"^(?:a|b)??c$", "c", true),
    ];
    for (pattern, text, want) in rows {
        let compiled = Pattern::compile(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
        assert_eq!(compiled.matches(text), want, "{pattern} on {text:?}");
    }
}

#[test]
fn refusals_are_worded_as_go_words_them() {
    let rows = [
        ("^(a", "missing closing ): `^(a`"),
        ("a)", "unexpected ): `a)`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("(?=look)ahead", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?<=x)a", "invalid or unsupported Perl syntax: `(?<`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("back\\1", "invalid escape sequence: `\\1`"),
        ("\\pX", "invalid character class range: `\\pX`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("[a", "missing closing ]: `[a`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("\\Z", "invalid escape sequence: `\\Z`"),
        ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
    ];
    for (pattern, want) in rows {
        match Pattern::compile(pattern) {
            Ok(_) => panic!("{pattern} compiled"),
            Err(got) => assert_eq!(got, format!("error parsing regexp: {want}"), "{pattern}"),
        }
    }
}

#[test]
fn huge_repetitions_are_refused_quickly() {
    for pattern in ["(x{1000}){1000}", "((a{100}){100}){100}", &"(".repeat(5000)] {
        assert!(Pattern::compile(pattern).is_err(), "{}", &pattern[..10]);
    }
}

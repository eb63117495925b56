//! Texts that a real server answered with (its recorded answers), and the forms that select.

use super::*;
use serde_json::json;

const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric \
                    character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect()
}

fn requirement(text: &str) -> String {
    format!("unable to parse requirement: {text}")
}

/// Checks that each selector is refused with its text.
fn check_refused(rows: &[(&str, String)]) {
    for (text, want) in rows {
        assert_eq!(&LabelSelector::parse(text).expect_err(text).to_string(), want, "{text}");
    }
}

#[test]
fn broken_label_selectors_say_what_kubernetes_says() {
    check_refused(&[
        ("tier=x=y", "found '=', expected: ',' or 'end of string'".to_owned()),
        (
            "=x",
            "found '=', expected: !, identifier, or 'end of string'".to_owned(),
        ),
        ("tier=x y", "found 'y', expected: ',' or 'end of string'".to_owned()),
        ("tier,", "found '', expected: identifier after ','".to_owned()),
        (
            ",tier",
            "found ',', expected: !, identifier, or 'end of string'".to_owned(),
        ),
        ("!tier=x", "found '=', expected: ',' or 'end of string'".to_owned()),
        ("tier in x", requirement("found 'x' expected: '('")),
        ("tier in (x", requirement("found '', expected: ',' or ')'")),
        ("tier in (x y)", requirement("found 'y', expected: ',' or ')'")),
        ("tier in (=", requirement("found '=', expected: ',', ')' or identifier")),
        ("tier in (x,=)", requirement("found '=', expected: ',', or identifier")),
        ("tier in", requirement("found '' expected: '('")),
        (
            "tier!",
            requirement("found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ),
        (
            "tier x",
            requirement("found 'x', expected: in, notin, =, ==, !=, gt, lt"),
        ),
        ("!", requirement("found '', expected: identifier")),
        ("tier===x", requirement("found '=', expected: identifier")),
    ]);
}

#[test]
fn invalid_keys_and_values_of_labels_say_what_kubernetes_says() {
    check_refused(&[
        (
            "tier in ()",
            requirement("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"),
        ),
        (
            "-bad=x",
            requirement(&format!("<nil>: Invalid value: \"-bad\": name part {NAME}")),
        ),
        (
            "a/=x",
            requirement(&format!(
                "<nil>: Invalid value: \"a/\": name part must be non-empty; name part {NAME}"
            )),
        ),
        (
            "/a=x",
            requirement("<nil>: Invalid value: \"/a\": prefix part must be non-empty"),
        ),
        (
            "Exam_ple.com/x=x",
            requirement(
                "<nil>: Invalid value: \"Exam_ple.com/x\": prefix part a lowercase RFC 1123 subdomain must consist of \
                    lower \
                 case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
                 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ),
        ),
        (
            "a/b/c=x",
            requirement(&format!(
                "<nil>: Invalid value: \"a/b/c\": a valid label key {NAME} with an optional DNS subdomain prefix and \
                    '/' (e.g. \
                 'example.com/MyName')"
            )),
        ),
        (
            "tier=-bad",
            requirement(
                "values[0][tier]: Invalid value: \"-bad\": a valid label must be an empty string or consist of \
                    alphanumeric \
                 characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  \
                     or \
                 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ),
        ),
        (
            "tier<abc",
            requirement("values[0]: Invalid value: \"abc\": for 'Gt', 'Lt' operators, the value must be an integer"),
        ),
    ]);
    let long = "a".repeat(64);
    let error = LabelSelector::parse(&format!("tier={long}")).expect_err("too long");
    assert_eq!(
        error.to_string(),
        format!(
            "unable to parse requirement: values[0][tier]: Invalid value: \"{long}\": must be no more than 63 bytes"
        )
    );
}

#[test]
fn every_form_selects() {
    let a = labels(&[("tier", "x")]);
    let b = labels(&[("tier", "y"), ("example.com/zone", "3")]);
    let c = labels(&[("tier", ""), ("other", "x")]);
    let d = labels(&[]);
    let rows = [
        ("tier=x", "a"),
        ("tier==y", "b"),
        ("tier=", "c"),
        ("tier=,other", "c"),
        ("tier!=x", "bcd"),
        ("tier in (x, y)", "ab"),
        ("tier in (,x)", "ac"),
        ("tier in (x,)", "ac"),
        ("tier in (x,,y)", "abc"),
        ("tier in (in,notin,x)", "a"),
        ("tier notin (x,y)", "cd"),
        ("tier", "abc"),
        ("!tier", "d"),
        ("! tier", "d"),
        ("tier,tier!=x,example.com/zone in (3)", "b"),
        ("example.com/zone>2", "b"),
        ("example.com/zone<3", ""),
        ("tier<100", ""),
        (" tier = x ", "a"),
        ("in=x", ""),
        ("", "abcd"),
        ("  ", "abcd"),
        ("tier=x,tier=y", ""),
    ];
    for (text, want) in rows {
        let selector = LabelSelector::parse(text).expect(text);
        let objects = [("a", &a), ("b", &b), ("c", &c), ("d", &d)];
        let got: String = objects
            .iter()
            .filter(|(_, labels)| selector.matches(labels))
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(got, want, "{text}");
        // What is printed selects the same.
        assert_eq!(
            LabelSelector::parse(&selector.to_string()).as_ref(),
            Ok(&selector),
            "{text}"
        );
    }
}

#[test]
fn selector_objects_read_as_the_text_does() {
    let rows = [
        (json!({}), Ok("")),
        (json!({"matchLabels": null, "matchExpressions": []}), Ok("")),
        (json!({"matchLabels": {"b": "x", "a": ""}}), Ok("a=,b=x")),
        (
            json!({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["x", "y"]}, {"key": "a",
                "operator": "Exists"},
                {"key": "c", "operator": "DoesNotExist", "values": []}], "matchLabels": {"z": "1"}}),
            Ok("a,b notin (x,y),!c,z=1"),
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}),
            Err("\"Near\" is not a valid label selector operator"),
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            Err("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"),
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}),
            Err("values: Invalid value: [\"x\"]: values set must be empty for exists and does not exist"),
        ),
        (json!(null), Err("a label selector must be an object")),
        (
            json!({"matchLabels": {"a": 1}}),
            Err("values of matchLabels must be strings"),
        ),
        (json!({"matchExpressions": {}}), Err("matchExpressions must be a list")),
    ];
    for (selector, want) in rows {
        let got = LabelSelector::from_json(&selector)
            .map(|s| s.to_string())
            .map_err(|e| e.to_string());
        assert_eq!(got.as_deref().map_err(String::as_str), want, "{selector}");
    }
}

#[test]
fn field_selectors_parse_escape_and_refuse() {
    let term = |field: &str, value: &str, equal| (field.to_owned(), value.to_owned(), equal);
    let good = [
        ("", vec![], ""),
        (
            "metadata.name=a",
            vec![term("metadata.name", "a", true)],
            "metadata.name=a",
        ),
        (
            "metadata.name==a",
            vec![term("metadata.name", "a", true)],
            "metadata.name=a",
        ),
        ("b!=,,a=1", vec![term("a", "1", true), term("b", "", false)], "a=1,b!="),
        ("=a", vec![term("", "a", true)], "=a"),
        ("a=x\\,y\\=z\\\\", vec![term("a", "x,y=z\\", true)], "a=x\\,y\\=z\\\\"),
        ("größe=ü", vec![term("größe", "ü", true)], "größe=ü"),
    ];
    for (text, want, printed) in good {
        let selector = FieldSelector::parse(text).expect(text);
        assert_eq!(selector.terms, want, "{text}");
        assert_eq!(selector.to_string(), printed, "{text}");
    }
    let bad = [
        (
            "metadata.name",
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
        ),
        (
            "metadata.name in (a)",
            "invalid selector: 'metadata.name in (a)'; can't understand 'metadata.name in (a)'",
        ),
        ("a=1,b", "invalid selector: 'a=1,b'; can't understand 'b'"),
        ("a=x=y", "invalid field selector: unescaped character in value: 61"),
        ("a=\\x", "invalid field selector: invalid escape sequence: \\x"),
        ("a=x\\", "invalid field selector: invalid escape sequence: \\"),
    ];
    for (text, want) in bad {
        assert_eq!(FieldSelector::parse(text).expect_err(text).to_string(), want, "{text}");
    }
    let selector = FieldSelector::parse("metadata.name=a,metadata.namespace!=b").expect("a selector");
    assert!(selector.matches(|field| if field == "metadata.name" {
        "a".into()
    } else {
        "c".into()
    }));
    assert!(!selector.matches(|field| if field == "metadata.name" {
        "a".into()
    } else {
        "b".into()
    }));
}

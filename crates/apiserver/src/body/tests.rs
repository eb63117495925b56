use super::*;
use crate::status;
use proptest::prelude::*;
use serde_json::json;

const WIDGET: Expected<'_> = Expected {
    kind: "Widget",
    implied: None,
    structure: None,
};

fn message(bytes: &str, format: Format) -> String {
    decode_object(bytes.as_bytes(), format, WIDGET)
        .expect_err(bytes)
        .to_string()
        .to_owned()
}

#[test]
fn malformed_objects_are_refused_in_the_words_of_kubernetes() {
    let start = "the object provided is unrecognized (must be of type Widget): ";
    let rows = [
        (
            "",
            "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
        ),
        ("{}", "Object 'Kind' is missing in '{}' ({})"),
        (
            r#"{"apiVersion": "golden.example.com/v1", "kind": "Widget", "metadata": {"name": "a""#,
            r#"couldn't get version/kind; json parse error: unexpected end of JSON input ({"apiVersion": "golden.example ...)"#,
        ),
        (
            r#"{"apiVersion": "golden.example.com/v1", "kind": "Widget"} {"more": true}"#,
            r#"couldn't get version/kind; json parse error: invalid character '{' after top-level value ({"apiVersion": "golden.example ...)"#,
        ),
        (
            r#"{"apiVersion": "golden.example.com/v1", "metadata": {"name": "a"}}"#,
            r#"Object 'Kind' is missing in '{"apiVersion": "golden.example.com/v1", "metadata": {"name": "a"}}' ({"apiVersion": "golden.example ...)"#,
        ),
        (
            "kind: a",
            "couldn't get version/kind; json parse error: invalid character 'k' looking for beginning of value (kind: a)",
        ),
    ];
    for (body, want) in rows {
        assert_eq!(message(body, Format::Json), format!("{start}{want}"), "{body}");
    }
    assert!(message("[1]", Format::Json).contains("cannot unmarshal array"));
    assert!(message("{\"kind\": 7}", Format::Json).contains("cannot unmarshal number"));
    assert!(message("metadata: {name: [", Format::Yaml).starts_with(start));
}

#[test]
fn custom_resources_have_no_protobuf() {
    let map = Expected {
        kind: "ConfigMap",
        implied: Some("v1"),
        structure: None,
    };
    for (expected, code) in [(WIDGET, 415), (map, 400)] {
        let refused = decode_object(b"k8s", Format::Protobuf, expected).expect_err("is refused");
        assert_eq!(status::code(&refused), code, "{}", expected.kind);
    }
}

#[test]
fn kinds_of_kubernetes_need_not_be_named() {
    let map = Expected {
        kind: "ConfigMap",
        implied: Some("v1"),
        structure: None,
    };
    for body in [
        "{}",
        r#"{"kind": "", "apiVersion": null}"#,
        r#"{"kind": "ConfigMap"}"#,
        r#"{"apiVersion": "v1"}"#,
    ] {
        let decoded = decode_object(body.as_bytes(), Format::Json, map).unwrap().value;
        assert_eq!(decoded, json!({"apiVersion": "v1", "kind": "ConfigMap"}), "{body}");
    }
    // What is said is for the registry to compare.
    let other = decode_object(br#"{"kind": "Secret"}"#, Format::Json, map)
        .unwrap()
        .value;
    assert_eq!(other["kind"], "Secret");
    assert!(decode_object(b"[]", Format::Json, map).is_err());
}

#[test]
fn metadata_has_types() {
    let rows = [
        (
            "{\"name\": 7}",
            "json: cannot unmarshal number into Go struct field ObjectMeta.name of type string",
        ),
        (
            "{\"labels\": {\"tier\": 1}}",
            "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
        ),
    ];
    for (metadata, want) in rows {
        let body = format!("{{\"apiVersion\": \"g.io/v1\", \"kind\": \"Widget\", \"metadata\": {metadata}}}");
        assert_eq!(
            message(&body, Format::Json),
            format!("Widget in version \"v1\" cannot be handled as a Widget: {want}")
        );
    }
    let body = "{apiVersion: g.io/v1, kind: Widget, metadata: {creationTimestamp: yesterday}}";
    assert!(message(body, Format::Yaml).contains("parsing time \"yesterday\""));
    assert!(
        message("{apiVersion: g.io/v1, kind: Widget, metadata: a}", Format::Yaml).contains("cannot unmarshal string")
    );
}

#[test]
fn the_last_of_equal_keys_wins_and_all_are_named() {
    let json = r#"{"a": 1, "spec": {"foo": 1, "foo": 2, "list": [{"x": 1, "x": 2}], "foo": 3}, "a": 2}"#;
    let yaml = "a: 1\nspec:\n  foo: 1\n  foo: 2\n  list:\n  - x: 1\n    x: 2\n  foo: 3\na: 2\n";
    for (body, format) in [(json, Format::Json), (yaml, Format::Yaml)] {
        let decoded = decode(body.as_bytes(), format).expect("decodes");
        assert_eq!(
            decoded.value,
            json!({"a": 2, "spec": {"foo": 3, "list": [{"x": 2}]}}),
            "{body}"
        );
        assert_eq!(decoded.duplicates, ["spec.foo", "spec.list[0].x", "a"], "{body}");
    }
}

#[test]
fn yaml_means_what_it_says() {
    let body = "# a comment\na: &x {p: 1}\nb: *x\nc: \"no\"\nd: 1.50\ne: ~\nf: |\n  two\n  lines\ng: [true, 0x10]\n";
    let decoded = decode(body.as_bytes(), Format::Yaml).expect("decodes");
    let want =
        json!({"a": {"p": 1}, "b": {"p": 1}, "c": "no", "d": 1.5, "e": null, "f": "two\nlines\n", "g": [true, 16]});
    assert_eq!(decoded.value, want);
}

#[test]
fn numbers_are_what_go_makes_of_them() {
    let body = r#"[1, -1, 1.0, 1.5, 18446744073709551615, 9223372036854775807, 1e3, 1e400]"#;
    assert!(decode(body.as_bytes(), Format::Json).is_err(), "1e400 is no number");
    let decoded = decode(body.replace(", 1e400", "").as_bytes(), Format::Json).expect("decodes");
    assert_eq!(
        decoded.value.to_string(),
        "[1,-1,1,1.5,1.8446744073709552e+19,9223372036854775807,1000]"
    );
}

/// The rows are those for which a program in Go, by apimachinery's `util/json` and the validator of
/// definitions, printed that a field of type integer takes the number, and what was stored.
#[test]
fn whole_floats_are_the_integers_that_go_stores() {
    let rows = [
        ("1.0", 1),
        ("-0.0", 0),
        ("-1.0", -1),
        ("1e0", 1),
        ("10e-1", 1),
        ("1E2", 100),
        ("1e-400", 0),
        ("100000000.0", 100_000_000),
        ("3000000000.0", 3_000_000_000),
        ("1e15", 1_000_000_000_000_000),
        ("9007199254740991.0", 9_007_199_254_740_991),
        ("9007199254740993", 9_007_199_254_740_993),
        ("-9223372036854775808", i64::MIN),
    ];
    for (text, want) in rows {
        let decoded = decode(text.as_bytes(), Format::Json).expect("decodes");
        assert_eq!(decoded.value, json!(want), "{text}");
    }
    for text in [
        "9007199254740992.0",
        "1e16",
        "9223372036854775808",
        "1e300",
        "1.5",
        "1.0000000000000002",
    ] {
        let decoded = decode(text.as_bytes(), Format::Json).expect("decodes");
        assert!(decoded.value.is_f64(), "{text}");
        assert_eq!(decoded.value.as_f64(), text.parse().ok(), "{text}");
    }
}

/// Go decodes its own kinds into structs, whose integers take no point.
#[test]
fn integers_of_structs_take_no_floats() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties":
        {"replicas": {"type": "integer", "format": "int32"}, "share": {"type": "number"}}}}});
    let schema = Structural::parse_trusted(&schema).expect("a schema");
    let expected = Expected {
        structure: Some(&schema),
        ..WIDGET
    };
    let decoded = |spec: &str| {
        let body = format!("{{\"apiVersion\": \"g.io/v1\", \"kind\": \"Widget\", \"spec\": {spec}}}");
        decode_object(body.as_bytes(), Format::Json, expected).map(|decoded| decoded.value["spec"].clone())
    };
    assert_eq!(decoded(r#"{"replicas": 3}"#).expect("fits"), json!({"replicas": 3}));
    assert_eq!(decoded(r#"{"share": 2.0}"#).expect("fits"), json!({"share": 2}));
    let refused = decoded(r#"{"replicas": 3.0}"#).expect_err("does not fit").to_string();
    assert!(
        refused.contains("json: cannot unmarshal number 3.0 into Go struct field"),
        "{refused}"
    );
    let yaml = "{apiVersion: g.io/v1, kind: Widget, spec: {replicas: 3.0}}";
    let decoded = decode_object(yaml.as_bytes(), Format::Yaml, expected).expect("becomes JSON without a point");
    assert_eq!(decoded.value["spec"], json!({"replicas": 3}));
}

#[test]
fn bombs_stop_early() {
    let deep = "[".repeat(100_000);
    let deep_map = "{\"a\":".repeat(10_000);
    let laughs: String = std::iter::once("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned())
        .chain((1..9).map(|i| {
            let aliases = vec![format!("*a{}", i - 1); 10].join(", ");
            format!("a{i}: &a{i} [{aliases}]\n")
        }))
        .collect();
    let nested = (0..200).fold("x".to_owned(), |inner, _| format!("[{inner}]"));
    for (body, format) in [
        (&deep, Format::Json),
        (&deep, Format::Yaml),
        (&deep_map, Format::Json),
        (&laughs, Format::Yaml),
        (&nested, Format::Yaml),
        (&nested.replace('x', "1"), Format::Json),
    ] {
        let refused = decode(body.as_bytes(), format).expect_err("is refused");
        assert_eq!(status::code(&refused), 400);
        assert!(!refused.to_string().contains('{'), "{}", refused.to_string());
    }
    let two = decode(b"a: b\n---\nc: d\n", Format::Yaml).expect_err("is refused");
    assert!(
        two.to_string().contains("a body is one document"),
        "{}",
        two.to_string()
    );
    let large = format!("\"{}\"", "x".repeat(BODY_BYTES_MAX));
    assert_eq!(
        status::code(&decode(large.as_bytes(), Format::Json).expect_err("is refused")),
        413
    );
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_object(&bytes, Format::Json, WIDGET);
        let _ = decode_object(&bytes, Format::Yaml, WIDGET);
    }

    #[test]
    fn nearly_json_does_not_panic(text in "[\\[\\]{}:,\"a1é \n.-]{0,60}") {
        let _ = decode_object(text.as_bytes(), Format::Json, WIDGET);
        let _ = decode_object(text.as_bytes(), Format::Yaml, WIDGET);
    }
}

#[test]
fn repeated_keys_have_their_lines() {
    let yaml = "spec:\n  size: 1\n  size: 2\n  list:\n  - {a: 1, b: 2, a: 3}\n";
    let want = [
        "line 3: key \"size\" already set in map",
        "line 5: key \"a\" already set in map",
    ];
    assert_eq!(repeated_keys(yaml.as_bytes()), want);
    let json = "{\"spec\": {\n\"size\": 1,\n\"size\": 2}}";
    assert_eq!(
        repeated_keys(json.as_bytes()),
        ["line 3: key \"size\" already set in map"]
    );
    assert!(repeated_keys(b"a: [").is_empty() && repeated_keys(b"a: {1: b, c: d}").is_empty());
}

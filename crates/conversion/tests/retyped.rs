//! Values of a field that gets another type with a release: one write beside them loses nothing,
//! and all of them are there when the former type returns.

use crate::support::{bundle_of, object};
use insula_conversion::{Bundle, ToStore, laws, unmetered_budget};
use serde_json::{Value as Json, json};

/// Types of a field, each with values of it.
fn types() -> Vec<(&'static str, Vec<Json>)> {
    let item = || json!({"w": "a", "x": "b"});
    vec![
        ("string", vec![json!("s")]),
        ("{$: {type: boolean, default: true}}", vec![json!(false)]),
        ("{$: {type: number, default: 2}}", vec![json!(3)]),
        ("integer", vec![json!(3)]),
        ("{w: string, x: string}", vec![item(), json!({})]),
        ("{w: string}", vec![json!({"w": "a"})]),
        (
            "{$: {type: object, default: {w: z}, properties: {w: {type: string}, x: {type: string}}}}",
            vec![item()],
        ),
        ("{y: {w: string}}", vec![json!({"y": {"w": "a"}})]),
        ("{'*': string}", vec![json!({"w": "a", "z": "b"})]),
        ("{'*': {w: string}}", vec![json!({"k": {"w": "a"}})]),
        ("[string]", vec![json!(["a", "b"]), json!([])]),
        (
            "[{w: string, x: string}]",
            vec![json!([item(), {"w": "c"}]), json!([{}])],
        ),
        ("[{x: string}]", vec![json!([{"x": "a"}])]),
        ("[[{w: string}]]", vec![json!([[{"w": "a"}], []])]),
        ("[[string]]", vec![json!([["a"], ["b"]])]),
        ("any", vec![item(), json!({"y": [item()]})]),
        (
            "anything",
            vec![
                item(),
                json!("s"),
                json!([item(), "s"]),
                json!([[item()]]),
                json!({"y": [[item()]]}),
            ],
        ),
        ("{$: {x-kubernetes-int-or-string: true}}", vec![json!("1"), json!(5)]),
        ("[anything]", vec![json!([item(), [item()], "s"])]),
    ]
}

/// One version, or two of which the second has a field more.
fn bundle(of: &str, several: bool) -> Bundle {
    let second = match several {
        true => format!(", v2: {{spec: {{e: string, p: {of}, q: string}}}}"),
        false => String::new(),
    };
    bundle_of(&format!("versions: {{v1: {{spec: {{e: string, p: {of}}}}}{second}}}"))
}

/// Writes back what a release shows, with another value in the field beside.
fn edit(bundle: &Bundle, written: &ToStore, version: &str, beside: &str) -> ToStore {
    let after = write(bundle, (written, "v1"), version, beside);
    laws::put_get(
        bundle,
        &edited(bundle, (written, "v1"), version, beside),
        version,
        &after,
    )
    .unwrap();
    after
}

#[test]
fn a_field_of_another_type_keeps_what_it_held() {
    check(false, ["v1", "v1"]);
}

#[test]
fn it_is_kept_whatever_version_writes() {
    check(true, ["v2", "v1"]);
    check(true, ["v1", "v2"]);
}

fn check(several: bool, versions: [&str; 2]) {
    let with_bundle = |(of, values)| (of, bundle(of, several), values);
    let types: Vec<(&str, Bundle, Vec<Json>)> = types().into_iter().map(with_bundle).collect();
    let mut lost = Vec::new();
    for (was, before, values) in &types {
        for value in values {
            let x = object("v1", &json!({"spec": {"e": "x", "p": value}}));
            let written = before.put(&x, "v1", None, &mut unmetered_budget()).unwrap();
            assert_eq!(shown(before, (&written, "v1"), "v1"), x);
            for (is, after, _) in &types {
                let second = edit(after, &written, versions[0], "y");
                for (then, last, _) in &types {
                    let third = edit(last, &second, versions[1], "z");
                    let back = shown(before, (&third, "v1"), "v1");
                    if back["spec"] != json!({"e": "z", "p": value}) {
                        lost.push(format!("{was} → {is} → {then}: {value} became {}", back["spec"]["p"]));
                    }
                }
            }
        }
    }
    assert_none(&lost);
}

/// A field of two types in two versions: the version that alone shows a value goes, and comes back.
#[test]
fn a_version_that_goes_keeps_what_it_alone_could_show() {
    let mut lost = Vec::new();
    for (was, values) in types() {
        for (is, _) in types() {
            let (before, moved) = (beside(was, "v1", is), beside(was, "v2", is));
            let alone = alone(is);
            for value in &values {
                let x = object("v1", &json!({"spec": {"e": "x", "p": value}}));
                let written = before.put(&x, "v1", None, &mut unmetered_budget()).unwrap();
                let second = write(&moved, (&written, "v1"), "v1", "x");
                let third = write(&alone, (&second, "v2"), "v2", "y");
                let back = shown(&before, (&third, "v2"), "v1");
                if back["spec"] != json!({"e": "y", "p": value}) {
                    lost.push(format!("{was} beside {is}: {value} became {}", back["spec"]));
                }
            }
        }
    }
    assert_none(&lost);
}

/// A version keeps what its field of another type held also when one beside it goes.
#[test]
fn a_version_that_goes_takes_nothing_of_others() {
    let mut lost = Vec::new();
    for (other, _) in types() {
        for (was, values) in types() {
            let before = beside(other, "v2", was);
            for (is, _) in types() {
                let (between, alone) = (beside(other, "v2", is), alone(is));
                for value in &values {
                    let x = object("v2", &json!({"spec": {"e": "x", "p": value}}));
                    let written = before.put(&x, "v2", None, &mut unmetered_budget()).unwrap();
                    let second = write(&between, (&written, "v2"), "v2", "y");
                    let third = write(&alone, (&second, "v2"), "v2", "z");
                    let back = shown(&before, (&third, "v2"), "v2");
                    if back["spec"] != json!({"e": "z", "p": value}) {
                        lost.push(format!("{was} to {is} beside {other}: {value} became {}", back["spec"]));
                    }
                }
            }
        }
    }
    assert_none(&lost);
}

/// Versions of one schema show the same after a turn of another type as the stored version.
#[test]
fn versions_of_one_schema_stay_alike() {
    let spec = |of: &str, more: &str| format!("{{spec: {{e: string, p: {of}, {more}: string}}}}");
    let mut lost = Vec::new();
    for (was, values) in types() {
        for (is, _) in types() {
            for more in ["k", "l"] {
                let (own, other) = (spec(was, "k"), spec(is, more));
                let of = |storage: &str, versions: String| {
                    bundle_of(&format!("storage: {storage}\nversions: {{{versions}}}"))
                };
                let before = of("v2", format!("v1: {own}, v2: {own}"));
                let between = of("v3", format!("v2: {own}, v3: {other}"));
                let after = of("v2", format!("v1: {own}, v2: {own}, v3: {other}"));
                // Fields of an object without a type count one by one: where the stored version
                // shows something else in its place, only the version that wrote it shows it.
                let values = values.iter().filter(|value| was != "anything" || !value.is_object());
                for value in values {
                    let x = object("v2", &json!({"spec": {"e": "x", "k": "b", "p": value}}));
                    let written = before.put(&x, "v2", None, &mut unmetered_budget()).unwrap();
                    let second = write(&between, (&written, "v2"), "v2", "x");
                    for version in ["v1", "v2"] {
                        let mut back = shown(&after, (&second, "v3"), version);
                        back["apiVersion"] = x["apiVersion"].clone();
                        if back != x {
                            lost.push(format!("{was} beside {is}, {version}: {value} became {}", back["spec"]));
                        }
                    }
                }
            }
        }
    }
    assert_none(&lost);
}

/// Two versions whose field has a type each.
fn beside(first: &str, storage: &str, second: &str) -> Bundle {
    let spec = |of: &str| format!("{{spec: {{e: string, p: {of}}}}}");
    let versions = format!("{{v1: {}, v2: {}}}", spec(first), spec(second));
    bundle_of(&format!("storage: {storage}\nversions: {versions}"))
}

/// The second of them.
fn alone(of: &str) -> Bundle {
    bundle_of(&format!(
        "storage: v2\nversions: {{v2: {{spec: {{e: string, p: {of}}}}}}}"
    ))
}

fn shown(bundle: &Bundle, (written, stored): (&ToStore, &str), version: &str) -> Json {
    bundle
        .get(written.stored(stored), version, &mut unmetered_budget())
        .unwrap()
}

/// Writes back what a version shows, with another value in the field beside.
fn write(bundle: &Bundle, (written, stored): (&ToStore, &str), version: &str, beside: &str) -> ToStore {
    let x = edited(bundle, (written, stored), version, beside);
    bundle
        .put(&x, version, Some(written.stored(stored)), &mut unmetered_budget())
        .unwrap()
}

fn edited(bundle: &Bundle, written: (&ToStore, &str), version: &str, beside: &str) -> Json {
    let mut shown = shown(bundle, written, version);
    shown["spec"]["e"] = json!(beside);
    insula_schema::default(&mut shown, bundle.schema(version).unwrap());
    shown
}

fn assert_none(lost: &[String]) {
    assert!(lost.is_empty(), "{} lost:\n{}", lost.len(), lost.join("\n"));
}

//! Tests of printing: expected texts, and parsing of printed text.

use super::{parse, print, text};
use cel::common::ast::IdedExpr;

/// Renders a tree without its ids.
fn shape(tree: &IdedExpr) -> String {
    let shown = format!("{tree:?}");
    let mut parts = shown.split("id: ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        all + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

#[test]
fn expressions_are_written_as_understood() {
    for (source, want) in [
        ("a+b*c-(d-e)", "a + b * c - (d - e)"),
        ("(a+b)*c", "(a + b) * c"),
        ("a&&(b||c)", "a && (b || c)"),
        ("-(1) - -1", "-(1) - -1"),
        ("!(a in [1,?b])", "!(a in [1, ?b])"),
        ("a?b:c?d:e", "a ? b : c ? d : e"),
        ("(a?b:c)?d:e", "(a ? b : c) ? d : e"),
        ("has(a.b)&&a.?c[?0].d['x']", "has(a.b) && a.?c[?0].d[\"x\"]"),
        ("a.all(x,x>0).b()", "a.all(x, x > 0).b()"),
        ("a.map(x,x>0,x+1)", "a.map(x, x > 0, x + 1)"),
        ("a.filter(x,x)", "a.filter(x, x)"),
        ("a.exists_one(k,v,v)", "a.existsOne(k, v, v)"),
        ("a.transformMap(k,v,k!='',v)", "a.transformMap(k, v, k != \"\", v)"),
        ("a.transformMapEntry(k,v,{v:k})", "a.transformMapEntry(k, v, {v: k})"),
        ("a.transformList(k,v,k)", "a.transformList(k, v, k)"),
        ("a.?b.optMap(x,x+1).orValue(2)", "a.?b.optMap(x, x + 1).orValue(2)"),
        ("a.sortBy(x,x.y)[0]", "a.sortBy(x, x.y)[0]"),
        ("a.fold(n,x,0,n+x)", "a.fold(n, x, 0, n + x)"),
        ("a.fold(n,k,v,0,n+v)", "a.fold(n, k, v, 0, n + v)"),
        ("a.zip(b.c,x,y,x+y)", "a.zip(b.c, x, y, x + y)"),
        ("T{a:1u,?b:c}", "T{a: 1u, ?b: c}"),
        (
            "r'\\n' + '\\n\"\\u0001é' + string(b'a')",
            "\"\\\\n\" + \"\\n\\\"\\u0001é\" + string(b\"\\x61\")",
        ),
        ("1e300 + .5 + 0x1F + null", "1e300 + 0.5 + 31 + null"),
    ] {
        assert_eq!(print(source).expect(source), want, "{source}");
    }
}

/// Returns true if the printed text parses to the same tree, or the source does not parse.
fn returns(source: &str) -> bool {
    let Ok(parsed) = parse(source, true) else { return false };
    let printed = text(&parsed.tree);
    let again = parse(&printed, true).unwrap_or_else(|e| panic!("{source:?} prints as {printed:?}: {e}"));
    assert_eq!(
        shape(&again.tree),
        shape(&parsed.tree),
        "{source:?} prints as {printed:?}"
    );
    true
}

#[test]
fn expressions_of_the_tables_return() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut returned = 0;
    for file in std::fs::read_dir(folder).expect("the tables") {
        let file = std::fs::read_to_string(file.expect("an entry").path()).expect("a table");
        let table: serde_json::Value = serde_saphyr::from_str(&file).expect("a table in YAML");
        for case in table.as_array().into_iter().flatten() {
            returned += usize::from(case["expr"].as_str().is_some_and(returns));
        }
    }
    assert!(returned > 400, "only {returned} expressions");
}

fn expressions() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let leaves = [
        "a", "1", "-1", "-0.5", "2u", "'x'", "b'y'", "null", "a.b", "[]", "{}", "true",
    ];
    let shapes = [
        "({}) + ({})",
        "({}) - {}",
        "{} * ({})",
        "({}) / {}",
        "({}) % ({})",
        "({}) && ({})",
        "{} && {} && {}",
        "({}) || ({})",
        "({}) == ({})",
        "{} < {}",
        "({}) in ({})",
        "!({})",
        "-({})",
        "({}) ? ({}) : ({})",
        "{} ? {} : {}",
        "[{}, ?{}]",
        "{{ {}: {} }}",
        "({}).f",
        "({})[{}]",
        "({}).?f",
        "({})[?{}]",
        "f({}, {})",
        "({}).g({})",
        "has(({}).f)",
        "({}).map(x, {})",
        "({}).map(x, {}, {})",
        "({}).filter(x, {})",
        "({}).all(x, y, {})",
        "({}).exists(x, {})",
        "({}).existsOne(x, {})",
        "({}).transformMap(x, y, {}, {})",
        "({}).transformList(x, y, {})",
        "({}).transformMapEntry(x, y, {})",
        "({}).optMap(x, {})",
        "({}).optFlatMap(x, {})",
        "({}).sortBy(x, {})",
        "T{{f: {}}}",
        "!!({})",
        "--({})",
    ];
    prop::sample::select(leaves.to_vec())
        .prop_map(str::to_owned)
        .prop_recursive(6, 60, 3, move |inner| {
            (prop::sample::select(shapes.to_vec()), prop::collection::vec(inner, 3)).prop_map(|(shape, parts)| {
                let mut parts = parts.into_iter().cycle();
                let mut pieces = shape.split("{}");
                let first = pieces.next().unwrap_or_default().to_owned();
                let filled = pieces.fold(first, |all, piece| all + &parts.next().unwrap_or_default() + piece);
                filled.replace("{{", "{").replace("}}", "}")
            })
        })
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        cases: 600, failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn generated_expressions_return(source in expressions()) {
        returns(&source);
    }
}

//! The work of suggestions is paid: schemas that are made to cost end with the account of whoever
//! sent them, and no single comparison is longer than a part of a second.

use insula_conversion::{VersionSchema, suggest};
use insula_meter::{Bounds, Ended, Meter, Scheduler, TenantPays};
use insula_schema::Structural;
use serde_json::{Map, Value as Json, json};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Looks after which an account is empty. There is one for each large pair, and one for some dozens
/// of small ones.
const LOOKS: u64 = 30;

/// An account that counts the looks at it, and the most work that was announced at one.
#[derive(Clone, Default)]
struct Looks(Arc<(AtomicU64, AtomicU64)>);

impl Scheduler for Looks {
    fn check(&self, coming: u64) -> Result<(), Ended> {
        self.0.1.fetch_max(coming, Ordering::Relaxed);
        match self.0.0.fetch_add(1, Ordering::Relaxed) < LOOKS {
            true => Ok(()),
            false => Err(Ended::Spent),
        }
    }

    fn ended(&self) -> Option<Ended> {
        None
    }

    fn bound(&self, _: Option<Bounds>) {}

    fn run_without_turns(&self, _: TenantPays, work: &mut dyn FnMut()) {
        work();
    }
}

fn version(name: &str, fields: Map<String, Json>) -> VersionSchema {
    let spec = json!({"type": "object", "properties": fields});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    VersionSchema {
        name: name.to_owned(),
        served: true,
        schema: Arc::new(Structural::parse_trusted(&schema).unwrap()),
    }
}

/// Returns fields of these names.
fn fields(start: &str, count: usize, of: impl Fn(usize) -> Json) -> Map<String, Json> {
    (0..count).map(|n| (format!("{start}{n}"), of(n))).collect()
}

#[test]
fn schemas_that_cost_end_with_the_account() {
    let text = |_: usize| json!({"type": "string"});
    let words = |start: &str, count: usize| (0..count).map(|n| format!("{start}{n}")).collect::<Vec<_>>();
    let described = |start: &'static str| {
        let text = words(start, 1_000).join(" ");
        move |_: usize| json!({"type": "string", "description": text})
    };
    let chosen = |start: &'static str| {
        let choices = words(start, 60);
        move |_: usize| json!({"type": "string", "enum": choices})
    };
    let lists = |start: &'static str| {
        let items = json!({"type": "object", "properties": fields(start, 60, text)});
        move |_: usize| json!({"type": "array", "items": items})
    };
    let cases = [
        ("many fields", fields("a", 900, text), fields("b", 900, text)),
        ("equal names", fields("name", 900, text), fields("nameOf", 900, text)),
        (
            "descriptions",
            fields("a", 99, described("x")),
            fields("b", 99, described("y")),
        ),
        (
            "enumerations",
            fields("a", 99, chosen("x")),
            fields("b", 99, chosen("y")),
        ),
        (
            "enumerations of one name",
            fields("a", 99, chosen("x")),
            fields("a", 99, chosen("y")),
        ),
        ("items", fields("a", 99, lists("x")), fields("b", 99, lists("y"))),
    ];
    for (name, old, new) in cases {
        let looks = Looks::default();
        let found = suggest(&version("v1", old), &version("v2", new), &Meter::new(looks.clone()));
        assert!(matches!(found, Err(Ended::Spent)), "{name}");
        let most = looks.0.1.load(Ordering::Relaxed);
        assert!(most <= 10_000_000, "{name}: {most} units at once");
    }
}

#[test]
fn fields_that_are_too_large_are_not_compared() {
    let items = |start: &str| {
        let items = fields(start, 3_000, |_| json!({"type": "string"}));
        Map::from_iter([(
            format!("{start}s"),
            json!({"type": "array", "items": {"type": "object", "properties": items}}),
        )])
    };
    let found = suggest(
        &version("v1", items("a")),
        &version("v2", items("b")),
        &Meter::unbounded(),
    );
    assert!(found.unwrap().pairs.is_empty());
}

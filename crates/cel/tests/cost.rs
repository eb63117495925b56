//! Costs: the estimate from declared bounds, the cost at run time, and that it stays within the
//! estimate.

use insula_cel::{AbsenceMode, Activation, Budget, Decl, Env, Field, ListKind, Program, Type};
use insula_meter::Meter;
use serde_json::{Value, json};
use std::fmt::Write;

/// Bytes of a text without a bound: the largest request, less two quotes.
const UNBOUNDED: u64 = 3_145_726;

fn text(bytes: u64) -> Decl {
    Decl::scalar(Type::String).bounded(Some(bytes), 2)
}

fn int() -> Decl {
    Decl::scalar(Type::Int).bounded(Some(0), 1)
}

fn int_or_text() -> Decl {
    Decl::dynamic().bounded(Some(UNBOUNDED), 1)
}

fn list(items: Decl, most: u64) -> Decl {
    Decl::list(items, ListKind::Atomic).bounded(Some(most), 2)
}

fn map(values: Decl, most: u64) -> Decl {
    Decl::map(values).bounded(Some(most), 2)
}

fn object(name: &str, fields: &[(&str, Decl)]) -> Decl {
    let field = |(name, decl): &(&str, Decl)| Field {
        name: (*name).into(),
        written: (*name).into(),
        decl: decl.clone(),
    };
    Decl::object(name, fields.iter().map(field).collect()).bounded(Some(0), 2)
}

/// Returns the declaration of `self` in `prices/rules.yaml`.
fn declared(name: &str) -> Decl {
    match name {
        "text" => text(UNBOUNDED),
        "text20" => text(20),
        "texts" => list(text(UNBOUNDED), 1_048_575),
        "texts100" => list(text(UNBOUNDED), 100),
        "bounded" => list(text(200), 100),
        "ints" => list(int(), 1_000),
        "intOrText" => int_or_text(),
        "map" => map(text(UNBOUNDED), 393_215),
        "few" => map(int(), 7),
        "int" => int(),
        "object" => object(
            "self",
            &[
                ("t", list(text(4_000), 100)),
                ("a", text(UNBOUNDED)),
                ("ios", int_or_text()),
            ],
        ),
        other => panic!("no declaration {other}"),
    }
}

/// Returns the declaration and value of `self` in `prices/values.yaml`.
fn subject() -> (Decl, Value) {
    let decl = object(
        "self",
        &[
            ("a", text(40)),
            ("n", int()),
            ("l", list(text(16), 5)),
            ("m", map(int(), 3)),
            ("o", object("self.o", &[("x", int())])),
            ("u", text(UNBOUNDED)),
        ],
    );
    let value = json!({"a": "abc", "n": 1, "l": ["p", "q"], "m": {"k": 1}, "o": {"x": 1}, "u": "abcdefghijklmno"});
    (decl, value)
}

fn compile(source: &str, decl: &Decl) -> Program {
    let env = Env::new(AbsenceMode::Error).with("self", decl.clone());
    Program::compile_in(source, &env).unwrap_or_else(|e| panic!("{source}: {e}"))
}

fn table(text: &str) -> Vec<Value> {
    serde_saphyr::from_str(text).expect("a table")
}

fn source(case: &Value) -> &str {
    case["expr"].as_str().expect("a case has an expr")
}

#[test]
fn rules_are_estimated_as_kubernetes_does() {
    let mut wrong = String::new();
    for case in table(include_str!("prices/rules.yaml")) {
        let decl = declared(case["self"].as_str().expect("a name"));
        let got = compile(source(&case), &decl).estimate().max;
        if Some(got) != case["max"].as_u64() {
            writeln!(wrong, "{case}: {got}").expect("text");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn evaluations_cost_what_they_do_in_kubernetes() {
    let (decl, value) = subject();
    let mut wrong = String::new();
    for case in table(include_str!("prices/values.yaml")) {
        let program = compile(source(&case), &decl);
        let mut budget = Budget::new(1_000_000, &Meter::unbounded());
        if let Err(error) = program.eval(&Activation::new().with("self", &value), &mut budget) {
            writeln!(wrong, "{case}: {error}").expect("text");
        }
        let estimate = program.estimate();
        let got = (Some(budget.used()), Some(estimate.min), Some(estimate.max));
        if got != (case["cost"].as_u64(), case["min"].as_u64(), case["max"].as_u64()) {
            writeln!(wrong, "{case}: {got:?}").expect("text");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// A seeded random generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn text(&mut self, most: u64) -> String {
        let length = self.below(most + 1);
        (0..length)
            .map(|_| ['a', 'b', 'é', '☃'][self.below(4) as usize])
            .collect()
    }

    /// Returns a value within the bounds of `subject`.
    fn value(&mut self) -> Value {
        let l: Vec<String> = (0..self.below(6)).map(|_| self.text(4)).collect();
        let m: serde_json::Map<String, Value> = (0..self.below(4))
            .map(|i| (format!("k{i}"), json!(self.below(9))))
            .collect();
        json!({"a": self.text(10), "n": self.below(5), "l": l, "m": m, "o": {"x": 1}, "u": self.text(200)})
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    /// Returns an expression of a type: `b` a bool, `i` a number, `s` a text, `l` a list of texts.
    /// Loops that read their variable run over declared lists: Kubernetes' estimate takes an item
    /// of a computed list to be as large as `self`, which is empty for an object. `distinct` of
    /// texts is left out: cel-go estimates it at 2 units a pair and charges 2.1.
    fn expression(&mut self, ty: char, depth: u32) -> String {
        let leaf = depth == 0;
        let template = match (ty, leaf) {
            ('b', true) => self.pick(&["true", "(self.n > 2)", "has(self.a)", "(self.a == self.u)"]),
            ('i', true) => self.pick(&["self.n", "7", "self.o.x", "self.a.size()"]),
            ('s', true) => self.pick(&["self.a", "self.u", "'lit'", "string(self.n)"]),
            (_, true) => self.pick(&["self.l", "['x', 'y']", "[self.a]"]),
            ('b', _) => self.pick(&[
                "(%b && %b)",
                "(%b || %b)",
                "!%b",
                "(%i < %i)",
                "(%s < %s)",
                "(%s == %s)",
                "(%l == %l)",
                "%s.contains(%s)",
                "%s.matches('a+b')",
                "(%s in %l)",
                "self.l.all(x, x.size() > %i)",
                "self.l.exists(x, x == %s)",
                "self.l.exists_one(x, %b)",
                "self.m.all(k, v, v > %i)",
                "%l.isSorted()",
                "sets.contains(%l, %l)",
            ]),
            ('i', _) => self.pick(&[
                "(%i + %i)",
                "(%b ? %i : %i)",
                "%s.size()",
                "%l.size()",
                "%s.indexOf(%s)",
            ]),
            ('s', _) => self.pick(&[
                "(%s + %s)",
                "(%b ? %s : %s)",
                "%s.upperAscii()",
                "%s.replace('a', %s)",
                "%l.join(',')",
                "string(bytes(%s))",
                "strings.quote(%s)",
            ]),
            _ => self.pick(&[
                "(%l + %l)",
                "[%s, %s]",
                "self.l.map(x, x + %s)",
                "self.l.filter(x, %b)",
                "%s.split('a')",
                "%l.sort()",
                "%l.reverse()",
                "%l.transformList(i, v, %s)",
                "(%b ? %l : %l)",
            ]),
        };
        let mut out = String::new();
        let mut parts = template.split('%');
        out.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let (hole, rest) = part.split_at(1);
            let hole = hole.chars().next().expect("a hole has a type");
            out.push_str(&self.expression(hole, depth.saturating_sub(1)));
            out.push_str(rest);
        }
        out
    }
}

#[test]
fn evaluations_stay_within_the_estimate() {
    let (decl, _) = subject();
    let seed = std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64) | 1;
    eprintln!("seed {seed}");
    let mut random = Random(seed);
    for _ in 0..2_000 {
        let ty = ['b', 'i', 's', 'l'][random.below(4) as usize];
        let depth = random.below(3) as u32 + 1;
        let source = random.expression(ty, depth);
        let program = compile(&source, &decl);
        let value = random.value();
        let mut budget = Budget::new(1_000_000, &Meter::unbounded());
        let outcome = program.eval(&Activation::new().with("self", &value), &mut budget);
        let (used, max) = (budget.used(), program.estimate().max);
        assert!(
            used <= max,
            "seed {seed}: {source} of {value} cost {used} > {max}: {outcome:?}"
        );
    }
}

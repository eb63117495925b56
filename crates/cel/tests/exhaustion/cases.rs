//! Expressions that would run for long or allocate much, and the limit that stops each.

use serde_json::{Value, json};

pub(crate) const COST: &str = "actual cost limit exceeded";
pub(crate) const MEMORY: &str = "memory limit exceeded";

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) source: String,
    /// The value of `self`.
    pub(crate) input: Value,
    /// Parts of results, any of which is accepted.
    pub(crate) says: &'static [&'static str],
}

fn case(name: &'static str, source: impl Into<String>, input: &Value, says: &'static [&'static str]) -> Case {
    Case {
        name,
        source: source.into(),
        input: input.clone(),
        says,
    }
}

pub(crate) fn numbers(count: usize) -> Value {
    (0..count).map(|n| json!(n)).collect::<Vec<_>>().into()
}

pub(crate) fn cases() -> Vec<Case> {
    [loops(), ranges(), doublings(), texts(), lists(), library(), patterns()]
        .into_iter()
        .flatten()
        .collect()
}

const STOPPED: &[&str] = &[COST, MEMORY];
const STOPPED_OR_NOT: &[&str] = &["value", COST, MEMORY];

fn loops() -> Vec<Case> {
    let mut nested = "1".to_owned();
    for depth in 0..8 {
        nested = format!("[1,2,3,4,5,6,7,8,9,10].map(x{depth}, {nested})");
    }
    let constants = "false||".repeat(240);
    let thousand = numbers(1_000);
    vec![
        case("nested map", nested, &Value::Null, STOPPED),
        case(
            "cross",
            "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))",
            &thousand,
            STOPPED,
        ),
        case(
            "43 bytes",
            "self.map(x,self.map(y,self.map(z,[x,y,z])))",
            &thousand,
            STOPPED,
        ),
        case(
            "maps of ones",
            "self.map(x,self.map(y,self.map(z,1)))",
            &thousand,
            STOPPED,
        ),
        case(
            "exists",
            "self.exists(a, self.exists(b, a + b < 0))",
            &numbers(5_000),
            STOPPED,
        ),
        case(
            "errors",
            "self.all(a, self.all(b, int('x' + string(a)) == 1 || true))",
            &thousand,
            STOPPED,
        ),
        case(
            "constants",
            format!("self.all(a, self.all(b, {constants}true))"),
            &thousand,
            STOPPED,
        ),
    ]
}

fn ranges() -> Vec<Case> {
    vec![
        case("range", "lists.range(100000000000)", &Value::Null, STOPPED),
        case(
            "ranges",
            "lists.range(400000).map(x, lists.range(400000))",
            &Value::Null,
            STOPPED,
        ),
        case(
            "small lists",
            "lists.range(100000).map(x, [x])",
            &Value::Null,
            STOPPED_OR_NOT,
        ),
        case(
            "small maps",
            "lists.range(100000).map(x, {'a': x})",
            &Value::Null,
            STOPPED,
        ),
        case(
            "small texts",
            "lists.range(300000).map(x, string(x))",
            &Value::Null,
            STOPPED,
        ),
        case(
            "optionals",
            "lists.range(300000).map(x, optional.of(optional.of(x))).size()",
            &Value::Null,
            STOPPED,
        ),
        case(
            "pairs",
            "lists.range(300000).transformMap(i, x, x)",
            &Value::Null,
            STOPPED,
        ),
    ]
}

/// Returns `optional.of(seed).optFlatMap(a, optional.of(a + a).optFlatMap(b, … ))`, which doubles
/// at each of `times` levels.
fn doubling(seed: &str, times: usize) -> String {
    let mut source = format!("optional.of({seed}).optFlatMap(v0, ");
    for i in 0..times {
        source += &format!("optional.of(v{i} + v{i}).optFlatMap(v{}, ", i + 1);
    }
    source + &format!("optional.of(size(v{times}))") + &")".repeat(times + 1)
}

fn doublings() -> Vec<Case> {
    // The value is small, since it is shared; its JSON would not be.
    let mut shared = "optional.of([1]).optFlatMap(v0, ".to_owned();
    for i in 0..40 {
        shared += &format!("optional.of([v{i}, v{i}]).optFlatMap(v{}, ", i + 1);
    }
    shared += &format!("optional.of(v40){}", ")".repeat(41));
    vec![
        case("strings", doubling("'0123456789'", 40), &Value::Null, STOPPED),
        case("lists", doubling("[1]", 40), &Value::Null, STOPPED),
        case("bytes", doubling("b'0123456789'", 40), &Value::Null, STOPPED),
        case("shared lists", shared, &Value::Null, STOPPED),
    ]
}

fn texts() -> Vec<Case> {
    let big = json!("x".repeat(1_000_000));
    vec![
        case(
            "copies of an input",
            format!("[{}]", vec!["self"; 900].join(",")),
            &big,
            STOPPED,
        ),
        case("replace", "self.replace('x', self)", &big, STOPPED),
        case("replace nothing", "self.replace('', self)", &big, STOPPED),
        case("split", "self.split('')", &big, STOPPED),
        case("join", "lists.range(1000).map(x, self).join(self)", &big, STOPPED),
        case(
            "split and join",
            "self.split('x').join('yy').split('yy').join('')",
            &big,
            STOPPED,
        ),
        case(
            "format",
            "lists.range(1000).map(x, '%s%s'.format([self, self]))",
            &big,
            STOPPED,
        ),
        case(
            "hexadecimal",
            "lists.range(100).map(x, '%x'.format([self]))",
            &big,
            STOPPED,
        ),
        case("upper", "lists.range(1000).map(x, self.upperAscii())", &big, STOPPED),
        case("quote", "lists.range(1000).map(x, strings.quote(self))", &big, STOPPED),
        case(
            "wide format",
            "'%.1000000000f'.format([1.0])",
            &Value::Null,
            &["error while parsing precision"],
        ),
    ]
}

fn lists() -> Vec<Case> {
    let list = numbers(20_000);
    vec![
        case("distinct", "self.distinct()", &list, STOPPED),
        case("sorts", "self.map(x, self.sort())", &list, STOPPED),
        case("contains", "sets.contains(self, self)", &list, STOPPED),
        case("in", "self.all(x, -1 in self || true)", &list, STOPPED),
        case("equality", "self.all(x, self == self)", &list, STOPPED),
        case("sum", "self.all(x, self.sum() > 0)", &list, STOPPED),
        case("concatenation", "self.map(x, self + self)", &list, STOPPED),
    ]
}

fn library() -> Vec<Case> {
    let each = |name, source: &str| {
        let source = format!("lists.range(100000).all(x, {source})");
        case(name, source, &Value::Null, STOPPED_OR_NOT)
    };
    vec![
        each("large quantities", "isQuantity(string(x) + 'e1000000000')"),
        each("long quantities", "quantity('1e4000').add(x) != quantity('1')"),
        each("fractions", "'%e'.format([1.5]) != ''"),
        each("shortest fractions", "string(1.0 / (double(x) + 1.1)) != ''"),
        each("addresses", "isURL('https://a.b/c?d=' + string(x))"),
        each(
            "times",
            "timestamp('2020-01-01T00:00:00Z').getHours('America/New_York') >= 0",
        ),
    ]
}

fn patterns() -> Vec<Case> {
    let text = json!("a".repeat(3_000_000));
    let pattern = json!("x*".repeat(500_000));
    vec![
        case("(a+)+$", "self.matches('(a+)+$')", &text, STOPPED_OR_NOT),
        case("(a|a)*b", "self.matches('(a|a)*b')", &text, STOPPED_OR_NOT),
        case("dynamic", "self.matches('(a+)' + '+$')", &text, STOPPED_OR_NOT),
        case("often", "lists.range(1000).all(x, self.matches('a$'))", &text, STOPPED),
        case("findAll", "self.findAll('a.')", &text, STOPPED),
        case(
            "many dynamic patterns",
            "lists.range(100000).all(x, !'b'.matches('[a-z]{1,100}' + string(x)))",
            &Value::Null,
            STOPPED,
        ),
        case(
            "large dynamic patterns",
            "lists.range(100000).all(x, !'b'.matches('\\\\pL{1,30}' + string(x)))",
            &Value::Null,
            STOPPED,
        ),
        case(
            "1 MB pattern",
            "'a'.matches(self)",
            &pattern,
            &["it has more than 65536 bytes", COST],
        ),
    ]
}

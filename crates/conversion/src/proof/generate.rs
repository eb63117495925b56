//! Objects generated from schemas: minimal, complete, and anything between; each as a client could
//! send it.

use super::focus::{Distance, Focus};
use super::random::Random;
use super::text::{Patterns, text};
use insula_api::Json;
use insula_meter::Meter;
use insula_schema::{ListType, Node, Structural, Type};
use serde_json::{Map, Number, json};

/// Maximum number of values in one object; optional fields beyond are left out.
const VALUES_MAX: usize = 400;
/// Number of these values that only the status has.
const STATUS_VALUES: usize = 60;
/// Tries to generate an object that the schema accepts.
const TRIES: usize = 8;

/// Fill level of a generated object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// Required fields only.
    Required,
    /// All fields.
    Full,
    /// This percentage of the optional fields.
    Some(usize),
    /// Most of the fields that rules touch and of those beside them; few others.
    Near,
}

/// Percentages of optional fields with [`Fill::Near`], by their distance.
const ON: usize = 90;
const BESIDE: usize = 60;
const FAR: usize = 10;

/// Generates an object that the schema accepts; `None` if every try failed. `focus`: the fields
/// that rules touch.
pub(super) fn object(
    schema: &Structural,
    (api_version, kind): (&Json, &str),
    fill: Fill,
    (focus, patterns): (Option<&Focus>, &Patterns),
    random: &mut Random,
    meter: &Meter,
) -> Option<Json> {
    (0..TRIES).find_map(|_| {
        let mut maker = Maker {
            fill,
            left: VALUES_MAX,
            patterns,
            random: random.fork(),
        };
        let mut made = maker.fields(schema.root(), true, focus);
        made.insert("apiVersion".to_owned(), api_version.clone());
        made.insert("kind".to_owned(), Json::from(kind));
        made.insert("metadata".to_owned(), maker.metadata());
        normal(Json::Object(made), schema, meter)
    })
}

/// Prunes and defaults an object, as the server does; `None` if it is not valid.
pub(super) fn normal(mut object: Json, schema: &Structural, meter: &Meter) -> Option<Json> {
    insula_schema::prune(&mut object, schema);
    insula_schema::drop_nulls(&mut object, schema);
    insula_schema::default(&mut object, schema);
    insula_schema::validate(&object, schema, meter)
        .is_empty()
        .then_some(object)
}

/// Prunes and defaults an edited object; `None` if the server would refuse the edit. Errors that
/// the object had before, in unchanged fields, are none.
pub(super) fn edited(mut object: Json, before: &Json, schema: &Structural, meter: &Meter) -> Option<Json> {
    insula_schema::prune(&mut object, schema);
    insula_schema::drop_nulls(&mut object, schema);
    insula_schema::default(&mut object, schema);
    let outcome = insula_schema::validate_update(&object, before, schema, meter);
    outcome.errors.is_empty().then_some(object)
}

struct Maker<'p> {
    fill: Fill,
    left: usize,
    patterns: &'p Patterns,
    random: Random,
}

impl Maker<'_> {
    fn metadata(&mut self) -> Json {
        let mut metadata = Map::from_iter([("name".to_owned(), Json::from("a"))]);
        for name in ["labels", "annotations"] {
            if self.random.chance(30) {
                metadata.insert(name.to_owned(), json!({"a": "x", "example.com/b": "y"}));
            }
        }
        if metadata.contains_key("labels") {
            metadata.insert("finalizers".to_owned(), json!(["example.com/a"]));
        }
        Json::Object(metadata)
    }

    fn wanted(&mut self, required: bool, distance: Distance) -> bool {
        required
            || self.left > 0
                && match self.fill {
                    Fill::Required => false,
                    Fill::Full => true,
                    Fill::Some(of_100) => self.random.chance(of_100),
                    Fill::Near => self.random.chance(match distance {
                        Distance::On => ON,
                        Distance::Beside => BESIDE,
                        Distance::Far => FAR,
                    }),
                }
    }

    fn fields(&mut self, node: &Node, root: bool, focus: Option<&Focus>) -> Map<String, Json> {
        let mut out = Map::new();
        let near = |name: &str| focus.and_then(|focus| focus.field(name));
        // Fields that rules touch come first: large fields before them would use up all values.
        // The status would have none in a large API, since it comes after the spec.
        let reserved = if root && node.property("status").is_some() {
            STATUS_VALUES
        } else {
            0
        };
        self.left = self.left.saturating_sub(reserved);
        let touched = node.properties().filter(|(name, _)| near(name).is_some());
        let others = node.properties().filter(|(name, _)| near(name).is_none());
        for (name, child) in touched.chain(others) {
            if root && matches!(name, "apiVersion" | "kind" | "metadata") {
                continue;
            }
            if root && name == "status" {
                self.left += reserved;
            }
            let required = node.required().iter().any(|r| r == name);
            if self.wanted(required, Focus::distance(focus, name))
                && let Some(value) = self.value(child, near(name))
            {
                out.insert(name.to_owned(), value);
            }
        }
        out
    }

    fn value(&mut self, node: &Node, focus: Option<&Focus>) -> Option<Json> {
        self.left = self.left.saturating_sub(1);
        if node.nullable() && self.random.chance(15) {
            return Some(Json::Null);
        }
        if !node.choices().is_empty() {
            return self.random.pick(node.choices()).cloned();
        }
        if let Some(default) = node.default().filter(|_| self.random.chance(15)) {
            return Some(default.clone());
        }
        if node.int_or_string() {
            let string = self.random.chance(50);
            return Some(if string {
                Json::from(text(node, self.patterns, &mut self.random))
            } else {
                self.number(node, true)
            });
        }
        Some(match node.kind() {
            Some(Type::String) => Json::from(text(node, self.patterns, &mut self.random)),
            Some(Type::Boolean) => Json::from(self.random.chance(50)),
            Some(Type::Integer) => self.number(node, true),
            Some(Type::Number) => self.number(node, false),
            Some(Type::Array) => self.list(node, focus),
            Some(Type::Object) => self.object(node, focus),
            None => self.guessed(focus),
        })
    }

    /// Makes a value of any type: mostly one with the fields that rules read or write.
    fn guessed(&mut self, focus: Option<&Focus>) -> Json {
        let Some(focus) = focus.filter(|_| self.left > 0 && self.random.chance(80)) else {
            return self.anything();
        };
        self.left = self.left.saturating_sub(1);
        if let Some(items) = focus.items() {
            return (0..self.random.below(3)).map(|_| self.guessed(Some(items))).collect();
        }
        if focus.fields().next().is_none() {
            return self.anything();
        }
        let mut out = Map::new();
        for (name, below) in focus.fields() {
            if self.random.chance(60) {
                out.insert(name.to_owned(), self.guessed(Some(below)));
            }
        }
        Json::Object(out)
    }

    fn anything(&mut self) -> Json {
        let values = [
            json!("x"),
            json!(1),
            json!(true),
            json!({"a": 1}),
            json!([1, "b"]),
            json!({"a": {"b": "c"}}),
        ];
        self.random.pick(&values).cloned().unwrap_or_default()
    }

    fn object(&mut self, node: &Node, focus: Option<&Focus>) -> Json {
        if node.embedded() {
            return json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        }
        let mut out = self.fields(node, false, focus);
        if let Some(values) = node.additional() {
            const KEYS: [&str; 5] = ["a", "b", "k-1", "x.y/z", "C"];
            let count = self.count(node.min_properties(), node.max_properties());
            let first = self.random.below(KEYS.len());
            for key in KEYS.iter().cycle().skip(first).take(count) {
                let inner = focus.and_then(|focus| focus.field(key).or(focus.items()));
                out.extend(self.value(values, inner).map(|value| ((*key).to_owned(), value)));
            }
        } else if node.preserves_unknown() {
            if self.wanted(false, Distance::Far) {
                out.insert("free".to_owned(), self.anything());
            }
            let named = focus.into_iter().flat_map(Focus::fields);
            for (name, below) in named.filter(|(name, _)| node.child(name).is_none()) {
                if self.wanted(false, Distance::On) {
                    out.insert(name.to_owned(), self.guessed(Some(below)));
                }
            }
        }
        Json::Object(out)
    }

    /// Chooses a number of items or entries within the bounds: at most three, unless more are
    /// required.
    fn count(&mut self, min: Option<usize>, max: Option<usize>) -> usize {
        let (min, max) = (min.unwrap_or(0), max.unwrap_or(3).min(3));
        let wanted = match self.fill {
            Fill::Required => 0,
            Fill::Full => 2,
            Fill::Some(_) | Fill::Near if self.left == 0 => 0,
            Fill::Some(_) | Fill::Near => self.random.below(4),
        };
        wanted.min(max).max(min).min(50)
    }

    fn list(&mut self, node: &Node, focus: Option<&Focus>) -> Json {
        let Some(items) = node.items() else {
            return json!([]);
        };
        let count = self.count(node.min_items(), node.max_items());
        let mut out: Vec<Json> = Vec::with_capacity(count);
        for _ in 0..count * 2 {
            if out.len() == count {
                break;
            }
            let Some(item) = self.value(items, focus.and_then(Focus::items)) else {
                break;
            };
            let again = match node.list_type() {
                ListType::Atomic => false,
                ListType::Set => out.contains(&item),
                ListType::Map { keys } => out
                    .iter()
                    .any(|other| keys.iter().all(|key| other.get(key) == item.get(key))),
            };
            if !again {
                out.push(item);
            }
        }
        Json::Array(out)
    }

    fn number(&mut self, node: &Node, whole: bool) -> Json {
        const WHOLE: [i64; 14] = [
            0,
            1,
            2,
            3,
            -1,
            10,
            60,
            80,
            443,
            1024,
            i32::MAX as i64,
            i32::MIN as i64,
            9_007_199_254_740_993,
            i64::MAX,
        ];
        const BROKEN: [f64; 6] = [0.5, -0.25, 1.5, 99.9, 1e300, 1e-9];
        let low = node
            .minimum()
            .map(|(bound, excluded)| bound + f64::from(u8::from(excluded)));
        let high = node
            .maximum()
            .map(|(bound, excluded)| bound - f64::from(u8::from(excluded)));
        let narrow = node.format() == Some("int32");
        let fits = |n: f64| low.is_none_or(|low| n >= low) && high.is_none_or(|high| n <= high);
        let mut fitting: Vec<Number> = WHOLE
            .iter()
            .filter(|n| fits(**n as f64) && (!narrow || i32::try_from(**n).is_ok()))
            .map(|n| Number::from(*n))
            .collect();
        for bound in [low, high].into_iter().flatten() {
            let exact = bound.fract() == 0.0 && bound.abs() < 9e15;
            if exact && fits(bound) {
                fitting.push(Number::from(bound as i64));
            } else if !whole {
                fitting.extend(Number::from_f64(bound));
            }
        }
        if !whole {
            fitting.extend(BROKEN.iter().filter(|n| fits(**n)).filter_map(|n| Number::from_f64(*n)));
        }
        self.random.pick(&fitting).cloned().map_or(json!(0), Json::Number)
    }
}

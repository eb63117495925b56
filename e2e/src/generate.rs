//! Objects for a schema, and objects that violate it in one place.
//!
//! Generated objects respect types, enumerations, bounds, patterns and formats. The generator knows
//! neither CEL rules nor junctors (`oneOf`, `not`). So a server may refuse a generated object for
//! these, and only for these.

use proptest::{
    strategy::{Strategy, ValueTree},
    string::string_regex,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Map, Value, json};

/// Depth below which only required fields are generated.
const DEPTH_MAX: usize = 12;
/// Number of entries of lists and maps, unless their bounds require more.
const ENTRIES_MAX: u64 = 2;

/// Makes objects; the same seed makes the same ones.
pub struct Generator {
    random: u64,
    /// Percentage of optional fields that are set.
    share: u64,
}

/// A change that makes an object invalid, and the expected refusal.
#[derive(Debug)]
pub struct Breakage {
    /// The broken object.
    pub object: Value,
    /// The field that the refusal names.
    pub field: String,
    /// A part of the message.
    pub message: &'static str,
}

impl Generator {
    /// Creates a generator with a seed and the share (in percent) of optional fields that are set.
    pub fn new(seed: u64, share: u64) -> Self {
        // The stream must not begin with zeros for small seeds.
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { random, share }
    }

    /// Returns a number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        // xorshift64*: good enough to choose, and the same everywhere.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound.max(1)
    }

    /// Returns a value for a node of a schema.
    pub fn value(&mut self, schema: &Value, depth: usize) -> Value {
        if let Some(values) = schema["enum"].as_array() {
            return values[self.below(values.len() as u64) as usize].clone();
        }
        if schema["x-kubernetes-int-or-string"] == true {
            return json!(self.below(100));
        }
        match schema["type"].as_str() {
            Some("string") => self.text(schema).into(),
            Some("integer") => self.number(schema).into(),
            Some("number") => json!(self.number(schema) as f64),
            Some("boolean") => (self.below(2) == 0).into(),
            Some("array") => self.list(schema, depth).into(),
            _ => self.object(schema, depth).into(),
        }
    }

    fn object(&mut self, schema: &Value, depth: usize) -> Map<String, Value> {
        let mut object = Map::new();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let optional = depth < DEPTH_MAX && self.below(100) < self.share;
            if required(schema, name) || optional {
                object.insert(name.clone(), self.value(field, depth + 1));
            }
        }
        if schema["additionalProperties"].is_object() {
            let least = schema["minProperties"].as_u64().unwrap_or(0);
            let count = least.max(if depth < DEPTH_MAX {
                self.below(ENTRIES_MAX + 1)
            } else {
                0
            });
            for index in 0..count {
                let value = self.value(&schema["additionalProperties"], depth + 1);
                object.insert(format!("key{index}"), value);
            }
        }
        object
    }

    fn list(&mut self, schema: &Value, depth: usize) -> Vec<Value> {
        let least = schema["minItems"].as_u64().unwrap_or(0);
        let most = schema["maxItems"].as_u64().unwrap_or(ENTRIES_MAX).max(least);
        let wanted = if depth < DEPTH_MAX {
            self.below(ENTRIES_MAX + 1)
        } else {
            0
        };
        let keys = schema["x-kubernetes-list-map-keys"].as_array();
        let mut items: Vec<Value> = Vec::new();
        for _ in 0..wanted.clamp(least, most) {
            let mut item = self.value(&schema["items"], depth + 1);
            for key in keys.into_iter().flatten().filter_map(Value::as_str) {
                // Omitted where an optional key has no default, because the list would refuse it.
                let field = &schema["items"]["properties"][key];
                if item.get(key).is_none() && field.get("default").is_none() {
                    item[key] = self.value(field, depth + 1);
                }
            }
            let key_of = |item: &Value| match keys {
                Some(keys) => keys
                    .iter()
                    .filter_map(Value::as_str)
                    .map(|key| item[key].clone())
                    .collect(),
                None => item.clone(),
            };
            let distinct = schema["x-kubernetes-list-type"].is_string();
            if !distinct || items.iter().all(|other| key_of(other) != key_of(&item)) {
                items.push(item);
            }
        }
        items
    }

    fn number(&mut self, schema: &Value) -> i64 {
        let least = schema["minimum"].as_f64().unwrap_or(0.0) as i64 + i64::from(schema["exclusiveMinimum"] == true);
        let most = schema["maximum"].as_f64().map_or(least + 1000, |most| most as i64);
        least + self.below((most - least + 1).unsigned_abs()) as i64
    }

    fn text(&mut self, schema: &Value) -> String {
        let least = schema["minLength"].as_u64().unwrap_or(0);
        let most = schema["maxLength"].as_u64().unwrap_or(40).max(least);
        let fits = |text: &String| (least..=most).contains(&(text.chars().count() as u64));
        if let Some(pattern) = schema["pattern"].as_str() {
            // Anchors mean nothing because whole texts are generated; the empty alternative would
            // be too easy.
            let whole = pattern.replace("^$|^", "");
            let whole = whole.trim_start_matches('^').trim_end_matches('$');
            let strategy = string_regex(whole).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            let seed = self.below(u64::MAX).to_le_bytes().repeat(4);
            let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
            let mut runner = TestRunner::new_with_rng(Config::default(), rng);
            let mut tries = (0..200)
                .filter_map(|_| strategy.new_tree(&mut runner).ok())
                .map(|tree| tree.current());
            return tries
                .find(fits)
                .unwrap_or_else(|| panic!("{pattern} and {least}..={most}"));
        }
        match schema["format"].as_str() {
            Some("date-time") => "2026-01-02T03:04:05Z".to_owned(),
            Some("byte") => "aGVsbG8=".to_owned(),
            _ => {
                let text = format!("text-{}", self.below(1000));
                let padded = format!("{text:x<width$}", width = least as usize);
                padded.chars().take(most as usize).collect()
            }
        }
    }

    /// Breaks a valid object at each place that this schema constrains. Makes at most one breakage
    /// of each kind and place.
    pub fn breakages(&self, schema: &Value, object: &Value) -> Vec<Breakage> {
        let mut found = Vec::new();
        // The metadata of the whole object is Kubernetes' and not the schema's.
        for (name, value) in object.as_object().into_iter().flatten() {
            if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                let location = FieldLocation {
                    pointer: format!("/{name}"),
                    field: name.clone(),
                };
                walk(&schema["properties"][name], value, &location, object, &mut found);
            }
        }
        found
    }
}

fn required(schema: &Value, name: &str) -> bool {
    schema["required"]
        .as_array()
        .is_some_and(|names| names.iter().any(|required| required == name))
}

/// A field of an object, as JSON pointers and as field errors write it.
struct FieldLocation {
    pointer: String,
    field: String,
}

fn walk(schema: &Value, value: &Value, location: &FieldLocation, whole: &Value, found: &mut Vec<Breakage>) {
    for (broken, message) in broken_values(schema) {
        let mut object = whole.clone();
        if let Some(target) = object.pointer_mut(&location.pointer) {
            *target = broken;
        }
        found.push(Breakage {
            object,
            field: location.field.clone(),
            message,
        });
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let pointer = format!("{}/{}", location.pointer, name.replace('~', "~0").replace('/', "~1"));
                let (schema_of, field) = match schema["properties"].get(name) {
                    Some(schema_of) => (schema_of, format!("{}.{name}", location.field)),
                    None => (&schema["additionalProperties"], format!("{}.{name}", location.field)),
                };
                if required(schema, name) && schema_of.get("default").is_none() {
                    let mut object = whole.clone();
                    if let Some(Value::Object(parent)) = object.pointer_mut(&location.pointer) {
                        parent.remove(name);
                    }
                    found.push(Breakage {
                        object,
                        field: field.clone(),
                        message: "Required value",
                    });
                }
                walk(schema_of, value, &FieldLocation { pointer, field }, whole, found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                let pointer = format!("{}/{index}", location.pointer);
                let field = format!("{}[{index}]", location.field);
                walk(&schema["items"], value, &FieldLocation { pointer, field }, whole, found);
            }
        }
        _ => {}
    }
}

/// Returns values that violate the schema of a node, with a part of the expected message.
fn broken_values(schema: &Value) -> Vec<(Value, &'static str)> {
    let mut broken = Vec::new();
    // The message for a string with a format names the format instead of the type. So the type is
    // not part of the expected message.
    match schema["type"].as_str() {
        Some("string") => broken.push((json!({"a": 1}), "must be of type ")),
        Some(_) => broken.push((json!("text"), "must be of type ")),
        None => {}
    }
    if schema["enum"].is_array() && schema["type"] == "string" {
        broken.push((json!("not one of these"), "Unsupported value"));
    }
    if schema["minLength"].as_u64().is_some_and(|least| least > 0) {
        broken.push((json!(""), "should be at least"));
    }
    if let Some(most) = schema["maxLength"].as_u64().filter(|most| *most < 10_000) {
        broken.push((json!("x".repeat(most as usize + 1)), "may not be more than"));
    }
    if let Some(least) = schema["minimum"].as_i64() {
        broken.push((json!(least - 1), "should be greater than"));
    }
    if let Some(most) = schema["maximum"].as_i64() {
        broken.push((json!(most + 1), "should be less than"));
    }
    if schema["minItems"].as_u64().is_some_and(|least| least > 0) {
        broken.push((json!([]), "should have at least"));
    }
    broken
}

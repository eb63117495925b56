//! Building of values from JSON and YAML, with notes of duplicate keys.

use insula_api::Json;
use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number};
use std::{
    cell::{Cell, RefCell},
    fmt,
};

/// Duplicate keys that are reported.
const DUPLICATES_MAX: usize = 100;

/// Notes of duplicate keys while a value is built.
#[derive(Default)]
pub(super) struct Notes<'a> {
    path: RefCell<String>,
    duplicates: RefCell<Vec<String>>,
    /// Line of the last key, if lines are wanted.
    lines: Option<Cell<usize>>,
    /// Duplicates with their lines.
    repeated: RefCell<Vec<String>>,
    /// Called with the path of each key.
    meet: Option<&'a dyn Fn(&str)>,
}

impl<'a> Notes<'a> {
    /// Returns notes that call a function with the path of each key.
    pub(super) fn with_visitor(meet: &'a dyn Fn(&str)) -> Self {
        Notes {
            meet: Some(meet),
            ..Notes::default()
        }
    }

    /// Returns notes that record the lines of duplicate keys, too.
    pub(super) fn with_lines() -> Self {
        Notes {
            lines: Some(Cell::new(0)),
            ..Notes::default()
        }
    }

    /// Takes the duplicate keys with their lines.
    pub(super) fn take_repeated(&self) -> Vec<String> {
        self.repeated.take()
    }

    /// Takes the paths of duplicate keys.
    pub(super) fn take_duplicates(&self) -> Vec<String> {
        self.duplicates.take()
    }

    /// Runs `inner` with a path that is one step longer.
    fn below<T>(&self, step: impl fmt::Display, inner: impl FnOnce() -> T) -> T {
        use fmt::Write;
        let length = self.path.borrow().len();
        // Writing to a String cannot fail.
        let _ = write!(self.path.borrow_mut(), "{step}");
        let result = inner();
        self.path.borrow_mut().truncate(length);
        result
    }

    fn meet(&self) {
        if let Some(meet) = self.meet {
            meet(&self.path.borrow());
        }
    }

    fn duplicate(&self, key: &str) {
        let mut duplicates = self.duplicates.borrow_mut();
        if let Some(line) = &self.lines
            && duplicates.len() < DUPLICATES_MAX
        {
            let line = line.get();
            let message = format!("line {line}: key {key:?} already set in map");
            self.repeated.borrow_mut().push(message);
        }
        if duplicates.len() < DUPLICATES_MAX {
            let path = self.path.borrow();
            let found = if path.is_empty() {
                key.to_owned()
            } else {
                format!("{path}.{key}")
            };
            if !duplicates.contains(&found) {
                duplicates.push(found);
            }
        }
    }
}

/// The form of whole numbers that are written with a point or an exponent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WholeFloats {
    /// Integers, as which Kubernetes reads them again from what it stores.
    Integers,
    /// Floats, as Go decodes them: no integer of a struct takes one.
    Floats,
}

/// Builds a value. Numbers are as in Go: an `int64` where they fit one, else a float.
#[derive(Clone, Copy)]
pub(super) struct Build<'a> {
    pub(super) notes: &'a Notes<'a>,
    pub(super) whole: WholeFloats,
    pub(super) depth: usize,
    pub(super) depth_max: usize,
}

/// Returns the integer that a float is read as again from what Go writes: `1.0` is written `1`. Of
/// floats above `MAX_SAFE` Kubernetes makes integers, too, but no field of an integer takes them.
fn integer(float: f64) -> Option<i64> {
    /// The largest integer up to which floats hold all integers.
    const MAX_SAFE: f64 = 9_007_199_254_740_991.0;
    (float.fract() == 0.0 && float.abs() <= MAX_SAFE).then_some(float as i64)
}

/// Turns whole floats into [`WholeFloats::Integers`].
pub(super) fn store_as_integers(value: &mut Json) {
    match value {
        Json::Number(number) if number.is_f64() => {
            if let Some(whole) = number.as_f64().and_then(integer) {
                *value = Json::Number(whole.into());
            }
        }
        Json::Array(items) => items.iter_mut().for_each(store_as_integers),
        Json::Object(map) => map.values_mut().for_each(store_as_integers),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

impl Build<'_> {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth < self.depth_max {
            true => Ok(Build {
                depth: self.depth + 1,
                ..self
            }),
            false => Err(E::custom(format_args!("exceeded max depth of {}", self.depth_max))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Build<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Build<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_none<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(match i64::try_from(value) {
            Ok(value) => Json::Number(value.into()),
            Err(_) => Number::from_f64(value as f64).map_or(Json::Null, Json::Number),
        })
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Json, E> {
        if let (WholeFloats::Integers, Some(whole)) = (self.whole, integer(value)) {
            return Ok(Json::Number(whole.into()));
        }
        Number::from_f64(value)
            .map(Json::Number)
            .ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let inner = self.deeper()?;
        let mut list = Vec::new();
        while let Some(item) = self
            .notes
            .below(format_args!("[{}]", list.len()), || seq.next_element_seed(inner))?
        {
            list.push(item);
        }
        Ok(Json::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let inner = self.deeper()?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key_seed(Key(self.notes))? {
            if map.contains_key(&key) {
                self.notes.duplicate(&key);
            }
            let dot = if self.depth == 0 { "" } else { "." };
            let value = self.notes.below(format_args!("{dot}{key}"), || {
                self.notes.meet();
                entries.next_value_seed(inner)
            })?;
            map.insert(key, value);
        }
        Ok(Json::Object(map))
    }
}

/// A key: a text, or in YAML a scalar in its text form.
struct Key<'a>(&'a Notes<'a>);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        let Some(line) = &self.0.lines else {
            return deserializer.deserialize_str(self);
        };
        let key = serde_saphyr::Spanned::<String>::deserialize(deserializer)?;
        line.set(usize::try_from(key.referenced.line()).unwrap_or_default());
        Ok(key.value)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, value: &str) -> Result<String, E> {
        Ok(value.to_owned())
    }

    fn visit_string<E>(self, value: String) -> Result<String, E> {
        Ok(value)
    }
}

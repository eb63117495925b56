//! Run-time values. JSON is borrowed in place; computed values are shared by reference count.
//!
//! Lists and maps from JSON carry their declaration, if there is one, and their parts are read by
//! the declarations of the parts (`typed`). Nothing is converted before it is read.

use crate::decl::Decl;
use crate::error::{EvalError, invalid};
use crate::opaque::Opaque;
use jiff::civil::DateTime;
use serde_json::{Map, Number, Value};
use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;

/// Result of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A JSON value.
    Value(Value),
    /// No value: an absent field was selected, or the result is `optional.none()`.
    Absent,
}

/// A run-time value. Cloning costs at most a reference count.
///
/// The eight-byte tag lets a value move as three words. With a smaller tag the payload of some
/// variants starts right behind it, and the compiler's unaligned moves stall each other: loops take
/// twice as long.
#[derive(Debug, Clone)]
#[repr(u64)]
pub(crate) enum Val<'v> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Str(&'v str),
    String(Rc<str>),
    Bytes(Rc<[u8]>),
    JsonList(&'v Vec<Value>, Declared<'v>),
    List(Rc<ListVal<'v>>),
    JsonMap(&'v Map<String, Value>, Declared<'v>),
    Map(Rc<MapVal<'v>>),
    Optional(Option<Rc<Val<'v>>>),
    /// A time in UTC. Not `jiff::Timestamp`, which ends a day before `9999-12-31T23:59:59Z`, a
    /// usual "never".
    Timestamp(DateTime),
    /// Nanoseconds, as Go's `time.Duration`.
    Duration(i64),
    Type(&'static str),
    /// A value of a library's type.
    Opaque(Rc<Opaque<'v>>),
    /// Data that does not fit its declaration, for example stored before a schema change. The
    /// evaluator returns an error when it is read.
    Invalid(Rc<str>),
}

/// Result of evaluating an expression.
pub(crate) type Result<'v> = std::result::Result<Val<'v>, EvalError>;

// An error lies where the value would be. Every step unpacks a result; this way it need not move
// it.
const _: () = assert!(size_of::<Result<'_>>() == size_of::<Val<'_>>());

/// A constant of a program.
#[derive(Debug, Clone)]
pub(crate) enum Const {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Box<str>),
    Bytes(Arc<[u8]>),
    Type(&'static str),
    Timestamp(DateTime),
    Duration(i64),
    /// A list or a map of constants that JSON can hold.
    Json(Box<Value>),
}

/// Declaration of a value from JSON; `None` is `dyn`.
pub(crate) type Declared<'v> = Option<&'v Decl>;

/// A computed list. It keeps the declaration of the list that it extends: the union of two sets is
/// a set.
#[derive(Debug)]
pub(crate) struct ListVal<'v> {
    pub(crate) items: Vec<Val<'v>>,
    pub(crate) declared: Declared<'v>,
}

/// A computed map. Invariant: entries are sorted by `key_order` and no two keys are equal, so that
/// lookups are binary searches and iteration has one order.
#[derive(Debug)]
pub(crate) struct MapVal<'v> {
    pub(crate) entries: Vec<(Val<'v>, Val<'v>)>,
}

/// Reason why entries make no map.
#[derive(Debug)]
pub(crate) enum Repeated {
    /// Two entries have this key.
    Key(String),
    /// A value of this type cannot be a key.
    NotAKey,
}

/// The message is that of a map literal.
impl From<Repeated> for EvalError {
    fn from(repeated: Repeated) -> Self {
        invalid(match repeated {
            Repeated::Key(key) => format!("Failed with repeated key: {key}"),
            Repeated::NotAKey => "unsupported key type".to_owned(),
        })
    }
}

impl<'v> MapVal<'v> {
    /// Sorts the entries. An unusable or repeated key is an error.
    pub(crate) fn new(mut entries: Vec<(Val<'v>, Val<'v>)>) -> std::result::Result<Self, Repeated> {
        if entries.iter().any(|(k, _)| !k.is_key()) {
            return Err(Repeated::NotAKey);
        }
        entries.sort_unstable_by(|a, b| key_order(&a.0, &b.0));
        if let Some(pair) = entries.windows(2).find(|w| key_order(&w[0].0, &w[1].0).is_eq()) {
            return Err(Repeated::Key(key_text(&pair[0].0).unwrap_or_default()));
        }
        Ok(Self { entries })
    }

    pub(crate) fn get(&self, key: &Val<'v>) -> Option<&Val<'v>> {
        self.entries
            .binary_search_by(|(k, _)| key_order(k, key))
            .ok()
            .map(|i| &self.entries[i].1)
    }

    pub(crate) fn get_str(&self, key: &str) -> Option<&Val<'v>> {
        self.entries
            .binary_search_by(|(k, _)| key_order(k, &Val::Str(key)))
            .ok()
            .map(|i| &self.entries[i].1)
    }
}

/// Orders keys: numbers by value, then booleans, then strings. Total over usable keys.
fn key_order(a: &Val<'_>, b: &Val<'_>) -> std::cmp::Ordering {
    fn rank(v: &Val<'_>) -> (u8, i128) {
        match v {
            Val::Int(i) => (0, i128::from(*i)),
            Val::Uint(u) => (0, i128::from(*u)),
            // A whole double matches the equal integer key; any other double matches nothing.
            Val::Double(d) if d.fract() == 0.0 && d.abs() < 1.9e19 => (0, *d as i128),
            Val::Bool(b) => (1, i128::from(*b)),
            Val::Str(_) | Val::String(_) => (2, 0),
            _ => (3, 0),
        }
    }
    match (a.as_str(), b.as_str()) {
        (Some(a), Some(b)) => a.cmp(b),
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Returns a key as text, for messages and for JSON, whose keys are strings.
pub(crate) fn key_text(key: &Val<'_>) -> Option<String> {
    Some(match key {
        Val::Bool(b) => b.to_string(),
        Val::Int(i) => i.to_string(),
        Val::Uint(u) => u.to_string(),
        Val::Double(d) => d.to_string(),
        _ => key.as_str()?.to_owned(),
    })
}

impl<'v> Val<'v> {
    /// Clones a value in a loop: frequent kinds are copied inline, others by a call.
    #[inline]
    pub(crate) fn copied(&self) -> Self {
        match self {
            Self::Bool(b) => Self::Bool(*b),
            Self::Int(i) => Self::Int(*i),
            Self::Str(text) => Self::Str(text),
            Self::JsonMap(fields, declared) => Self::JsonMap(fields, *declared),
            other => other.clone(),
        }
    }

    /// Returns a value that borrows lists and maps and copies scalars. Integers are `int` unless
    /// only `uint` can hold them.
    #[inline]
    pub(crate) fn from_json(json: &'v Value) -> Self {
        match json {
            Value::Null => Self::Null,
            Value::Bool(b) => Self::Bool(*b),
            Value::Number(n) => Self::number(n),
            Value::String(s) => Self::Str(s),
            Value::Array(items) => Self::JsonList(items, None),
            Value::Object(fields) => Self::JsonMap(fields, None),
        }
    }

    /// Returns a value that does not borrow, for data that does not outlive the activation.
    pub(crate) fn owned(json: &Value) -> Val<'static> {
        match json {
            Value::Null => Val::Null,
            Value::Bool(b) => Val::Bool(*b),
            Value::String(s) => Val::string(s.as_str()),
            Value::Array(items) => Val::list(items.iter().map(Val::owned).collect()),
            Value::Object(fields) => {
                // Sorted and unique already, as keys of a JSON map.
                let entries = fields.iter().map(|(k, v)| (Val::string(k.as_str()), Val::owned(v)));
                Val::Map(Rc::new(MapVal {
                    entries: entries.collect(),
                }))
            }
            Value::Number(n) => Val::number(n),
        }
    }

    #[inline]
    fn number(number: &Number) -> Self {
        if let Some(i) = number.as_i64() {
            return Self::Int(i);
        }
        match number.as_u64() {
            Some(u) => Self::Uint(u),
            None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
        }
    }

    #[inline]
    pub(crate) fn from_const(constant: &'v Const) -> Self {
        match constant {
            Const::Null => Self::Null,
            Const::Bool(b) => Self::Bool(*b),
            Const::Int(i) => Self::Int(*i),
            Const::Uint(u) => Self::Uint(*u),
            Const::Double(d) => Self::Double(*d),
            Const::String(s) => Self::Str(s),
            Const::Bytes(b) => Self::Bytes(Rc::from(&b[..])),
            Const::Type(name) => Self::Type(name),
            Const::Timestamp(time) => Self::Timestamp(*time),
            Const::Duration(nanos) => Self::Duration(*nanos),
            Const::Json(value) => Self::from_json(value),
        }
    }

    pub(crate) fn string(text: impl Into<Rc<str>>) -> Self {
        Self::String(text.into())
    }

    pub(crate) fn list(items: Vec<Val<'v>>) -> Self {
        Self::List(Rc::new(ListVal { items, declared: None }))
    }

    pub(crate) fn some(value: Val<'v>) -> Self {
        Self::Optional(Some(Rc::new(value)))
    }

    #[inline]
    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(s) => Some(s),
            Self::String(s) => Some(s),
            _ => None,
        }
    }

    /// Returns the declaration of a list, which may make it a set.
    pub(crate) fn declared(&self) -> Declared<'v> {
        match self {
            Self::JsonList(_, declared) | Self::JsonMap(_, declared) => *declared,
            Self::List(list) => list.declared,
            _ => None,
        }
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self, Self::JsonMap(..) | Self::Map(_))
    }

    fn is_key(&self) -> bool {
        matches!(
            self,
            Self::Bool(_) | Self::Int(_) | Self::Uint(_) | Self::Str(_) | Self::String(_)
        )
    }

    /// Returns the number of entries of a map.
    pub(crate) fn map_len(&self) -> Option<usize> {
        match self {
            Self::JsonMap(fields, _) => Some(fields.len()),
            Self::Map(map) => Some(map.entries.len()),
            _ => None,
        }
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Str(_) | Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::JsonList(..) | Self::List(_) => "list",
            Self::JsonMap(..) | Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::Opaque(value) => value.type_name(),
            Self::Invalid(_) => "error",
        }
    }
}

/// Returns the order of two numbers; `None` if one is no number, `Some(None)` if one is NaN.
pub(crate) fn numeric(left: &Val<'_>, right: &Val<'_>) -> Option<Option<Ordering>> {
    Some(match (left, right) {
        (Val::Int(a), Val::Int(b)) => Some(a.cmp(b)),
        (Val::Uint(a), Val::Uint(b)) => Some(a.cmp(b)),
        (Val::Double(a), Val::Double(b)) => a.partial_cmp(b),
        (Val::Int(a), Val::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Val::Uint(a), Val::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Val::Int(a), Val::Double(b)) => integer_to_double(i128::from(*a), *b),
        (Val::Uint(a), Val::Double(b)) => integer_to_double(i128::from(*a), *b),
        (Val::Double(a), Val::Int(b)) => integer_to_double(i128::from(*b), *a).map(Ordering::reverse),
        (Val::Double(a), Val::Uint(b)) => integer_to_double(i128::from(*b), *a).map(Ordering::reverse),
        _ => return None,
    })
}

/// Compares exactly, where casting the integer would round it.
fn integer_to_double(integer: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // The cast saturates, so doubles beyond i128 order correctly too.
    let whole = integer.cmp(&(double.trunc() as i128));
    Some(whole.then_with(|| 0.0_f64.total_cmp(&(double.fract() + 0.0))))
}

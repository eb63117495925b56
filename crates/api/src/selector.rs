//! Label and field selectors with Kubernetes' grammar and texts.

use std::collections::BTreeMap;

/// One term of a label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requirement {
    /// `key in (a,b)`, `key=a`.
    In(String, Vec<String>),
    /// `key notin (a,b)`, `key!=a`; also true without the key.
    NotIn(String, Vec<String>),
    /// `key`.
    Exists(String),
    /// `!key`.
    DoesNotExist(String),
    /// `key>5`.
    GreaterThan(String, i64),
    /// `key<5`.
    LessThan(String, i64),
}

/// All requirements must hold; none matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector {
    /// The terms.
    pub requirements: Vec<Requirement>,
}

/// Terms `(field, value, equal)`: all must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    /// Field path as written, value, and whether it must be equal (`=`) or differ (`!=`).
    pub terms: Vec<(String, String, bool)>,
}

/// The text is no selector. Displays Kubernetes' words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);

impl LabelSelector {
    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the labels satisfy every term.
    pub fn matches(&self, labels: &BTreeMap<Box<str>, Box<str>>) -> bool {
        let get = |key: &String| labels.get(key.as_str()).map(|v| &**v);
        let number = |key: &String| get(key).and_then(|v| v.parse::<i64>().ok());
        self.requirements.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => get(key).is_some_and(|v| values.iter().any(|w| w == v)),
            Requirement::NotIn(key, values) => get(key).is_none_or(|v| values.iter().all(|w| w != v)),
            Requirement::Exists(key) => get(key).is_some(),
            Requirement::DoesNotExist(key) => get(key).is_none(),
            Requirement::GreaterThan(key, bound) => number(key).is_some_and(|n| n > *bound),
            Requirement::LessThan(key, bound) => number(key).is_some_and(|n| n < *bound),
        })
    }
}

impl FieldSelector {
    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether the values that `lookup` gives for each field satisfy every term.
    pub fn matches(&self, lookup: impl Fn(&str) -> String) -> bool {
        self.terms.iter().all(|(field, value, equal)| (lookup(field) == *value) == *equal)
    }
}

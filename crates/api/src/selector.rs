//! Label and field selectors with the grammar and the messages of Kubernetes.
//!
//! ```text
//! labels   tier=x  tier==x  tier!=x  tier  !tier  tier in (x,y)  tier notin (x)  zone>2  zone<5
//! fields   metadata.name=a  metadata.name==a  metadata.name!=a
//!
//! Terms are joined by ","; "\" escapes "\", "," and "=" in the values of fields.
//! ```
//! Each resource decides which fields it supports; the grammar admits all.

mod labels;
mod names;
#[cfg(test)]
mod tests;

use crate::{Json, Labels};
use std::fmt;

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

/// Label selector: all requirements must hold. Without requirements it matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector {
    /// The terms.
    pub requirements: Vec<Requirement>,
}

/// Field selector: all terms must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    /// Terms: field path as written, value, and true for `=` or false for `!=`.
    pub terms: Vec<(String, String, bool)>,
}

/// Error for a text that is no selector, with the message of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);

impl Requirement {
    /// Returns the key of its label.
    pub fn key(&self) -> &str {
        match self {
            Requirement::In(key, _)
            | Requirement::NotIn(key, _)
            | Requirement::Exists(key)
            | Requirement::DoesNotExist(key)
            | Requirement::GreaterThan(key, _)
            | Requirement::LessThan(key, _) => key,
        }
    }
}

impl LabelSelector {
    /// Decides the requirements on a label that all objects have: those that hold go, and one that
    /// does not matches nothing.
    pub(crate) fn assume(&mut self, key: &str, value: &str) {
        let labels: Labels = std::iter::once((key.into(), value.into())).collect();
        self.requirements.retain_mut(|requirement| {
            if requirement.key() != key {
                return true;
            }
            let alone = LabelSelector {
                requirements: vec![requirement.clone()],
            };
            *requirement = Requirement::In(key.to_owned(), Vec::new());
            !alone.matches(&labels)
        });
    }

    /// Parses the text of `?labelSelector=`. The empty text selects everything. Terms come out
    /// sorted by key.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = labels::parse(text)?;
        requirements.sort_by(|a, b| a.key().cmp(b.key()));
        Ok(LabelSelector { requirements })
    }

    /// Reads a `metav1.LabelSelector` object. `{}` selects everything; `null` is refused, because
    /// an absent selector means nothing to some kinds and everything to others, which only the
    /// caller knows.
    pub fn from_json(selector: &Json) -> Result<Self, SelectorError> {
        let object = selector
            .as_object()
            .ok_or_else(|| malformed("a label selector must be an object"))?;
        let mut requirements = Vec::new();
        if let Some(entries) = object.get("matchLabels").filter(|v| !v.is_null()) {
            let entries = entries
                .as_object()
                .ok_or_else(|| malformed("matchLabels must be an object"))?;
            for (key, value) in entries {
                let value = value
                    .as_str()
                    .ok_or_else(|| malformed("values of matchLabels must be strings"))?;
                requirements.push(labels::equals(key, value)?);
            }
        }
        if let Some(expressions) = object.get("matchExpressions").filter(|v| !v.is_null()) {
            let list = expressions
                .as_array()
                .ok_or_else(|| malformed("matchExpressions must be a list"))?;
            for expression in list {
                requirements.push(labels::expression(expression)?);
            }
        }
        requirements.sort_by(|a, b| a.key().cmp(b.key()));
        Ok(LabelSelector { requirements })
    }

    /// Returns true if it matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the keys of the labels that it looks at.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.requirements.iter().map(Requirement::key)
    }

    /// Returns the comparisons that it takes to match an object, at most.
    pub fn comparisons(&self) -> usize {
        let of = |requirement: &Requirement| match requirement {
            Requirement::In(_, values) | Requirement::NotIn(_, values) => 1 + values.len(),
            Requirement::Exists(_)
            | Requirement::DoesNotExist(_)
            | Requirement::GreaterThan(..)
            | Requirement::LessThan(..) => 1,
        };
        self.requirements.iter().map(of).sum()
    }

    /// Returns true if the labels satisfy every term.
    pub fn matches(&self, labels: &Labels) -> bool {
        let get = |key: &String| labels.get(key.as_str());
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

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Requirement::In(key, values) => match values.as_slice() {
                [value] => write!(f, "{key}={value}"),
                _ => write!(f, "{key} in ({})", values.join(",")),
            },
            Requirement::NotIn(key, values) => match values.as_slice() {
                [value] => write!(f, "{key}!={value}"),
                _ => write!(f, "{key} notin ({})", values.join(",")),
            },
            Requirement::Exists(key) => f.write_str(key),
            Requirement::DoesNotExist(key) => write!(f, "!{key}"),
            Requirement::GreaterThan(key, bound) => write!(f, "{key}>{bound}"),
            Requirement::LessThan(key, bound) => write!(f, "{key}<{bound}"),
        }
    }
}

impl FieldSelector {
    /// Parses the text of `?fieldSelector=`. The empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parts = split_terms(text);
        // Sorted as Kubernetes does, so that the same broken part is named.
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((index, operator)) = first_operator(part) else {
                return Err(SelectorError(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            let value = unescape(&part[index + operator.len()..])?;
            terms.push((part[..index].to_owned(), value, operator != "!="));
        }
        Ok(FieldSelector { terms })
    }

    /// Returns true if it matches everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns true if the values that `lookup` gives for the fields satisfy every term.
    pub fn matches(&self, lookup: impl Fn(&str) -> String) -> bool {
        self.terms
            .iter()
            .all(|(field, value, equal)| (lookup(field) == *value) == *equal)
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (field, value, equal)) in self.terms.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            let (comma, operator) = (if index > 0 { "," } else { "" }, if *equal { "=" } else { "!=" });
            write!(f, "{comma}{field}{operator}{value}")?;
        }
        Ok(())
    }
}

fn malformed(text: &str) -> SelectorError {
    SelectorError(text.to_owned())
}

// Field selectors: terms, operators, escapes.

fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (index, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn first_operator(part: &str) -> Option<(usize, &'static str)> {
    part.char_indices().find_map(|(index, _)| {
        ["!=", "==", "="]
            .into_iter()
            .find(|operator| part[index..].starts_with(operator))
            .map(|o| (index, o))
    })
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let bad = |sequence: String| SelectorError(format!("invalid field selector: invalid escape sequence: {sequence}"));
    let (mut out, mut escaped) = (String::with_capacity(value.len()), false);
    for c in value.chars() {
        match (escaped, c) {
            (true, '\\' | ',' | '=') => {
                out.push(c);
                escaped = false;
            }
            (true, other) => return Err(bad(format!("\\{other}"))),
            (false, '\\') => escaped = true,
            (false, ',' | '=') => {
                // Kubernetes prints the character's number.
                let number = u32::from(c);
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {number}"
                )));
            }
            (false, other) => out.push(other),
        }
    }
    if escaped { Err(bad("\\".to_owned())) } else { Ok(out) }
}

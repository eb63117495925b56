//! JSONPath of printer columns: kubectl's dialect, evaluated on one object.
//!
//! `.a.b`, `.a\.b`, `['a']`, `[0]`, `[-1]`, `[0:2]`, `[0,2]`, `[*]`, `.*`, `..a`,
//! `[?(@.type=="Ready")].status`. A missing value gives no result, never an error.

use insula_api::Json;
use std::cmp::Ordering;

/// Bytes of a path. Longer paths are refused.
pub const JSON_PATH_BYTES_MAX: usize = 4096;
/// Values that a path may yield, so that `..*..*` stays cheap.
const RESULTS_MAX: usize = 10_000;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Fields(Vec<String>),
    Each,
    Indices(Vec<i64>),
    Slice {
        from: Option<i64>,
        to: Option<i64>,
        by: i64,
    },
    Descendants,
    Filter(Filter),
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Operand,
    test: Option<(Operator, Operand)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(JsonPath),
    Value(Json),
}

impl JsonPath {
    /// Parses a path such as `.spec.replicas`; surrounding braces are allowed.
    ///
    /// # Errors
    ///
    /// Returns a message with the part that could not be parsed.
    pub fn parse(text: &str) -> Result<JsonPath, String> {
        if text.len() > JSON_PATH_BYTES_MAX {
            return Err(format!("paths may have at most {JSON_PATH_BYTES_MAX} bytes"));
        }
        let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        let mut parser = Parser {
            rest: inner.strip_prefix('$').unwrap_or(inner),
        };
        let path = parser.path()?;
        match parser.rest {
            "" => Ok(path),
            rest => Err(format!("unexpected {rest:?} in path {text:?}")),
        }
    }

    /// Returns every value at the path, in order.
    pub fn eval<'a>(&self, root: &'a Json) -> Vec<&'a Json> {
        let mut found = vec![root];
        for step in &self.steps {
            let mut next = Vec::new();
            for value in found {
                step.apply(value, &mut next);
                if next.len() > RESULTS_MAX {
                    next.truncate(RESULTS_MAX);
                    break;
                }
            }
            found = next;
        }
        found
    }

    /// Returns the first value at the path.
    pub fn first<'a>(&self, root: &'a Json) -> Option<&'a Json> {
        self.eval(root).into_iter().next()
    }
}

impl Step {
    fn apply<'a>(&self, value: &'a Json, out: &mut Vec<&'a Json>) {
        match self {
            Step::Field(name) => out.extend(value.get(name)),
            Step::Fields(names) => out.extend(names.iter().filter_map(|n| value.get(n))),
            Step::Each => match value {
                Json::Array(list) => out.extend(list),
                Json::Object(map) => out.extend(map.values()),
                _ => {}
            },
            Step::Indices(indices) => {
                let Json::Array(list) = value else { return };
                out.extend(indices.iter().filter_map(|i| list.get(position(*i, list.len())?)));
            }
            Step::Slice { from, to, by } => {
                let Json::Array(list) = value else { return };
                let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
                let clamp = |i: i64| (if i < 0 { i + length } else { i }).clamp(0, length);
                let (from, to) = (clamp(from.unwrap_or(0)), clamp(to.unwrap_or(length)));
                let span = usize::try_from(from).unwrap_or(0)
                    ..usize::try_from(to).unwrap_or(0).max(usize::try_from(from).unwrap_or(0));
                let by = usize::try_from(*by).unwrap_or(1).max(1);
                out.extend(list.get(span).unwrap_or_default().iter().step_by(by));
            }
            Step::Descendants => descendants(value, out),
            Step::Filter(filter) => {
                let items: Box<dyn Iterator<Item = &Json>> = match value {
                    Json::Array(list) => Box::new(list.iter()),
                    Json::Object(map) => Box::new(map.values()),
                    _ => return,
                };
                out.extend(items.filter(|item| filter.holds(item)));
            }
        }
    }
}

fn position(index: i64, length: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

/// Collects a value and everything below it.
fn descendants<'a>(value: &'a Json, out: &mut Vec<&'a Json>) {
    if out.len() > RESULTS_MAX {
        return;
    }
    out.push(value);
    match value {
        Json::Array(list) => list.iter().for_each(|item| descendants(item, out)),
        Json::Object(map) => map.values().for_each(|item| descendants(item, out)),
        _ => {}
    }
}

impl Filter {
    fn holds(&self, item: &Json) -> bool {
        let left = self.left.value(item);
        let Some((operator, right)) = &self.test else {
            return left.is_some();
        };
        let (Some(left), Some(right)) = (left, right.value(item)) else {
            return false;
        };
        let order = match (left, right) {
            (Json::Number(a), Json::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
            (Json::String(a), Json::String(b)) => Some(a.cmp(b)),
            (a, b) => (a == b).then_some(Ordering::Equal),
        };
        match (operator, order) {
            (Operator::Equal, order) => order == Some(Ordering::Equal),
            (Operator::NotEqual, order) => order != Some(Ordering::Equal),
            (_, None) => false,
            (Operator::Less, Some(order)) => order.is_lt(),
            (Operator::LessOrEqual, Some(order)) => order.is_le(),
            (Operator::Greater, Some(order)) => order.is_gt(),
            (Operator::GreaterOrEqual, Some(order)) => order.is_ge(),
        }
    }
}

impl Operand {
    fn value<'a>(&'a self, item: &'a Json) -> Option<&'a Json> {
        match self {
            Operand::Path(path) => path.first(item),
            Operand::Value(value) => Some(value),
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn eat(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Parses steps up to the first text that is none.
    fn path(&mut self) -> Result<JsonPath, String> {
        let mut steps = Vec::new();
        loop {
            if self.eat("..") {
                steps.push(Step::Descendants);
                if self.rest.starts_with('[') {
                    continue;
                }
                steps.push(self.name_or_each()?);
            } else if self.rest == "." {
                self.rest = "";
            } else if self.eat(".[") {
                // `.items.[0]` is read as `.items[0]`.
                steps.push(self.bracket()?);
            } else if self.eat(".") {
                steps.push(self.name_or_each()?);
            } else if self.eat("[") {
                steps.push(self.bracket()?);
            } else {
                return Ok(JsonPath { steps });
            }
        }
    }

    fn name_or_each(&mut self) -> Result<Step, String> {
        if self.eat("*") {
            return Ok(Step::Each);
        }
        let mut name = String::new();
        let mut chars = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((i, c)) = chars.next() {
            match c {
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                '.' | '[' | ']' | '(' | ')' | '=' | '!' | '<' | '>' | ' ' | ',' | '{' | '}' => {
                    end = i;
                    break;
                }
                c => name.push(c),
            }
        }
        if name.is_empty() {
            return Err(format!("a field's name is missing before {:?}", self.rest));
        }
        self.rest = self.rest.get(end..).unwrap_or("");
        Ok(Step::Field(name))
    }

    fn bracket(&mut self) -> Result<Step, String> {
        if self.eat("?(") {
            let filter = self.filter()?;
            self.spaces();
            return if self.eat(")]") {
                Ok(Step::Filter(filter))
            } else {
                Err("unterminated filter".to_owned())
            };
        }
        if self.rest.trim_start().starts_with(['\'', '"']) {
            return self.quoted_names();
        }
        let Some((inside, rest)) = self.rest.split_once(']') else {
            return Err("unterminated array".to_owned());
        };
        self.rest = rest;
        let inside = inside.trim();
        if inside == "*" {
            return Ok(Step::Each);
        }
        let number = |text: &str| -> Result<i64, String> {
            text.trim()
                .parse()
                .map_err(|_| format!("invalid array index {inside:?}"))
        };
        let optional = |text: &str| {
            if text.trim().is_empty() {
                Ok(None)
            } else {
                number(text).map(Some)
            }
        };
        if inside.contains(':') {
            let parts: Vec<&str> = inside.split(':').collect();
            let by = parts.get(2).map_or(Ok(None), |t| optional(t))?.unwrap_or(1);
            if parts.len() > 3 || by < 1 {
                return Err(format!("invalid array index {inside:?}"));
            }
            return Ok(Step::Slice {
                from: optional(parts[0])?,
                to: optional(parts[1])?,
                by,
            });
        }
        let indices: Result<Vec<i64>, String> = inside.split(',').map(number).collect();
        Ok(Step::Indices(indices?))
    }

    fn quoted_names(&mut self) -> Result<Step, String> {
        let mut names = Vec::new();
        loop {
            self.spaces();
            names.push(self.quoted()?);
            self.spaces();
            if self.eat("]") {
                return Ok(Step::Fields(names));
            }
            if !self.eat(",") {
                return Err("unterminated array".to_owned());
            }
        }
    }

    fn quoted(&mut self) -> Result<String, String> {
        let mut chars = self.rest.char_indices();
        let Some((_, quote @ ('\'' | '"'))) = chars.next() else {
            return Err("a quote is missing".to_owned());
        };
        let mut text = String::new();
        while let Some((i, c)) = chars.next() {
            if c == quote {
                self.rest = self.rest.get(i + 1..).unwrap_or("");
                return Ok(text);
            }
            match c {
                '\\' => text.extend(chars.next().map(|(_, c)| c)),
                c => text.push(c),
            }
        }
        Err("unterminated quoted string".to_owned())
    }

    fn filter(&mut self) -> Result<Filter, String> {
        let left = self.operand()?;
        self.spaces();
        const OPERATORS: [(&str, Operator); 6] = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        for (text, operator) in OPERATORS {
            if self.eat(text) {
                return Ok(Filter {
                    left,
                    test: Some((operator, self.operand()?)),
                });
            }
        }
        Ok(Filter { left, test: None })
    }

    fn operand(&mut self) -> Result<Operand, String> {
        self.spaces();
        if self.eat("@") {
            return self.path().map(Operand::Path);
        }
        if self.rest.starts_with(['\'', '"']) {
            return self.quoted().map(|text| Operand::Value(Json::String(text)));
        }
        let end = self
            .rest
            .find(['=', '!', '<', '>', ')', ' ', ']'])
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        let value: Option<Json> = serde_json::from_str(word).ok();
        match value {
            Some(value @ (Json::Number(_) | Json::Bool(_))) => Ok(Operand::Value(value)),
            _ => Err(format!("unrecognized {word:?} in filter")),
        }
    }
}

#[cfg(test)]
mod tests;

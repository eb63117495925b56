//! The parser of paths.

use super::{Filter, JSON_PATH_DEPTH_MAX, JsonPath, Operand, Operator, PathError, Step};
use insula_api::Json;

/// Levels that are read of a path that nests too deep, to name its depth. It bounds the recursion.
const DEPTH_READ_MAX: usize = 64;

/// Parses a path; surrounding braces are allowed.
pub(super) fn parse(text: &str) -> Result<JsonPath, PathError> {
    let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
    let mut parser = Parser {
        rest: inner.strip_prefix('$').unwrap_or(inner),
        depth: 0,
        deepest: 0,
    };
    let path = parser.path()?;
    match parser.rest {
        "" if parser.deepest > JSON_PATH_DEPTH_MAX => Err(PathError::Depth { depth: parser.deepest }),
        "" => Ok(path),
        rest => syntax(format!("unexpected {rest:?} in path {text:?}")),
    }
}

fn syntax<T>(why: impl Into<String>) -> Result<T, PathError> {
    Err(PathError::Syntax(why.into()))
}

struct Parser<'a> {
    rest: &'a str,
    /// Filters and descents around the place that is read, those before it in its path included.
    depth: usize,
    deepest: usize,
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

    /// Goes one level deeper.
    fn deepen(&mut self) -> Result<(), PathError> {
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        match self.depth > DEPTH_READ_MAX {
            true => Err(PathError::Depth { depth: self.depth }),
            false => Ok(()),
        }
    }

    /// Parses steps up to the first text that is none.
    fn path(&mut self) -> Result<JsonPath, PathError> {
        let around = self.depth;
        let path = self.steps();
        self.depth = around;
        path
    }

    fn steps(&mut self) -> Result<JsonPath, PathError> {
        let mut steps = Vec::new();
        loop {
            if self.eat("..") {
                self.deepen()?;
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

    fn name_or_each(&mut self) -> Result<Step, PathError> {
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
            return syntax(format!("a field's name is missing before {:?}", self.rest));
        }
        self.rest = self.rest.get(end..).unwrap_or("");
        Ok(Step::Field(name))
    }

    fn bracket(&mut self) -> Result<Step, PathError> {
        if self.eat("?(") {
            self.deepen()?;
            let filter = self.filter();
            self.depth -= 1;
            let filter = filter?;
            self.spaces();
            return if self.eat(")]") {
                Ok(Step::Filter(filter))
            } else {
                syntax("unterminated filter")
            };
        }
        if self.rest.trim_start().starts_with(['\'', '"']) {
            return self.quoted_names();
        }
        let Some((inside, rest)) = self.rest.split_once(']') else {
            return syntax("unterminated array");
        };
        self.rest = rest;
        let inside = inside.trim();
        if inside == "*" {
            return Ok(Step::Each);
        }
        let invalid = || PathError::Syntax(format!("invalid array index {inside:?}"));
        let number = |text: &str| -> Result<i64, PathError> { text.trim().parse().map_err(|_| invalid()) };
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
                return Err(invalid());
            }
            return Ok(Step::Slice {
                from: optional(parts[0])?,
                to: optional(parts[1])?,
                by,
            });
        }
        let indices: Result<Vec<i64>, PathError> = inside.split(',').map(number).collect();
        Ok(Step::Indices(indices?))
    }

    fn quoted_names(&mut self) -> Result<Step, PathError> {
        let mut names = Vec::new();
        loop {
            self.spaces();
            names.push(self.quoted()?);
            self.spaces();
            if self.eat("]") {
                return Ok(Step::Fields(names));
            }
            if !self.eat(",") {
                return syntax("unterminated array");
            }
        }
    }

    fn quoted(&mut self) -> Result<String, PathError> {
        let mut chars = self.rest.char_indices();
        let Some((_, quote @ ('\'' | '"'))) = chars.next() else {
            return syntax("a quote is missing");
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
        syntax("unterminated quoted string")
    }

    fn filter(&mut self) -> Result<Filter, PathError> {
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

    fn operand(&mut self) -> Result<Operand, PathError> {
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
            _ => syntax(format!("unrecognized {word:?} in filter")),
        }
    }
}

//! Label and field selectors with Kubernetes' grammar and texts.
//!
//! ```text
//! labels   tier=x  tier==x  tier!=x  tier  !tier  tier in (x,y)  tier notin (x)  zone>2  zone<5     joined by ","
//! fields   metadata.name=a  metadata.name==a  metadata.name!=a    joined by ","; "\" escapes "\", "," and "=" in values
//! ```
//! Whether a field is supported is the resource's business, not the grammar's.

use crate::{FieldError, FieldPath, Json, aggregate};
use std::{collections::BTreeMap, fmt};

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

impl Requirement {
    /// The label that it looks at.
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
    /// Parses the text of `?labelSelector=`. The empty text selects everything. Terms come out sorted by key.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Parser { tokens: scan(text), position: 0 }.parse()?;
        requirements.sort_by(|a, b| a.key().cmp(b.key()));
        Ok(LabelSelector { requirements })
    }

    /// Reads a `metav1.LabelSelector` object. `{}` selects everything; `null` is refused, because an absent selector
    /// means nothing to some kinds and everything to others, which only the caller knows.
    pub fn from_json(selector: &Json) -> Result<Self, SelectorError> {
        let object = selector.as_object().ok_or_else(|| malformed("a label selector must be an object"))?;
        let mut requirements = Vec::new();
        if let Some(labels) = object.get("matchLabels").filter(|v| !v.is_null()) {
            let labels = labels.as_object().ok_or_else(|| malformed("matchLabels must be an object"))?;
            for (key, value) in labels {
                let value = value.as_str().ok_or_else(|| malformed("values of matchLabels must be strings"))?;
                requirements.push(requirement(key, Operator::Equals, vec![value.to_owned()])?);
            }
        }
        if let Some(expressions) = object.get("matchExpressions").filter(|v| !v.is_null()) {
            let list = expressions.as_array().ok_or_else(|| malformed("matchExpressions must be a list"))?;
            for expression in list {
                requirements.push(expression_from_json(expression)?);
            }
        }
        requirements.sort_by(|a, b| a.key().cmp(b.key()));
        Ok(LabelSelector { requirements })
    }

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
            let at = part.find(['!', '=']).and_then(|_| first_operator(part));
            let Some((index, operator)) = at else {
                return Err(SelectorError(format!("invalid selector: '{text}'; can't understand '{part}'")));
            };
            let value = unescape(&part[index + operator.len()..])?;
            terms.push((part[..index].to_owned(), value, operator != "!="));
        }
        Ok(FieldSelector { terms })
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether the values that `lookup` gives for each field satisfy every term.
    pub fn matches(&self, lookup: impl Fn(&str) -> String) -> bool {
        self.terms.iter().all(|(field, value, equal)| (lookup(field) == *value) == *equal)
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

fn expression_from_json(expression: &Json) -> Result<Requirement, SelectorError> {
    let text = |field: &str| expression.get(field).and_then(Json::as_str).unwrap_or_default();
    let operator = match text("operator") {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => return Err(SelectorError(format!("{other:?} is not a valid label selector operator"))),
    };
    let mut values = Vec::new();
    match expression.get("values") {
        None | Some(Json::Null) => {}
        Some(Json::Array(list)) => {
            for value in list {
                let value = value.as_str().ok_or_else(|| malformed("values must be strings"))?;
                values.push(value.to_owned());
            }
        }
        Some(_) => return Err(malformed("values must be a list")),
    }
    requirement(text("key"), operator, values)
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
        ["!=", "==", "="].into_iter().find(|operator| part[index..].starts_with(operator)).map(|o| (index, o))
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
                return Err(SelectorError(format!("invalid field selector: unescaped character in value: {number}")));
            }
            (false, other) => out.push(other),
        }
    }
    if escaped { Err(bad("\\".to_owned())) } else { Ok(out) }
}

// Label selectors: tokens, grammar, requirements.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Identifier,
    In,
    NotIn,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    Open,
    Close,
    Comma,
    Unknown,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Equals,
    NotEquals,
    Exists,
    DoesNotExist,
    Greater,
    Less,
}

fn token(text: &str) -> Option<Token> {
    Some(match text {
        "in" => Token::In,
        "notin" => Token::NotIn,
        "!" => Token::Not,
        "=" => Token::Equals,
        "==" => Token::DoubleEquals,
        "!=" => Token::NotEquals,
        ">" => Token::Greater,
        "<" => Token::Less,
        "(" => Token::Open,
        ")" => Token::Close,
        "," => Token::Comma,
        _ => return None,
    })
}

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn scan(text: &str) -> Vec<(Token, String)> {
    let mut tokens = Vec::new();
    // Kubernetes stops at a NUL.
    let mut rest = text.split('\0').next().unwrap_or_default();
    loop {
        rest = rest.trim_start_matches(is_space);
        let Some(first) = rest.chars().next() else { break };
        let (token, length) = if is_symbol(first) {
            scan_symbol(rest)
        } else {
            let length = rest.find(|c| is_symbol(c) || is_space(c)).unwrap_or(rest.len());
            (token(&rest[..length]).unwrap_or(Token::Identifier), length)
        };
        tokens.push((token, rest[..length].to_owned()));
        rest = &rest[length..];
    }
    tokens.push((Token::End, String::new()));
    tokens
}

/// The longest run of symbols that is a token: `!==x` is `!=` and `=`.
fn scan_symbol(rest: &str) -> (Token, usize) {
    let run = rest.find(|c| !is_symbol(c)).unwrap_or(rest.len());
    for length in [2, 1] {
        if let Some(token) = rest[..run].get(..length).and_then(token) {
            return (token, length);
        }
    }
    (Token::Unknown, run)
}

struct Parser {
    tokens: Vec<(Token, String)>,
    position: usize,
}

impl Parser {
    /// The next token; where values may stand, `in` and `notin` are words like others.
    fn peek(&self) -> (Token, &str) {
        match self.tokens.get(self.position) {
            Some((Token::In | Token::NotIn, text)) => (Token::Identifier, text),
            Some((token, text)) => (*token, text),
            None => (Token::End, ""),
        }
    }

    fn next(&mut self) -> (Token, String) {
        let (token, text) = self.peek();
        let next = (token, text.to_owned());
        self.position += 1;
        next
    }

    fn parse(&mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (Token::Identifier | Token::Not, _) => {}
                (Token::End, _) => return Ok(requirements),
                (_, text) => return Err(found(text, ", expected: !, identifier, or 'end of string'")),
            }
            let requirement = self.requirement();
            requirements.push(requirement.map_err(|e| SelectorError(format!("unable to parse requirement: {e}")))?);
            match self.next() {
                (Token::End, _) => return Ok(requirements),
                (Token::Comma, _) => {
                    let (token, text) = self.peek();
                    if !matches!(token, Token::Identifier | Token::Not) {
                        return Err(found(text, ", expected: identifier after ','"));
                    }
                }
                (_, text) => return Err(found(&text, ", expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let (mut token, mut key) = self.next();
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.next();
        }
        if token != Token::Identifier {
            return Err(found(&key, ", expected: identifier"));
        }
        check(&FieldPath::root(), &key, label_key_errors(&key))?;
        if negated {
            return requirement(&key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return requirement(&key, Operator::Exists, Vec::new());
        }
        let (token, text) = self.tokens.get(self.position).cloned().unwrap_or((Token::End, String::new()));
        self.position += 1;
        let operator = match token {
            Token::In => Operator::In,
            Token::NotIn => Operator::NotIn,
            Token::Equals | Token::DoubleEquals => Operator::Equals,
            Token::NotEquals => Operator::NotEquals,
            Token::Greater => Operator::Greater,
            Token::Less => Operator::Less,
            _ => return Err(found(&text, ", expected: in, notin, =, ==, !=, gt, lt")),
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.exact_value()?],
        };
        requirement(&key, operator, values)
    }

    fn exact_value(&mut self) -> Result<String, SelectorError> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.next() {
            (Token::Identifier, text) => Ok(text),
            (_, text) => Err(found(&text, ", expected: identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        let (token, text) = self.next();
        if token != Token::Open {
            return Err(found(&text, " expected: '('"));
        }
        let mut values = match self.peek() {
            (Token::Identifier | Token::Comma, _) => self.identifiers()?,
            (Token::Close, _) => Vec::new(),
            (_, text) => return Err(found(text, ", expected: ',', ')' or identifier")),
        };
        // `identifiers` stops only before a closing parenthesis.
        self.position += 1;
        values.sort_unstable();
        values.dedup();
        Ok(values)
    }

    /// `a,b`; empty entries as in `(,a)` and `(a,)` are the empty value.
    fn identifiers(&mut self) -> Result<Vec<String>, SelectorError> {
        let mut values = Vec::new();
        loop {
            match self.next() {
                (Token::Identifier, text) => {
                    values.push(text);
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, text) => return Err(found(text, ", expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    match self.peek().0 {
                        Token::Close => {
                            values.push(String::new());
                            return Ok(values);
                        }
                        Token::Comma => {
                            self.position += 1;
                            values.push(String::new());
                        }
                        _ => {}
                    }
                }
                (_, text) => return Err(found(&text, ", expected: ',', or identifier")),
            }
        }
    }
}

fn found(text: &str, expected: &str) -> SelectorError {
    SelectorError(format!("found '{text}'{expected}"))
}

fn check(at: &FieldPath, value: &str, problems: Vec<String>) -> Result<(), SelectorError> {
    if problems.is_empty() {
        return Ok(());
    }
    let error = FieldError::invalid(at, &Json::from(value), problems.join("; "));
    Err(SelectorError(error.to_string()))
}

/// Puts a term together; keys, values and their number must fit the operator.
fn requirement(key: &str, operator: Operator, values: Vec<String>) -> Result<Requirement, SelectorError> {
    let mut errors = Vec::new();
    let problems = label_key_errors(key);
    if !problems.is_empty() {
        errors.push(FieldError::invalid(&FieldPath::new("key"), &Json::from(key), problems.join("; ")));
    }
    let at = FieldPath::new("values");
    let count = match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            Some("for 'in', 'notin' operators, values set can't be empty")
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            Some("values set must be empty for exists and does not exist")
        }
        _ => None,
    };
    if let Some(detail) = count {
        errors.push(FieldError::invalid(&at, &Json::from(values.clone()), detail));
    }
    let mut bound = 0;
    if matches!(operator, Operator::Greater | Operator::Less) {
        for (index, value) in values.iter().enumerate() {
            match value.parse() {
                Ok(number) => bound = number,
                Err(_) => {
                    let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                    errors.push(FieldError::invalid(&at.index(index), &Json::from(value.as_str()), detail));
                }
            }
        }
    }
    for (index, value) in values.iter().enumerate() {
        let problems = label_value_errors(value);
        if !problems.is_empty() {
            let at = at.index(index).key(key);
            errors.push(FieldError::invalid(&at, &Json::from(value.as_str()), problems.join("; ")));
        }
    }
    if !errors.is_empty() {
        return Err(SelectorError(aggregate(&errors)));
    }
    let key = key.to_owned();
    Ok(match operator {
        Operator::In | Operator::Equals => Requirement::In(key, values),
        Operator::NotIn | Operator::NotEquals => Requirement::NotIn(key, values),
        Operator::Exists => Requirement::Exists(key),
        Operator::DoesNotExist => Requirement::DoesNotExist(key),
        Operator::Greater => Requirement::GreaterThan(key, bound),
        Operator::Less => Requirement::LessThan(key, bound),
    })
}

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const PREFIX_RULE: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                           characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
                           'example.com', regex used for validation is \
                           '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                          '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
                          'my_value',  or '12345', regex used for validation is \
                          '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const LABEL_BYTES_MAX: usize = 63;
const PREFIX_BYTES_MAX: usize = 253;

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|label| {
        is_name(label) && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    })
}

fn label_key_errors(key: &str) -> Vec<String> {
    let (prefix, name) = match key.split_once('/') {
        None => (None, key),
        Some((_, name)) if name.contains('/') => {
            let suffix = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {NAME_RULE}{suffix}")];
        }
        Some((prefix, name)) => (Some(prefix), name),
    };
    let mut errors = Vec::new();
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            errors.push("prefix part must be non-empty".to_owned());
        } else {
            if prefix.len() > PREFIX_BYTES_MAX {
                errors.push(format!("prefix part must be no more than {PREFIX_BYTES_MAX} characters"));
            }
            if !is_subdomain(prefix) {
                errors.push(PREFIX_RULE.to_owned());
            }
        }
    }
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_BYTES_MAX {
        errors.push(format!("name part must be no more than {LABEL_BYTES_MAX} bytes"));
    }
    if !is_name(name) {
        errors.push(format!("name part {NAME_RULE}"));
    }
    errors
}

fn label_value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_BYTES_MAX {
        errors.push(format!("must be no more than {LABEL_BYTES_MAX} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(VALUE_RULE.to_owned());
    }
    errors
}

#[cfg(test)]
#[path = "selector_tests.rs"]
mod tests;

//! The grammar of label selectors, with the texts of Kubernetes' parser, and what makes a term.

use super::names::{label_key_errors, label_value_errors};
use super::{Requirement, SelectorError};
use crate::{FieldError, FieldPath, Json, aggregate};

/// Reads `tier=x,zone in (a,b)`.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    Parser {
        tokens: scan(text),
        position: 0,
    }
    .parse()
}

/// Parses a term `key=value` of `matchLabels`.
pub(super) fn equals(key: &str, value: &str) -> Result<Requirement, SelectorError> {
    requirement(key, Operator::Equals, vec![value.to_owned()])
}

/// Parses a term of `matchExpressions`.
pub(super) fn expression(expression: &Json) -> Result<Requirement, SelectorError> {
    let text = |field: &str| expression.get(field).and_then(Json::as_str).unwrap_or_default();
    let operator = match text("operator") {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => {
            return Err(SelectorError(format!(
                "{other:?} is not a valid label selector operator"
            )));
        }
    };
    let mut values = Vec::new();
    match expression.get("values") {
        None | Some(Json::Null) => {}
        Some(Json::Array(list)) => {
            for value in list {
                let value = value
                    .as_str()
                    .ok_or_else(|| super::malformed("values must be strings"))?;
                values.push(value.to_owned());
            }
        }
        Some(_) => return Err(super::malformed("values must be a list")),
    }
    requirement(text("key"), operator, values)
}

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
            symbol(rest)
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

/// Reads the longest token: `!==x` is `!=` and `=`.
fn symbol(rest: &str) -> (Token, usize) {
    let two = rest.get(..2).and_then(token);
    let one = || rest.get(..1).and_then(token).map(|token| (token, 1));
    two.map(|token| (token, 2))
        .or_else(one)
        .expect("every symbol alone is a token")
}

struct Parser {
    tokens: Vec<(Token, String)>,
    position: usize,
}

impl Parser {
    /// Returns the next token; in the place of a value, `in` and `notin` are plain values.
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
        let (token, text) = self
            .tokens
            .get(self.position)
            .cloned()
            .unwrap_or((Token::End, String::new()));
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

    /// Parses `a,b`; empty entries as in `(,a)` and `(a,)` are the empty value.
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
        errors.push(FieldError::invalid(
            &FieldPath::new("key"),
            &Json::from(key),
            problems.join("; "),
        ));
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
                    errors.push(FieldError::invalid(
                        &at.index(index),
                        &Json::from(value.as_str()),
                        detail,
                    ));
                }
            }
        }
    }
    for (index, value) in values.iter().enumerate() {
        let problems = label_value_errors(value);
        if !problems.is_empty() {
            let at = at.index(index).key(key);
            errors.push(FieldError::invalid(
                &at,
                &Json::from(value.as_str()),
                problems.join("; "),
            ));
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

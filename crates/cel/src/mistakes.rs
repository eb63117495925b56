//! What a syntax error says was expected. After an operand the parser lists every operator there
//! is, where cel-go names the one token that would have closed what is open: `:`, `)`, `]`, `}` or
//! the end.

use crate::tokens::{Bracket, Kind, Tokens, tokens};
use std::iter::Peekable;

/// Walks a source once, as its errors are told in order of their places.
pub(crate) struct Mistakes<'s> {
    tokens: Peekable<Tokens<'s>>,
    /// What is open, each with the token that closes it.
    open: Vec<Open>,
    /// The kind of the token before.
    before: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Bracket(Bracket),
    /// The key of an entry of a map, up to its colon.
    Key,
    /// The middle of a conditional, up to its colon.
    Conditional,
}

impl<'s> Mistakes<'s> {
    pub(crate) fn new(source: &'s str) -> Self {
        Self {
            tokens: tokens(source).peekable(),
            open: Vec::new(),
            before: Kind::Strange,
        }
    }

    /// The message of the error at a byte offset, in cel-go's words.
    pub(crate) fn reword(&mut self, offset: usize, message: String) -> String {
        while let Some(token) = self.tokens.next_if(|t| t.start < offset) {
            // `a.?x`, `[?i]` and `{?k: v}` are optional selections, not conditionals.
            let optional = matches!(
                self.before,
                Kind::Dot | Kind::Comma | Kind::Open(Bracket::Square | Bracket::Curly)
            );
            if token.kind != Kind::Question || !optional {
                self.see(token.kind);
            }
            self.before = token.kind;
        }
        let message = message.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
        if message.starts_with("Syntax error: missing ") {
            self.open.pop();
            return message;
        }
        match message.split_once(" expecting {") {
            Some((what, expected)) if expected.contains("'=='") => {
                let expected = match self.open.pop() {
                    Some(Open::Bracket(Bracket::Round)) => "')'",
                    Some(Open::Bracket(Bracket::Square)) => "']'",
                    Some(Open::Bracket(Bracket::Curly)) => "'}'",
                    Some(Open::Key) => {
                        // Without its colon there is no map.
                        self.open.pop();
                        "':'"
                    }
                    Some(Open::Conditional) => "':'",
                    None => "<EOF>",
                };
                format!("{what} expecting {expected}")
            }
            _ => message,
        }
    }

    fn see(&mut self, kind: Kind) {
        match kind {
            Kind::Open(bracket) => {
                self.open.push(Open::Bracket(bracket));
                if bracket == Bracket::Curly {
                    self.open.push(Open::Key);
                }
            }
            Kind::Close(bracket) => {
                if let Some(at) = self.open.iter().rposition(|o| *o == Open::Bracket(bracket)) {
                    self.open.truncate(at);
                }
            }
            Kind::Question => self.open.push(Open::Conditional),
            Kind::Colon if matches!(self.open.last(), Some(Open::Conditional | Open::Key)) => {
                self.open.pop();
            }
            Kind::Comma => {
                while matches!(self.open.last(), Some(Open::Conditional)) {
                    self.open.pop();
                }
                if self.open.last() == Some(&Open::Bracket(Bracket::Curly)) {
                    self.open.push(Open::Key);
                }
            }
            _ => {}
        }
    }
}

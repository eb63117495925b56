//! Rewording of syntax errors. After an operand the parser lists every possible operator, where
//! cel-go names the one token that would close the open bracket, entry or conditional: `:`, `)`,
//! `]`, `}` or the end.

use crate::tokens::{Bracket, Kind, Tokens, tokens};
use std::iter::Peekable;

/// Rewords the errors of one source, in order of position, in one pass.
pub(crate) struct Mistakes<'s> {
    tokens: Peekable<Tokens<'s>>,
    /// Open brackets, entries and conditionals, innermost last.
    open: Vec<OpenBracket>,
    /// Kind of the previous token.
    before: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenBracket {
    Bracket(Bracket),
    /// Key of a map entry, up to its colon.
    Key,
    /// Middle of a conditional, up to its colon.
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

    /// Returns cel-go's message for an error at a byte offset.
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
                    Some(OpenBracket::Bracket(Bracket::Round)) => "')'",
                    Some(OpenBracket::Bracket(Bracket::Square)) => "']'",
                    Some(OpenBracket::Bracket(Bracket::Curly)) => "'}'",
                    Some(OpenBracket::Key) => {
                        // Without its colon it is no map.
                        self.open.pop();
                        "':'"
                    }
                    Some(OpenBracket::Conditional) => "':'",
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
                self.open.push(OpenBracket::Bracket(bracket));
                if bracket == Bracket::Curly {
                    self.open.push(OpenBracket::Key);
                }
            }
            Kind::Close(bracket) => {
                if let Some(at) = self.open.iter().rposition(|o| *o == OpenBracket::Bracket(bracket)) {
                    self.open.truncate(at);
                }
            }
            Kind::Question => self.open.push(OpenBracket::Conditional),
            Kind::Colon if matches!(self.open.last(), Some(OpenBracket::Conditional | OpenBracket::Key)) => {
                self.open.pop();
            }
            Kind::Comma => {
                while matches!(self.open.last(), Some(OpenBracket::Conditional)) {
                    self.open.pop();
                }
                if self.open.last() == Some(&OpenBracket::Bracket(Bracket::Curly)) {
                    self.open.push(OpenBracket::Key);
                }
            }
            _ => {}
        }
    }
}

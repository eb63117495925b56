//! What is refused before parsing. The parser recurses and backtracks on some inputs, so the size, nesting and
//! chains of a source are bounded from its tokens, in one linear pass, before the parser sees it.

use crate::error::CompileError;
use crate::ir::NODE_DEPTH_MAX;
use cel::parser::pratt_parser::{Lexer, TokenKind};

/// Bytes of one expression.
pub const SOURCE_BYTES_MAX: usize = 10_240;
/// Brackets and prefix operators open at once, and arms of `? :`.
pub const NESTING_MAX: usize = 96;
/// Tokens of one expression.
pub const TOKENS_MAX: usize = 2_000;
/// Operators, selections, indexings or calls strung together at one level.
pub const CHAIN_MAX: usize = 500;

/// One significant token: where and what, for positions of errors found later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The tokens of `source`, if it is within the limits.
pub(crate) fn scan(source: &str) -> Result<Vec<Token>, CompileError> {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(CompileError::whole(format!(
            "expression code point size exceeds limit: size: {}, limit {SOURCE_BYTES_MAX}",
            source.len()
        )));
    }
    let mut lexer = Lexer::new(source);
    let mut tokens = Vec::new();
    let mut shape = Shape::new();
    loop {
        let token = lexer.lex();
        match token.kind {
            TokenKind::TokEnd => break,
            TokenKind::TokWhitespace | TokenKind::TokComment => continue,
            TokenKind::TokError => {
                let message = lexer
                    .get_error()
                    .map_or("token recognition error", |e| e.message.as_str());
                return Err(CompileError::at(
                    source,
                    token.start,
                    format!("Syntax error: {message}"),
                ));
            }
            _ => {}
        }
        if tokens.len() >= TOKENS_MAX {
            return Err(CompileError::at(
                source,
                token.start,
                format!("expression exceeds {TOKENS_MAX} tokens"),
            ));
        }
        shape
            .see(token.kind)
            .map_err(|message| CompileError::at(source, token.start, message))?;
        tokens.push(Token {
            kind: token.kind,
            start: token.start,
            end: token.end,
        });
    }
    Ok(tokens)
}

/// Open brackets with the chain length and the `?` arms inside each, and prefix operators in a row.
struct Shape {
    levels: Vec<Level>,
    prefixes: usize,
    /// Conditionals and prefix operators of all open levels.
    nested: usize,
    /// The token before could end an operand, so `-` is binary.
    after_operand: bool,
    after_dot_or_open: bool,
}

#[derive(Default, Clone, Copy)]
struct Level {
    chain: usize,
    conditionals: usize,
    /// Prefix operators in front of the bracket that opened this level.
    prefixes: usize,
    /// Calls on the result of calls, in a row.
    calls: usize,
}

impl Shape {
    fn new() -> Self {
        Self {
            levels: vec![Level::default()],
            prefixes: 0,
            nested: 0,
            after_operand: false,
            after_dot_or_open: false,
        }
    }

    fn see(&mut self, kind: TokenKind) -> Result<(), String> {
        use TokenKind::*;
        let prefix = matches!(kind, TokExclamation | TokMinus) && !self.after_operand;
        self.prefixes = if prefix { self.prefixes + 1 } else { self.prefixes };
        match kind {
            TokLeftParen | TokLeftBracket | TokLeftBrace => {
                self.link()?;
                if kind == TokLeftParen && self.after_operand {
                    self.call()?;
                }
                self.levels.push(Level {
                    prefixes: self.prefixes,
                    ..Level::default()
                });
                self.nested += self.prefixes;
                self.prefixes = 0;
            }
            TokRightParen | TokRightBracket | TokRightBrace if self.levels.len() > 1 => {
                let level = self.levels.pop().unwrap_or_default();
                self.nested -= (level.conditionals + level.prefixes).min(self.nested);
            }
            // `.?x`, `[?i]` and `{?k: v}` are optional selections, not conditionals.
            TokQuestion if !self.after_dot_or_open => {
                self.nested += 1;
                let level = self.level();
                level.conditionals += 1;
                level.chain = 0;
            }
            TokComma => {
                let level = self.level();
                level.chain = 0;
                let ended = std::mem::take(&mut level.conditionals);
                self.nested -= ended.min(self.nested);
            }
            TokColon => self.level().chain = 0,
            TokDot | TokPlus | TokAsterisk | TokSlash | TokPercent | TokEqualEqual | TokExclamationEqual | TokLess
            | TokLessEqual | TokGreater | TokGreaterEqual | TokIn | TokLogicalAnd | TokLogicalOr => self.link()?,
            TokMinus if !prefix => self.link()?,
            _ => {}
        }
        let in_call_chain = matches!(
            kind,
            TokDot | TokIdent | TokReservedWord | TokLeftParen | TokRightParen | TokLeftBracket | TokRightBracket
        );
        if !in_call_chain {
            self.level().calls = 0;
        }
        let operand_ends = matches!(
            kind,
            TokRightParen
                | TokRightBracket
                | TokRightBrace
                | TokIdent
                | TokReservedWord
                | TokInt
                | TokUint
                | TokFloat
                | TokString
                | TokBytes
                | TokNull
                | TokTrue
                | TokFalse
        );
        if operand_ends {
            self.prefixes = 0;
        }
        self.after_operand = operand_ends;
        self.after_dot_or_open = matches!(kind, TokDot | TokLeftBracket | TokLeftBrace | TokComma);
        if self.levels.len() - 1 + self.prefixes + self.nested > NESTING_MAX {
            return Err(format!("expression recursion limit exceeded: {NESTING_MAX}"));
        }
        Ok(())
    }

    fn level(&mut self) -> &mut Level {
        if self.levels.is_empty() {
            self.levels.push(Level::default());
        }
        let last = self.levels.len() - 1;
        &mut self.levels[last]
    }

    /// The parser copies what a method is called on, so a row of calls takes quadratic time: 240 of `.map(x, x)`
    /// took 27 ms. Each is a level of our tree too, whose depth would refuse the row anyway.
    fn call(&mut self) -> Result<(), String> {
        let level = self.level();
        level.calls += 1;
        if level.calls > NODE_DEPTH_MAX {
            return Err(format!("expression chains more than {NODE_DEPTH_MAX} calls"));
        }
        Ok(())
    }

    fn link(&mut self) -> Result<(), String> {
        let level = self.level();
        level.chain += 1;
        if level.chain > CHAIN_MAX {
            return Err(format!("expression chains more than {CHAIN_MAX} operations"));
        }
        Ok(())
    }
}

//! Limits checked before parsing. The parser recurses and backtracks on some inputs, so one linear
//! pass over the tokens first bounds the size, nesting and chains of a source.

use crate::error::CompileError;
use crate::ir::NODE_DEPTH_MAX;
use crate::tokens::{Bracket, Kind, tokens};

/// Bytes of one expression.
pub const SOURCE_BYTES_MAX: usize = 10_240;
/// Nesting of brackets, prefix operators and arms of `? :`.
pub const NESTING_MAX: usize = 96;
/// Tokens of one expression.
pub const TOKENS_MAX: usize = 2_000;
/// Operators, selections, indexings or calls in one chain.
pub const CHAIN_MAX: usize = 500;

/// Refuses a source beyond the limits. A source that is no expression may pass: the parser reports
/// its errors.
pub(crate) fn scan(source: &str) -> Result<(), CompileError> {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(CompileError::whole(format!(
            "expression code point size exceeds limit: size: {}, limit {SOURCE_BYTES_MAX}",
            source.len()
        )));
    }
    let mut shape = Shape::default();
    for (i, token) in tokens(source).enumerate() {
        let refused = if i >= TOKENS_MAX {
            Err(format!("expression exceeds {TOKENS_MAX} tokens"))
        } else {
            shape.see(token.kind)
        };
        refused.map_err(|message| CompileError::at_offset(source, token.start, message))?;
    }
    Ok(())
}

/// Open brackets, each with its chain length and its arms of `? :`, and prefix operators in a row.
#[derive(Default)]
struct Shape {
    /// The level outside all brackets.
    outer: Level,
    levels: Vec<Level>,
    prefixes: usize,
    /// Conditionals and prefix operators of all open levels.
    nested: usize,
    /// True if the previous token could end an operand, so that `-` is binary.
    after_operand: bool,
    after_dot_or_open: bool,
    /// True after an invalid token. The parser's recovery is unknown, so no bracket counts as
    /// closed after it.
    strange: bool,
}

#[derive(Default, Clone, Copy)]
struct Level {
    bracket: Option<Bracket>,
    chain: usize,
    conditionals: usize,
    /// Prefix operators in front of the bracket that opened this level.
    prefixes: usize,
    /// Consecutive calls on results of calls.
    calls: usize,
}

impl Shape {
    fn see(&mut self, kind: Kind) -> Result<(), String> {
        let prefix = matches!(kind, Kind::Not | Kind::Minus) && !self.after_operand;
        self.prefixes += usize::from(prefix);
        match kind {
            Kind::Open(bracket) => {
                self.link()?;
                if bracket == Bracket::Round && self.after_operand {
                    self.call()?;
                }
                self.levels.push(Level {
                    bracket: Some(bracket),
                    prefixes: self.prefixes,
                    ..Level::default()
                });
                self.nested += self.prefixes;
                self.prefixes = 0;
            }
            Kind::Close(bracket) if !self.strange && self.level().bracket == Some(bracket) => {
                let level = self.levels.pop().unwrap_or_default();
                self.nested -= level.conditionals + level.prefixes;
            }
            // `.?x`, `[?i]` and `{?k: v}` are optional selections, not conditionals.
            Kind::Question if !self.after_dot_or_open => {
                self.nested += 1;
                let level = self.level();
                level.conditionals += 1;
                level.chain = 0;
            }
            Kind::Comma if !self.strange => {
                let level = self.level();
                level.chain = 0;
                self.nested -= std::mem::take(&mut self.level().conditionals);
            }
            Kind::Colon if !self.strange => self.level().chain = 0,
            Kind::Dot | Kind::Operator => self.link()?,
            Kind::Minus if !prefix => self.link()?,
            Kind::Strange => self.strange = true,
            _ => {}
        }
        let in_call_chain = match kind {
            Kind::Dot | Kind::Operand => true,
            Kind::Open(bracket) | Kind::Close(bracket) => bracket != Bracket::Curly,
            _ => self.strange,
        };
        if !in_call_chain {
            self.level().calls = 0;
        }
        self.after_operand = matches!(kind, Kind::Operand | Kind::Close(_));
        if self.after_operand && !self.strange {
            self.prefixes = 0;
        }
        self.after_dot_or_open = matches!(
            kind,
            Kind::Dot | Kind::Comma | Kind::Open(Bracket::Square | Bracket::Curly)
        );
        if self.levels.len() + self.prefixes + self.nested > NESTING_MAX {
            return Err(format!("expression recursion limit exceeded: {NESTING_MAX}"));
        }
        Ok(())
    }

    fn level(&mut self) -> &mut Level {
        self.levels.last_mut().unwrap_or(&mut self.outer)
    }

    /// Counts a call. Each call is a level of our tree, whose depth limit would refuse a longer
    /// chain anyway.
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

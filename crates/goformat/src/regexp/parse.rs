//! The parser: Go's grammar with Perl's flags, without recursion, since a pattern may open as many
//! groups as it has bytes.

use super::class::{self, Refusal, Set};
use super::group::{Opening, opening};
use super::node::{Beyond, Node};
use super::{Error, Limits, Syntax, escape, unicode};
use regex_syntax::hir::{Class, ClassUnicode, Hir, Look};

/// Bytes of one range of a class. Compiled, a range takes more.
const RANGE_BYTES: usize = 8;

/// Flags of a group, as `(?i)` sets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Flags {
    /// `i`: upper and lower case are the same.
    pub(super) fold: bool,
    /// `m`: `^` and `$` match at lines.
    pub(super) lines: bool,
    /// `s`: `.` matches a newline.
    pub(super) dot_all: bool,
    /// `U`: repetitions prefer few, and those with a question mark many.
    pub(super) lazy: bool,
}

/// A group whose end was not read yet, or the whole pattern.
#[derive(Debug, Default)]
struct Group {
    branches: Vec<Node>,
    parts: Vec<Node>,
    /// Flags after its end.
    outside: Flags,
    captures: bool,
}

impl Group {
    /// Ends a branch.
    fn end_branch(&mut self) {
        self.branches.push(Node::list(std::mem::take(&mut self.parts)));
    }
}

struct Parser<'p> {
    pattern: &'p str,
    limits: &'p Limits,
    flags: Flags,
    /// Groups around the one that is read.
    around: Vec<Group>,
    group: Group,
    /// Ranges that classes may still have.
    ranges_left: usize,
}

/// Parses a pattern of a length within the limits.
pub(super) fn parse(pattern: &str, limits: &Limits) -> Result<Syntax, Error> {
    let ranges_max = limits.compiled_bytes / RANGE_BYTES;
    let mut parser = Parser {
        pattern,
        limits,
        flags: Flags::default(),
        around: Vec::new(),
        group: Group::default(),
        ranges_left: ranges_max,
    };
    let mut rest = pattern;
    // The text from the last repetition, if no part came after it.
    let mut repeated = None;
    while let Some(c) = rest.chars().next() {
        let before = rest;
        let repetition = repetition(c, rest)?;
        let is_repetition = repetition.is_some();
        rest = match repetition {
            Some(repetition) => parser.repeat(&repetition, before, repeated)?,
            None => parser.part(c, rest)?,
        };
        repeated = is_repetition.then_some(before);
    }
    let whole = parser.end_group()?;
    if !parser.around.is_empty() {
        return Err(Error::new("missing closing )", pattern));
    }
    Ok(Syntax {
        hir: whole.hir,
        ranges: ranges_max - parser.ranges_left,
        compiled_bytes: limits.compiled_bytes,
    })
}

/// Returns the part of `text` before its suffix `rest`.
pub(super) fn before<'t>(text: &'t str, rest: &str) -> &'t str {
    text.get(..text.len() - rest.len()).unwrap_or(text)
}

/// A repetition operator and the text after it, without the question mark that may follow.
struct Repetition<'p> {
    range: (u32, Option<u32>),
    rest: &'p str,
    counted: bool,
}

/// Copies that one repetition may make in Go.
const COUNT_MAX: u32 = 1000;

/// Parses a repetition operator. A brace that does not begin one is a literal.
fn repetition<'p>(c: char, text: &'p str) -> Result<Option<Repetition<'p>>, Error> {
    let range = match c {
        '*' => (0, None),
        '+' => (1, None),
        '?' => (0, Some(1)),
        '{' => {
            let Some((range, rest)) = counts(text) else {
                return Ok(None);
            };
            let (min, max) = range;
            if min > COUNT_MAX || max.is_some_and(|max| max > COUNT_MAX || max < min) {
                return Err(Error::new("invalid repeat count", before(text, rest)));
            }
            return Ok(Some(Repetition {
                range,
                rest,
                counted: true,
            }));
        }
        _ => return Ok(None),
    };
    Ok(Some(Repetition {
        range,
        rest: text.get(1..).unwrap_or(""),
        counted: false,
    }))
}

/// Parses `{2}`, `{2,}` or `{2,3}`. Returns the bounds and the text after them.
fn counts(text: &str) -> Option<((u32, Option<u32>), &str)> {
    let (min, rest) = count(text.strip_prefix('{')?)?;
    let (max, rest) = match rest.strip_prefix(',') {
        None => (Some(min), rest),
        Some(rest) if rest.starts_with('}') => (None, rest),
        Some(rest) => count(rest).map(|(max, rest)| (Some(max), rest))?,
    };
    Some(((min, max), rest.strip_prefix('}')?))
}

/// Parses a number without leading zeros. One that is too large stays too large.
fn count(text: &str) -> Option<(u32, &str)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at_checked(length)?;
    let plain = length > 0 && (length == 1 || !digits.starts_with('0'));
    plain.then(|| (digits.parse().unwrap_or(u32::MAX), rest))
}

impl<'p> Parser<'p> {
    /// Repeats the last part. `text` starts at the operator, `repeated` at the one right before it.
    fn repeat(&mut self, operator: &Repetition<'_>, text: &'p str, repeated: Option<&str>) -> Result<&'p str, Error> {
        let rest = text.get(text.len() - operator.rest.len()..).unwrap_or("");
        let (other, rest) = match rest.strip_prefix('?') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        if let Some(repeated) = repeated {
            let part = before(repeated, rest);
            return Err(Error::new("invalid nested repetition operator", part));
        }
        let Some(part) = self.group.parts.pop() else {
            let part = before(text, rest);
            return Err(Error::new("missing argument to repetition operator", part));
        };
        let whole = self.limited(part.repeated(operator.range, other == self.flags.lazy))?;
        if operator.counted && whole.repeats_too_often() {
            return Err(Error::new("invalid repeat count", before(text, rest)));
        }
        self.group.parts.push(whole);
        Ok(rest)
    }

    /// Parses anything but a repetition, which begins with `c`. Returns the text after it.
    fn part(&mut self, c: char, text: &'p str) -> Result<&'p str, Error> {
        let rest = text.get(c.len_utf8()..).unwrap_or("");
        match c {
            '(' if rest.starts_with('?') => return self.flagged(text),
            '(' => self.begin_group(true),
            '|' => self.group.end_branch(),
            ')' => {
                let whole = self.end_group()?;
                let Some(around) = self.around.pop() else {
                    return Err(Error::new("unexpected )", self.pattern));
                };
                let group = std::mem::replace(&mut self.group, around);
                self.flags = group.outside;
                let whole = if group.captures { whole.captured() } else { whole };
                let whole = self.limited(whole)?;
                self.group.parts.push(whole);
            }
            '^' if self.flags.lines => self.look(Look::StartLF),
            '^' => self.look(Look::Start),
            '$' if self.flags.lines => self.look(Look::EndLF),
            '$' => self.look(Look::End),
            '.' => {
                let dot = unicode::any(self.flags.dot_all);
                self.class(dot);
            }
            '[' => {
                let set = Set::new(self.flags.fold, &mut self.ranges_left);
                let (class, rest) = class::bracketed(text, set).map_err(|why| self.refused(why))?;
                self.class(class);
                return Ok(rest);
            }
            '\\' => return self.escape(text),
            c => self.literal(c.into()),
        }
        Ok(rest)
    }

    fn look(&mut self, look: Look) {
        self.group.parts.push(Node::assertion(Hir::look(look)));
    }

    fn class(&mut self, class: ClassUnicode) {
        self.group.parts.push(Node::class(Hir::class(Class::Unicode(class))));
    }

    /// Adds one code point. A surrogate is accepted and never matches.
    fn literal(&mut self, code: u32) {
        let folded = self.flags.fold;
        let hir = match char::from_u32(code) {
            None => Hir::fail(),
            Some(c) if folded => Hir::class(Class::Unicode(unicode::folded(c))),
            Some(c) => Hir::literal(c.encode_utf8(&mut [0; 4]).as_bytes()),
        };
        self.group.parts.push(Node::character(hir, folded));
    }

    fn escape(&mut self, text: &'p str) -> Result<&'p str, Error> {
        let letter = text.get(1..).and_then(|rest| rest.chars().next());
        let rest = text.get(2..).unwrap_or("");
        match letter {
            Some('A') => self.look(Look::Start),
            Some('b') => self.look(Look::WordAscii),
            Some('B') => self.look(Look::WordAsciiNegate),
            Some('z') => self.look(Look::End),
            // One byte: Go's strings are bytes, its patterns are not.
            Some('C') => return Err(escape::invalid(text, rest)),
            Some('Q') => {
                let (quoted, rest) = rest.split_once("\\E").unwrap_or((rest, ""));
                quoted.chars().for_each(|c| self.literal(c.into()));
                return Ok(rest);
            }
            _ => {
                let mut set = Set::new(self.flags.fold, &mut self.ranges_left);
                match class::escaped(text, &mut set) {
                    Ok(None) => {}
                    Ok(Some(rest)) => {
                        let class = set.finish(false);
                        self.class(class);
                        return Ok(rest);
                    }
                    Err(why) => return Err(self.refused(why)),
                }
                let (code, rest) = escape::character(text)?;
                self.literal(code);
                return Ok(rest);
            }
        }
        Ok(rest)
    }

    fn begin_group(&mut self, captures: bool) {
        let group = Group {
            outside: self.flags,
            captures,
            ..Group::default()
        };
        self.around.push(std::mem::replace(&mut self.group, group));
    }

    fn flagged(&mut self, text: &'p str) -> Result<&'p str, Error> {
        let (opening, rest) = opening(text, self.flags)?;
        match opening {
            Opening::Named => self.begin_group(true),
            Opening::Plain(flags) => {
                self.begin_group(false);
                self.flags = flags;
            }
            Opening::Flags(flags) => self.flags = flags,
        }
        Ok(rest)
    }

    /// Returns the alternatives of the innermost group.
    fn end_group(&mut self) -> Result<Node, Error> {
        self.group.end_branch();
        let whole = Node::alternatives(std::mem::take(&mut self.group.branches));
        self.limited(whole)
    }

    fn limited(&self, node: Node) -> Result<Node, Error> {
        node.within_limits(self.limits.nesting).map_err(|beyond| match beyond {
            Beyond::Size => Error::new("expression too large", self.pattern),
            Beyond::Nesting => Error::new("expression nests too deeply", self.pattern),
        })
    }

    fn refused(&self, why: Refusal) -> Error {
        match why {
            Refusal::Syntax(error) => error,
            Refusal::TooMany => Error::too_large(self.limits.compiled_bytes),
        }
    }
}

//! Character classes: `\d`, `\p{Greek}`, `[^a-z[:digit:]]`.

use super::parse::before;
use super::{Error, escape, unicode};
use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

const BAD_RANGE: &str = "invalid character class range";

/// Ranges of characters that are added to each other. Counts what is added, so that a short pattern
/// cannot become a large tree: `[\pL]` has six hundred ranges.
pub(super) struct Set<'l> {
    ranges: Vec<ClassUnicodeRange>,
    fold: bool,
    /// Ranges that all classes of the pattern may still have.
    left: &'l mut usize,
}

/// Too many ranges in all classes of a pattern.
pub(super) struct TooMany;

/// A refusal while a class is read.
pub(super) enum Refusal {
    Syntax(Error),
    TooMany,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Syntax(error)
    }
}

impl From<TooMany> for Refusal {
    fn from(_: TooMany) -> Self {
        Self::TooMany
    }
}

impl<'l> Set<'l> {
    pub(super) fn new(fold: bool, left: &'l mut usize) -> Self {
        Self {
            ranges: Vec::new(),
            fold,
            left,
        }
    }

    /// Adds the code points of a range.
    pub(super) fn add(&mut self, low: u32, high: u32) -> Result<(), TooMany> {
        self.unite(class_of(low, high), false)
    }

    /// Adds a class, or all other characters. Folds it before it is negated, as Go does.
    fn unite(&mut self, class: ClassUnicode, negated: bool) -> Result<(), TooMany> {
        let mut class = class;
        if self.fold {
            let others = unicode::other_cases(&class);
            self.count(others.len())?;
            class.union(&ClassUnicode::new(others));
        }
        if negated {
            class.negate();
        }
        self.count(class.ranges().len().max(1))?;
        self.ranges.extend_from_slice(class.ranges());
        Ok(())
    }

    fn count(&mut self, ranges: usize) -> Result<(), TooMany> {
        *self.left = self.left.checked_sub(ranges).ok_or(TooMany)?;
        Ok(())
    }

    pub(super) fn finish(self, negated: bool) -> ClassUnicode {
        let mut class = ClassUnicode::new(self.ranges);
        if negated {
            class.negate();
        }
        class
    }
}

/// Returns the characters among code points. Surrogates are code points that no text has.
fn class_of(low: u32, high: u32) -> ClassUnicode {
    let parts = [(low, high.min(0xd7ff)), (low.max(0xe000), high)];
    let characters = parts
        .into_iter()
        .filter(|(low, high)| low <= high)
        .filter_map(|(low, high)| Some(ClassUnicodeRange::new(char::from_u32(low)?, char::from_u32(high)?)));
    ClassUnicode::new(characters)
}

/// Returns a class by its name in brackets or its letter, as pairs of the first and the last
/// character of each range.
fn ascii(name: &str) -> Option<&'static str> {
    Some(match name {
        "alnum" => "09AZaz",
        "alpha" => "AZaz",
        "ascii" => "\0\u{7f}",
        "blank" => "\t\t  ",
        "cntrl" => "\0\u{1f}\u{7f}\u{7f}",
        "d" | "digit" => "09",
        "graph" => "!~",
        "lower" => "az",
        "print" => " ~",
        "punct" => "!/:@[`{~",
        "s" => "\t\n\u{c}\r  ",
        "space" => "\t\r  ",
        "upper" => "AZ",
        "w" | "word" => "09AZ__az",
        "xdigit" => "09AFaf",
        _ => return None,
    })
}

fn ascii_class(pairs: &str) -> ClassUnicode {
    let pairs = pairs.as_bytes().chunks_exact(2);
    ClassUnicode::new(pairs.map(|pair| ClassUnicodeRange::new(pair[0].into(), pair[1].into())))
}

/// Parses a class that begins with a backslash, inside or outside of brackets, and adds it. Returns
/// the text after it, or `None` for another escape.
pub(super) fn escaped<'t>(text: &'t str, set: &mut Set<'_>) -> Result<Option<&'t str>, Refusal> {
    let Some((letter, rest)) = text.strip_prefix('\\').and_then(first) else {
        return Ok(None);
    };
    match letter {
        'd' | 's' | 'w' | 'D' | 'S' | 'W' => {
            let name = letter.to_ascii_lowercase().to_string();
            let class = ascii_class(ascii(&name).unwrap_or_default());
            set.unite(class, letter.is_ascii_uppercase())?;
            Ok(Some(rest))
        }
        'p' | 'P' => {
            let (name, rest) = match rest.strip_prefix('{') {
                Some(inside) => inside.split_once('}').ok_or_else(|| Error::new(BAD_RANGE, text))?,
                None => {
                    let after = first(rest).map_or("", |(_, after)| after);
                    (before(rest, after), after)
                }
            };
            let (inverted, name) = name.strip_prefix('^').map_or((false, name), |name| (true, name));
            let class = unicode::named(name).ok_or_else(|| Error::new(BAD_RANGE, before(text, rest)))?;
            set.unite(class, (letter == 'P') != inverted)?;
            Ok(Some(rest))
        }
        _ => Ok(None),
    }
}

/// Parses a class in brackets, at the start of `text`. Returns the text after it.
pub(super) fn bracketed<'t>(text: &'t str, mut set: Set<'_>) -> Result<(ClassUnicode, &'t str), Refusal> {
    let inside = text.get(1..).unwrap_or("");
    let (negated, mut rest) = match inside.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, inside),
    };
    // A closing bracket in the first position is a literal.
    let mut is_first = true;
    loop {
        if let Some(after) = rest.strip_prefix(']').filter(|_| !is_first) {
            return Ok((set.finish(negated), after));
        }
        is_first = false;
        if let Some((name, after)) = rest.strip_prefix("[:").and_then(|inside| inside.split_once(":]")) {
            let (inverted, known) = name.strip_prefix('^').map_or((false, name), |name| (true, name));
            // The letters of escapes are no names.
            let Some(pairs) = ascii(known).filter(|_| known.len() > 1) else {
                return Err(Error::new(BAD_RANGE, before(rest, after)).into());
            };
            set.unite(ascii_class(pairs), inverted)?;
            rest = after;
            continue;
        }
        if let Some(after) = escaped(rest, &mut set)? {
            rest = after;
            continue;
        }
        let (low, after) = member(rest, text)?;
        let (high, after) = match after.strip_prefix('-') {
            Some(end) if !end.is_empty() && !end.starts_with(']') => member(end, text)?,
            _ => (low, after),
        };
        if high < low {
            return Err(Error::new(BAD_RANGE, before(rest, after)).into());
        }
        set.add(low, high)?;
        rest = after;
    }
}

/// Parses one character of a class. Returns it with the text after it.
fn member<'t>(text: &'t str, class: &str) -> Result<(u32, &'t str), Error> {
    if text.starts_with('\\') {
        return escape::character(text);
    }
    let (c, rest) = first(text).ok_or_else(|| Error::new("missing closing ]", class))?;
    Ok((c.into(), rest))
}

/// Returns the first character and the text after it.
fn first(text: &str) -> Option<(char, &str)> {
    let mut characters = text.chars();
    characters.next().map(|c| (c, characters.as_str()))
}

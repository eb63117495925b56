//! Translation of Go's pattern syntax to the crate's: groups, flags, repetition.

use super::escape::{character, push_literal};
use super::{NESTING_MAX, before, class, first, problem};

/// Go's limit for the counts in `x{n,m}`, and for the product of nested counts.
const REPEAT_MAX: u32 = 1_000;

struct Translation<'p> {
    pattern: &'p str,
    out: String,
    /// Repetition counts of each open group, outermost first; the pattern itself is one.
    groups: Vec<Group>,
    /// The repetition operator at the end of the last item, up to the end of the pattern.
    repetition: Option<&'p str>,
}

#[derive(Default)]
struct Group {
    /// Product of counts of the last item; `None` if there is none to repeat.
    last: Option<u32>,
    /// The largest product in the group.
    most: u32,
}

pub(super) fn translate(pattern: &str) -> Result<String, String> {
    let mut translation = Translation {
        pattern,
        out: String::with_capacity(pattern.len() + 16),
        groups: vec![Group::default()],
        repetition: None,
    };
    let mut rest = pattern;
    while !rest.is_empty() {
        rest = translation.step(rest)?;
    }
    if translation.groups.len() > 1 {
        return Err(problem("missing closing )", pattern));
    }
    Ok(translation.out)
}

impl<'p> Translation<'p> {
    /// Translates one item. Returns the text after it.
    fn step(&mut self, rest: &'p str) -> Result<&'p str, String> {
        let Some((c, after)) = first(rest) else { return Ok("") };
        let mut repetition = None;
        let after = match c {
            '(' => self.open(rest)?,
            ')' => {
                let group = self.groups.pop().unwrap_or_default();
                if self.groups.is_empty() {
                    return Err(problem("unexpected )", self.pattern));
                }
                self.out.push(')');
                self.item(group.most.max(1));
                after
            }
            '|' => {
                self.out.push('|');
                self.group().last = None;
                after
            }
            '*' | '+' | '?' => {
                let after = after.strip_prefix('?').unwrap_or(after);
                self.repeat(rest, after, None)?;
                repetition = Some(rest);
                after
            }
            '{' => match counts(after) {
                Some((low, high, after)) => {
                    let after = after.strip_prefix('?').unwrap_or(after);
                    self.repeat(rest, after, Some((low, high)))?;
                    repetition = Some(rest);
                    after
                }
                None => {
                    self.literal(c);
                    after
                }
            },
            '[' => {
                let after = class::bracketed(rest, &mut self.out)?;
                self.item(1);
                after
            }
            '.' | '^' | '$' => {
                self.out.push(c);
                self.item(1);
                after
            }
            '\\' => self.escape(rest)?,
            c => {
                self.literal(c);
                after
            }
        };
        self.repetition = repetition;
        Ok(after)
    }

    fn group(&mut self) -> &mut Group {
        if self.groups.is_empty() {
            self.groups.push(Group::default());
        }
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    fn item(&mut self, counts: u32) {
        let group = self.group();
        group.last = Some(counts);
        group.most = group.most.max(counts);
    }

    fn literal(&mut self, c: char) {
        push_literal(c, &mut self.out);
        self.item(1);
    }

    /// Translates a repetition operator from `rest` to `after`.
    fn repeat(&mut self, rest: &'p str, after: &str, counts: Option<(u32, Option<u32>)>) -> Result<(), String> {
        let operator = before(rest, after);
        if let Some((low, high)) = counts
            && (low > REPEAT_MAX || high.is_some_and(|h| h > REPEAT_MAX || h < low))
        {
            return Err(problem("invalid repeat count", operator));
        }
        if let Some(last) = self.repetition {
            return Err(problem("invalid nested repetition operator", before(last, after)));
        }
        let Some(inner) = self.group().last else {
            return Err(problem("missing argument to repetition operator", operator));
        };
        let times = counts.map_or(1, |(low, high)| high.unwrap_or(low).max(1));
        let amount = inner.saturating_mul(times);
        if times > 1 && amount > REPEAT_MAX {
            return Err(problem("invalid repeat count", operator));
        }
        self.out.push_str(operator);
        self.item(amount);
        Ok(())
    }

    /// Translates a group or flags. Captures are not used, so every group becomes a plain one;
    /// names may repeat, as in Go.
    fn open(&mut self, rest: &'p str) -> Result<&'p str, String> {
        let Some(flags) = rest.strip_prefix("(?") else {
            self.begin_group("(?:")?;
            return Ok(&rest[1..]);
        };
        if let Some(named) = flags.strip_prefix("P<").or_else(|| flags.strip_prefix('<')) {
            let Some((name, after)) = named.split_once('>') else {
                return Err(problem("invalid named capture", rest));
            };
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                return Err(problem("invalid named capture", before(rest, after)));
            }
            self.begin_group("(?:")?;
            return Ok(after);
        }
        let (mut after, mut negated, mut seen) = (flags, false, false);
        while let Some((flag, behind)) = first(after) {
            after = behind;
            match flag {
                'i' | 'm' | 's' | 'U' => seen = true,
                '-' if !negated => (negated, seen) = (true, false),
                ':' | ')' if !negated || seen => {
                    let written = before(rest, behind);
                    if flag == ':' {
                        self.begin_group(written)?;
                    } else if written != "(?)" {
                        self.out.push_str(written);
                    }
                    return Ok(behind);
                }
                _ => break,
            }
        }
        Err(problem("invalid or unsupported Perl syntax", before(rest, after)))
    }

    fn begin_group(&mut self, written: &str) -> Result<(), String> {
        if self.groups.len() > NESTING_MAX {
            return Err(problem("expression nests too deeply", self.pattern));
        }
        self.out.push_str(written);
        self.groups.push(Group::default());
        Ok(())
    }

    fn escape(&mut self, rest: &'p str) -> Result<&'p str, String> {
        if let Some(literal) = rest.strip_prefix("\\Q") {
            let (literal, after) = literal.split_once("\\E").unwrap_or((literal, ""));
            for c in literal.chars() {
                self.literal(c);
            }
            return Ok(after);
        }
        let anchor = match rest.as_bytes().get(1) {
            Some(b'A') => "\\A",
            Some(b'z') => "\\z",
            Some(b'b') => "(?-u:\\b)",
            Some(b'B') => "(?-u:\\B)",
            _ => {
                let start = self.out.len();
                if let Some(after) = class::escaped(rest, &mut self.out)? {
                    // Go does not case-fold `\w`: `(?i)\w` does not match the long s, although it
                    // matches s.
                    if !self.out[start..].starts_with('\\') {
                        let class = self.out.split_off(start);
                        self.out.push_str(&format!("(?-i:{class})"));
                    }
                    self.item(1);
                    return Ok(after);
                }
                let (c, after) = character(rest)?;
                self.literal(c);
                return Ok(after);
            }
        };
        self.out.push_str(anchor);
        self.item(1);
        Ok(&rest[2..])
    }
}

/// Parses `n}`, `n,}` or `n,m}`. Returns the counts and the text after them; `None` if the brace is
/// a literal.
fn counts(text: &str) -> Option<(u32, Option<u32>, &str)> {
    let (low, rest) = count(text)?;
    if let Some(rest) = rest.strip_prefix('}') {
        return Some((low, Some(low), rest));
    }
    let rest = rest.strip_prefix(',')?;
    if let Some(rest) = rest.strip_prefix('}') {
        return Some((low, None, rest));
    }
    let (high, rest) = count(rest)?;
    Some((low, Some(high), rest.strip_prefix('}')?))
}

/// Parses a number without leading zeros. A number that overflows exceeds any limit.
fn count(text: &str) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    Some((digits.parse().unwrap_or(u32::MAX), rest))
}

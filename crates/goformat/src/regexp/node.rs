//! Parts of a parsed pattern, with the measures by which Go refuses large patterns.

use regex_syntax::hir::{Hir, HirKind, Repetition};

/// Instructions of a compiled pattern in Go: 128 MiB of 40 bytes each.
const GO_SIZE_MAX: u64 = (128 << 20) / 40;
/// Levels of Go's tree.
const GO_HEIGHT_MAX: u32 = 1000;
/// Copies of the innermost part that nested repetitions may make in Go.
const REPEATS_MAX: u32 = 1000;

/// A part of a pattern.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) hir: Hir,
    form: Form,
    /// Go's count of instructions.
    size: u64,
    /// Levels of Go's tree.
    height: u32,
    /// Levels of the tree that is compiled, which has no groups.
    depth: u32,
    /// Product of the nested repetitions, where it is largest.
    repeats: u32,
}

/// The kinds of parts that Go merges with their like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Character { folded: bool },
    Text { folded: bool },
    Class,
    List,
    Alternatives,
    Other,
}

/// A refusal by Go's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beyond {
    Size,
    Nesting,
}

impl Node {
    fn leaf(hir: Hir, form: Form) -> Self {
        Self {
            hir,
            form,
            size: 1,
            height: 1,
            depth: 1,
            repeats: 1,
        }
    }

    pub(super) fn character(hir: Hir, folded: bool) -> Self {
        Self::leaf(hir, Form::Character { folded })
    }

    pub(super) fn class(hir: Hir) -> Self {
        Self::leaf(hir, Form::Class)
    }

    pub(super) fn assertion(hir: Hir) -> Self {
        Self::leaf(hir, Form::Other)
    }

    /// Returns parts one after another.
    pub(super) fn list(mut parts: Vec<Node>) -> Self {
        if parts.len() == 1
            && let Some(one) = parts.pop()
        {
            return one;
        }
        if parts.is_empty() {
            return Self::assertion(Hir::empty());
        }
        let folded = text_of(&parts);
        let mut list = joined(&parts, Form::List);
        if let Some(folded) = folded {
            (list.form, list.height) = (Form::Text { folded }, 1);
        }
        list.hir = Hir::concat(parts.into_iter().map(|part| part.hir).collect());
        list
    }

    /// Returns alternatives, of which there is at least one.
    pub(super) fn alternatives(mut branches: Vec<Node>) -> Self {
        if branches.len() == 1
            && let Some(one) = branches.pop()
        {
            return one;
        }
        let mut any = joined(&branches, Form::Alternatives);
        any.size += branches.len().saturating_sub(1) as u64;
        if branches
            .iter()
            .all(|b| matches!(b.form, Form::Character { .. } | Form::Class))
        {
            (any.form, any.height, any.size) = (Form::Class, 1, 1);
        }
        any.hir = Hir::alternation(branches.into_iter().map(|branch| branch.hir).collect());
        any
    }

    /// Returns a capturing group. Only Go's measures know that it captures.
    pub(super) fn captured(self) -> Self {
        Self {
            form: Form::Other,
            size: self.size + 2,
            height: self.height + 1,
            ..self
        }
    }

    pub(super) fn repeated(self, (min, max): (u32, Option<u32>), greedy: bool) -> Self {
        let copies = u64::from(max.unwrap_or(min));
        let size = match (min, max) {
            (0, Some(1)) | (1, None) => self.size + 1,
            (0, None) => self.size + 2,
            (min, Some(max)) => copies.saturating_mul(self.size) + u64::from(max - min),
            (_, None) => copies.saturating_mul(self.size) + 1,
        };
        let repeats = match max {
            Some(0) => 1,
            max => max.unwrap_or(min).max(1).saturating_mul(self.repeats),
        };
        Self {
            hir: Hir::repetition(Repetition {
                min,
                max,
                greedy,
                sub: Box::new(self.hir),
            }),
            form: Form::Other,
            size: size.max(1),
            height: self.height + 1,
            depth: self.depth + 1,
            repeats,
        }
    }

    /// Returns true if nested repetitions make too many copies.
    pub(super) fn repeats_too_often(&self) -> bool {
        self.repeats > REPEATS_MAX
    }

    /// Checks Go's limits, and `nesting` as ours on the depth.
    pub(super) fn within_limits(self, nesting: u32) -> Result<Self, Beyond> {
        match () {
            () if self.size > GO_SIZE_MAX => Err(Beyond::Size),
            () if self.height > GO_HEIGHT_MAX || self.depth > nesting => Err(Beyond::Nesting),
            () => Ok(self),
        }
    }
}

/// Returns the folding of parts that are all characters or texts of one folding, which Go merges to
/// one text.
fn text_of(parts: &[Node]) -> Option<bool> {
    let mut parts = parts.iter().map(|part| match part.form {
        Form::Character { folded } | Form::Text { folded } => Some(folded),
        _ => None,
    });
    let first = parts.next()??;
    parts.all(|part| part == Some(first)).then_some(first)
}

/// Returns the measures of several parts below one node. A list in a list is no level of its own.
fn joined(parts: &[Node], form: Form) -> Node {
    let below = |part: &Node| part.height - u32::from(part.form == form);
    let is_merged = |hir: &Hir| match hir.kind() {
        HirKind::Concat(_) => form == Form::List,
        HirKind::Alternation(_) => form == Form::Alternatives,
        _ => false,
    };
    let depth = |part: &Node| part.depth - u32::from(is_merged(&part.hir));
    Node {
        size: parts.iter().map(|part| part.size).sum(),
        height: 1 + parts.iter().map(below).max().unwrap_or(0),
        depth: 1 + parts.iter().map(depth).max().unwrap_or(0),
        repeats: parts.iter().map(|part| part.repeats).max().unwrap_or(1),
        ..Node::leaf(Hir::empty(), form)
    }
}

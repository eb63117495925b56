//! The paths that compiled rules read, and those that the values go to.

use crate::convert::Converter;
use crate::passthrough::Passthrough;
use crate::path::Segment;
use crate::plan::{Each, Expression, Fill, Op, This, Value};
use crate::trace::Seg;

/// A path that an operation reads, from the root of the object.
pub(super) struct Read {
    pub(super) path: Vec<Segment>,
    pub(super) to: Vec<Segment>,
    pub(super) how: How,
}

pub(super) enum How {
    /// The value is moved, as far as it passes through.
    Move(Passthrough),
    /// The rule at this index computes with it.
    Compute(usize),
    /// Items are moved with the fields that both sides have.
    Items(Option<Passthrough>),
}

/// Returns what the rules of a direction read.
pub(super) fn reads(converter: &Converter) -> Vec<Read> {
    let mut reads = Vec::new();
    operations(&converter.plan.ops, &Around::default(), &converter.from, &mut reads);
    reads
}

/// Paths around an operation: the item on each side, and the scope that holds the loop.
#[derive(Default, Clone)]
struct Around<'p> {
    from: Vec<Segment>,
    to: Vec<Segment>,
    outer: Vec<Segment>,
    /// The loop whose items these are, and how often its rules have been used again.
    each: Option<&'p Each>,
    again: usize,
}

/// Levels of a tree that are shown; all have the same rules.
const LEVELS: usize = 2;

/// Collects what operations read and where it goes.
fn operations<'p>(ops: &'p [Op], at: &Around<'p>, version: &str, out: &mut Vec<Read>) {
    let every = |path: Vec<Segment>| path.into_iter().chain([Segment::Each(String::new())]).collect();
    for op in ops {
        match op {
            Op::Move { from, to, copy, .. } => out.push(Read {
                path: below(&at.from, from),
                to: below(&at.to, to),
                how: How::Move(copy.clone()),
            }),
            Op::Compute {
                this, value, to, rule, ..
            } => {
                let this: Vec<Vec<Segment>> = match this {
                    This::At(path) => vec![below(&at.from, path)],
                    This::Around(path) => vec![below(&at.outer, path)],
                    This::Both { around, item } => {
                        let fields = item
                            .iter()
                            .map(|name| below(&at.from, &[Seg::Field(name.as_str().into())]));
                        [below(&at.outer, around)].into_iter().chain(fields).collect()
                    }
                };
                computed(value, &this, &below(&at.to, to), (version, *rule), out);
            }
            Op::Again { from, to } => {
                let (from, to) = (below(&at.from, from), below(&at.to, to));
                if let Some(each) = at.each.filter(|_| at.again < LEVELS) {
                    let inner = Around {
                        from: every(from.clone()),
                        to: every(to.clone()),
                        outer: at.from.clone(),
                        each: at.each,
                        again: at.again + 1,
                    };
                    operations(&each.body, &inner, version, out);
                }
                out.push(Read {
                    path: from,
                    to,
                    how: How::Move(Passthrough::Whole),
                });
            }
            Op::Each(each) => {
                let inner = Around {
                    from: every(below(&at.from, &each.from)),
                    to: every(below(&at.to, &each.to)),
                    outer: at.from.clone(),
                    each: Some(each),
                    again: at.again,
                };
                if let Fill::Key(key) = &each.fill {
                    expression(
                        key,
                        std::slice::from_ref(&inner.from),
                        &inner.to,
                        (version, each.rule),
                        out,
                    );
                }
                out.push(Read {
                    path: inner.from.clone(),
                    to: inner.to.clone(),
                    how: How::Items(each.passthrough.clone()),
                });
                operations(&each.body, &inner, version, out);
            }
        }
    }
}

fn computed(value: &Value, this: &[Vec<Segment>], to: &[Segment], rule: (&str, usize), out: &mut Vec<Read>) {
    match value {
        Value::Expression(made) => expression(made, this, to, rule, out),
        Value::Fields(fields) => {
            for (name, value) in fields {
                let to: Vec<Segment> = to.iter().cloned().chain([Segment::Field(name.clone())]).collect();
                computed(value, this, &to, rule, out);
            }
        }
        Value::Items(items) => items.iter().for_each(|value| computed(value, this, to, rule, out)),
        Value::Constant(_) => {}
    }
}

fn expression(
    made: &Expression,
    this: &[Vec<Segment>],
    to: &[Segment],
    (version, rule): (&str, usize),
    out: &mut Vec<Read>,
) {
    for reference in made.program.references() {
        let fields = reference.path.iter().cloned().map(Segment::Field);
        let path: Vec<Segment> = match reference.variable.as_str() {
            "self" => {
                // Of several, the item's field that has this name.
                let named = |path: &&Vec<Segment>| match (path.last(), reference.path.first()) {
                    (Some(Segment::Field(field)), Some(name)) => field == name,
                    _ => false,
                };
                match (this.iter().skip(1).find(named), this.first()) {
                    (Some(item), _) => item.iter().cloned().chain(fields.skip(1)).collect(),
                    (None, Some(first)) => first.iter().cloned().chain(fields).collect(),
                    (None, None) => continue,
                }
            }
            name if name == version => fields.collect(),
            _ => continue,
        };
        out.push(Read {
            path,
            to: to.to_vec(),
            how: How::Compute(rule),
        });
    }
}

pub(super) fn below(path: &[Segment], more: &[Seg]) -> Vec<Segment> {
    let step = |seg: &Seg| match seg {
        Seg::Field(name) => Segment::Field(name.to_string()),
        Seg::Index(index) => Segment::Index(*index),
    };
    path.iter().cloned().chain(more.iter().map(step)).collect()
}

//! Values of a version without a source in the other one: constants of rules, defaults of the
//! schema.

use super::{CoveredField, FieldOutcome, Made, Maker, below, leaves_of, starts};
use crate::convert::Converter;
use crate::path::{Path, Segment};
use crate::plan::{Op, Value};
use insula_schema::Structural;

/// Returns the fields of `to` that have a value without a source; constants first.
pub(super) fn made(converter: &Converter, fields: &[CoveredField], to: &Structural) -> Vec<Made> {
    let mut constants = Vec::new();
    operations(&converter.plan.ops, &[], &mut constants);
    let rule = |index: usize| converter.facts.get(index).map(|facts| facts.path.clone());
    let mut out: Vec<Made> = constants
        .into_iter()
        .map(|(path, index)| Made {
            path: Path::from_segments(path),
            by: Maker::Rule(rule(index).unwrap_or_default()),
        })
        .collect();
    for (path, node) in leaves_of(to) {
        let ends = |end: &[Segment]| starts(&path, end) || starts(end, &path);
        let reached = fields.iter().any(|field| match &field.outcome {
            FieldOutcome::Carried => ends(field.path.segments()),
            outcome => outcome.destinations().iter().any(|end| ends(end.segments())),
        });
        if node.default().is_some() && !reached && !out.iter().any(|made| ends(made.path.segments())) {
            out.push(Made {
                path: Path::from_segments(path),
                by: Maker::Default,
            });
        }
    }
    out
}

fn operations(ops: &[Op], above: &[Segment], out: &mut Vec<(Vec<Segment>, usize)>) {
    for op in ops {
        match op {
            Op::Move { .. } | Op::Again { .. } => {}
            Op::Compute { value, to, rule, .. } => constants(value, below(above, to), *rule, out),
            Op::Each(each) => {
                let mut every = below(above, &each.to);
                every.push(Segment::Each(String::new()));
                operations(&each.body, &every, out);
            }
        }
    }
}

fn constants(value: &Value, to: Vec<Segment>, rule: usize, out: &mut Vec<(Vec<Segment>, usize)>) {
    match value {
        Value::Expression(made) if !made.program.references().is_empty() => {}
        Value::Fields(fields) => {
            for (name, value) in fields {
                constants(
                    value,
                    below(&to, &[crate::trace::Seg::Field(name.as_str().into())]),
                    rule,
                    out,
                );
            }
        }
        // Items have no paths of their own; one computed item makes the list computed.
        Value::Items(items) => {
            let mut inner = Vec::new();
            items
                .iter()
                .for_each(|item| constants(item, Vec::new(), rule, &mut inner));
            if inner.len() == items.len() {
                out.push((to, rule));
            }
        }
        Value::Expression(_) | Value::Constant(_) => out.push((to, rule)),
    }
}

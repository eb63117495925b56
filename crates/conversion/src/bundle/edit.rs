//! Edits between versions, and what a version shows beside the conversion of its parent.

use super::Bundle;
use crate::error::ConvertError;
use crate::fixed::Fixed;
use crate::merge::{Origin, Side, merge_objects};
use crate::residual::{self, Patch};
use crate::trace::Trace;
use insula_api::Json;
use insula_cel::Budget;

/// Returns `onto`, an object of version `b`, with an edit that was made in version `a`.
pub(super) fn edited(
    bundle: &Bundle,
    (a, b): (usize, usize),
    (before, after): (&Json, &Json),
    onto: &Json,
    budget: &mut Budget,
) -> Result<Json, ConvertError> {
    let (was, was_from) = bundle.side(a, b, before, budget)?;
    let (is, is_from) = bundle.side(a, b, after, budget)?;
    let none = Fixed::default();
    let mut hops = bundle.hops(a, b);
    let (first, second) = (hops.next(), hops.next());
    let fixed = second.or(first).map_or(&none, |hop| &hop.plan.fixed);
    let source = first.filter(|hop| second.is_none() && hop.code.is_none());
    let origin = |object| source.map(|hop| Origin::object(object, bundle.versions[a].schema.root(), &hop.plan.fields));
    let old = Side::new(&was, &was_from).with_origin(origin(before));
    let new = Side::new(&is, &is_from).with_origin(origin(after));
    Ok(merge_objects(&bundle.versions[b].schema, old, new, onto, fixed))
}

pub(super) fn traced(
    bundle: &Bundle,
    a: usize,
    b: usize,
    object: &Json,
    budget: &mut Budget,
) -> Result<(Json, Trace), ConvertError> {
    let mut trace = Trace::default();
    let made = bundle.route(a, b, object, budget, Some(&mut trace))?;
    Ok((made, trace))
}

/// Returns what a version shows beside the conversion of its parent: `above` is the parent, `base`
/// its conversion.
pub(super) fn residual_of(
    bundle: &Bundle,
    (parent, version): (usize, usize),
    (above, base): (&Json, &Json),
    object: &Json,
    budget: &mut Budget,
) -> Result<Option<Patch>, ConvertError> {
    let schema = &bundle.versions[version].schema;
    let patch = residual::diff_objects(schema, Side::new(base, &Trace::default()), object);
    if patch.is_none() || !bundle.can_fail(parent, version) {
        return Ok(patch);
    }
    let (base, trace) = traced(bundle, parent, version, above, budget)?;
    Ok(residual::diff_objects(schema, Side::new(&base, &trace), object))
}

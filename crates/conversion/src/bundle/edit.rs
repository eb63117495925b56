//! Edits between versions, and what a version shows beside the conversion of its parent.

use super::Bundle;
use crate::error::ConvertError;
use crate::fixed::Fixed;
use crate::merge::{Origin, Side, merge_objects};
use crate::residual::{self, Patch};
use crate::trace::Trace;
use insula_api::Json;
use insula_cel::Budget;

/// An edit that was made in version `a`, converted to version `b`.
pub(super) struct ConvertedEdit<'e> {
    bundle: &'e Bundle,
    versions: (usize, usize),
    before: &'e Json,
    after: &'e Json,
    was: (Json, Trace),
    is: (Json, Trace),
}

impl<'e> ConvertedEdit<'e> {
    pub(super) fn convert(
        bundle: &'e Bundle,
        (a, b): (usize, usize),
        (before, after): (&'e Json, &'e Json),
        budget: &mut Budget,
    ) -> Result<Self, ConvertError> {
        Ok(ConvertedEdit {
            bundle,
            versions: (a, b),
            before,
            after,
            was: bundle.side(a, b, before, budget)?,
            is: bundle.side(a, b, after, budget)?,
        })
    }

    /// Returns an object of version `b` with the edit.
    pub(super) fn onto(&self, onto: &Json) -> Json {
        let (bundle, (a, b)) = (self.bundle, self.versions);
        let none = Fixed::default();
        let mut hops = bundle.hops(a, b);
        let (first, second) = (hops.next(), hops.next());
        let fixed = second.or(first).map_or(&none, |hop| &hop.plan.fixed);
        let source = first.filter(|hop| second.is_none() && hop.code.is_none());
        let origin = |object| {
            source.map(|hop| {
                Origin::object(
                    object,
                    bundle.versions[a].schema.root(),
                    &hop.plan.fields,
                    &hop.plan.ops,
                )
            })
        };
        let old = Side::new(&self.was.0, &self.was.1).with_origin(origin(self.before));
        let new = Side::new(&self.is.0, &self.is.1).with_origin(origin(self.after));
        merge_objects(&bundle.versions[b].schema, old, new, onto, fixed)
    }
}

/// Returns `onto`, an object of version `b`, with an edit that was made in version `a`.
pub(super) fn edited(
    bundle: &Bundle,
    versions: (usize, usize),
    edit: (&Json, &Json),
    onto: &Json,
    budget: &mut Budget,
) -> Result<Json, ConvertError> {
    Ok(ConvertedEdit::convert(bundle, versions, edit, budget)?.onto(onto))
}

/// Returns the union of what the hub and another version show, where neither was made from it.
pub(super) fn union_of(
    bundle: &Bundle,
    version: usize,
    (hub, object): (&Json, &Json),
    budget: &mut Budget,
) -> Result<Json, ConvertError> {
    let top = bundle.top;
    let union = bundle.route(bundle.hub, top, hub, budget, None)?;
    let shown = bundle.route(top, version, &union, budget, None)?;
    edited(bundle, (version, top), (&shown, object), &union, budget)
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

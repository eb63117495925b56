//! References to objects: their `apiVersion` became the group alone.

use super::anchors::Context;
use super::compare::Found;
use super::{Link, Loose, Step, names};
use crate::passthrough::Scalar::String as Text;
use crate::passthrough::{Kind, known_kind};
use crate::path::Segment;

/// Names of the group of a reference.
const GROUPS: &[&str] = &["apiGroup", "group"];
/// Confidence: the version of the way back is a guess.
const GROUP: f64 = 0.8;

/// Links the `apiVersion` of a reference with the group of the same reference. References to
/// another version of an API mostly have the version of its own: `versions` names the old and the
/// new one.
pub(super) fn group(a: &Loose<'_>, b: &Loose<'_>, context: Context, versions: (&str, &str)) -> Option<Found> {
    let text = |place: &Loose<'_>| known_kind(place.node) == Some(Kind::Scalar(Text));
    let swapped = b.name() == "apiVersion";
    let (whole, part, version) = if swapped {
        (b, a, versions.1)
    } else {
        (a, b, versions.0)
    };
    if whole.name() != "apiVersion" || !GROUPS.contains(&part.name()) || !text(a) || !text(b) {
        return None;
    }
    let (x, y) = (a.above(), b.above());
    let last = |path: &[Segment]| match path.last() {
        Some(Segment::Field(name)) => name.clone(),
        _ => String::new(),
    };
    if x != y && !context.holds(x, y) && names::names_alike(&last(x), &last(y)) < 1.0 {
        return None;
    }
    let to_group = Step::new("self.contains('/') ? self.split('/')[0] : ''");
    let to_version = Step::new(format!("self == '' ? 'v1' : self + '/{version}'"));
    let link = match swapped {
        true => Link::Steps(to_version, to_group),
        false => Link::Steps(to_group, to_version),
    };
    let reasons = vec![format!(
        "the group of an apiVersion, whose version {version} is a guess"
    )];
    Some((GROUP, reasons, link))
}

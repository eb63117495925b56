//! Objects whose fields all went into the object around them, or came from there.

use super::{Loose, is_object};
use crate::passthrough::known_kind;
use crate::path::Segment;
use std::collections::{HashMap, HashSet};

/// Least number of fields that go together.
const FIELDS_MIN: usize = 2;

/// Returns the pairs of fields that went with all others of their object. Alone, a general name
/// says little about a field that is a level higher or lower.
///
/// ```text
/// config: {name, namespace}  ↔  name, namespace
/// ```
pub(super) fn find(olds: &[Loose<'_>], news: &[Loose<'_>]) -> HashSet<(usize, usize)> {
    let (old_paths, new_paths) = (by_path(olds), by_path(news));
    let mut found: HashSet<(usize, usize)> = fields((olds, &old_paths), (news, &new_paths)).collect();
    found.extend(fields((news, &new_paths), (olds, &old_paths)).map(|(new, old)| (old, new)));
    found
}

type Paths<'p> = HashMap<&'p [Segment], usize>;

fn by_path<'p>(places: &'p [Loose<'_>]) -> Paths<'p> {
    let paths = places.iter().enumerate();
    paths.map(|(at, place)| (place.path.as_slice(), at)).collect()
}

/// Returns the fields of objects of one version, with those of the same names around the object.
fn fields<'p>(
    (places, paths): (&'p [Loose<'p>], &'p Paths<'p>),
    (others, other_paths): (&'p [Loose<'p>], &'p Paths<'p>),
) -> impl Iterator<Item = (usize, usize)> {
    let of_object = move |object: &'p Loose<'p>| -> Option<Vec<(usize, usize)>> {
        let around = |name: &str| -> Option<(usize, usize)> {
            let field = |above: &[Segment]| -> Vec<Segment> {
                above.iter().cloned().chain([Segment::Field(name.to_owned())]).collect()
            };
            let inner = *paths.get(field(&object.path).as_slice())?;
            let outer = *other_paths.get(field(object.above()).as_slice())?;
            let same = known_kind(places[inner].node) == known_kind(others[outer].node);
            same.then_some((inner, outer))
        };
        let pairs: Option<Vec<_>> = object.node.properties().map(|(name, _)| around(name)).collect();
        pairs.filter(|pairs| pairs.len() >= FIELDS_MIN)
    };
    let objects = places.iter().filter(|place| is_object(place.node));
    objects.filter_map(of_object).flatten()
}

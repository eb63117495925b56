//! Shrinking of counterexamples: removes writes, fields and items and simplifies scalars, one at a
//! time.

use super::Write;
use insula_api::Json;

/// Simpler versions of a value, made one at a time: a large object has thousands.
type Simpler<'v> = Box<dyn Iterator<Item = Json> + 'v>;

/// Returns smaller sequences of writes, the smallest first.
pub(super) fn smaller(script: &[Write]) -> impl Iterator<Item = Vec<Write>> + '_ {
    let without = (0..script.len()).filter(|_| script.len() > 1).map(|leave| {
        let mut shorter = script.to_vec();
        shorter.remove(leave);
        shorter
    });
    let within = script.iter().enumerate().flat_map(move |(i, write)| {
        simpler(&write.object, true).map(move |object| {
            let mut changed = script.to_vec();
            changed[i].object = object;
            changed
        })
    });
    without.chain(within)
}

/// Returns simpler values: first with fewer parts, then with simpler ones.
fn simpler(value: &Json, root: bool) -> Simpler<'_> {
    match value {
        Json::Object(map) => {
            let fixed = move |name: &str| root && matches!(name, "apiVersion" | "kind");
            let without = map.keys().filter(move |name| !fixed(name)).map(|name| {
                let mut less = map.clone();
                less.remove(name);
                Json::Object(less)
            });
            let within = map
                .iter()
                .filter(move |(name, _)| !fixed(name))
                .flat_map(move |(name, part)| {
                    simpler(part, false).map(move |part| {
                        let mut changed = map.clone();
                        changed.insert(name.clone(), part);
                        Json::Object(changed)
                    })
                });
            Box::new(without.chain(within))
        }
        Json::Array(items) => {
            let without = (0..items.len()).map(|i| {
                let mut less = items.clone();
                less.remove(i);
                Json::Array(less)
            });
            let within = items.iter().enumerate().flat_map(move |(i, item)| {
                simpler(item, false).map(move |part| {
                    let mut changed = items.clone();
                    changed[i] = part;
                    Json::Array(changed)
                })
            });
            Box::new(without.chain(within))
        }
        Json::String(text) => {
            let shorter = move |plain: &&str| plain.len() < text.len();
            Box::new(["", "a"].into_iter().filter(shorter).map(Json::from))
        }
        Json::Number(number) => {
            let smaller = move |plain: &i32| number.as_f64().is_some_and(|n| n.abs() > f64::from(*plain));
            Box::new([0, 1].into_iter().filter(smaller).map(Json::from))
        }
        Json::Bool(true) => Box::new(std::iter::once(Json::Bool(false))),
        Json::Bool(false) | Json::Null => Box::new(std::iter::empty()),
    }
}

/// A step into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Field(String),
    Index(usize),
}

/// Returns the place of every value in a sequence of writes, as a write's number and a path: the
/// outermost first, so that large parts go early, and later items before earlier ones, so that the
/// removal of one does not move the next.
pub(super) fn places(script: &[Write]) -> Vec<(usize, Vec<Step>)> {
    let mut level: Vec<(usize, Vec<Step>, &Json)> = Vec::new();
    for (number, write) in script.iter().enumerate() {
        level.push((number, Vec::new(), &write.object));
    }
    let mut out = Vec::new();
    while !level.is_empty() {
        let mut next = Vec::new();
        for (number, path, value) in level {
            let mut push = |step, value| {
                let path: Vec<Step> = path.iter().cloned().chain([step]).collect();
                out.push((number, path.clone()));
                next.push((number, path, value));
            };
            match value {
                Json::Object(map) => {
                    let fixed = |name: &str| path.is_empty() && matches!(name, "apiVersion" | "kind");
                    for (name, value) in map.iter().filter(|(name, _)| !fixed(name)) {
                        push(Step::Field(name.clone()), value);
                    }
                }
                Json::Array(items) => {
                    for (index, value) in items.iter().enumerate().rev() {
                        push(Step::Index(index), value);
                    }
                }
                _ => {}
            }
        }
        level = next;
    }
    out
}

fn find<'a>(value: &'a mut Json, path: &[Step]) -> Option<&'a mut Json> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Field(name) => value.get_mut(name),
        Step::Index(index) => value.get_mut(index),
    })
}

/// Returns the sequence without the value at a place; `None` if there is none.
pub(super) fn without(script: &[Write], number: usize, path: &[Step]) -> Option<Vec<Write>> {
    let mut less = script.to_vec();
    let (last, parent) = path.split_last()?;
    match (find(&mut less.get_mut(number)?.object, parent)?, last) {
        (Json::Object(map), Step::Field(name)) => map.remove(name).map(drop)?,
        (Json::Array(items), Step::Index(index)) if *index < items.len() => drop(items.remove(*index)),
        _ => return None,
    }
    Some(less)
}

/// Returns plainer values for the scalar at a place.
pub(super) fn plainer(script: &[Write], number: usize, path: &[Step]) -> Vec<Json> {
    let mut object = script.get(number).map(|write| write.object.clone()).unwrap_or_default();
    match find(&mut object, path) {
        Some(scalar) if !scalar.is_object() && !scalar.is_array() => simpler(scalar, false).collect(),
        _ => Vec::new(),
    }
}

/// Returns the sequence with another value at a place; `None` if there is no such place.
pub(super) fn replaced(script: &[Write], number: usize, path: &[Step], value: Json) -> Option<Vec<Write>> {
    let mut changed = script.to_vec();
    *find(&mut changed.get_mut(number)?.object, path)? = value;
    Some(changed)
}

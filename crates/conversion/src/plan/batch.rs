//! Batches of moves from one object into another: one walk over each object, instead of one lookup
//! per field.

use super::Op;
use crate::by_path::{get, object_at};
use crate::passthrough::Passthrough;
use crate::trace::Seg;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// Fewer moves are executed one by one.
const MOVES_MIN: usize = 4;

/// Moves between fields of one object on each side. No two rules write the same path, so that their
/// order does not matter.
#[derive(Debug)]
pub(crate) struct Batch {
    from: Box<[Seg]>,
    to: Box<[Seg]>,
    /// Ordered by the names of the sources.
    moves: Vec<Move>,
    /// Names of the destinations, in order.
    names: Vec<Box<str>>,
}

#[derive(Debug)]
struct Move {
    from: Box<str>,
    copy: Passthrough,
    /// Index of the destination in the batch's names.
    to: usize,
}

/// Groups moves into batches; returns the indices of the other operations, too.
pub(crate) fn group(ops: &[Op]) -> (Vec<Batch>, Vec<usize>) {
    type Parents<'p> = (&'p [Seg], &'p [Seg]);
    type Member<'p> = (usize, &'p str, &'p str, &'p Passthrough);
    let mut groups: BTreeMap<Parents<'_>, Vec<Member<'_>>> = BTreeMap::new();
    for (op, parents, member) in ops
        .iter()
        .enumerate()
        .filter_map(|(i, op)| field_to_field(op).map(|(p, m)| (i, p, m)))
    {
        let (from, to, copy) = member;
        groups.entry(parents).or_default().push((op, from, to, copy));
    }
    groups.retain(|_, members| members.len() >= MOVES_MIN);
    let together: Vec<usize> = groups.values().flatten().map(|member| member.0).collect();
    let others = (0..ops.len()).filter(|op| !together.contains(op)).collect();
    let batch = |((from, to), members): (Parents<'_>, Vec<Member<'_>>)| {
        let mut names: Vec<Box<str>> = members.iter().map(|(_, _, to, _)| (*to).into()).collect();
        names.sort_unstable();
        let place = |name: &str| names.iter().position(|known| **known == *name).unwrap_or_default();
        let mut moves: Vec<Move> = members
            .iter()
            .map(|(_, from, to, copy)| Move {
                from: (*from).into(),
                copy: (*copy).clone(),
                to: place(to),
            })
            .collect();
        moves.sort_by(|a, b| a.from.cmp(&b.from));
        Batch {
            from: from.into(),
            to: to.into(),
            moves,
            names,
        }
    };
    (groups.into_iter().map(batch).collect(), others)
}

/// Returns the parents, names and passthrough of a move of one named field to another.
#[expect(clippy::type_complexity, reason = "two pairs of the same, and used once")]
fn field_to_field(op: &Op) -> Option<((&[Seg], &[Seg]), (&str, &str, &Passthrough))> {
    let Op::Move {
        from,
        to,
        copy,
        unless_there: false,
    } = op
    else {
        return None;
    };
    let (Some((Seg::Field(source), from)), Some((Seg::Field(name), to))) = (from.split_last(), to.split_last()) else {
        return None;
    };
    let by_name = |path: &[Seg]| path.iter().all(|seg| matches!(seg, Seg::Field(_)));
    (by_name(from) && by_name(to)).then_some(((from, to), (source, name, copy)))
}

impl Batch {
    /// Reads the values, in the order of the destinations' names.
    pub(crate) fn read(&self, source: &Json) -> Vec<Option<Json>> {
        let mut made = Vec::new();
        let Some(Json::Object(map)) = get(source, &self.from) else {
            return made;
        };
        made.resize(self.names.len(), None);
        let mut moves = self.moves.iter().peekable();
        for (name, value) in map {
            while moves.next_if(|known| *known.from < **name).is_some() {}
            // One field may go to several destinations.
            while let Some(known) = moves.next_if(|known| *known.from == **name) {
                made[known.to] = known.copy.copy(value);
            }
            if moves.peek().is_none() {
                break;
            }
        }
        made
    }

    /// Writes the values that [`Batch::read`] returned.
    pub(crate) fn write(&self, made: Vec<Option<Json>>, out: &mut Json) {
        let fields = self.names.iter().zip(made);
        let mut fields: Map<String, Json> = fields
            .filter_map(|(name, value)| Some((name.to_string(), value?)))
            .collect();
        if fields.is_empty() {
            return;
        }
        let Some(map) = object_at(out, &self.to) else { return };
        if fields.len() < map.len() / 4 {
            map.extend(fields);
        } else {
            // Building the map anew is cheaper than one lookup per name.
            map.append(&mut fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn path(text: &str) -> Box<[Seg]> {
        text.split('.').map(|name| Seg::Field(name.into())).collect()
    }

    /// Makes moves from `from>to`; with `?` only if the destination is absent.
    fn moves(texts: &[&str]) -> Vec<Op> {
        let one = |text: &&str| {
            let (from, to) = text.trim_end_matches('?').split_once('>').expect("from>to");
            Op::Move {
                from: path(from),
                to: path(to),
                copy: Passthrough::Whole,
                unless_there: text.ends_with('?'),
            }
        };
        texts.iter().map(one).collect()
    }

    #[test]
    fn moves_between_the_same_two_objects_are_done_together() {
        let ops = moves(&[
            "a.w>b.c.1",
            "x>y",
            "a.x>b.c.4",
            "a.x>b.c.2",
            "a.y>b.d",
            "a.y>b.c.5?",
            "a.none>b.c.0",
            "a.y>b.c.3",
        ]);
        let (batches, others) = group(&ops);
        assert_eq!((batches.len(), others), (1, vec![1, 4, 5]));
        let done = |source: Json, mut out: Json| {
            batches[0].write(batches[0].read(&source), &mut out);
            out
        };
        let source = json!({"a": {"w": 1, "x": [2], "y": null, "z": 4}});
        let made = json!({"1": 1, "2": [2], "3": null, "4": [2]});
        assert_eq!(done(source.clone(), json!({})), json!({"b": {"c": made}}));
        assert_eq!(
            done(source.clone(), json!({"b": {"c": {"4": 0}}})),
            json!({"b": {"c": made}}),
            "over what is there"
        );
        let large: Map<String, Json> = (10..40).map(|i| (i.to_string(), json!(i))).collect();
        let mut want = large.clone();
        want.extend(made.as_object().cloned().unwrap_or_default());
        assert_eq!(
            done(source, json!({"b": {"c": large}})),
            json!({"b": {"c": want}}),
            "among many"
        );
        for nothing in [json!({}), json!({"a": 1}), json!({"a": {"z": 1}})] {
            assert_eq!(done(nothing, json!({"k": 1})), json!({"k": 1}), "absent gives absent");
        }
    }

    #[test]
    fn a_few_are_done_one_by_one() {
        assert!(group(&moves(&["a.w>b.1", "a.x>b.2", "a.y>b.3"])).0.is_empty());
    }
}

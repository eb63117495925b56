//! Fields of two versions without a counterpart at their own path.

use super::cost::{self, Size};
use super::names::NameWords;
use super::units::{self, Unit};
use super::{Suggestion, Suggestions, choices, crosses, inner, is_object, items, joined, kinds_match, lists, scope};
use crate::passthrough::same_shape;
use crate::path::{Path, Segment};
use insula_meter::{Ended, Meter};
use insula_schema::Node;

/// Confidence in fields of one name in an object that was the only item of a list.
const ONLY_ITEM: f64 = 0.93;
/// Confidence in fields that one version keeps below the name of the other.
const VERSIONED: f64 = 0.95;

/// A field without a counterpart at its own path.
pub(super) struct Loose<'s> {
    pub(super) path: Vec<Segment>,
    pub(super) node: &'s Node,
    pub(super) words: NameWords,
    /// Unit of a number, from its name.
    pub(super) unit: Option<Unit>,
    /// The words of its name without the unit.
    pub(super) bare: NameWords,
    /// A list or map of objects, and no other one of its object is without a counterpart.
    pub(super) is_only_list: bool,
    pub(super) size: Size,
}

impl Loose<'_> {
    pub(super) fn name(&self) -> &str {
        match self.path.last() {
            Some(Segment::Field(name)) => name,
            _ => "",
        }
    }

    pub(super) fn above(&self) -> &[Segment] {
        self.path.split_last().map_or(&[], |(_, above)| above)
    }

    /// Returns true if no other field of the same object and shape is without a counterpart.
    pub(super) fn is_alone(&self, places: &[Loose<'_>], used: &[Vec<Segment>]) -> bool {
        let like = |other: &&Loose<'_>| other.above() == self.above() && same_shape(other.node, self.node);
        let mut left = places
            .iter()
            .filter(like)
            .filter(|other| !super::taken(used, &other.path));
        left.next().is_some() && left.next().is_none()
    }
}

/// Two objects, and their place in the versions.
#[derive(Clone, Copy)]
pub(super) struct Objects<'s, 'a> {
    pub(super) old: &'s Node,
    pub(super) new: &'s Node,
    pub(super) above: (&'a [Segment], &'a [Segment]),
    /// Fields with the same path below both need no rule.
    pub(super) carried: bool,
    /// Account of whoever asks.
    pub(super) meter: &'a Meter,
}

impl Objects<'_, '_> {
    /// Returns true for the versions' whole objects.
    pub(super) fn whole(&self) -> bool {
        self.above.0.is_empty() && self.above.1.is_empty()
    }

    /// Returns true for fields of other names in two objects of which both versions have one: what
    /// went from it is seldom in an object beside it.
    pub(super) fn are_apart(&self, a: &[Segment], b: &[Segment]) -> bool {
        let shared = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        // Two paths of a whole object differ at first where one is in the status.
        let differ = (shared > 0 || !self.whole()) && a.len() > shared + 1 && b.len() > shared + 1;
        differ && a.last() != b.last() && (has(self.new, &a[..=shared]) || has(self.old, &b[..=shared]))
    }
}

/// Returns true if there is a field at a path of fields.
fn has(node: &Node, path: &[Segment]) -> bool {
    match path.split_first() {
        Some((Segment::Field(name), below)) => node.property(name).is_some_and(|child| has(child, below)),
        Some(_) => false,
        None => true,
    }
}

/// Collector of the fields that exist in one version only.
pub(super) struct Walk<'s, 'a> {
    objects: Objects<'s, 'a>,
    at: Vec<Segment>,
    pub(super) olds: Vec<Loose<'s>>,
    pub(super) news: Vec<Loose<'s>>,
    /// Paths below both objects that have a counterpart at another path.
    pub(super) moved: (Vec<Vec<Segment>>, Vec<Vec<Segment>>),
}

impl<'s, 'a> Walk<'s, 'a> {
    /// Collects the fields of two objects. Lists at the same path with different items are compared
    /// at once.
    pub(super) fn new(objects: Objects<'s, 'a>, out: &mut Suggestions) -> Result<Self, Ended> {
        let mut walk = Walk {
            objects,
            at: Vec::new(),
            olds: Vec::new(),
            news: Vec::new(),
            moved: (Vec::new(), Vec::new()),
        };
        if objects.whole() {
            walk.versioned(out);
        }
        walk.fields(objects.old, objects.new, out)?;
        lists::mark_only(&mut walk.olds);
        lists::mark_only(&mut walk.news);
        Ok(walk)
    }

    /// Pairs fields of the status that one version keeps below the name of another: the conditions
    /// of Cluster API and of projects that follow it.
    ///
    /// ```text
    /// v1beta1 .status.conditions          ↔  v1beta2 .status.deprecated.v1beta1.conditions
    /// v1beta1 .status.v1beta2.conditions  ↔  v1beta2 .status.conditions
    /// ```
    fn versioned(&mut self, out: &mut Suggestions) {
        let (Some(old), Some(new)) = (self.objects.old.property("status"), self.objects.new.property("status")) else {
            return;
        };
        let (old_name, new_name) = out.versions.clone();
        let reasons = vec!["the place of another version's status".to_owned()];
        let mut pair = |old: Vec<Segment>, new: Vec<Segment>| {
            let [from, to] = [&old, &new].map(|path| Path::from_segments(path.clone()));
            out.pairs.push(Suggestion::moved(from, to, VERSIONED, reasons.clone()));
            self.moved.0.push(old);
            self.moved.1.push(new);
        };
        for (there, here) in former(new, old).into_iter().chain(named(new, &old_name, old)) {
            pair(here, there);
        }
        for (there, here) in former(old, new).into_iter().chain(named(old, &new_name, new)) {
            pair(there, here);
        }
    }

    fn fields(&mut self, old: &'s Node, new: &'s Node, out: &mut Suggestions) -> Result<(), Ended> {
        for (name, a) in old.properties() {
            if !self.reserved(name) {
                self.at.push(Segment::Field(name.to_owned()));
                self.field(a, new.property(name), out)?;
                self.at.pop();
            }
        }
        for (name, b) in new.properties() {
            if old.property(name).is_none() && !self.reserved(name) {
                self.at.push(Segment::Field(name.to_owned()));
                self.everything(b, false, out)?;
                self.at.pop();
            }
        }
        Ok(())
    }

    fn field(&mut self, a: &'s Node, b: Option<&'s Node>, out: &mut Suggestions) -> Result<(), Ended> {
        let Some(b) = b else {
            return self.everything(a, true, out);
        };
        let price = cost::of_shapes(a, b);
        self.objects.meter.spend(price.unwrap_or_default())?;
        if self.moved.0.contains(&self.at) || self.moved.1.contains(&self.at) {
            self.everything(a, true, out)?;
            self.everything(b, false, out)?;
        } else if price.is_some() && unchanged(a, b)
            || self.in_status() && conditions(&self.at, a) && conditions(&self.at, b)
        {
            self.same(out);
        } else if is_object(a) && is_object(b) {
            self.fields(a, b, out)?;
        } else if inner(a).is_some_and(is_object) && inner(b).is_some_and(is_object) && kinds_match(a, b) {
            items((a, &self.old()), (b, &self.new_path()), 1.0, (self.objects.meter, out))?;
        } else if only_item(a, b) || only_item(b, a) {
            self.single(a, b, out)?;
        } else if price.is_some()
            && crosses(a, b)
            && crosses(b, a)
            && choices::between(a, b).is_none()
            && !became_fields(a, b)
        {
            self.same(out);
        } else {
            self.everything(a, true, out)?;
            self.everything(b, false, out)?;
        }
        Ok(())
    }

    fn old(&self) -> Path {
        joined(self.objects.above.0, &self.at)
    }

    fn new_path(&self) -> Path {
        joined(self.objects.above.1, &self.at)
    }

    /// Moves the field at this path of both versions, if their paths differ above.
    fn same(&self, out: &mut Suggestions) {
        if !self.objects.carried {
            let reasons = vec!["the same field of the only item".to_owned()];
            let pair = Suggestion::moved(self.old(), self.new_path(), ONLY_ITEM, reasons);
            out.pairs.push(pair);
        }
    }

    /// Pairs an object with the only item of a list.
    fn single(&self, a: &'s Node, b: &'s Node, out: &mut Suggestions) -> Result<(), Ended> {
        let (mut old, mut new) = (self.old().segments().to_vec(), self.new_path().segments().to_vec());
        let listed = if is_object(b) { &mut old } else { &mut new };
        listed.push(Segment::Index(0));
        let objects = Objects {
            old: a.items().unwrap_or(a),
            new: b.items().unwrap_or(b),
            above: (&old, &new),
            carried: false,
            meter: self.objects.meter,
        };
        if unchanged(objects.old, objects.new) {
            let reasons = vec!["the only item of a list is the object".to_owned()];
            let [old, new] = [&old, &new].map(|path| Path::from_segments(path.clone()));
            out.pairs.push(Suggestion::moved(old, new, ONLY_ITEM, reasons));
        } else {
            scope(objects, &[], out)?;
        }
        Ok(())
    }

    fn reserved(&self, name: &str) -> bool {
        self.objects.whole() && self.at.is_empty() && matches!(name, "apiVersion" | "kind" | "metadata")
    }

    fn in_status(&self) -> bool {
        let first = self.objects.above.0.first().or(self.at.first());
        first == Some(&Segment::Field("status".to_owned()))
    }

    /// Collects a field of one version and, if it is an object, all fields below it.
    fn everything(&mut self, node: &'s Node, is_old: bool, out: &mut Suggestions) -> Result<(), Ended> {
        let moved = if is_old { &self.moved.0 } else { &self.moved.1 };
        if moved.contains(&self.at) {
            return Ok(());
        }
        if self.in_status() && conditions(&self.at, node) {
            let (list, path) = match is_old {
                true => (&mut out.only_old, self.old()),
                false => (&mut out.only_new, self.new_path()),
            };
            list.push(path);
            return Ok(());
        }
        let loose = Loose::new(&self.at, node);
        self.objects.meter.spend(loose.size.cost())?;
        if is_old {
            self.olds.push(loose);
        } else {
            self.news.push(loose);
        }
        for (name, child) in node.properties() {
            self.at.push(Segment::Field(name.to_owned()));
            self.everything(child, is_old, out)?;
            self.at.pop();
        }
        Ok(())
    }
}

impl<'s> Loose<'s> {
    fn new(at: &[Segment], node: &'s Node) -> Self {
        let (mut unit, mut bare) = (None, at.to_vec());
        if let Some(Segment::Field(name)) = bare.last_mut()
            && let Some((rest, found)) = units::named(name)
        {
            unit = Some(found);
            *name = rest.to_owned();
        }
        let words = NameWords::from_path(at, node.description());
        Loose {
            path: at.to_vec(),
            node,
            size: Size::for_field(node, words.count()),
            words,
            unit,
            bare: NameWords::from_path(&bare, node.description()),
            is_only_list: false,
        }
    }
}

/// Returns the fields below `deprecated.<version>` of a status, with the fields of another status
/// that they were: (there, here).
fn former(status: &Node, other: &Node) -> Vec<(Vec<Segment>, Vec<Segment>)> {
    let Some(deprecated) = status.property("deprecated") else {
        return Vec::new();
    };
    let mut versions = deprecated.properties();
    let (Some((version, fields)), None) = (versions.next(), versions.next()) else {
        return Vec::new();
    };
    homes(fields, &["status", "deprecated", version], other)
}

/// Returns the fields below the name of another version of a status, with those of that version.
fn named(status: &Node, version: &str, other: &Node) -> Vec<(Vec<Segment>, Vec<Segment>)> {
    let fields = status.property(version);
    fields.map_or_else(Vec::new, |fields| homes(fields, &["status", version], other))
}

fn homes(fields: &Node, above: &[&str], other: &Node) -> Vec<(Vec<Segment>, Vec<Segment>)> {
    let path = |above: &[&str], name: &str| -> Vec<Segment> {
        let names = above.iter().copied().chain([name]);
        names.map(|name| Segment::Field(name.to_owned())).collect()
    };
    let same = |(name, there): &(&str, &Node)| other.property(name).is_some_and(|here| same_shape(there, here));
    let homes = fields.properties().filter(same);
    homes
        .map(|(name, _)| (path(above, name), path(&["status"], name)))
        .collect()
}

/// Returns true for two fields of one shape whose enumerations have the same words throughout.
pub(super) fn unchanged(a: &Node, b: &Node) -> bool {
    fn same_words(a: &Node, b: &Node) -> bool {
        let both = |a: Option<&Node>, b: Option<&Node>| a.zip(b).is_none_or(|(a, b)| same_words(a, b));
        choices::between(a, b).is_none()
            && both(a.items(), b.items())
            && both(a.additional(), b.additional())
            && a.properties().all(|(name, a)| both(Some(a), b.property(name)))
    }
    same_shape(a, b) && same_words(a, b)
}

/// Returns true for a list of Kubernetes conditions. Versions have conditions of their own, which
/// look alike whatever they mean.
fn conditions(at: &[Segment], node: &Node) -> bool {
    let item = node.items().filter(|item| is_object(item));
    let named = |name: &Segment| matches!(name, Segment::Field(name) if name.ends_with("onditions"));
    at.last().is_some_and(named)
        && item.is_some_and(|item| item.property("type").is_some() && item.property("status").is_some())
}

/// Returns true for a map and an object with fields: only entries with their names have a place
/// there.
fn became_fields(a: &Node, b: &Node) -> bool {
    let closed = |map: &Node, object: &Node| {
        map.additional().is_some() && !is_object(map) && is_object(object) && !object.preserves_unknown()
    };
    closed(a, b) || closed(b, a)
}

/// Returns true for a list of objects and an object with fields of their names.
fn only_item(list: &Node, object: &Node) -> bool {
    let Some(item) = list.items().filter(|item| is_object(item) && is_object(object)) else {
        return false;
    };
    let common = item
        .properties()
        .filter(|(name, _)| object.property(name).is_some())
        .count();
    common > 0 && common * 2 >= item.properties().count().min(object.properties().count())
}

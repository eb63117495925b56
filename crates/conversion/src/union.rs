//! The union of all versions of an API: one tree in which every field of every version has one
//! place.
//!
//! The hub's fields are its trunk. A field that the hub lacks is added beside them, under the path
//! of the first version that has it; versions that have the same path with a value of the same kind
//! share the place, and so do paths that the rules of a pair of versions move to each other. Lists,
//! maps and objects that rules map to the hub are joined inside.
//!
//! ```text
//! hub v1 {url}      v2 {url, f}      v3 {url, f, g}      union {url, f, g}
//! ```
//!
//! An object is stored in the storage version; what of the union the storage version cannot show
//! is stored beside it. So a value that two versions have and the hub has not is stored once, and
//! both read it there.
//!
//! A field whose path means a value of another kind in the union gets a place under a name that
//! says its kind: `f (integer)`.

use crate::passthrough::{Except, Kind, known_kind, takes_anything};
use crate::path::{Path, Segment};
use crate::plan::{Fill, Op, Plan};
use crate::rules::{Direction, Rule, RuleAt, Source};
use crate::trace::Seg;
use insula_api::FieldPath;
use insula_schema::{Node, Structural};

mod classes;
mod homes;
mod keys;
mod pairs;

use classes::{Classes, Versions};
pub(crate) use classes::{PAIRS_MAX, pairs_beside};
pub(crate) use homes::{Homes, alike};
use keys::{renamed_key, tell_apart};
use pairs::AllComputed;

/// The name of the union where versions have theirs: of a stored residual, say.
pub(crate) const UNION: &str = "*";

/// One version as the union sees it.
pub(crate) struct Member<'a> {
    pub(crate) name: &'a str,
    pub(crate) schema: &'a Structural,
    /// The plans between the version and the hub, to the hub and back; `None` for the hub.
    pub(crate) plans: Option<(&'a Plan, &'a Plan)>,
}

/// A union of versions.
pub(crate) struct Union {
    pub(crate) schema: Structural,
    /// For each version, the moves between it and the union beside its own rules: to the union and
    /// back.
    pub(crate) moves: Vec<(Vec<Rule>, Vec<Rule>)>,
}

/// Joins the versions; `None` if the hub has a place for every field of every version.
pub(crate) fn union(hub: &Structural, members: &[Member<'_>], directions: &[Direction]) -> Option<Union> {
    let mut tree = hub.root().clone();
    let mut grown = false;
    let mut moves: Vec<(Vec<Rule>, Vec<Rule>)> = members.iter().map(|_| Default::default()).collect();
    let mut seen: Vec<(usize, Homes)> = Vec::new();
    let versions = Versions::new(hub, members, directions);
    let classes = Classes::find(&versions);
    let computed = AllComputed::find(&versions);
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|member| computed.is_late(*member));
    for number in order {
        let member = &members[number];
        let Some((up, down)) = member.plans else {
            seen.push((number, Homes::default()));
            continue;
        };
        let mut growth = Growth {
            hub: hub.root(),
            homes: Homes::default(),
            moves: Default::default(),
            grown: false,
        };
        growth.classes(&classes, (number, member), &seen, &mut tree);
        growth.computed(&computed, (number, member), &seen, &tree);
        let mut scope = Scope {
            except: vec![&up.except, &down.except],
            ops: (&up.ops, &down.ops),
        };
        let moved = growth.moved();
        scope.except.push(&moved);
        let mut at = At::default();
        growth.object(&mut tree, member.schema.root(), &scope, &mut at, true);
        growth.mapped(&mut tree, member.schema.root(), &scope, &mut at);
        grown |= growth.grown;
        moves[number] = growth.moves;
        seen.push((number, growth.homes));
    }
    grown.then(|| Union {
        schema: Structural::composed(tree),
        moves,
    })
}

/// A place during the walk: below the nearest loop of rules, in the version, and in the union.
#[derive(Default)]
struct At {
    scope: Vec<Segment>,
    own: Vec<Segment>,
    union: Vec<Segment>,
}

impl At {
    fn push(&mut self, segment: Segment) {
        self.scope.push(segment.clone());
        self.own.push(segment.clone());
        self.union.push(segment);
    }

    fn pop(&mut self) {
        self.scope.pop();
        self.own.pop();
        self.union.pop();
    }
}

/// Effects of rules on the fields of an object or an item.
struct Scope<'a> {
    /// Paths that do not pass through.
    except: Vec<&'a Except>,
    /// The operations to the hub and back.
    ops: (&'a [Op], &'a [Op]),
}

impl Scope<'_> {
    fn claims(&self, at: &At) -> bool {
        let by_index = |path: &[Seg]| {
            let end = path.iter().position(|seg| matches!(seg, Seg::Index(_)));
            end.is_some_and(|end| segments(&path[..end]).eq(at.scope.iter().take(end).cloned()))
        };
        let mut paths = self.ops.0.iter().chain(self.ops.1).flat_map(Op::paths);
        self.except.iter().any(|except| except.covers(&at.scope)) || paths.any(by_index)
    }

    /// Returns true if rules use up all fields of an object: then it is no more than their parent.
    fn hollows(&self, node: &Node, at: &mut At) -> bool {
        let is_bare = node.additional().is_none() && !node.preserves_unknown() && !node.embedded();
        let mut fields = node.properties().peekable();
        is_bare
            && fields.peek().is_some()
            && fields.all(|(name, child)| {
                at.push(Segment::Field(name.to_owned()));
                let used_up = self.claims(at) || self.hollows(child, at);
                at.pop();
                used_up
            })
    }
}

/// The part of the union that one version adds.
struct Growth<'h> {
    hub: &'h Node,
    homes: Homes,
    moves: (Vec<Rule>, Vec<Rule>),
    grown: bool,
}

impl Growth<'_> {
    /// Joins the fields of an object by path.
    fn object(&mut self, union: &mut Node, own: &Node, scope: &Scope<'_>, at: &mut At, is_root: bool) {
        if own.embedded() || union.embedded() {
            return;
        }
        for (name, child) in own.properties() {
            if is_root && matches!(name, "apiVersion" | "kind" | "metadata") {
                continue;
            }
            at.push(Segment::Field(name.to_owned()));
            let is_hollow = union.property(name).is_none() && scope.hollows(child, at);
            if !is_hollow && !scope.claims(at) {
                self.field(union, name, child, scope, at);
            }
            at.pop();
        }
        if let Some(values) = own.additional() {
            let is_open = union.preserves_unknown();
            at.push(Segment::Each(String::new()));
            match union.additional_mut() {
                Some(joined) => self.value(joined, values, scope, at),
                None if is_open => {}
                None => {
                    let values = self.pruned(values, scope, at);
                    union.set_additional(values);
                    self.grown = true;
                }
            }
            at.pop();
        }
        if own.preserves_unknown() && !union.preserves_unknown() {
            union.keep_unknown();
            self.grown = true;
        }
    }

    fn field(&mut self, union: &mut Node, name: &str, child: &Node, scope: &Scope<'_>, at: &mut At) {
        let is_open = union.preserves_unknown() || union.additional().is_some();
        match union.property_mut(name) {
            Some(joined) if meets(joined, child) => self.value(joined, child, scope, at),
            Some(_) => self.aside(union, name, child, scope, at),
            // An open object has a place for every name.
            None if is_open => {}
            None => {
                let child = self.pruned(child, scope, at);
                union.set_property(name, child);
                self.grown = true;
            }
        }
    }

    /// Joins two values of one kind.
    fn value(&mut self, union: &mut Node, own: &Node, scope: &Scope<'_>, at: &mut At) {
        if union.default() != own.default() && self.is_added(at) {
            union.set_default(None);
        }
        match known_kind(own) {
            Some(Kind::Object) => self.object(union, own, scope, at, false),
            Some(Kind::List) => {
                tell_apart(union, own.list_type());
                at.push(Segment::Each(String::new()));
                match (union.items_mut(), own.items()) {
                    (Some(joined), Some(items)) => self.value(joined, items, scope, at),
                    (None, Some(items)) => {
                        let items = self.pruned(items, scope, at);
                        union.set_items(items);
                        self.grown = true;
                    }
                    _ => {}
                }
                at.pop();
            }
            Some(Kind::Scalar(_)) | None => {}
        }
    }

    /// Returns true if the hub lacks a place of the union. Its default counts where all versions
    /// that have it agree.
    fn is_added(&self, at: &At) -> bool {
        below(self.hub, &at.union).is_none()
    }

    /// Gives a field a place of its own, because its path has a value of another kind.
    fn aside(&mut self, union: &mut Node, name: &str, child: &Node, scope: &Scope<'_>, at: &mut At) {
        let Some(kind) = kind_name(child) else { return };
        let name = format!("{name} ({kind})");
        let mut inner = At {
            scope: at.scope.clone(),
            own: at.own.clone(),
            union: at.union.clone(),
        };
        inner.union.pop();
        inner.union.push(Segment::Field(name.clone()));
        match union.property_mut(&name) {
            Some(joined) if meets(joined, child) => self.value(joined, child, scope, &mut inner),
            Some(_) => return,
            None => {
                let child = self.pruned(child, scope, &mut inner);
                union.set_property(&name, child);
                self.grown = true;
            }
        }
        self.homes.0.push((at.own.clone(), inner.union.clone()));
        self.moves(&at.own, &inner.union);
    }

    /// Adds moves between a path of the version and a path of the union.
    fn moves(&mut self, own: &[Segment], union: &[Segment]) {
        self.moves.0.push(moving(own, union));
        self.moves.1.push(moving(union, own));
    }

    /// Returns the paths of the version that its added moves use up.
    fn moved(&self) -> Except {
        let mut except = Except::default();
        for rule in &self.moves.0 {
            let Source::Field(from) = &rule.source else { continue };
            except.rule(rule, from.segments(), rule.destination.segments());
            if rule.transformation.is_some() {
                except.path(from.clone());
            }
        }
        except
    }

    /// Returns a node without what rules claim below it.
    fn pruned(&mut self, node: &Node, scope: &Scope<'_>, at: &mut At) -> Node {
        let mut out = node.outline();
        if node.embedded() {
            return node.clone();
        }
        for (name, child) in node.properties() {
            at.push(Segment::Field(name.to_owned()));
            if !scope.claims(at) && !scope.hollows(child, at) {
                let child = self.pruned(child, scope, at);
                out.set_property(name, child);
            }
            at.pop();
        }
        at.push(Segment::Each(String::new()));
        if let Some(items) = node.items() {
            let items = self.pruned(items, scope, at);
            out.set_items(items);
        }
        if let Some(values) = node.additional() {
            let values = self.pruned(values, scope, at);
            out.set_additional(values);
        }
        at.pop();
        out
    }

    /// Joins what rules map to the hub and back: objects inside of moves, and items inside of
    /// loops.
    fn mapped(&mut self, union: &mut Node, own: &Node, scope: &Scope<'_>, at: &mut At) {
        let (up, down) = scope.ops;
        for op in up {
            let (from, to) = match op {
                Op::Move { from, to, .. } => (from, to),
                Op::Each(each) => (&each.from, &each.to),
                Op::Compute { .. } | Op::Again { .. } => continue,
            };
            let back = down.iter().find(|other| match (op, other) {
                (
                    Op::Move { .. },
                    Op::Move {
                        from: source,
                        to: place,
                        ..
                    },
                ) => (source, place) == (to, from),
                (Op::Each(_), Op::Each(other)) => (&other.from, &other.to) == (to, from),
                _ => false,
            });
            let (Some(back), Some(joined), Some(part)) = (back, descend_mut(union, to), descend(own, from)) else {
                continue;
            };
            if !meets(joined, part) {
                continue;
            }
            let mut inner = At {
                scope: Vec::new(),
                own: at.own.iter().cloned().chain(segments(from)).collect(),
                union: at.union.iter().cloned().chain(segments(to)).collect(),
            };
            match (op, back) {
                (Op::Each(up), Op::Each(down)) => {
                    let same = |fill: &Fill| matches!(fill, Fill::List | Fill::SameKey);
                    let (key, list) = (renamed_key(up, part), joined);
                    let (Some(joined), Some(part)) = (contents(list), contents(part)) else {
                        continue;
                    };
                    if !same(&up.fill) || !same(&down.fill) || up.passthrough.is_none() || !meets(joined, part) {
                        continue;
                    }
                    tell_apart(list, &key);
                    let Some(joined) = contents_mut(list) else { continue };
                    inner.own.push(Segment::Each(String::new()));
                    inner.union.push(Segment::Each(String::new()));
                    self.homes.0.push((inner.own.clone(), inner.union.clone()));
                    let scope = Scope {
                        except: vec![&up.except, &down.except],
                        ops: (&up.body, &down.body),
                    };
                    self.value(joined, part, &scope, &mut inner);
                    self.mapped(joined, part, &scope, &mut inner);
                }
                _ => {
                    self.homes.0.push((inner.own.clone(), inner.union.clone()));
                    let scope = Scope {
                        except: Vec::new(),
                        ops: (&[], &[]),
                    };
                    self.value(joined, part, &scope, &mut inner);
                }
            }
        }
    }
}

fn moving(from: &[Segment], to: &[Segment]) -> Rule {
    Rule {
        source: Source::Field(Path::from_segments(from.to_vec())),
        destination: Path::from_segments(to.to_vec()),
        transformation: None,
        item_rules: Vec::new(),
        set: None,
        uses: None,
        only_if_absent: false,
        may_fail: false,
        at: RuleAt {
            path: FieldPath::new("union"),
            source: "field",
            destination: "destination",
        },
    }
}

/// Returns true if values can have one place: their kinds are equal, or one converts to the other.
fn meets(union: &Node, own: &Node) -> bool {
    let (a, b) = (known_kind(union), known_kind(own));
    let Some((a, b)) = a.zip(b) else {
        return takes_anything(union) == takes_anything(own) || a.is_none() || b.is_none();
    };
    use crate::passthrough::Scalar::{IntOrString, Integer, Number, String};
    let number = |kind| matches!(kind, Kind::Scalar(Integer | Number));
    let label = |kind| matches!(kind, Kind::Scalar(Integer | String | IntOrString));
    let mixed = [a, b].contains(&Kind::Scalar(IntOrString));
    a == b || number(a) && number(b) || mixed && label(a) && label(b)
}

fn kind_name(node: &Node) -> Option<&'static str> {
    match node.kind() {
        Some(kind) => Some(kind.as_str()),
        None => node.int_or_string().then_some("integer or string"),
    }
}

fn segments(path: &[Seg]) -> impl Iterator<Item = Segment> {
    path.iter().map(|seg| match seg {
        Seg::Field(name) => Segment::Field(name.to_string()),
        Seg::Index(index) => Segment::Index(*index),
    })
}

fn contents(node: &Node) -> Option<&Node> {
    node.items().or_else(|| node.additional())
}

fn contents_mut(node: &mut Node) -> Option<&mut Node> {
    match node.items().is_some() {
        true => node.items_mut(),
        false => node.additional_mut(),
    }
}

fn below<'n>(node: &'n Node, path: &[Segment]) -> Option<&'n Node> {
    path.iter().try_fold(node, |node, segment| match segment {
        Segment::Field(name) => node.property(name),
        _ => contents(node),
    })
}

fn below_mut<'n>(node: &'n mut Node, path: &[Segment]) -> Option<&'n mut Node> {
    path.iter().try_fold(node, |node, segment| match segment {
        Segment::Field(name) => node.property_mut(name),
        _ => contents_mut(node),
    })
}

fn descend<'n>(node: &'n Node, path: &[Seg]) -> Option<&'n Node> {
    path.iter().try_fold(node, |node, seg| match seg {
        Seg::Field(name) => node.child(name),
        Seg::Index(_) => node.items(),
    })
}

fn descend_mut<'n>(node: &'n mut Node, path: &[Seg]) -> Option<&'n mut Node> {
    path.iter().try_fold(node, |node, seg| match seg {
        Seg::Field(name) => match node.property(name).is_some() {
            true => node.property_mut(name),
            false => node.additional_mut(),
        },
        Seg::Index(_) => node.items_mut(),
    })
}

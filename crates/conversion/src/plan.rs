//! Compiled rules of one direction: fields that pass through, then operations in order.
//!
//! Moves are paths and a [`Passthrough`]; only expressions use CEL. All rules over the items of one
//! pair of lists become one loop, whatever their notation: `field: spec.colors[i].name` and
//! `itemRules` compile to the same [`Each`].

use crate::error::Cause;
use crate::fixed::Fixed;
use crate::passthrough::{self, Except, Fields, Kind, Passthrough, known_kind};
use crate::path::{Path, Segment};
use crate::rules::{Direction, Rule, Source, Template};
use crate::scope::{SchemaNode, VersionScope, descend, reserved};
use crate::trace::Seg;
use insula_api::{FieldError, FieldPath, Json};
use insula_schema::Node;
use std::collections::BTreeMap;

mod again;
pub(crate) mod batch;
mod body;
mod expression;
mod size;
mod sized_cost;
mod wide;

pub(crate) use batch::Batch;
pub(crate) use expression::{Expression, LARGEST_OBJECT_COST, factor};

/// Highest number of list elements that rules may address by index.
pub(crate) const INDEX_MAX: usize = 64;

/// Compiled conversion from one version to another.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) fields: Fields,
    /// Labels and annotations that do not pass through: (map, key).
    pub(crate) left: Vec<(&'static str, String)>,
    pub(crate) ops: Vec<Op>,
    /// Moves that are executed together, by parent object; the field below has the other
    /// operations.
    pub(crate) batches: Vec<Batch>,
    pub(crate) others: Vec<usize>,
    /// Lists that rules write by index: their gaps are closed at the end.
    pub(crate) indexed: Vec<Box<[Seg]>>,
    /// True if results never need pruning.
    pub(crate) exact: bool,
    /// The named items and entries that rules write.
    pub(crate) fixed: Fixed,
    /// Paths of the object that its rules use up.
    pub(crate) except: Except,
}

/// One operation. Paths are relative to its scope: the object, or the item of a loop.
#[derive(Debug)]
pub(crate) enum Op {
    Move {
        from: Box<[Seg]>,
        to: Box<[Seg]>,
        copy: Passthrough,
        unless_there: bool,
    },
    Compute {
        this: This,
        value: Value,
        to: Box<[Seg]>,
        fit: Passthrough,
        unless_there: bool,
        rule: usize,
    },
    Each(Box<Each>),
    /// The loop around, over a list below its item: rules that use themselves.
    Again {
        from: Box<[Seg]>,
        to: Box<[Seg]>,
    },
}

/// The value of `self` in an expression.
#[derive(Debug)]
pub(crate) enum This {
    /// The value at this path; the expression does not run if there is none.
    At(Box<[Seg]>),
    /// The value at this path of the scope around the loop.
    Around(Box<[Seg]>),
    /// The value at the path `around`, with these fields of the item where it has none of that
    /// name.
    Both { around: Box<[Seg]>, item: Vec<String> },
}

/// A value that expressions compute.
#[derive(Debug)]
pub(crate) enum Value {
    Expression(Box<Expression>),
    Fields(Vec<(String, Value)>),
    Items(Vec<Value>),
    Constant(Json),
}

/// A loop over the items of a list or the entries of a map.
#[derive(Debug)]
pub(crate) struct Each {
    pub(crate) from: Box<[Seg]>,
    pub(crate) to: Box<[Seg]>,
    pub(crate) over_map: bool,
    /// The variable that holds the index or key.
    pub(crate) variable: String,
    pub(crate) fill: Fill,
    /// True if two items can have the same key of the map.
    pub(crate) can_repeat: bool,
    /// Fields that pass through in each item; `None` if an operation makes the whole item.
    pub(crate) passthrough: Option<Passthrough>,
    /// Paths of an item that its rules use up.
    pub(crate) except: Except,
    /// True if items are objects, so that an item without fields is still one.
    pub(crate) objects: bool,
    pub(crate) body: Vec<Op>,
    /// Lists of an item that the body writes by index.
    pub(crate) indexed: Vec<Box<[Seg]>>,
    pub(crate) rule: usize,
}

/// Destination of a loop's items.
#[derive(Debug)]
pub(crate) enum Fill {
    List,
    /// A map, under the source's key or the loop's variable.
    SameKey,
    /// A map, under the key that this expression returns.
    Key(Box<Expression>),
}

/// Facts about a rule, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleFacts {
    pub(crate) path: String,
    pub(crate) source: String,
    pub(crate) destination: String,
    /// True if the author marked the rule `mayFail`.
    pub(crate) may_fail: bool,
    /// The expression that computes its value, and its position in the rule.
    pub(crate) computed: String,
    pub(crate) computed_at: FieldPath,
    /// Position of its destination in the rule.
    pub(crate) written_at: FieldPath,
}

impl RuleFacts {
    pub(crate) fn from_rule(rule: &Rule) -> RuleFacts {
        let source = match &rule.source {
            Source::Field(path) => path.to_string(),
            Source::Expression(text) => text.clone(),
        };
        let path = rule.at.path.as_str();
        let path = match path.split_once(":spec.") {
            // One of several objects with rules.
            Some((object, path)) => format!("{object}:{path}"),
            None => path.strip_prefix("spec.").unwrap_or(path).to_owned(),
        };
        let computed_by = if rule.transformation.is_some() {
            "transformation"
        } else {
            rule.at.source
        };
        RuleFacts {
            path,
            destination: rule.destination.to_string(),
            may_fail: rule.may_fail,
            computed: match &rule.transformation {
                Some(Template::Expression(text)) => text.clone(),
                _ => source.clone(),
            },
            computed_at: rule.at.path.child(computed_by),
            written_at: rule.at.path.child(rule.at.destination),
            source,
        }
    }
}

impl RuleFacts {
    /// Returns the part of the rule that caused a failure, and its text: the destination's key for
    /// a duplicate key, otherwise the expression.
    pub(crate) fn blamed(&self, cause: &Cause) -> (&FieldPath, &str) {
        match cause {
            Cause::DuplicateKey { .. } => (&self.written_at, &self.destination),
            _ => (&self.computed_at, &self.computed),
        }
    }
}

/// Compiles one direction. Without rules, a plan only passes fields through. `moves`: rules beside
/// the author's, about fields that the author's rules leave alone.
pub(crate) fn compile(
    from: VersionScope<'_>,
    to: VersionScope<'_>,
    direction: Option<&Direction>,
    moves: &[Rule],
) -> Result<(Plan, Vec<RuleFacts>), Vec<FieldError>> {
    let mut errors = Vec::new();
    let mut facts = Vec::new();
    let mut except = Except::default();
    except.sheds = to.is_wide();
    let mut plan = Plan {
        fields: Fields::default(),
        left: Vec::new(),
        ops: Vec::new(),
        batches: Vec::new(),
        others: Vec::new(),
        indexed: Vec::new(),
        exact: false,
        fixed: Fixed::default(),
        except: Except::default(),
    };
    let mut scope = body::Scope::object(from, to);
    if let Some(direction) = direction {
        for rule in &direction.rules {
            check_destination(rule, &to, &mut errors);
            let from = rule.moved().map(Path::segments).unwrap_or_default();
            except.rule(rule, from, rule.destination.segments());
            scope.add(rule, &mut plan.ops, &mut facts, &mut errors);
        }
        paths_exist(direction, &from, &mut errors);
        direction.drop.iter().for_each(|path| except.drop(path.clone()));
    }
    for rule in moves {
        let from = rule.moved().map(Path::segments).unwrap_or_default();
        except.rule(rule, from, rule.destination.segments());
        scope.add(rule, &mut plan.ops, &mut facts, &mut errors);
    }
    // Defaults run last: they fill fields that no other operation wrote.
    plan.ops.sort_by_key(Op::fills);
    plan.indexed = indexed(&plan.ops);
    let mut at = Vec::new();
    plan.fields = whole(from, to, &except, &mut at);
    for path in except.paths() {
        plan.left.extend(metadata_key(path));
    }
    plan.exact = exact(&plan, to.schema.root());
    (plan.batches, plan.others) = batch::group(&plan.ops);
    plan.except = except;
    plan.fixed = Fixed::written(&plan.ops, to.root());
    if errors.is_empty() {
        Ok((plan, facts))
    } else {
        Err(errors)
    }
}

/// Returns true if pruning the results would find nothing. Loops are not examined.
fn exact(plan: &Plan, to: &Node) -> bool {
    let carried = |name: &str, how: Option<&Passthrough>| how.is_none_or(|how| how.is_exact(to.child(name)));
    let written = |path: &[Seg], copy: &Passthrough| {
        let place = path.iter().try_fold(to, |node, seg| match seg {
            Seg::Field(name) => node.child(name),
            Seg::Index(_) => node.items(),
        });
        copy.is_exact(place)
    };
    plan.fields.rest().is_none()
        && plan.fields.named().all(|(name, how)| carried(name, how))
        && plan.ops.iter().all(|op| match op {
            Op::Move { to, copy, .. } => written(to, copy),
            Op::Compute { to, fit, .. } => written(to, fit),
            Op::Each(_) | Op::Again { .. } => false,
        })
}

/// Compiles the passthrough of whole objects, without metadata.
fn whole(from: VersionScope<'_>, to: VersionScope<'_>, except: &Except, at: &mut Vec<Segment>) -> Fields {
    let fields = match passthrough::compile(from.root(), to.schema.root(), except, at) {
        None => return Fields::default(),
        Some(Passthrough::Object { fields, .. }) => fields,
        // Equal shapes: every field passes unchanged. Pruning removes undeclared fields.
        Some(_) => Fields::new(BTreeMap::new(), Some(Box::new(Passthrough::Whole))),
    };
    fields.without(&["apiVersion", "kind", "metadata"])
}

impl Op {
    /// Returns the path that it writes.
    pub(crate) fn to(&self) -> &[Seg] {
        match self {
            Op::Move { to, .. } | Op::Compute { to, .. } | Op::Again { to, .. } => to,
            Op::Each(each) => &each.to,
        }
    }

    /// Returns the paths that it reads and writes without an expression.
    pub(crate) fn paths(&self) -> Vec<&[Seg]> {
        match self {
            Op::Move { from, to, .. } | Op::Again { from, to } => vec![from, to],
            Op::Compute { this, to, .. } => match this {
                This::At(from) | This::Around(from) => vec![from, to],
                This::Both { around, .. } => vec![around, to],
            },
            Op::Each(each) => vec![&each.from, &each.to],
        }
    }

    fn fills(&self) -> bool {
        match self {
            Op::Move { unless_there, .. } | Op::Compute { unless_there, .. } => *unless_there,
            Op::Each(_) | Op::Again { .. } => false,
        }
    }

    /// Returns true if it can fail for some object.
    pub(crate) fn can_fail(&self) -> bool {
        match self {
            // What is used again is examined where it is.
            Op::Move { .. } | Op::Again { .. } => false,
            Op::Compute { value, .. } => value.can_fail(),
            Op::Each(each) => {
                each.can_repeat
                    || matches!(&each.fill, Fill::Key(key) if key.can_fail())
                    || each.body.iter().any(Op::can_fail)
            }
        }
    }
}

impl Value {
    pub(crate) fn can_fail(&self) -> bool {
        match self {
            Value::Expression(expression) => expression.can_fail(),
            Value::Fields(fields) => fields.iter().any(|(_, value)| value.can_fail()),
            Value::Items(items) => items.iter().any(Value::can_fail),
            Value::Constant(_) => false,
        }
    }
}

/// Collects the expressions of these operations, each with the index of its rule.
pub(crate) fn expressions<'p>(ops: &'p [Op], out: &mut Vec<(usize, &'p Expression)>) {
    fn collect<'p>(value: &'p Value, rule: usize, out: &mut Vec<(usize, &'p Expression)>) {
        match value {
            Value::Expression(expression) => out.push((rule, expression)),
            Value::Fields(fields) => fields.iter().for_each(|(_, value)| collect(value, rule, out)),
            Value::Items(items) => items.iter().for_each(|value| collect(value, rule, out)),
            Value::Constant(_) => {}
        }
    }
    for op in ops {
        match op {
            Op::Move { .. } | Op::Again { .. } => {}
            Op::Compute { value, rule, .. } => collect(value, *rule, out),
            Op::Each(each) => {
                if let Fill::Key(key) = &each.fill {
                    out.push((each.rule, key));
                }
                expressions(&each.body, out);
            }
        }
    }
}

/// Reports rules that write the same path, or one inside another's.
pub(crate) fn conflicts(rules: &[Rule], errors: &mut Vec<FieldError>) {
    for (i, rule) in rules.iter().enumerate() {
        let clash = rules[..i]
            .iter()
            .find(|other| other.destination.overlaps(&rule.destination) && !share_loop(other, rule));
        if let Some(other) = clash {
            errors.push(FieldError::invalid(
                &rule.at.path.child(rule.at.destination),
                &Json::from(rule.destination.to_string()),
                format!("{} writes {} already", other.at.path, other.destination),
            ));
        }
        conflicts(&rule.item_rules, errors);
    }
}

/// Returns true if two rules fill one list together, as `…colors[].name` and `…colors[].hue` do;
/// their paths inside an item must differ.
fn share_loop(a: &Rule, b: &Rule) -> bool {
    let each = |path: &Path| {
        path.segments()
            .iter()
            .position(|s| matches!(s, Segment::Each(_) | Segment::Key(_)))
    };
    match (each(&a.destination), each(&b.destination)) {
        (Some(i), Some(j)) if i == j => {
            let rest = |rule: &Rule| Path::from_segments(rule.destination.segments()[i + 1..].to_vec());
            !rest(a).overlaps(&rest(b))
        }
        _ => false,
    }
}

fn check_destination(rule: &Rule, to: &VersionScope<'_>, errors: &mut Vec<FieldError>) {
    let at = rule.at.path.child(rule.at.destination);
    let shown = Json::from(rule.destination.to_string());
    if reserved(&rule.destination) {
        errors.push(FieldError::forbidden(&at, "keys of kcp.io belong to the system"));
    }
    let too_far = |s: &&Segment| matches!(s, Segment::Index(i) if *i >= INDEX_MAX);
    if rule.destination.segments().iter().any(|s| too_far(&s)) {
        errors.push(FieldError::invalid(
            &at,
            &shown,
            format!("an index may be at most {}", INDEX_MAX - 1),
        ));
    }
    match to.find(rule.destination.segments()) {
        Ok(_) if rule.destination.segments().len() == 2 && rule.destination.to_string().starts_with(".metadata.") => {
            errors.push(FieldError::invalid(
                &at,
                &shown,
                "name one label or annotation: metadata.annotations['key']",
            ));
        }
        Ok(_) => {}
        Err(why) => errors.push(FieldError::invalid(&at, &shown, why)),
    }
}

/// Returns the lists that operations write by index; inner lists before those that hold them, so
/// that both can be compacted.
fn indexed(ops: &[Op]) -> Vec<Box<[Seg]>> {
    let mut lists: Vec<Box<[Seg]>> = Vec::new();
    for to in ops.iter().map(Op::to) {
        let at = |(i, seg): (usize, &Seg)| matches!(seg, Seg::Index(_)).then_some(i);
        for list in to.iter().enumerate().filter_map(at).map(|i| &to[..i]) {
            if !lists.iter().any(|known| **known == *list) {
                lists.push(list.into());
            }
        }
    }
    lists.sort_by_key(|list| std::cmp::Reverse(list.len()));
    lists
}

fn paths_exist(direction: &Direction, from: &VersionScope<'_>, errors: &mut Vec<FieldError>) {
    for (name, paths) in [("preserve", &direction.preserve), ("drop", &direction.drop)] {
        for (i, path) in paths.iter().enumerate() {
            if let Err(why) = from.find(path.segments()) {
                errors.push(FieldError::invalid(
                    &direction.at.child(name).index(i),
                    &Json::from(path.to_string()),
                    why,
                ));
            }
        }
    }
    for (i, path) in direction.preserve.iter().enumerate() {
        if direction.drop.iter().any(|drop| drop == path) {
            let at = direction.at.child("preserve").index(i);
            errors.push(FieldError::invalid(
                &at,
                &Json::from(path.to_string()),
                "is under drop, too",
            ));
        }
    }
}

fn metadata_key(path: &Path) -> Option<(&'static str, String)> {
    match path.segments() {
        [Segment::Field(metadata), Segment::Field(part), Segment::Field(key)] if metadata == "metadata" => {
            let part = if part == "labels" { "labels" } else { "annotations" };
            Some((part, key.clone()))
        }
        _ => None,
    }
}

/// Returns the type of a path, for messages and to tell lists from maps.
fn kind_of(place: SchemaNode<'_>) -> Option<Kind> {
    place.and_then(known_kind)
}

fn is_map(place: SchemaNode<'_>) -> bool {
    place.is_some_and(|node| node.additional().is_some() && node.items().is_none())
}

/// Returns true if two items of a list can have the same key: false if the schema makes it the
/// list's only key.
fn keys_repeat(key: &str, list: SchemaNode<'_>) -> bool {
    let Some(insula_schema::ListType::Map { keys }) = list.map(insula_schema::Node::list_type) else {
        return true;
    };
    !matches!(keys.as_slice(), [only] if key.trim().strip_prefix("self.") == Some(only.as_str()))
}

//! Search for objects on which single rules fail, where types leave failure open.
//!
//! A rule whose types exclude failure needs no search, and one marked `mayFail` is exempt. For the
//! others, small objects are made from edge values of the fields that their expressions read, and
//! converted. A valid object that does not convert refuses the rule. Otherwise the rule is
//! accepted, and every write checks it again.

use super::edges::{self, complete};
use super::finding::shown;
use crate::bundle::Bundle;
use crate::convert::Converter;
use crate::error::ConvertError;
use crate::path::{Path, Segment};
use crate::plan::{Expression, Fill, Op, RuleFacts, This, Value};
use crate::scope::{SchemaNode, VersionScope, metadata_schema};
use crate::trace::Seg;
use insula_api::{FieldError, Finding, Json};
use insula_cel::{Budget, OBJECT_COST_MAX};
use insula_meter::Meter;
use serde_json::json;
use std::cell::OnceCell;
use std::collections::BTreeSet;

/// Maximum number of paths whose values are varied.
const LEAVES_MAX: usize = 32;
/// Maximum number of objects that are converted.
const OBJECTS_MAX: usize = 600;
/// Cost limit of all these conversions together, in CEL cost units.
const SEARCH_COST_MAX: u64 = 2 * OBJECT_COST_MAX;
/// Greatest depth to which a value that is read as a whole is varied.
const DEPTH_MAX: usize = 4;

/// Returns an error for each rule that fails for a valid object, at the rule's path. Unlike
/// [`super::search`] it examines only rules whose types leave failure open, one conversion at a
/// time; it takes milliseconds.
pub(super) fn failing(bundle: &Bundle, meter: &Meter) -> Vec<FieldError> {
    let metadata = metadata_schema();
    let mut errors = Vec::new();
    for ((from, _), converter) in bundle.converters.iter().filter(|(_, converter)| converter.ruled) {
        let (version, declared) = (&bundle.versions[*from], OnceCell::new());
        let view = VersionScope::new(&version.name, &version.schema, &metadata, &declared);
        errors.extend(counterexamples(converter, &view, bundle.kind(), meter));
    }
    errors
}

fn counterexamples(converter: &Converter, from: &VersionScope<'_>, kind: &str, meter: &Meter) -> Vec<FieldError> {
    let mut reads = Reads {
        version: from.name,
        facts: &converter.facts,
        paths: BTreeSet::new(),
        rules: BTreeSet::new(),
    };
    reads.ops(&converter.plan.ops, &[], &[]);
    if reads.paths.is_empty() {
        return Vec::new();
    }
    let leaves = leaves(&reads.paths, from);
    let mut search = Search {
        converter,
        from,
        kind,
        meter,
        cost: 0,
        tried: 0,
        open: reads.rules,
        errors: Vec::new(),
    };
    search.alone(&leaves);
    search.together(&leaves);
    search.twice(&leaves, &reads.paths);
    search.errors
}

/// The paths read by rules that may fail.
struct Reads<'a> {
    version: &'a str,
    facts: &'a [RuleFacts],
    paths: BTreeSet<Path>,
    /// Indices of these rules.
    rules: BTreeSet<usize>,
}

impl Reads<'_> {
    fn ops(&mut self, ops: &[Op], here: &[Segment], around: &[Segment]) {
        for op in ops {
            match op {
                Op::Move { .. } | Op::Again { .. } => {}
                Op::Compute { this, value, rule, .. } => {
                    if self.unproven(*rule) && value.can_fail() {
                        self.rules.insert(*rule);
                        self.value(value, this, here, around);
                    }
                }
                Op::Each(each) => {
                    let mut inner = join(here, &each.from);
                    inner.push(Segment::Each(String::new()));
                    if let Fill::Key(key) = &each.fill
                        && self.unproven(each.rule)
                        && (each.can_repeat || key.can_fail())
                    {
                        self.rules.insert(each.rule);
                        self.paths.insert(Path::from_segments(inner.clone()));
                        self.expression(key, &|_| inner.clone());
                    }
                    self.ops(&each.body, &inner, here);
                }
            }
        }
    }

    fn unproven(&self, rule: usize) -> bool {
        self.facts.get(rule).is_some_and(|facts| !facts.may_fail)
    }

    fn value(&mut self, value: &Value, this: &This, here: &[Segment], around: &[Segment]) {
        // A rule over items runs only if there is an item, whatever it reads.
        if !here.is_empty() {
            self.paths.insert(Path::from_segments(here.to_vec()));
        }
        match value {
            Value::Constant(_) => {}
            Value::Expression(expression) => self.expression(expression, &|field: Option<&str>| match this {
                This::At(path) => join(here, path),
                This::Around(path) => join(around, path),
                This::Both { item, .. } if field.is_some_and(|name| item.iter().any(|i| i == name)) => here.to_vec(),
                This::Both { around: path, .. } => join(around, path),
            }),
            Value::Fields(fields) => fields
                .iter()
                .for_each(|(_, value)| self.value(value, this, here, around)),
            Value::Items(items) => items.iter().for_each(|value| self.value(value, this, here, around)),
        }
    }

    /// Adds the paths that an expression reads. `this` returns the path of `self` for the field
    /// that is read.
    fn expression(&mut self, expression: &Expression, this: &dyn Fn(Option<&str>) -> Vec<Segment>) {
        for reference in expression.program.references() {
            let mut path = match reference.variable.as_str() {
                "self" => this(reference.path.first().map(String::as_str)),
                name if name == self.version => Vec::new(),
                _ => continue,
            };
            path.extend(reference.path.iter().cloned().map(Segment::Field));
            self.paths.insert(Path::from_segments(path));
        }
    }
}

fn join(path: &[Segment], more: &[Seg]) -> Vec<Segment> {
    let step = |seg: &Seg| match seg {
        Seg::Field(name) => Segment::Field(name.to_string()),
        Seg::Index(index) => Segment::Index(*index),
    };
    path.iter().cloned().chain(more.iter().map(step)).collect()
}

/// A path with the values that are tried there.
struct Leaf {
    path: Vec<Segment>,
    values: Vec<Json>,
}

fn leaves(paths: &BTreeSet<Path>, from: &VersionScope<'_>) -> Vec<Leaf> {
    let mut out = Vec::new();
    for path in paths {
        if let Ok(place) = from.find_source(path.segments()) {
            below(place, &mut path.segments().to_vec(), 0, &mut out);
        }
    }
    out
}

fn below(place: SchemaNode<'_>, path: &mut Vec<Segment>, depth: usize, out: &mut Vec<Leaf>) {
    if depth > DEPTH_MAX || out.len() >= LEAVES_MAX {
        return;
    }
    if !path.is_empty() && !out.iter().any(|leaf| leaf.path == *path) {
        out.push(Leaf {
            path: path.clone(),
            values: edges::edges(place),
        });
    }
    let Some(node) = place else { return };
    let fields = node
        .properties()
        .map(|(name, child)| (Segment::Field(name.to_owned()), child));
    let items = node.items().or_else(|| node.additional());
    for (segment, child) in fields.chain(items.map(|items| (Segment::Each(String::new()), items))) {
        path.push(segment);
        below(Some(child), path, depth + 1, out);
        path.pop();
    }
}

struct Search<'a> {
    converter: &'a Converter,
    from: &'a VersionScope<'a>,
    /// Kind of the objects.
    kind: &'a str,
    /// Pays for the conversions.
    meter: &'a Meter,
    cost: u64,
    tried: usize,
    /// Rules without a failing object so far.
    open: BTreeSet<usize>,
    errors: Vec<FieldError>,
}

impl Search<'_> {
    /// Tries each value on its own, in an otherwise empty object.
    fn alone(&mut self, leaves: &[Leaf]) {
        for leaf in leaves {
            for value in &leaf.values {
                self.attempt(&[(&leaf.path, value)]);
            }
        }
    }

    /// Gives every path a plain value, and one path at a time its other values.
    fn together(&mut self, leaves: &[Leaf]) {
        // A value that holds others is made by them.
        let holds = |a: &Leaf, b: &Leaf| b.path.len() > a.path.len() && b.path.starts_with(&a.path);
        let ends: Vec<&Leaf> = leaves.iter().filter(|a| !leaves.iter().any(|b| holds(a, b))).collect();
        let plain = |leaf: &'_ &Leaf| leaf.values.first().map(|value| (leaf.path.clone(), value.clone()));
        let all: Vec<(Vec<Segment>, Json)> = ends.iter().filter_map(plain).collect();
        for (varied, leaf) in ends.iter().enumerate() {
            for value in &leaf.values {
                let values = all.iter().enumerate().map(|(i, (path, plain))| {
                    let value = if i == varied { value } else { plain };
                    (path.as_slice(), value)
                });
                self.attempt(&values.collect::<Vec<_>>());
            }
        }
    }

    /// Tries two equal items: duplicate keys, if keys are made of items.
    fn twice(&mut self, leaves: &[Leaf], paths: &BTreeSet<Path>) {
        for path in paths {
            let Some((Segment::Each(_), list)) = path.segments().split_last() else {
                continue;
            };
            let mut object = self.object(&[]);
            for leaf in leaves.iter().filter(|leaf| leaf.path.starts_with(path.segments())) {
                if let Some(value) = leaf.values.first() {
                    edges::put(&mut object, &leaf.path, self.from.root(), value.clone());
                }
            }
            complete(&mut object, self.from.schema.root(), 0);
            let steps = Seg::single(list);
            if let Some(Json::Array(items)) = crate::by_path::get_mut(&mut object, &steps)
                && let Some(first) = items.first().cloned()
            {
                items.push(first);
                self.convert(object);
            }
        }
    }

    fn object(&self, values: &[(&[Segment], &Json)]) -> Json {
        let mut object = json!({"metadata": {"name": "a"}});
        for (path, value) in values {
            let place = match path.first() {
                Some(Segment::Field(name)) if name == "metadata" => None,
                _ => self.from.root(),
            };
            edges::put(&mut object, path, place, (*value).clone());
        }
        let group = &self.converter.group;
        let slash = if group.is_empty() { "" } else { "/" };
        object["apiVersion"] = Json::from(format!("{group}{slash}{}", self.from.name));
        object["kind"] = Json::from(self.kind);
        object
    }

    fn attempt(&mut self, values: &[(&[Segment], &Json)]) {
        let mut object = self.object(values);
        complete(&mut object, self.from.schema.root(), 0);
        self.convert(object);
    }

    fn convert(&mut self, mut object: Json) {
        let is_over = self.tried >= OBJECTS_MAX || self.cost >= SEARCH_COST_MAX;
        if self.open.is_empty() || is_over || self.meter.check().is_err() {
            return;
        }
        self.tried += 1;
        insula_schema::default(&mut object, self.from.schema);
        let mut budget = Budget::new(OBJECT_COST_MAX, self.meter);
        let failed = self.converter.run(&object, &mut budget, None).err();
        self.cost = self.cost.saturating_add(budget.used());
        if let Some(failed) = failed {
            self.failed(&object, &failed);
        }
    }

    fn failed(&mut self, object: &Json, failed: &ConvertError) {
        let Some(rule) = failed.rule.as_ref().map(|rule| rule.index) else {
            return;
        };
        let Some(facts) = self.converter.facts.get(rule) else {
            return;
        };
        if !self.open.contains(&rule) || !insula_schema::validate(object, self.from.schema, self.meter).is_empty() {
            return;
        }
        self.open.remove(&rule);
        let (at, text) = facts.blamed(&failed.cause);
        let why = format!(
            "fails for a valid object of {}, {}: {}; a bound or pattern in the schema, a total expression, \
             optional.none() where it has no value, or mayFail: true would help",
            self.from.name,
            shown(object),
            failed.cause,
        );
        let error = FieldError::invalid(at, &Json::from(text), why);
        self.errors.push(error.found_as(Finding::Counterexample));
    }
}

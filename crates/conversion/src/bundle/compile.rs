//! Compilation of a bundle, with the checks that need no object.

use super::{Bundle, LossPolicy, VERSIONS_MAX, Version, VersionSchema, has_defaults};
use super::{idle, own::OwnTrees, price, renamed::Renamed, shared_list, written::rules_between};
use crate::carried::Claims;
use crate::convert::Converter;
use crate::passthrough::{self, Except, same_shape};
use crate::path::{Path, Segment};
use crate::plan::{self, Expression};
use crate::rules::{Direction, RULES_MAX, Rule, RuleSet, Validation};
use crate::scope::{VersionScope, metadata_schema};
use crate::union::{Member, UNION, Union, pairs_beside, union};
use insula_api::{FieldError, FieldPath, Json};
use insula_cel::{CALL_COST_MAX, Decl, OBJECT_COST_MAX};
use insula_schema::Node;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Plans by the versions that they convert from and to.
type Converters = BTreeMap<(usize, usize), Converter>;

pub(super) fn compile(
    group: &str,
    versions: Vec<VersionSchema>,
    storage: &str,
    rules: Option<&RuleSet>,
    loss_policy: LossPolicy,
    path: &FieldPath,
) -> Result<Bundle, Vec<FieldError>> {
    if versions.len() > VERSIONS_MAX {
        return Err(vec![FieldError::too_many(
            &path.child("versions"),
            versions.len(),
            VERSIONS_MAX,
        )]);
    }
    let find = |name: &str| versions.iter().position(|v| v.name == name);
    let Some(stored) = find(storage) else {
        return Err(vec![FieldError::invalid(
            &path.child("versions"),
            &Json::from(storage),
            "the storage version is none of the versions",
        )]);
    };
    // With rules, plain definitions are lossless too.
    let loss_policy = if rules.is_some() {
        LossPolicy::Lossless
    } else {
        loss_policy
    };
    let validation = rules.map_or(Validation::Show, |rules| rules.validation);
    let errors = limits(rules);
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut errors = names(rules, &versions, path);
    // Rules between versions that are known are compiled in any case: all errors are told at once.
    let is_whole = errors.is_empty() && rules.is_none_or(|rules| !rules.is_partial);
    let hub = rules.and_then(|r| r.hub.as_deref()).and_then(find).unwrap_or(stored);
    let metadata = metadata_schema();
    let declared: Vec<OnceCell<Decl>> = versions.iter().map(|_| OnceCell::new()).collect();
    let views: Vec<VersionScope<'_>> = versions
        .iter()
        .zip(&declared)
        .map(|(v, declared)| VersionScope::new(&v.name, &v.schema, &metadata, declared))
        .collect();
    let directions = rules.map(|r| r.conversions.as_slice()).unwrap_or_default();
    let direction = |a: usize, b: usize| {
        directions
            .iter()
            .find(|d| d.from == versions[a].name && d.to == versions[b].name)
    };
    let mut pairs: BTreeSet<(usize, usize)> = directions
        .iter()
        .filter_map(|d| Some((find(&d.from)?, find(&d.to)?)))
        .collect();
    let spokes = (0..versions.len()).filter(|v| *v != hub);
    pairs.extend(spokes.flat_map(|v| [(v, hub), (hub, v)]));
    let name = |version: usize| versions[version].name.as_str();
    let every = (0..versions.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
    let claims = every.map(|(a, b)| ((a, b), Claims::of_pair(name(a), name(b), name(hub), directions)));
    let claims = claims.collect();
    let mut converters = BTreeMap::new();
    for (a, b) in pairs {
        let rules = direction(a, b);
        match converter(group, views[a], (views[b], &versions[b]), rules, &[]) {
            Ok(converter) => {
                converters.insert((a, b), converter);
            }
            Err(found) => errors.extend(found),
        }
        // A reader is shown the object without the field, unless the author wants it refused.
        if let Some(written) = rules
            .or_else(|| direction(b, a))
            .filter(|_| is_whole && validation == Validation::Refuse)
        {
            required(&views[a], &views[b], rules, written, &mut errors);
        }
    }
    // A direction that did not compile would be reported here again.
    if !directions.is_empty() && is_whole && errors.is_empty() {
        reachable(&versions, stored, hub, &converters, path, &mut errors);
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let (shared, idle, renamed) = match loss_policy {
        LossPolicy::Lossless => joined(group, &views, &versions, hub, &converters, directions),
        LossPolicy::None => (None, Vec::new(), Vec::new()),
    };
    let lists = shared_list::find(&versions, hub, directions);
    let fingerprints = directions
        .iter()
        .filter_map(|d| Some(((find(&d.from)?, find(&d.to)?), d.fingerprint())))
        .collect();
    let mut all: Vec<Version> = versions.iter().map(|v| version(v, directions)).collect();
    let (mut top, mut edges) = (hub, BTreeMap::new());
    if let Some((union, converters)) = shared {
        (top, edges) = (all.len(), converters);
        all.push(union);
    }
    Ok(Bundle {
        group: group.to_owned(),
        kind: "Kind".to_owned(),
        own: OwnTrees::default(),
        lists_apart: shared_list::apart::find(&versions, hub, directions, &lists),
        lists,
        renamed,
        top,
        shared: edges,
        storage: stored,
        hub,
        loss_policy,
        validation,
        ruled_metadata: ruled_metadata(directions),
        rules_see_metadata: directions.iter().flat_map(|d| &d.rules).any(Rule::sees_metadata),
        claims,
        rules: rules_between(versions.len(), &fingerprints, |a, b| ways(&converters, hub, (a, b))),
        records_rules: true,
        over_budget: price::total(&converters) > OBJECT_COST_MAX,
        idle,
        pairs_beside: pairs_beside(name(hub), directions),
        converters,
        versions: all,
    })
}

/// Returns the pairs of versions whose rules decide how one version's object reads in another.
fn ways(converters: &Converters, hub: usize, (a, b): (usize, usize)) -> Vec<(usize, usize)> {
    let ruled = |a, b| {
        converters
            .get(&(a, b))
            .is_some_and(|converter: &Converter| converter.ruled)
    };
    let by_hub = |version| ruled(version, hub) || ruled(hub, version);
    let around = vec![(a, hub), (hub, b)];
    match converters.contains_key(&(a, b)) {
        false => around,
        true if a == hub || b == hub || !by_hub(a) || !by_hub(b) => vec![(a, b)],
        // Rules beside the hub say what is one value.
        true => [vec![(a, b)], around].concat(),
    }
}

/// Returns the union of the versions, and its plans from and to each, `None` if the hub has a place
/// for every field; the rules that relate no two fields of it, and the fields that versions show
/// from its places of other names.
fn joined(
    group: &str,
    views: &[VersionScope<'_>],
    versions: &[VersionSchema],
    hub: usize,
    converters: &BTreeMap<(usize, usize), Converter>,
    directions: &[Direction],
) -> (Option<(Version, Converters)>, Vec<idle::Idle>, Vec<Renamed>) {
    let plans = |version: usize| {
        let up = converters.get(&(version, hub))?;
        Some((&up.plan, &converters.get(&(hub, version))?.plan))
    };
    let member = |(v, version): (usize, &'_ VersionSchema)| (v, version.name.clone());
    let names: Vec<(usize, String)> = versions.iter().enumerate().map(member).collect();
    let members: Vec<Member<'_>> = names
        .iter()
        .map(|(v, name)| Member {
            name,
            schema: &versions[*v].schema,
            plans: plans(*v),
        })
        .collect();
    let found = union(&versions[hub].schema, &members, directions);
    let rules = |a: usize, b: usize| {
        let named = |d: &&Direction| d.from == versions[a].name && d.to == versions[b].name;
        directions.iter().find(named)
    };
    let ways = |v: usize| idle::Ways {
        name: &versions[v].name,
        to_hub: rules(v, hub).map(|way| way.rules.as_slice()).unwrap_or_default(),
        moves: found.as_ref().and_then(|union| union.moves.get(v)),
    };
    let ways: Vec<idle::Ways<'_>> = (0..versions.len()).map(ways).collect();
    let idle = idle::find(&versions[hub].name, &ways, directions);
    let moves = found.iter().flat_map(|union| union.moves.iter().enumerate());
    let renamed =
        moves.flat_map(|(version, (_, down))| down.iter().filter_map(move |rule| Renamed::by_rule(version, rule)));
    let renamed = renamed.collect();
    let plans = found.and_then(|union| with_plans(group, (views, versions, hub), union, &rules));
    (plans, idle, renamed)
}

/// Compiles the plans between the union and each version.
fn with_plans<'d>(
    group: &str,
    (views, versions, hub): (&[VersionScope<'_>], &[VersionSchema], usize),
    Union { schema, moves }: Union,
    rules: &dyn Fn(usize, usize) -> Option<&'d Direction>,
) -> Option<(Version, Converters)> {
    let schema = Arc::new(schema);
    let top = versions.len();
    let wide = views[hub].with_fields_of(&schema);
    let union = VersionSchema {
        name: views[hub].name.to_owned(),
        served: false,
        schema: schema.clone(),
    };
    let mut edges = BTreeMap::new();
    for (v, (up, down)) in moves.iter().enumerate() {
        // The author's rules compile: they did with the hub alone.
        let to = converter(group, views[v], (wide, &union), rules(v, hub), up);
        let from = converter(group, wide, (views[v], &versions[v]), rules(hub, v), down);
        let (Ok(to), Ok(from)) = (to, from) else { return None };
        edges.insert((v, top), to);
        edges.insert((top, v), from);
    }
    let union = Version {
        name: UNION.to_owned(),
        served: false,
        has_defaults: has_defaults(schema.root()),
        schema,
        drop: Vec::new(),
    };
    Some((union, edges))
}

fn converter(
    group: &str,
    from: VersionScope<'_>,
    (to, target): (VersionScope<'_>, &VersionSchema),
    rules: Option<&Direction>,
    moves: &[Rule],
) -> Result<Converter, Vec<FieldError>> {
    let (plan, facts) = plan::compile(from, to, rules, moves)?;
    let mut converter = Converter {
        group: group.to_owned(),
        from: from.name.to_owned(),
        to: to.name.to_owned(),
        schema: target.schema.clone(),
        defaults: has_defaults(target.schema.root()),
        plan,
        facts,
        ruled: rules.is_some(),
        decided: rules.is_some_and(Direction::decides),
        costly: false,
        code: None,
    };
    let dear = |(_, expression): &(usize, &Expression)| expression.cost > CALL_COST_MAX;
    let costly = converter.expressions().iter().any(dear);
    converter.costly = costly;
    Ok(converter)
}

fn version(version: &VersionSchema, directions: &[Direction]) -> Version {
    let own = directions.iter().filter(|d| d.from == version.name);
    Version {
        name: version.name.clone(),
        served: version.served,
        schema: version.schema.clone(),
        has_defaults: has_defaults(version.schema.root()),
        drop: own.flat_map(|d| d.drop.iter().cloned()).collect(),
    }
}

/// Returns the labels and annotations that rules write or move away.
fn ruled_metadata(directions: &[Direction]) -> BTreeSet<(String, String)> {
    let rules = directions.iter().flat_map(|direction| &direction.rules);
    let paths = rules.flat_map(|rule| rule.moved().into_iter().chain([&rule.destination]));
    let key = |path: &Path| match path.segments() {
        [Segment::Field(metadata), Segment::Field(part), Segment::Field(key), ..] if metadata == "metadata" => {
            Some((part.clone(), key.clone()))
        }
        _ => None,
    };
    paths.filter_map(key).collect()
}

/// Checks the names of versions and the number of rules.
fn names(rules: Option<&RuleSet>, versions: &[VersionSchema], path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(rules) = rules else { return errors };
    let known: Vec<&str> = versions.iter().map(|v| v.name.as_str()).collect();
    let mut check = |at: FieldPath, name: &str| {
        if !known.contains(&name) {
            errors.push(FieldError::not_supported(&at, &Json::from(name), &known));
        }
    };
    if let Some(hub) = &rules.hub {
        check(path.child("hub"), hub);
    }
    for direction in &rules.conversions {
        check(direction.at.child("from"), &direction.from);
        check(direction.at.child("to"), &direction.to);
    }
    errors
}

fn limits(rules: Option<&RuleSet>) -> Vec<FieldError> {
    let directions = rules.map(|rules| rules.conversions.as_slice()).unwrap_or_default();
    let too_many = |direction: &Direction| {
        let count: usize = direction.rules.iter().map(count).sum();
        (count > RULES_MAX).then(|| FieldError::too_many(&direction.at.child("rules"), count, RULES_MAX))
    };
    directions.iter().filter_map(too_many).collect()
}

fn count(rule: &Rule) -> usize {
    1 + rule.item_rules.iter().map(count).sum::<usize>()
}

/// Checks that every served version has rules to the hub or the storage version, or the same shape
/// as one of them.
fn reachable(
    versions: &[VersionSchema],
    storage: usize,
    hub: usize,
    converters: &BTreeMap<(usize, usize), Converter>,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let ruled = |a, b| converters.get(&(a, b)).is_some_and(|c| c.ruled);
    let near = |a: usize, b: usize| {
        a == b || ruled(a, b) || ruled(b, a) || same_shape(versions[a].schema.root(), versions[b].schema.root())
    };
    for (v, version) in versions.iter().enumerate() {
        let reached = near(v, hub) && near(hub, storage) || near(v, storage);
        if version.served && !reached {
            let hub = &versions[hub].name;
            errors.push(FieldError::required(
                &path.child("conversions"),
                format!(
                    "no rules between {} and the hub {hub}: {} is served, and shaped otherwise",
                    version.name, version.name
                ),
            ));
        }
    }
}

/// Checks that every field that the target requires has a source.
fn required(
    from: &VersionScope<'_>,
    to: &VersionScope<'_>,
    rules: Option<&Direction>,
    written: &Direction,
    errors: &mut Vec<FieldError>,
) {
    let destinations: Vec<&Path> = rules
        .iter()
        .flat_map(|d| d.rules.iter().map(|r| &r.destination))
        .collect();
    let moved = rules.iter().flat_map(|d| d.rules.iter().filter_map(Rule::moved));
    let leaving: Vec<&Path> = rules.iter().flat_map(|d| &d.drop).chain(moved).collect();
    let mut check = Required {
        from,
        to,
        destinations,
        leaving,
        written,
        errors,
    };
    check.object(to.schema.root(), &mut Vec::new());
}

struct Required<'a> {
    from: &'a VersionScope<'a>,
    to: &'a VersionScope<'a>,
    destinations: Vec<&'a Path>,
    /// Paths that do not pass through: dropped, or moved elsewhere.
    leaving: Vec<&'a Path>,
    written: &'a Direction,
    errors: &'a mut Vec<FieldError>,
}

impl Required<'_> {
    fn object(&mut self, node: &Node, at: &mut Vec<Segment>) {
        for (name, child) in node.properties() {
            if at.is_empty() && matches!(name, "apiVersion" | "kind" | "metadata") {
                continue;
            }
            at.push(Segment::Field(name.to_owned()));
            let here = Path::from_segments(at.clone());
            let written = |d: &&&Path| d.overlaps(&here);
            let carried = self.is_passed_through(child, at);
            if child.default().is_none()
                && node.required().iter().any(|r| r == name)
                && !carried
                && !self.destinations.iter().any(|d| written(&d))
            {
                let (from, to) = (self.from.name, self.to.name);
                self.errors.push(FieldError::required(
                    &self.written.at,
                    format!(
                        "{to} requires {here}, and no rule from {from} writes it: add a rule, or a default to \
                        the schema"
                    ),
                ));
            }
            let above = self
                .destinations
                .iter()
                .any(|d| d.overlaps(&here) && d.segments().len() <= at.len());
            let below = self
                .destinations
                .iter()
                .any(|d| d.overlaps(&here) && d.segments().len() > at.len());
            if !above && (carried || below) {
                self.object(child, at);
            }
            at.pop();
        }
    }

    /// Returns true if the field has a source at the same path.
    fn is_passed_through(&self, child: &Node, at: &[Segment]) -> bool {
        let leaves = self.leaving.iter().any(|path| path.segments() == at);
        match self.from.find(at) {
            Ok(Some(source)) => {
                !leaves && passthrough::compile(Some(source), child, &Except::default(), &mut Vec::new()).is_some()
            }
            Ok(None) => true,
            Err(_) => false,
        }
    }
}

//! Compilation of rules to operations, scope by scope.

use super::expression::{Loops, Names, Target, This};
use super::{
    Each, FieldError, Fill, Json, Kind, Op, Path, Rule, RuleFacts, SchemaNode, Seg, Segment, Source, Value,
    VersionScope, descend, is_map, keys_repeat, kind_of,
};
use crate::fit::word;
use crate::passthrough::{self, Except, Passthrough};
use insula_cel::{Decl, Type};

/// Scope of compilation: the whole object, or the items of a loop.
pub(super) struct Scope<'s> {
    pub(super) from: VersionScope<'s>,
    to: VersionScope<'s>,
    /// The item on each side; `None` for the whole object.
    item: Option<Item<'s>>,
    /// True if rules here come from `itemRules`, whose destinations are not checked yet.
    by_items: bool,
    /// True if the rule around these is marked `mayFail`.
    may_fail: bool,
    /// Names and types of the variables of the loops around: indices and keys.
    variables: Vec<(String, Type)>,
    loops: Loops,
}

/// An item of a loop: its source, and its destination.
struct Item<'s> {
    from: This<'s>,
    to: Target<'s>,
}

/// One rule on its way down through loops, with the remaining segments of its paths.
pub(super) struct Rest<'r> {
    pub(super) rule: &'r Rule,
    pub(super) from: &'r [Segment],
    pub(super) to: &'r [Segment],
    pub(super) index: usize,
}

impl<'s> Scope<'s> {
    pub(super) fn object(from: VersionScope<'s>, to: VersionScope<'s>) -> Self {
        Scope {
            from,
            to,
            item: None,
            by_items: false,
            may_fail: false,
            variables: Vec::new(),
            loops: Loops::none(),
        }
    }

    /// Compiles a rule into `ops`; joins an existing loop over the same containers.
    pub(super) fn add(
        &mut self,
        rule: &Rule,
        ops: &mut Vec<Op>,
        facts: &mut Vec<RuleFacts>,
        errors: &mut Vec<FieldError>,
    ) {
        let index = facts.len();
        facts.push(RuleFacts {
            may_fail: rule.may_fail || self.may_fail,
            ..RuleFacts::from_rule(rule)
        });
        match &rule.source {
            Source::Expression(text) => self.expression(rule, text, index, ops, errors),
            Source::Field(path) => {
                let rest = Rest {
                    rule,
                    from: path.segments(),
                    to: rule.destination.segments(),
                    index,
                };
                self.field(&rest, ops, facts, errors);
            }
        }
    }

    pub(super) fn find_from(&self, path: &[Segment]) -> Result<SchemaNode<'s>, String> {
        match &self.item {
            Some(item) => descend(item.from.place, path, self.from.name),
            None if path.is_empty() => Ok(self.from.root()),
            None => self.from.find_source(path),
        }
    }

    pub(super) fn find_to(&self, path: &[Segment]) -> Result<SchemaNode<'s>, String> {
        match &self.item {
            Some(item) => descend(item.to.place, path, self.to.name),
            None => self.to.find(path),
        }
    }

    /// Returns the value of `self` in this scope.
    pub(super) fn this(&self) -> This<'s> {
        match &self.item {
            Some(item) => item.from.clone(),
            None => This::object(self.from),
        }
    }

    /// Returns the destination at a path below this scope.
    pub(super) fn target(&self, path: &[Segment], place: SchemaNode<'s>) -> Target<'s> {
        let above = self
            .item
            .as_ref()
            .map(|item| item.to.path.segments())
            .unwrap_or_default();
        Target {
            place,
            path: Path::from_segments(above.iter().chain(path).cloned().collect()),
            version: self.to.name,
        }
    }

    /// Returns the loops around the items of this list or map; `deep`: at any depth, where no bound
    /// holds but the object's size.
    pub(super) fn loops_over(&self, container: &This<'s>, deep: bool) -> Loops {
        let any = Decl::dynamic();
        let decl = if deep { &any } else { &container.decl };
        self.loops.over(decl, container.place, &container.path)
    }

    /// Returns the names that expressions may use in this scope.
    pub(super) fn names(&self, this: This<'s>) -> Names<'s> {
        Names {
            from: self.from,
            this,
            variables: self.variables.clone(),
            loops: self.loops.clone(),
        }
    }

    fn expression(&self, rule: &Rule, text: &str, index: usize, ops: &mut Vec<Op>, errors: &mut Vec<FieldError>) {
        let at_to = rule.at.path.child(rule.at.destination);
        if !rule.destination.is_single() {
            let why = "an expression gives one value; to fill a list or map, name its source as a path with []";
            errors.push(FieldError::invalid(
                &at_to,
                &Json::from(rule.destination.to_string()),
                why,
            ));
            return;
        }
        let at = rule.at.path.child(rule.at.source);
        // Missing destinations have been reported where destinations are checked, except for those
        // of items.
        let place = match self.find_to(rule.destination.segments()) {
            Ok(place) => place,
            Err(why) => return self.no_destination(rule, why, errors),
        };
        let target = self.target(rule.destination.segments(), place);
        let Some(compiled) = self.names(self.this()).expression(text, Some(&target), &at, errors) else {
            return;
        };
        ops.push(Op::Compute {
            this: super::This::At(Box::default()),
            value: Value::Expression(Box::new(compiled)),
            to: Seg::single(rule.destination.segments()),
            fit: fit(place),
            unless_there: rule.only_if_absent,
            rule: index,
        });
    }

    fn no_destination(&self, rule: &Rule, why: String, errors: &mut Vec<FieldError>) {
        if self.by_items {
            let at = rule.at.path.child(rule.at.destination);
            errors.push(FieldError::invalid(&at, &Json::from(rule.destination.to_string()), why));
        }
    }

    fn field(&mut self, rest: &Rest<'_>, ops: &mut Vec<Op>, facts: &mut Vec<RuleFacts>, errors: &mut Vec<FieldError>) {
        if rest.rule.uses.is_some() {
            return self.again(rest, ops, errors);
        }
        let at_from = rest.rule.at.path.child(rest.rule.at.source);
        let loops = |s: &Segment| matches!(s, Segment::Each(_) | Segment::Key(_));
        let (p, q) = (rest.from.iter().position(loops), rest.to.iter().position(loops));
        let invalid = |why: String| FieldError::invalid(&at_from, &Json::from(source_text(rest.rule)), why);
        let place = match self.find_from(rest.from) {
            Ok(place) => place,
            Err(why) => return errors.push(invalid(why)),
        };
        match (p, q) {
            (None, None) if !rest.rule.item_rules.is_empty() => self.item_rules(rest, ops, facts, errors),
            (None, None) => self.value(rest, place, ops, errors),
            (Some(p), Some(q)) => {
                if let Segment::Key(_) = rest.from[p] {
                    return errors.push(invalid("a source is one value [0], or every one [i]".to_owned()));
                }
                let containers = (&rest.from[..p], &rest.to[..q]);
                let below = Rest {
                    from: &rest.from[p + 1..],
                    to: &rest.to[q + 1..],
                    ..*rest
                };
                self.each(
                    rest,
                    containers,
                    (Some(&rest.from[p]), Some(&rest.to[q])),
                    &below,
                    ops,
                    facts,
                    errors,
                );
            }
            (Some(_), None) if rest.rule.item_rules.is_empty() => {
                errors.push(invalid(
                    "every item is read, but the destination is one place: end it in []".to_owned(),
                ));
            }
            (Some(_), None) | (None, Some(_)) if !rest.rule.item_rules.is_empty() => {
                self.item_rules(rest, ops, facts, errors);
            }
            _ => self.wide(rest, place, ops, errors),
        }
    }

    /// Compiles `field: spec.colors`, `destination: spec.nested.colors`, `itemRules`; brackets at
    /// the ends are optional.
    fn item_rules(
        &mut self,
        rest: &Rest<'_>,
        ops: &mut Vec<Op>,
        facts: &mut Vec<RuleFacts>,
        errors: &mut Vec<FieldError>,
    ) {
        let ends = |path: &[Segment]| matches!(path.last(), Some(Segment::Each(_) | Segment::Key(_)));
        let split = |path| {
            if ends(path) {
                path.split_last().map(|(l, p)| (p, Some(l)))
            } else {
                Some((path, None))
            }
        };
        let Some(((from, from_end), (to, to_end))) = split(rest.from).zip(split(rest.to)) else {
            return;
        };
        let below = Rest {
            from: &[],
            to: &[],
            ..*rest
        };
        self.each(rest, (from, to), (from_end, to_end), &below, ops, facts, errors);
    }

    /// Compiles a move, or a value computed from the source.
    fn value(&mut self, rest: &Rest<'_>, place: SchemaNode<'s>, ops: &mut Vec<Op>, errors: &mut Vec<FieldError>) {
        let rule = rest.rule;
        let target = match self.find_to(rest.to) {
            Ok(target) => target,
            Err(why) => return self.no_destination(rule, why, errors),
        };
        let to = Seg::single(rest.to);
        if let Some(template) = &rule.transformation {
            let at = rule.at.path.child("transformation");
            let goes_to = self.target(rest.to, target);
            let names = self.names(self.this().below(rest.from, place));
            let Some(value) = names.value(template, &goes_to, &at, errors) else {
                return;
            };
            let this = super::This::At(Seg::single(rest.from));
            ops.push(Op::Compute {
                this,
                value,
                to,
                fit: fit(target),
                unless_there: rule.only_if_absent,
                rule: rest.index,
            });
            return;
        }
        let copy = match target {
            None => Some(Passthrough::Whole),
            Some(target) => passthrough::compile(place, target, &Except::default(), &mut Vec::new()),
        };
        let Some(copy) = copy else {
            let at = rule.at.path.child(rule.at.destination);
            let why = format!(
                "{} is of type {} in {}, this of type {} in {}; add a transformation",
                source_text(rule),
                place.map_or("any".to_owned(), word),
                self.from.name,
                target.map_or("any".to_owned(), word),
                self.to.name
            );
            return errors.push(FieldError::invalid(&at, &Json::from(rule.destination.to_string()), why));
        };
        ops.push(Op::Move {
            from: Seg::single(rest.from),
            to,
            copy,
            unless_there: rule.only_if_absent,
        });
    }

    /// Adds a rule to the loop over `containers`; creates the loop for the first rule.
    #[expect(
        clippy::too_many_arguments,
        reason = "the two sides of a loop, and where the compiled rule goes"
    )]
    fn each(
        &mut self,
        rest: &Rest<'_>,
        containers: (&[Segment], &[Segment]),
        ends: (Option<&Segment>, Option<&Segment>),
        below: &Rest<'_>,
        ops: &mut Vec<Op>,
        facts: &mut Vec<RuleFacts>,
        errors: &mut Vec<FieldError>,
    ) {
        let rule = rest.rule;
        let at_to = rule.at.path.child(rule.at.destination);
        let invalid = |why: String| FieldError::invalid(&at_to, &Json::from(rule.destination.to_string()), why);
        let (source, target) = match (self.find_from(containers.0), self.find_to(containers.1)) {
            (Ok(source), Ok(target)) => (source, target),
            (Err(why), _) => return errors.push(invalid(why)),
            (_, Err(why)) => return self.no_destination(rule, why, errors),
        };
        let (Some(from_item), Some(to_item)) = (items(source), items(target)) else {
            return errors.push(invalid(
                "source and destination must be lists or maps, with schemas for their items".to_owned(),
            ));
        };
        let over_map = is_map(source);
        let (mut inner, variable) = self.inside(rule, containers, ends.0, (source, from_item, to_item));
        let index = if over_map { Type::String } else { Type::Int };
        let Some(fill) = inner.fill(rule, (is_map(target), ends.1), over_map, errors) else {
            return;
        };
        let (from, to) = (Seg::single(containers.0), Seg::single(containers.1));
        let at = ops.iter().position(|op| matches!(op, Op::Each(each) if each.to == to));
        let at = at.unwrap_or_else(|| {
            let paths = (from.clone(), to);
            let new = Each::empty(paths, (source, to_item), variable, fill, rest.index);
            ops.push(Op::Each(Box::new(new)));
            ops.len() - 1
        });
        let Some(Op::Each(each)) = ops.get_mut(at) else { return };
        if each.from != from || !each.same_key(ends.1) {
            return errors.push(invalid(
                "another rule fills this list or map from another source or by another key".to_owned(),
            ));
        }
        // The loop's first rule names its index or key.
        inner.variables.pop();
        inner.variables.push((each.variable.clone(), index));
        let before = errors.len();
        if rule.item_rules.is_empty() {
            each.except.rule(rule, below.from, below.to);
            inner.field(below, &mut each.body, facts, errors);
        } else {
            for item_rule in &rule.item_rules {
                let from = item_rule.moved().map(Path::segments).unwrap_or_default();
                each.except.rule(item_rule, from, item_rule.destination.segments());
                inner.add(item_rule, &mut each.body, facts, errors);
            }
        }
        if rule.set.is_some() {
            super::again::check(rule, each, errors);
        }
        if errors.len() == before {
            each.passthrough = each.item_passthrough(from_item, to_item);
            each.indexed = super::indexed(&each.body);
        }
    }

    /// Returns the scope of the items of a loop over `containers`, and the name of the variable
    /// that holds their index or key.
    fn inside(
        &self,
        rule: &Rule,
        containers: (&[Segment], &[Segment]),
        end: Option<&Segment>,
        (source, from_item, to_item): (SchemaNode<'s>, &'s insula_schema::Node, &'s insula_schema::Node),
    ) -> (Scope<'s>, String) {
        let over_map = is_map(source);
        let variable = match end {
            Some(Segment::Each(name)) if !name.is_empty() => name.clone(),
            _ if over_map => "key".to_owned(),
            _ => "i".to_owned(),
        };
        let index = if over_map { Type::String } else { Type::Int };
        let every = [Segment::Each(String::new())];
        let inside = |path: &[Segment]| [path, &every].concat();
        let named = [(variable.clone(), index)];
        let scope = Scope {
            from: self.from,
            to: self.to,
            item: Some(Item {
                from: self.this().below(&inside(containers.0), Some(from_item)),
                to: self.target(&inside(containers.1), Some(to_item)),
            }),
            by_items: self.by_items || !rule.item_rules.is_empty(),
            may_fail: self.may_fail || rule.may_fail,
            variables: self.variables.iter().cloned().chain(named).collect(),
            loops: self.loops_over(&self.this().below(containers.0, source), rule.set.is_some()),
        };
        (scope, variable)
    }

    /// Decides how items go into the target, a map or a list with this last segment.
    fn fill(
        &self,
        rule: &Rule,
        (map, end): (bool, Option<&Segment>),
        over_map: bool,
        errors: &mut Vec<FieldError>,
    ) -> Option<Fill> {
        let at = rule.at.path.child(rule.at.destination);
        let why = match (map, end) {
            (false, Some(Segment::Key(_))) => "a list has no keys: end the path in []",
            (false, _) => return Some(Fill::List),
            (true, Some(Segment::Key(text))) => {
                let key = self.names(self.this()).expression(text, None, &at, errors)?;
                return Some(Fill::Key(Box::new(key)));
            }
            (true, _) if over_map => return Some(Fill::SameKey),
            (true, _) => "items of a list need a key: end the path in [self.name], say, or in [self] if they are texts",
        };
        errors.push(FieldError::invalid(&at, &Json::from(rule.destination.to_string()), why));
        None
    }
}

impl Each {
    /// Returns a loop without operations over `source`, for a rule.
    fn empty(
        (from, to): (Box<[Seg]>, Box<[Seg]>),
        (source, to_item): (SchemaNode<'_>, &insula_schema::Node),
        variable: String,
        fill: Fill,
        rule: usize,
    ) -> Each {
        let over_map = is_map(source);
        Each {
            from,
            to,
            over_map,
            variable,
            can_repeat: match &fill {
                Fill::Key(key) => keys_repeat(key.program.source(), source.filter(|_| !over_map)),
                Fill::List | Fill::SameKey => false,
            },
            fill,
            passthrough: None,
            except: Except::default(),
            objects: kind_of(Some(to_item)) == Some(Kind::Object),
            body: Vec::new(),
            indexed: Vec::new(),
            rule,
        }
    }

    fn same_key(&self, end: Option<&Segment>) -> bool {
        match (&self.fill, end) {
            (Fill::Key(key), Some(Segment::Key(text))) => key.program.source() == text,
            (Fill::Key(_), _) => false,
            (_, Some(Segment::Key(_))) => false,
            _ => true,
        }
    }

    /// Compiles the passthrough of fields that items have on both sides and no rule of the loop
    /// uses up. `None` if a rule makes the whole item.
    fn item_passthrough(&self, from: &insula_schema::Node, to: &insula_schema::Node) -> Option<Passthrough> {
        match passthrough::compile(Some(from), to, &self.except, &mut Vec::new()) {
            Some(how @ (Passthrough::Object { .. } | Passthrough::Whole))
                if kind_of(Some(to)) == Some(Kind::Object) || passthrough::takes_anything(to) =>
            {
                Some(how)
            }
            _ => None,
        }
    }
}

pub(super) fn items(place: SchemaNode<'_>) -> Option<&insula_schema::Node> {
    place.and_then(|node| node.items().or_else(|| node.additional()))
}

/// Returns the check of a computed value against its destination.
pub(super) fn fit(place: SchemaNode<'_>) -> Passthrough {
    match place {
        None => Passthrough::Whole,
        Some(node) => {
            passthrough::compile(None, node, &Except::default(), &mut Vec::new()).unwrap_or(Passthrough::Whole)
        }
    }
}

fn source_text(rule: &Rule) -> String {
    match &rule.source {
        Source::Field(path) => path.to_string(),
        Source::Expression(text) => text.clone(),
    }
}

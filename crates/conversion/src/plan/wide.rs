//! Rules over the entries of a container inside a wider `field`, which can also read the values
//! beside the container.

use super::body::{Rest, Scope, fit, items};
use super::expression::Names;
use super::{Each, FieldError, Fill, Json, Op, Path, SchemaNode, Seg, Segment, This, is_map};
use crate::passthrough::Except;
use crate::rules::Template;
use insula_cel::{Decl, Field, Program, Shape, Type};

impl<'s> Scope<'s> {
    /// Compiles a rule over entries of a container inside a wider `field`: the container that the
    /// transformation indexes (`self.colors[key]`), or the one at the destination's path. `self` is
    /// the wider value, with the entry's fields where it has none of that name.
    pub(super) fn wide(
        &mut self,
        rest: &Rest<'_>,
        place: SchemaNode<'s>,
        ops: &mut Vec<Op>,
        errors: &mut Vec<FieldError>,
    ) {
        let rule = rest.rule;
        let at = rule.at.path.child("transformation");
        let Some(template) = &rule.transformation else {
            let why = "with a destination for items, `field` names items (field: spec.colors[i]), or \
                `transformation` says them";
            return errors.push(FieldError::required(&at, why));
        };
        let Some((container, variable)) = self.container(rest, template) else {
            let why = "no list or map to take items from: name it in `field` (spec.colors[key]) or by self.colors[key]";
            return errors.push(FieldError::invalid_text(&at, "", why));
        };
        let full: Vec<Segment> = rest.from.iter().chain(&container).cloned().collect();
        let q = rest
            .to
            .iter()
            .position(|s| matches!(s, Segment::Each(_) | Segment::Key(_)))
            .unwrap_or_default();
        let (source, target) = match (self.find_from(&full), self.find_to(&rest.to[..q])) {
            (Ok(source), Ok(target)) => (source, target),
            (Err(why), _) | (_, Err(why)) => return errors.push(FieldError::invalid_text(&at, "", why)),
        };
        let (Some(from_item), Some(to_item)) = (items(source), items(target)) else {
            return;
        };
        if is_map(target) || rest.to.len() != q + 1 {
            let why = "entries of a wider field go to a list, as whole items: end the destination in []";
            let at = rule.at.path.child(rule.at.destination);
            return errors.push(FieldError::invalid(&at, &Json::from(rule.destination.to_string()), why));
        }
        let map = is_map(source);
        let (outer, every) = (self.this(), [Segment::Each(String::new())]);
        let wider = outer.below(rest.from, place);
        let of_item = wider.below(&container, source).below(&every, Some(from_item));
        let loops = self.loops_over(&wider.below(&container, source), false);
        let index = if map { Type::String } else { Type::Int };
        let mut names = self.names(wider);
        names.variables.push((variable.clone(), index));
        names.loops = loops;
        let item: Vec<String> = selected(template, &names)
            .into_iter()
            .filter(|name| place.is_some_and(|p| p.child(name).is_none()) && from_item.child(name).is_some())
            .collect();
        names.this.decl = with_fields(&names.this.decl, &of_item.decl, &item);
        let goes_to = self.target(&rest.to[..=q], Some(to_item));
        let Some(value) = names.value(template, &goes_to, &at, errors) else {
            return;
        };
        let around = Seg::single(rest.from);
        let this = if item.is_empty() {
            This::Around(around)
        } else {
            This::Both { around, item }
        };
        let make = Op::Compute {
            this,
            value,
            to: Box::default(),
            fit: fit(Some(to_item)),
            unless_there: false,
            rule: rest.index,
        };
        ops.push(Op::Each(Box::new(Each {
            from: Seg::single(&full),
            to: Seg::single(&rest.to[..q]),
            over_map: map,
            variable,
            fill: Fill::List,
            can_repeat: false,
            passthrough: None,
            except: Except::default(),
            objects: false,
            body: vec![make],
            indexed: Vec::new(),
            rule: rest.index,
        })));
    }

    /// Returns the path of a wide rule's container, relative to its `field`, and the name of its
    /// index or key.
    fn container(&self, rest: &Rest<'_>, template: &Template) -> Option<(Vec<Segment>, String)> {
        for variable in ["key", "i"] {
            let indexed = expressions(template).iter().find_map(|text| indexed_by(text, variable));
            if let Some(path) = indexed {
                return Some((path, variable.to_owned()));
            }
        }
        let q = rest.to.iter().position(|s| matches!(s, Segment::Each(_)))?;
        let relative = rest.to[..q].strip_prefix(rest.from)?;
        let full: Vec<Segment> = rest.to[..q].to_vec();
        let place = self.find_from(&full).ok()?;
        items(place)?;
        Some((relative.to_vec(), if is_map(place) { "key" } else { "i" }.to_owned()))
    }
}

fn expressions(template: &Template) -> Vec<&str> {
    match template {
        Template::Expression(text) => vec![text],
        Template::Constant(_) => Vec::new(),
        Template::Fields(fields) => fields.values().flat_map(expressions).collect(),
        Template::Items(items) => items.iter().flat_map(expressions).collect(),
    }
}

/// Returns the path `a.b` of `self.a.b[variable]` in an expression.
fn indexed_by(text: &str, variable: &str) -> Option<Vec<Segment>> {
    let bracket = format!("[{variable}]");
    let before = &text[..text.find(&bracket)?];
    let start = before
        .rfind(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.')))
        .map_or(0, |i| i + 1);
    let path = before.get(start..)?.strip_prefix("self.")?;
    Some(Path::parse(path).ok()?.segments().to_vec())
}

/// Returns the fields of `self` that expressions select directly. Expressions that do not compile
/// are reported elsewhere.
fn selected(template: &Template, names: &Names<'_>) -> Vec<String> {
    let known = names.variables.iter().map(|(name, _)| name.as_str());
    let known: Vec<&str> = ["self", names.from.name].into_iter().chain(known).collect();
    let mut out = Vec::new();
    for text in expressions(template) {
        let Ok(program) = Program::compile(text, &known) else {
            continue;
        };
        let fields = program
            .references()
            .iter()
            .filter(|r| r.variable == "self")
            .filter_map(|r| r.path.first().cloned());
        out.extend(fields);
    }
    out
}

/// Returns the declaration of the wider value with fields of the item.
fn with_fields(wider: &Decl, item: &Decl, names: &[String]) -> Decl {
    let Shape::Object { name, fields } = wider.shape() else {
        return wider.clone();
    };
    let of_item = |name: &String| -> Field {
        item.field(name).cloned().unwrap_or_else(|| Field {
            name: name.as_str().into(),
            written: name.as_str().into(),
            decl: Decl::dynamic(),
        })
    };
    let fields = fields.iter().cloned().chain(names.iter().map(of_item));
    Decl::object(name, fields.collect())
}

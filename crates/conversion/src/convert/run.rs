//! Execution of operations, in an object or an item.

use super::Failure;
use super::filled::Filled;
use crate::by_path::{close_gaps, get, put, type_of};
use crate::error::Cause;
use crate::plan::{Each, Expression, Fill, Op, This, Value};
use crate::trace::{Inputs, Seg, Trace};
use insula_cel::{Activation, Budget, Outcome, Program};
use serde_json::{Map, Value as Json};

/// Scope of operations: the object or an item, and the variables around it.
#[derive(Debug, Clone)]
pub(super) struct Scope<'a> {
    root: &'a Json,
    this: &'a Json,
    around: &'a Json,
    variables: Vec<(&'a str, Json)>,
    /// The loop whose item this is.
    each: Option<&'a Each>,
}

impl<'a> Scope<'a> {
    /// Returns the scope of a whole object.
    pub(super) fn whole(object: &'a Json) -> Scope<'a> {
        Scope {
            root: object,
            this: object,
            around: object,
            variables: Vec::new(),
            each: None,
        }
    }
}

/// One execution: its budget, and the trace of the current scope.
pub(super) struct Run<'r> {
    pub(super) version: &'r str,
    pub(super) budget: &'r mut Budget,
    pub(super) trace: Option<&'r mut Trace>,
    pub(super) purpose: Purpose,
}

/// Purpose of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// An object that readers see.
    Object,
    /// One side of an edit.
    Side,
}

impl Run<'_> {
    pub(super) fn ops<'o>(
        &mut self,
        ops: impl IntoIterator<Item = &'o Op>,
        scope: &Scope<'_>,
        out: &mut Json,
    ) -> Result<(), Failure> {
        for op in ops {
            match op {
                Op::Move {
                    from,
                    to,
                    copy,
                    unless_there,
                } => {
                    if *unless_there && get(out, to).is_some() {
                        continue;
                    }
                    let Some(value) = get(scope.this, from) else { continue };
                    let Some(copied) = copy.copy(value) else { continue };
                    if let Some(trace) = self.trace.as_deref_mut()
                        && !(value.is_object() || value.is_array())
                    {
                        let mut inputs = Inputs::default();
                        inputs.value(Some(value));
                        trace.entry(to).set(inputs.finish());
                    }
                    put(out, to, copied);
                }
                Op::Compute {
                    this,
                    value,
                    to,
                    fit,
                    unless_there,
                    rule,
                } => {
                    if *unless_there && get(out, to).is_some() {
                        continue;
                    }
                    let Some(result) = self.compute(this, value, to, scope).map_err(|cause| (*rule, cause))? else {
                        continue;
                    };
                    let got = type_of(&result);
                    let null = result.is_null();
                    match fit.take(result) {
                        Some(fitting) => put(out, to, fitting),
                        // A null that the destination does not allow counts as absent.
                        None if null => {}
                        None => {
                            return Err((
                                *rule,
                                Cause::Type {
                                    got,
                                    want: fit.wants().to_owned(),
                                },
                            ));
                        }
                    }
                }
                Op::Each(each) => self.each(each, scope, out)?,
                Op::Again { from, to } => self.again(from, to, scope, out)?,
            }
        }
        Ok(())
    }

    fn compute(&mut self, this: &This, value: &Value, to: &[Seg], scope: &Scope<'_>) -> Result<Option<Json>, Cause> {
        let both;
        let this = match this {
            This::At(path) => get(scope.this, path),
            This::Around(path) => get(scope.around, path),
            This::Both { around, item } => {
                let Some(around) = get(scope.around, around) else {
                    return Ok(None);
                };
                both = overlay(around, scope.this, item, value);
                Some(&both)
            }
        };
        let Some(this) = this else { return Ok(None) };
        let mut path = to.to_vec();
        self.value(value, this, &mut path, scope)
    }

    fn value(
        &mut self,
        value: &Value,
        this: &Json,
        to: &mut Vec<Seg>,
        scope: &Scope<'_>,
    ) -> Result<Option<Json>, Cause> {
        match value {
            Value::Constant(json) => Ok(Some(json.clone())),
            Value::Expression(expression) => {
                self.note(&expression.program, this, to, scope);
                self.evaluate(expression, this, scope)
            }
            Value::Fields(fields) => {
                let mut out = Map::new();
                for (name, value) in fields {
                    to.push(Seg::Field(name.as_str().into()));
                    let made = self.value(value, this, to, scope)?;
                    to.pop();
                    out.extend(made.map(|made| (name.clone(), made)));
                }
                Ok(Some(Json::Object(out)))
            }
            Value::Items(items) => {
                let mut out = Vec::new();
                for value in items {
                    to.push(Seg::Index(out.len()));
                    let made = self.value(value, this, to, scope)?;
                    to.pop();
                    out.extend(made);
                }
                Ok(Some(Json::Array(out)))
            }
        }
    }

    fn evaluate(&mut self, expression: &Expression, this: &Json, scope: &Scope<'_>) -> Result<Option<Json>, Cause> {
        let mut activation = Activation::new().with(self.version, scope.root).with("self", this);
        for (name, value) in &scope.variables {
            activation = activation.with(name, value);
        }
        match expression.program.eval(&activation, self.budget) {
            Ok(Outcome::Value(Json::String(time))) if expression.day => Ok(Some(day(&time))),
            Ok(Outcome::Value(value)) => Ok(Some(value)),
            Ok(Outcome::Absent) => Ok(None),
            Err(error) => Err(Cause::from_eval(&error)),
        }
    }

    /// Records the hash of the values that a program reads.
    fn note(&mut self, program: &Program, this: &Json, to: &[Seg], scope: &Scope<'_>) {
        let Some(trace) = self.trace.as_deref_mut() else { return };
        let mut inputs = Inputs::default();
        for reference in program.references() {
            let variable = match reference.variable.as_str() {
                "self" => Some(this),
                name if name == self.version => Some(scope.root),
                name => scope
                    .variables
                    .iter()
                    .rev()
                    .find(|(n, _)| *n == name)
                    .map(|(_, value)| value),
            };
            let value = variable.and_then(|value| {
                reference.path.iter().try_fold(value, |value, name| match value {
                    Json::Array(items) => items.get(name.parse::<usize>().ok()?),
                    other => other.get(name),
                })
            });
            inputs.value(value);
        }
        trace.entry(to).set(inputs.finish());
    }

    fn each(&mut self, each: &Each, scope: &Scope<'_>, out: &mut Json) -> Result<(), Failure> {
        let entries: Vec<(Json, &Json)> = match get(scope.this, &each.from) {
            Some(Json::Array(items)) if !each.over_map => items
                .iter()
                .enumerate()
                .map(|(i, item)| (Json::from(i), item))
                .collect(),
            Some(Json::Object(map)) if each.over_map => map
                .iter()
                .map(|(key, value)| (Json::from(key.as_str()), value))
                .collect(),
            _ => return Ok(()),
        };
        self.items(each, entries, (scope, &scope.variables), &each.to, out)
    }

    /// Runs the loop around over a list below its item. A value that is no list goes as it is.
    fn again(&mut self, from: &[Seg], to: &[Seg], scope: &Scope<'_>, out: &mut Json) -> Result<(), Failure> {
        match (get(scope.this, from), scope.each) {
            (Some(Json::Array(items)), Some(each)) => {
                let entries = items.iter().enumerate().map(|(i, item)| (Json::from(i), item));
                // The item's own index gives way.
                let around = scope.variables.split_last().map_or(&[][..], |(_, around)| around);
                self.items(each, entries.collect(), (scope, around), to, out)
            }
            (Some(value), _) => {
                put(out, to, value.clone());
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    /// Makes the items of a list or map at `to`.
    fn items(
        &mut self,
        each: &Each,
        entries: Vec<(Json, &Json)>,
        (scope, around): (&Scope<'_>, &[(&str, Json)]),
        to: &[Seg],
        out: &mut Json,
    ) -> Result<(), Failure> {
        let mut filled = Filled::for_fill(&each.fill);
        let mut trace_here = Trace::default();
        for (at, (index, item)) in entries.into_iter().enumerate() {
            let mut variables = around.to_vec();
            variables.push((&each.variable, index));
            let inner = Scope {
                root: scope.root,
                this: item,
                around: scope.this,
                variables,
                each: Some(each),
            };
            let key = self.key(each, &inner).map_err(|cause| (each.rule, cause))?;
            let mut trace = self.trace.is_some().then(Trace::default);
            let mut run = Run {
                version: self.version,
                budget: self.budget,
                trace: trace.as_mut(),
                purpose: self.purpose,
            };
            let mut made = each.start(item);
            run.ops(&each.body, &inner, &mut made)?;
            if self.purpose == Purpose::Object {
                close_gaps(&each.indexed, &mut made);
            }
            let Some(seg) = filled.add(key, made, at).map_err(|cause| (each.rule, cause))? else {
                continue;
            };
            trace_here.attach(&[seg], trace.unwrap_or_default());
        }
        put(out, to, filled.json());
        if let Some(trace) = self.trace.as_deref_mut() {
            trace.attach(to, trace_here);
        }
        Ok(())
    }

    /// Returns the key under which an item goes into a map; `None` if it has none, or goes into a
    /// list.
    fn key(&mut self, each: &Each, scope: &Scope<'_>) -> Result<Option<String>, Cause> {
        let key = match &each.fill {
            Fill::List => return Ok(None),
            Fill::SameKey => scope.variables.last().map(|(_, key)| key.clone()),
            Fill::Key(key) => self.evaluate(key, scope.this, scope)?,
        };
        match key {
            Some(Json::String(key)) => Ok(Some(key)),
            None => Ok(None),
            Some(other) => Err(Cause::Type {
                got: type_of(&other),
                want: "string, as keys are".to_owned(),
            }),
        }
    }
}

impl Each {
    /// Returns an item before the operations: its fields that pass through.
    fn start(&self, item: &Json) -> Json {
        let whole = self.body.iter().any(|op| match op {
            Op::Move { to, .. } | Op::Compute { to, .. } | Op::Again { to, .. } => to.is_empty(),
            Op::Each(each) => each.to.is_empty(),
        });
        let carried = self.passthrough.as_ref().and_then(|passthrough| passthrough.copy(item));
        match carried {
            Some(carried) => carried,
            None if self.objects && !whole => Json::Object(Map::new()),
            None => Json::Null,
        }
    }
}

/// Returns the date of a time in RFC 3339.
fn day(time: &str) -> Json {
    Json::from(time.split('T').next().unwrap_or_default())
}

/// Returns the wider value with fields of the item, reduced to what the value's expressions read.
fn overlay(around: &Json, item: &Json, names: &[String], value: &Value) -> Json {
    let mut out = Map::new();
    let mut wanted = Vec::new();
    first_fields(value, &mut wanted);
    for name in wanted {
        let from = if names.iter().any(|n| n == name) { item } else { around };
        out.extend(from.get(name).map(|found| (name.to_owned(), found.clone())));
    }
    Json::Object(out)
}

fn first_fields<'v>(value: &'v Value, out: &mut Vec<&'v str>) {
    match value {
        Value::Constant(_) => {}
        Value::Expression(expression) => {
            let fields = expression
                .program
                .references()
                .iter()
                .filter(|r| r.variable == "self")
                .filter_map(|r| r.path.first());
            out.extend(fields.map(String::as_str));
        }
        Value::Fields(fields) => fields.iter().for_each(|(_, value)| first_fields(value, out)),
        Value::Items(items) => items.iter().for_each(|value| first_fields(value, out)),
    }
}

//! Execution of a plan: one walk for the fields that pass through, then the operations. The source
//! is not changed.

use crate::by_path::{close_gaps, get, json_bytes, put};
use crate::code::ConvertFn;
use crate::error::{Cause, ConvertError, FailedRule};
use crate::plan::{Expression, Op, Plan, RuleFacts};
use crate::trace::Trace;
use insula_cel::Budget;
use insula_schema::Structural;
use serde_json::{Map, Value as Json};
use std::sync::Arc;

mod filled;
mod run;

use run::{Purpose, Run, Scope};

/// A plan with the names of its versions and the target's schema.
pub(crate) struct Converter {
    pub(crate) group: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) schema: Arc<Structural>,
    /// True if the schema has defaults.
    pub(crate) defaults: bool,
    pub(crate) plan: Plan,
    pub(crate) facts: Vec<RuleFacts>,
    /// True if the author wrote rules for this direction.
    pub(crate) ruled: bool,
    /// True if its author says something about a field.
    pub(crate) decided: bool,
    /// True if the cost of an expression may need a budget that grows with the object.
    pub(crate) costly: bool,
    /// A function that converts in place of the plan.
    pub(crate) code: Option<ConvertFn>,
}

/// Failure of an operation: the rule's index and the cause. The caller adds the rule's facts.
type Failure = (usize, Cause);

impl Converter {
    /// Converts one object. Records the inputs of computed values in the trace, if there is one.
    pub(crate) fn run(
        &self,
        source: &Json,
        budget: &mut Budget,
        trace: Option<&mut Trace>,
    ) -> Result<Json, ConvertError> {
        self.run_as(Purpose::Object, source, budget, trace)
    }

    /// Converts one object that is a side of an edit: what the source's version does not say is not
    /// added. Defaults stay out, and nulls stand for the items before one that a rule names.
    pub(crate) fn run_side(&self, source: &Json, budget: &mut Budget, trace: &mut Trace) -> Result<Json, ConvertError> {
        self.run_as(Purpose::Side, source, budget, Some(trace))
    }

    fn run_as(
        &self,
        purpose: Purpose,
        source: &Json,
        budget: &mut Budget,
        trace: Option<&mut Trace>,
    ) -> Result<Json, ConvertError> {
        if let Some(code) = &self.code {
            return self.run_code(code, source);
        }
        let mut out = self.copy(source);
        let Plan {
            ops, batches, others, ..
        } = &self.plan;
        if !ops.is_empty() {
            let scope = Scope::whole(source);
            if self.costly && budget.grows() {
                budget.extend_for(json_bytes(source));
            }
            let traced = trace.is_some();
            let mut run = Run {
                version: &self.from,
                budget,
                trace,
                purpose,
            };
            let done = if traced {
                run.ops(ops, &scope, &mut out)
            } else {
                for batch in batches {
                    batch.write(batch.read(source), &mut out);
                }
                run.ops(others.iter().map(|op| &ops[*op]), &scope, &mut out)
            };
            done.map_err(|failure| self.error(failure))?;
            if purpose == Purpose::Object {
                close_gaps(&self.plan.indexed, &mut out);
            }
        }
        match purpose {
            Purpose::Object => self.finish(&mut out),
            Purpose::Side if self.plan.exact => {}
            Purpose::Side => insula_schema::prune(&mut out, &self.schema),
        }
        Ok(out)
    }

    /// Converts an object and consumes it: values that do not move are not copied.
    pub(crate) fn run_over(&self, mut object: Json, budget: &mut Budget) -> Result<Json, ConvertError> {
        let Plan {
            ops, batches, others, ..
        } = &self.plan;
        let moves_only = ops.iter().all(|op| matches!(op, Op::Move { .. }));
        if self.code.is_some() || !moves_only || !object.is_object() {
            return self.run(&object, budget, None);
        }
        // Reads every value before the first one is written.
        let together: Vec<_> = batches.iter().map(|batch| batch.read(&object)).collect();
        let values = others.iter().map(|op| match &ops[*op] {
            Op::Move {
                from,
                to,
                copy,
                unless_there,
            } => Some((to, *unless_there, copy.copy(get(&object, from)?)?)),
            _ => None,
        });
        let values: Vec<_> = values.collect();
        self.keep(&mut object);
        for (batch, made) in batches.iter().zip(together) {
            batch.write(made, &mut object);
        }
        for (to, unless_there, value) in values.into_iter().flatten() {
            if !unless_there || get(&object, to).is_none() {
                put(&mut object, to, value);
            }
        }
        close_gaps(&self.plan.indexed, &mut object);
        self.finish(&mut object);
        Ok(object)
    }

    fn finish(&self, out: &mut Json) {
        if !self.plan.exact {
            insula_schema::prune(out, &self.schema);
        }
        if self.defaults {
            insula_schema::default(out, &self.schema);
        }
    }

    /// Returns true if it can fail for some object.
    pub(crate) fn can_fail(&self) -> bool {
        self.code.is_some() || self.plan.ops.iter().any(Op::can_fail)
    }

    /// Returns its expressions, each with the index of its rule.
    pub(crate) fn expressions(&self) -> Vec<(usize, &Expression)> {
        let mut out = Vec::new();
        crate::plan::expressions(&self.plan.ops, &mut out);
        out
    }

    /// Copies the fields that pass through.
    fn copy(&self, source: &Json) -> Json {
        let Some(map) = source.as_object() else {
            return source.clone();
        };
        let mut out = self.plan.fields.copy(map);
        let own = ["kind", "metadata"].map(|name| map.get_key_value(name));
        out.extend(
            own.into_iter()
                .flatten()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        self.relabel(&mut out);
        Json::Object(out)
    }

    /// Keeps the fields that pass through and removes all others.
    fn keep(&self, object: &mut Json) {
        let Some(map) = object.as_object_mut() else { return };
        let own = ["kind", "metadata"].map(|name| map.remove_entry(name));
        self.plan.fields.keep(map);
        map.extend(own.into_iter().flatten());
        self.relabel(map);
    }

    /// Sets `apiVersion`, and removes the labels and annotations that rules moved into fields.
    pub(crate) fn relabel(&self, out: &mut Map<String, Json>) {
        let version = if self.group.is_empty() {
            self.to.clone()
        } else {
            format!("{}/{}", self.group, self.to)
        };
        out.insert("apiVersion".to_owned(), Json::String(version));
        for (part, key) in &self.plan.left {
            let Some(metadata) = out.get_mut("metadata").and_then(Json::as_object_mut) else {
                break;
            };
            let Some(map) = metadata.get_mut(*part).and_then(Json::as_object_mut) else {
                continue;
            };
            if map.remove(key).is_some() && map.is_empty() {
                metadata.remove(*part);
            }
        }
    }

    fn error(&self, (rule, cause): Failure) -> ConvertError {
        let failed = |facts: &RuleFacts| FailedRule {
            index: rule,
            path: facts.path.clone(),
            source: facts.source.clone(),
            destination: facts.destination.clone(),
        };
        let facts = self.facts.get(rule).map(|facts| Box::new(failed(facts)));
        ConvertError {
            group: self.group.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            rule: facts,
            cause,
        }
    }
}

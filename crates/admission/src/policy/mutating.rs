//! MutatingAdmissionPolicies: changes to the sent object before any other check.

use crate::policy::{
    authorizer::Authorizer,
    evaluate::{Condition, Evaluation, Failure, Inputs},
    hooks::{Binding, Hook, Policies},
    matching::ResourceVersion,
    params, patch,
    request::{New, Request, convert},
    webhooks::Mutators,
};
use insula_api::Json;
use insula_catalog::{
    Catalog, Denial, Error, Result, ids,
    object::metadata_of,
    policies::compile::{CompiledMutation, CompiledPolicy},
};
use insula_cel::OBJECT_COST_MAX;
use insula_schema::Structural;
use std::{collections::BTreeSet, sync::Arc};

/// The mutating policies of a workspace and the write that they may change.
pub struct Mutations<'a> {
    catalog: &'a Catalog,
    request: Request<'a>,
    hooks: Vec<Hook>,
    webhooks: Option<Mutators>,
}

/// One policy by one binding with one parameter.
struct Invocation<'h> {
    hook: &'h Hook,
    binding: &'h Binding,
    params: Option<Json>,
    seen_as: ResourceVersion,
}

/// Policy, binding, and the parameter's namespace and name.
type InvocationKey = (Arc<str>, Arc<str>, String);

/// Success, or the reason for a failure.
type Done = std::result::Result<(), String>;

/// Failure of a policy.
struct Problem {
    message: String,
    denial: Denial,
}

/// Record of the invocations and of those to repeat.
#[derive(Default)]
struct Rounds {
    /// Past invocations with the reinvocation policy `IfNeeded`.
    invoked: BTreeSet<InvocationKey>,
    again: BTreeSet<InvocationKey>,
}

impl<'a> Mutations<'a> {
    /// Returns the policies and webhooks for the write, or `None` if there are none.
    pub fn find(policies: &Policies, catalog: &'a Catalog, request: Request<'a>) -> Option<Self> {
        if request.is_exempt() {
            return None;
        }
        let (bindings, kinds) = (ids::mutatingadmissionpolicybindings(), ids::mutatingadmissionpolicies());
        let hooks = policies.hooks(&request, &bindings, &kinds);
        let webhooks = Mutators::find(&request);
        (!hooks.is_empty() || webhooks.is_some()).then_some(Mutations {
            catalog,
            request,
            hooks,
            webhooks,
        })
    }

    /// Applies policies and then webhooks to a sent object that has its defaults. Returns the
    /// warnings for the sender.
    pub fn apply(&self, new: &mut Json) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        if !self.hooks.is_empty() {
            self.apply_policies(new)?;
        }
        if let Some(webhooks) = &self.webhooks {
            webhooks.apply(&self.request, new, &mut warnings)?;
        }
        Ok(warnings)
    }

    /// Applies all policies. Those with the reinvocation policy `IfNeeded` run once more if a later
    /// policy changed the object.
    fn apply_policies(&self, new: &mut Json) -> Result<()> {
        let mut rounds = Rounds::default();
        self.round(new, &mut rounds, None)?;
        if rounds.again.is_empty() {
            return Ok(());
        }
        let again = std::mem::take(&mut rounds.again);
        self.round(new, &mut rounds, Some(&again))
    }

    fn round(&self, new: &mut Json, rounds: &mut Rounds, only: Option<&BTreeSet<InvocationKey>>) -> Result<()> {
        let mut problems = Vec::new();
        let invocations = self.invocations(new, &mut problems);
        let namespace = self.request.namespace_object();
        for invocation in &invocations {
            let key = invocation.key();
            if only.is_some_and(|only| !only.contains(&key)) {
                continue;
            }
            // With nothing left no policy costs more than this.
            let budget = self.request.budget_of(&invocation.hook.home);
            let paid = budget.charge_policy().and_then(|()| budget.charge_copies(new));
            if let Err(failure) = paid {
                let (hook, message) = (invocation.hook, failure.to_string());
                hook.fails(Some(invocation.binding), &message, Denial::Mutation, &mut problems);
                continue;
            }
            let before = new.clone();
            let outcome = self.invoke(invocation, new, &namespace);
            if let Err(message) = outcome {
                invocation
                    .hook
                    .fails(Some(invocation.binding), &message, Denial::Mutation, &mut problems);
            }
            if *new != before {
                rounds.again.append(&mut rounds.invoked);
            }
            if invocation.hook.policy.spec.reinvocation_policy == "IfNeeded" {
                rounds.invoked.insert(key);
            }
        }
        self.refuse(problems)
    }

    /// Returns the invocations that match the object as it is before any of them.
    fn invocations(&self, new: &Json, problems: &mut Vec<Problem>) -> Vec<Invocation<'_>> {
        let request = &self.request;
        let subject = request.subject(New::Sent(new));
        let snapshot = request.snapshot;
        let mut found = Vec::new();
        for hook in &self.hooks {
            let mut fails = |binding, why: &str| hook.misconfigured(binding, why, problems);
            let (seen_as, source) = match hook.matches(&subject, self.catalog, snapshot) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(why) => {
                    fails(None, &why);
                    continue;
                }
            };
            for binding in &hook.bindings {
                let param_ref = binding.spec.param_ref.as_ref();
                let params = binding.matches(&subject).and_then(|matches| match matches {
                    true => params::collect(request, &hook.home, source.as_ref(), param_ref),
                    false => Ok(Vec::new()),
                });
                match params {
                    Err(why) => fails(Some(binding), &why),
                    Ok(params) => found.extend(params.into_iter().map(|params| Invocation {
                        hook,
                        binding,
                        params,
                        seen_as: seen_as.clone(),
                    })),
                }
            }
        }
        found
    }

    /// Applies one policy in the version that it matched.
    fn invoke(&self, invocation: &Invocation<'_>, new: &mut Json, namespace: &Json) -> Done {
        let request = &self.request;
        let (policy, seen_as) = (&invocation.hook.policy, &invocation.seen_as);
        let target = request.target;
        let convert = |object: &Json, to: &str| convert(target, object, to).map_err(|error| error.to_string());
        let own_version = *seen_as.version == *target.version;
        let mut object = match own_version {
            true => request
                .object(New::Sent(new), seen_as)
                .map_err(|error| error.to_string())?,
            false => convert(new, &seen_as.version)?,
        };
        let old_object = request.old_object(seen_as).map_err(|error| error.to_string())?;
        let own = request.subject(New::Sent(new)).resource;
        let described = request.describe(seen_as, &own);
        let params = invocation.params.as_ref().unwrap_or(&Json::Null);
        let (authorizer, resource) = (Authorizer::new(request), request.checked());
        let inputs = Inputs {
            object: &Json::Null,
            old_object: &old_object,
            params,
            request: &described,
            namespace,
            authorizer: &authorizer,
            request_resource: &resource,
            budget: request.budget_of(&invocation.hook.home),
        };
        let conditions = Inputs {
            object: &object,
            ..inputs
        };
        match Evaluation::new(policy, conditions).conditions() {
            Condition::Holds => {}
            Condition::Fails => return Ok(()),
            Condition::Error(why) => return Err(why),
        }
        let api = &target.served.api;
        let schema = &api.version(&seen_as.version).ok_or("the version is not served")?.schema;
        mutate(policy, inputs, &mut object, schema)?;
        let mut changed = match own_version {
            true => object,
            false => convert(&object, &target.version)?,
        };
        keep_identity(&mut changed, new);
        *new = changed;
        Ok(())
    }

    fn refuse(&self, problems: Vec<Problem>) -> Result<()> {
        let Some(first) = problems.first() else { return Ok(()) };
        Err(Error::Denied {
            resource: self.request.named(),
            name: self.request.name.to_owned(),
            denial: first.denial,
            message: first.message.clone(),
            causes: problems.iter().map(|problem| problem.message.clone()).collect(),
        })
    }
}

/// Applies the mutations of a policy one after the other.
fn mutate(policy: &CompiledPolicy, inputs: Inputs<'_>, object: &mut Json, schema: &Structural) -> Done {
    let budget = inputs.budget;
    for mutation in &policy.mutations {
        let (CompiledMutation::JsonPatch(expression) | CompiledMutation::ApplyConfiguration(expression)) = mutation;
        let failed = |failure: Failure| failure.to_string();
        let inputs = Inputs { object, ..inputs };
        let change = Evaluation::new(policy, inputs).value(expression, &mut budget.portion(OBJECT_COST_MAX));
        let change = change.map_err(failed)?;
        // Changes may grow the object, which is pruned and completed after each.
        budget.charge_copies(object).map_err(failed)?;
        budget.charge_copies(&change).map_err(failed)?;
        match mutation {
            CompiledMutation::JsonPatch(_) => patch::json_patch(object, &change, budget.meter())?,
            CompiledMutation::ApplyConfiguration(_) => {
                patch::apply_configuration(object, &change, schema.root())?;
            }
        }
        insula_schema::prune(object, schema);
        insula_schema::default(object, schema);
    }
    Ok(())
}

/// Restores the object's kind and the revision that the sender named: a policy cannot change them.
fn keep_identity(changed: &mut Json, sent: &Json) {
    changed["apiVersion"] = sent["apiVersion"].clone();
    changed["kind"] = sent["kind"].clone();
    let revision = sent["metadata"].get("resourceVersion").cloned();
    let metadata = metadata_of(changed);
    match revision {
        Some(revision) => drop(metadata.insert("resourceVersion".into(), revision)),
        None => drop(metadata.remove("resourceVersion")),
    }
}

impl Hook {
    fn misconfigured(&self, binding: Option<&Binding>, why: &str, problems: &mut Vec<Problem>) {
        let what = if binding.is_some() { "binding" } else { "policy" };
        let why = format!("failed to configure {what}: {why}");
        self.fails(binding, &why, Denial::Forbidden, problems);
    }

    fn fails(&self, binding: Option<&Binding>, why: &str, denial: Denial, problems: &mut Vec<Problem>) {
        if self.policy.spec.ignores_failure() {
            return;
        }
        let message = match binding {
            Some(binding) => format!(
                "policy '{}' with binding '{}' denied request: {why}",
                self.name, binding.name
            ),
            None => format!("policy {:?} denied request: {why}", self.name),
        };
        problems.push(Problem { message, denial });
    }
}

impl Invocation<'_> {
    fn key(&self) -> InvocationKey {
        let text = |field: &str| {
            let params = self.params.as_ref();
            params
                .and_then(|params| params["metadata"][field].as_str())
                .unwrap_or_default()
                .to_owned()
        };
        let params = format!("{}/{}", text("namespace"), text("name"));
        (self.hook.name.clone(), self.binding.name.clone(), params)
    }
}

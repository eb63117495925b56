//! ValidatingAdmissionPolicies: all of them are evaluated, and the sender receives the first
//! refusal.

use super::{
    authorizer::Authorizer,
    evaluate::{Evaluation, Inputs, Verdict},
    hooks::{Binding, Hook, Policies},
    matching,
    params::{self, ParamSource},
    request::{New, Request, Views},
};
use insula_api::Json;
use insula_catalog::{Catalog, Denial, Error, Result, ids};
use insula_cel::ResourceCheck;
use serde_json::json;
use std::{cell::OnceCell, collections::BTreeMap};

/// Size limit of an audit annotation; longer ones are cut, as in Kubernetes.
const NOTE_BYTES_MAX: usize = 10 * 1024;
/// Audit annotation for failures that bindings only audit.
const NOTE_FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// Evaluates the policies on a write. Returns the warnings for the sender of an allowed write.
pub fn review(policies: &Policies, catalog: &Catalog, request: &Request<'_>, new: New<'_>) -> Result<Vec<String>> {
    if request.is_exempt() {
        return Ok(Vec::new());
    }
    let (bindings, kinds) = (
        ids::validatingadmissionpolicybindings(),
        ids::validatingadmissionpolicies(),
    );
    let hooks = policies.hooks(request, &bindings, &kinds);
    if hooks.is_empty() {
        return Ok(Vec::new());
    }
    let subject = request.subject(new);
    let mut review = Review {
        catalog,
        request,
        views: Views::new(request, new, subject.resource.clone()),
        authorizer: OnceCell::new(),
        resource: request.checked(),
        warnings: Vec::new(),
        failures: Vec::new(),
        denied: None,
    };
    hooks.iter().try_for_each(|hook| review.evaluate(hook, &subject))?;
    if !review.failures.is_empty() {
        request
            .record
            .note(NOTE_FAILURE, &Json::Array(review.failures).to_string());
    }
    match review.denied {
        Some(denied) => Err(denied),
        None => Ok(review.warnings),
    }
}

struct Review<'a> {
    catalog: &'a Catalog,
    request: &'a Request<'a>,
    views: Views<'a>,
    /// Facts of the sender's rights, once a policy is evaluated.
    authorizer: OnceCell<Authorizer<'a>>,
    resource: ResourceCheck,
    warnings: Vec<String>,
    /// Failures for bindings with the action `Audit`.
    failures: Vec<Json>,
    /// The first refusal.
    denied: Option<Error>,
}

impl Review<'_> {
    fn evaluate(&mut self, hook: &Hook, subject: &matching::Subject<'_>) -> Result<()> {
        let (seen_as, source) = match hook.matches(subject, self.catalog, self.request.snapshot) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.misconfigured(hook, None, &why);
                return Ok(());
            }
        };
        let mut notes = BTreeMap::<String, Vec<String>>::new();
        for binding in &hook.bindings {
            match binding.matches(subject) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    self.misconfigured(hook, Some(binding), &why);
                    continue;
                }
            }
            for verdict in self.verdicts(hook, binding, &seen_as, source.as_ref())? {
                self.act(hook, binding, verdict, &mut notes);
            }
        }
        self.publish(hook, notes);
        Ok(())
    }

    /// Evaluates the policy once for each of the binding's parameters.
    fn verdicts(
        &mut self,
        hook: &Hook,
        binding: &Binding,
        seen_as: &matching::ResourceVersion,
        source: Option<&ParamSource>,
    ) -> Result<Vec<Verdict>> {
        let (request, param_ref) = (self.request, binding.spec.param_ref.as_ref());
        // With nothing left no policy costs more than this.
        let budget = request.budget_of(&hook.home);
        if budget.charge_policy().is_err() {
            return Ok(vec![Verdict::out_of_budget(&hook.policy)]);
        }
        let params = match params::collect(request, &hook.home, source, param_ref) {
            Ok(params) => params,
            Err(why) => {
                self.misconfigured(hook, Some(binding), &why);
                return Ok(Vec::new());
            }
        };
        let view = match self.views.view(seen_as) {
            Ok(view) => view,
            Err(error) => {
                self.misconfigured(
                    hook,
                    Some(binding),
                    &format!("failed to convert object version: {error}"),
                );
                return Ok(Vec::new());
            }
        };
        let verdicts = params.iter().map(|params| {
            let inputs = Inputs {
                object: &view.object,
                old_object: &view.old_object,
                params: params.as_ref().unwrap_or(&Json::Null),
                request: &view.request,
                namespace: self.views.namespace(),
                authorizer: self.authorizer.get_or_init(|| Authorizer::new(request)),
                request_resource: &self.resource,
                budget,
            };
            Evaluation::new(&hook.policy, inputs).validate()
        });
        Ok(verdicts.collect())
    }

    fn act(&mut self, hook: &Hook, binding: &Binding, verdict: Verdict, notes: &mut BTreeMap<String, Vec<String>>) {
        for refusal in &verdict.refusals {
            for action in &binding.spec.validation_actions {
                match action.as_str() {
                    "Deny" => self.deny(hook, Some(binding), refusal.reason.as_deref(), &refusal.message),
                    "Warn" => self.warnings.push(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                        hook.name, binding.name, refusal.message
                    )),
                    _ => self.failures.push(json!({
                        "message": refusal.message, "policy": &*hook.name, "binding": &*binding.name,
                        "expressionIndex": refusal.index, "validationActions": binding.spec.validation_actions,
                    })),
                }
            }
        }
        for error in &verdict.annotation_errors {
            self.deny(hook, Some(binding), None, error);
        }
        for (key, mut value) in verdict.annotations {
            value.truncate(value.floor_char_boundary(NOTE_BYTES_MAX));
            let values = notes.entry(key).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }

    fn publish(&self, hook: &Hook, notes: BTreeMap<String, Vec<String>>) {
        for (key, values) in notes {
            let key = format!("{}/{key}", hook.name);
            self.request.record.note(&key, &values.join(", "));
        }
    }

    /// Refuses the write because of a policy or binding that cannot be evaluated, unless failures
    /// are ignored.
    fn misconfigured(&mut self, hook: &Hook, binding: Option<&Binding>, why: &str) {
        if !hook.policy.spec.ignores_failure() {
            let what = if binding.is_some() { "binding" } else { "policy" };
            self.deny(hook, binding, None, &format!("failed to configure {what}: {why}"));
        }
    }

    fn deny(&mut self, hook: &Hook, binding: Option<&Binding>, reason: Option<&str>, message: &str) {
        if self.denied.is_some() {
            return;
        }
        let binding = binding.map_or_else(String::new, |binding| format!(" with binding '{}'", binding.name));
        let cause = format!(
            "ValidatingAdmissionPolicy '{}'{binding} denied request: {message}",
            hook.name
        );
        let denial = match reason {
            Some("Forbidden") => Denial::Forbidden,
            Some("RequestEntityTooLarge") => Denial::TooLarge,
            _ => Denial::Invalid,
        };
        let (resource, name) = (self.request.named(), self.request.name.to_owned());
        self.denied = Some(Error::Denied {
            message: format!("{resource} {name:?} is forbidden: {cause}"),
            resource,
            name,
            denial,
            causes: vec![cause],
        });
    }
}

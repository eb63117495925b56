//! Admission webhooks: selection of those that match a write, and handling of their responses.
//!
//! Webhooks are looked up in the snapshot of the write, so a configuration takes effect with its
//! own revision. [`insula_catalog::webhook`] makes the calls. If a response is missing, the write
//! is decided again once it has arrived.

use crate::policy::{
    authorizer::Authorizer,
    evaluate::{Condition, Evaluation, Failure, Inputs},
    matching::{self, ResourceVersion},
    request::{New, Request, VersionedRequest, Views, convert},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use insula_api::{ClusterName, Json, ResourceId, Scope};
use insula_catalog::{
    Error, Result,
    object::{place, unplace},
    policies::{
        compile::CompiledPolicy,
        spec::{Hooks, MatchResources, WebhookSpec},
    },
    webhook::{self, Answer, PendingCall},
};
use insula_meter::Meter;
use std::{collections::BTreeSet, sync::Arc};

/// A webhook of a configuration, ready to be called.
#[derive(Debug)]
pub(crate) struct Webhook {
    spec: WebhookSpec,
    constraints: MatchResources,
    conditions: CompiledPolicy,
    /// `None` if the webhook cannot be called, which is a failure like another.
    hook: Option<Arc<webhook::Hook>>,
}

/// The webhooks of one configuration.
struct Configuration {
    /// The cluster of the configuration.
    home: ClusterName,
    webhooks: Arc<Vec<Webhook>>,
}

/// Returns all webhooks of one kind of configuration for a write: those of the provider of a bound
/// API first, then the workspace's own, each in order of the configurations' names.
fn find(request: &Request<'_>, kind: &ResourceId, mutating: bool) -> Vec<Configuration> {
    let read = |entry: &insula_store::Entry| {
        entry.object.parsed(|object| {
            let hooks = Hooks::read(&object.body_value()).webhooks;
            let ready = hooks.into_iter().map(|spec| Webhook::new(spec, mutating));
            ready.collect::<Vec<Webhook>>()
        })
    };
    let homes = request.homes_of_hooks().into_iter();
    let at = |home| {
        request
            .snapshot
            .range(&Scope::cluster(kind.clone(), home), None, usize::MAX)
    };
    let configuration = |entry: insula_store::Entry| Configuration {
        webhooks: read(&entry),
        home: entry.key.cluster,
    };
    homes.flat_map(at).map(configuration).collect()
}

impl Configuration {
    fn each(&self) -> impl Iterator<Item = (&ClusterName, &Webhook)> {
        self.webhooks.iter().map(|webhook| (&self.home, webhook))
    }
}

impl Webhook {
    fn new(spec: WebhookSpec, mutating: bool) -> Self {
        let known = ["v1", "v1beta1"];
        let review = spec
            .admission_review_versions
            .iter()
            .find_map(|version| known.into_iter().find(|known| version == known));
        let endpoint = webhook::conversion::endpoint(&spec.client_config);
        let hook = review.zip(endpoint).map(|(review, endpoint)| {
            Arc::new(webhook::Hook {
                endpoint,
                review,
                timeout_seconds: u32::try_from(spec.timeout_seconds).unwrap_or(1),
                mutating,
            })
        });
        Webhook {
            constraints: spec.constraints(),
            conditions: CompiledPolicy::compile(spec.as_policy()),
            hook,
            spec,
        }
    }

    /// Returns the version in which the webhook sees the write, or `None` if it does not match.
    fn sees(&self, subject: &matching::Subject<'_>) -> Result<Option<ResourceVersion>> {
        if self.spec.rules.is_empty() {
            return Ok(None);
        }
        matching::matches(subject, &self.constraints).map_err(Error::Internal)
    }

    /// Returns true if the webhook's match conditions hold.
    fn holds(
        &self,
        request: &Request<'_>,
        home: &ClusterName,
        (view, namespace): (&VersionedRequest, &Json),
    ) -> Result<bool> {
        if self.conditions.conditions.is_empty() {
            return Ok(true);
        }
        let budget = request.budget_of(home);
        if budget.charge_policy().is_err() {
            let why = Failure::OutOfBudget.to_string();
            return match self.conditions.spec.ignores_failure() {
                true => Ok(false),
                false => Err(request.target.served.api.forbidden(request.name, why)),
            };
        }
        let (authorizer, resource) = (Authorizer::new(request), request.checked());
        let inputs = Inputs {
            object: &view.object,
            old_object: &view.old_object,
            params: &Json::Null,
            request: &view.request,
            namespace,
            authorizer: &authorizer,
            request_resource: &resource,
            budget,
        };
        match Evaluation::new(&self.conditions, inputs).conditions() {
            Condition::Holds => Ok(true),
            Condition::Fails => Ok(false),
            Condition::Error(why) => Err(request.target.served.api.forbidden(request.name, why)),
        }
    }

    /// Requests the webhook's response for an object; `None` until it has arrived.
    fn request(&self, request: &Request<'_>, view: &VersionedRequest, object: &Json) -> Result<Option<Answer>> {
        let Some(pending_calls) = &request.target.served.pending_calls else {
            // The configuration was created after the request was resolved.
            return Err(Error::TooManyRequests(
                "the admission webhooks of the workspace have just changed, please try again".into(),
            ));
        };
        let Some(hook) = &self.hook else {
            return Ok(Some(Err("failed to call webhook: it cannot be called".into())));
        };
        let mut asked = view.request.clone();
        asked["object"] = object.clone();
        asked["oldObject"] = view.old_object.clone();
        Ok(pending_calls.request(PendingCall::Admit {
            hook: hook.clone(),
            request: asked,
        }))
    }

    /// Returns the response of a webhook that allows the write, or `None` if its failure is
    /// ignored.
    fn settle(&self, request: &Request<'_>, answer: Answer, warnings: &mut Vec<String>) -> Result<Option<Arc<Json>>> {
        let name = &self.spec.name;
        let response = match answer {
            Ok(response) => response,
            Err(why) if self.spec.failure_policy == "Ignore" => {
                tracing::warn!(cluster = %request.target.cluster, webhook = name, %why, "an admission webhook failed, which is ignored");
                return Ok(None);
            }
            Err(why) => return Err(Error::Internal(format!("failed calling webhook {name:?}: {why}"))),
        };
        let said = response["warnings"].as_array().into_iter().flatten();
        warnings.extend(said.filter_map(Json::as_str).map(str::to_owned));
        for (key, value) in response["auditAnnotations"].as_object().into_iter().flatten() {
            request
                .record
                .note(&format!("{name}/{key}"), value.as_str().unwrap_or_default());
        }
        match response["allowed"] == true {
            true => Ok(Some(response)),
            false => Err(denied(name, &response["status"])),
        }
    }
}

/// Builds a refusal from the webhook's status.
fn denied(name: &str, status: &Json) -> Error {
    let text = |field: &str| status[field].as_str().unwrap_or_default();
    let by = format!("admission webhook {name:?} denied the request");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    Error::Refused {
        message,
        // A refusal needs an error code, whatever the webhook returned.
        code: code.filter(|code| (400..600).contains(code)).unwrap_or(400),
        reason: text("reason").to_owned(),
        details: status["details"].clone(),
    }
}

/// Calls all validating webhooks at once. The sender receives the first refusal.
pub fn validate(request: &Request<'_>, new: New<'_>) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    if request.is_exempt() {
        return Ok(warnings);
    }
    let found = find(request, &insula_catalog::ids::validatingwebhookconfigurations(), false);
    if found.is_empty() {
        return Ok(warnings);
    }
    let subject = request.subject(new);
    let mut views = Views::new(request, new, subject.resource.clone());
    let mut asked = Vec::new();
    for (home, hook) in found.iter().flat_map(Configuration::each) {
        let Some(seen_as) = hook.sees(&subject)? else { continue };
        let view = views.view(&seen_as)?;
        if hook.holds(request, home, (&view, views.namespace()))? {
            asked.push((hook, hook.request(request, &view, &view.object)?));
        }
    }
    for (hook, answer) in asked {
        // The run ends here if a response is missing; all calls are pending by now.
        hook.settle(request, answer.ok_or_else(not_called)?, &mut warnings)?;
    }
    Ok(warnings)
}

fn not_called() -> Error {
    Error::Webhook("an admission webhook has not been asked yet".into())
}

/// Mutating webhooks for a write.
pub(super) struct Mutators(Vec<Configuration>);

impl Mutators {
    /// Returns the mutating webhooks for a write, or `None` if there are none.
    pub(super) fn find(request: &Request<'_>) -> Option<Self> {
        let found = find(request, &insula_catalog::ids::mutatingwebhookconfigurations(), true);
        (!found.is_empty()).then_some(Mutators(found))
    }

    /// Applies the webhooks to a sent object, one after the other. Those with the reinvocation
    /// policy `IfNeeded` are called once more if a later webhook changed the object.
    pub(super) fn apply(&self, request: &Request<'_>, new: &mut Json, warnings: &mut Vec<String>) -> Result<()> {
        let hooks: Vec<(&ClusterName, &Webhook)> = self.0.iter().flat_map(Configuration::each).collect();
        let (mut asked, mut again) = (BTreeSet::new(), BTreeSet::new());
        for (place, (home, hook)) in hooks.iter().enumerate() {
            if hook.change(request, home, new, warnings)? {
                again.append(&mut asked);
            }
            if hook.spec.reinvocation_policy == "IfNeeded" {
                asked.insert(place);
            }
        }
        for place in again {
            let (home, hook) = hooks[place];
            hook.change(request, home, new, warnings)?;
        }
        Ok(())
    }
}

impl Webhook {
    /// Applies the webhook in the version that it matched. Returns true if it changed the object.
    fn change(
        &self,
        request: &Request<'_>,
        home: &ClusterName,
        new: &mut Json,
        warnings: &mut Vec<String>,
    ) -> Result<bool> {
        let target = request.target;
        let subject = request.subject(New::Sent(new));
        let Some(seen_as) = self.sees(&subject)? else {
            return Ok(false);
        };
        let mut views = Views::new(request, New::Sent(new), subject.resource.clone());
        let view = views.view(&seen_as)?;
        if !self.holds(request, home, (&view, views.namespace()))? {
            return Ok(false);
        }
        // A webhook for objects of many workspaces needs the logical cluster of each.
        let mut placed = view.object.clone();
        let has_place = place(&mut placed, &target.cluster);
        let answer = self.request(request, &view, &placed)?.ok_or_else(not_called)?;
        let Some(response) = self.settle(request, answer, warnings)? else {
            return Ok(false);
        };
        let encoded = response["patch"].as_str().unwrap_or_default();
        if encoded.is_empty() || *new == Json::Null {
            return Ok(false);
        }
        let mut patched = self
            .patched(&placed, encoded, &target.served.meter)
            .map_err(Error::Internal)?;
        if !has_place {
            unplace(&mut patched);
        }
        let mut patched = match *seen_as.version == *target.version {
            true => patched,
            false => convert(target, &patched, &target.version)?,
        };
        patched["apiVersion"] = new["apiVersion"].clone();
        patched["kind"] = new["kind"].clone();
        let schema = &target.api_version()?.schema;
        insula_schema::prune(&mut patched, schema);
        insula_schema::drop_nulls(&mut patched, schema);
        insula_schema::default(&mut patched, schema);
        let changed = patched != *new;
        *new = patched;
        Ok(changed)
    }

    fn patched(&self, object: &Json, encoded: &str, meter: &Meter) -> std::result::Result<Json, String> {
        let told = |why: String| format!("admission webhook {:?}: {why}", self.spec.name);
        let bytes = STANDARD.decode(encoded).map_err(|error| told(error.to_string()))?;
        let patch: Json = serde_json::from_slice(&bytes).map_err(|error| told(error.to_string()))?;
        let mut patched = object.clone();
        insula_apply::json_patch(&mut patched, &patch, meter).map_err(|error| told(error.to_string()))?;
        Ok(patched)
    }
}

//! Trial of new schemas and rules on the stored objects of all consumers, before they are offered:
//! the server computes what the release does to them.

use anyhow::{Context, bail};
use insula_admission::publication::{Acceptance, Published, Times, is_open};
use insula_api::{counted, names::effects::Consent};
use insula_proto::{
    admin::v1::{CheckRolloutRequest, CheckRolloutResponse, EffectConsent, ReleaseEffect},
    value,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

use super::target::Target;
use crate::{admin::time, files::text};

/// Objects of a page.
const PAGE: i32 = 1000;
/// Failures that are listed; all are counted.
const LISTED_MAX: usize = 10;

/// Outcome of the trial of one API.
#[derive(Debug, Default, Serialize)]
pub(super) struct Trial {
    /// Name of the new schema.
    schema: String,
    /// Objects that were tried.
    objects: i64,
    /// Objects that a served version could not show.
    failed: usize,
    /// Paths of the workspaces with such objects.
    workspaces: Vec<String>,
    /// The first failures.
    failures: Vec<Failure>,
    /// Effects of the release on stored objects and their clients: those that are refused first.
    effects: Vec<Effect>,
    /// Requests of consumers for the versions that the effects are about.
    usage: Vec<Usage>,
}

/// Requests of consumers for one version, as the server counts them.
#[derive(Debug, Serialize)]
struct Usage {
    version: String,
    /// Workspaces that used it within the days of the export's retirement policy.
    tenants: u64,
    /// Time of the last request, to the hour; empty if there was none.
    last_used: String,
}

/// Effects that [`Trial::lines`] lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listed {
    /// Those that reach stored objects; the others are counted.
    Reaching,
    /// All.
    All,
}

/// An object that a served version could not show.
#[derive(Debug, Serialize)]
struct Failure {
    workspace: String,
    object: String,
    version: String,
    why: String,
}

/// An effect of the release.
#[derive(Debug, Clone, Serialize)]
struct Effect {
    id: String,
    detail: String,
    becomes: String,
    objects: i64,
    examples: Vec<String>,
    /// Number of objects by the path of their workspace.
    workspaces: BTreeMap<String, i64>,
    #[serde(flatten)]
    times: Times,
    #[serde(skip)]
    consent: Consent,
    accepted: bool,
}

impl Trial {
    /// Tries a new schema and its rules on the objects of all consumers.
    pub(super) fn run(
        target: &Target,
        existing: &serde_json::Value,
        new: &Published,
        accepted: &[Acceptance],
    ) -> anyhow::Result<Self> {
        let export = text(existing, "/metadata/name");
        let mut trial = Trial {
            schema: new.name().to_owned(),
            ..Trial::default()
        };
        let manifest = |object: &serde_json::Value| match object.as_object() {
            Some(object) => value::from_json(object).context("the manifest cannot be sent"),
            None => bail!("a manifest is no object"),
        };
        let mut request = CheckRolloutRequest {
            workspace: target.workspace()?,
            export: export.to_owned(),
            manifests: new.objects().iter().map(manifest).collect::<anyhow::Result<_>>()?,
            page_size: PAGE,
            page_token: String::new(),
        };
        loop {
            let page: CheckRolloutResponse = target.call("/insula.admin.v1.ApiService/CheckRollout", &request)?;
            request.page_token.clone_from(&page.next_page_token);
            trial.add(page);
            if request.page_token.is_empty() {
                break;
            }
        }
        trial.effects.iter_mut().for_each(|effect| effect.accept(accepted));
        trial
            .effects
            .sort_by_key(|effect| (!effect.is_open(), std::cmp::Reverse(effect.objects)));
        trial.usage = usage(existing, &trial.effects);
        Ok(trial)
    }

    fn add(&mut self, page: CheckRolloutResponse) {
        self.objects += page.examined;
        self.failed += page.failures.len();
        for failure in page.failures {
            if !self.workspaces.contains(&failure.workspace) {
                self.workspaces.push(failure.workspace.clone());
            }
            if self.failures.len() < LISTED_MAX {
                let slash = if failure.namespace.is_empty() { "" } else { "/" };
                self.failures.push(Failure {
                    workspace: failure.workspace,
                    object: format!("{}{slash}{}", failure.namespace, failure.name),
                    version: failure.version,
                    why: failure.message,
                });
            }
        }
        for effect in page.effects {
            match self.effects.iter_mut().find(|known| known.id == effect.id) {
                Some(known) => known.add(effect),
                None => {
                    let mut new = Effect::named(&effect);
                    new.add(effect);
                    self.effects.push(new);
                }
            }
        }
    }

    /// Returns true if an effect hurts that nobody has accepted. An object that could not be read
    /// before is none.
    pub(super) fn fails(&self) -> bool {
        self.effects.iter().any(Effect::is_open)
    }

    /// Returns the names of the effects.
    pub(super) fn effects(&self) -> impl Iterator<Item = &str> {
        self.effects.iter().map(|effect| &*effect.id)
    }

    /// Formats the outcome, a line each.
    pub(super) fn lines(&self, listed: Listed) -> Vec<String> {
        let Trial { schema, objects, .. } = self;
        let mut lines = match self.failed {
            0 => vec![format!(
                "{schema}: all {objects} stored objects can be read in every served version"
            )],
            failed => vec![format!(
                "{schema}: {failed} of {objects} stored objects could not be read, in {} workspaces",
                self.workspaces.len()
            )],
        };
        lines.extend(self.failures.iter().map(|failure| {
            format!(
                "  {} in {} as {}: {}",
                failure.object, failure.workspace, failure.version, failure.why
            )
        }));
        if self.failed > self.failures.len() {
            lines.push(format!("  and {} more", self.failed - self.failures.len()));
        }
        let is_listed = |effect: &&Effect| listed == Listed::All || effect.objects > 0;
        lines.extend(self.effects.iter().filter(is_listed).map(Effect::line));
        lines.extend(rest(
            self.effects
                .iter()
                .filter(|effect| !is_listed(effect))
                .map(Effect::kind),
        ));
        lines.extend(self.usage.iter().map(|usage| {
            let last = match &*usage.last_used {
                "" => "no request".to_owned(),
                last => format!("last request {last}"),
            };
            format!(
                "  clients of {}: {}, {last}",
                usage.version,
                counted(usage.tenants, "workspace")
            )
        }));
        lines
    }
}

/// Returns the word that an effect needs, if it reaches objects.
pub(super) fn consent(effect: &ReleaseEffect) -> Consent {
    match effect.consent() {
        EffectConsent::Unneeded => Consent::Unneeded,
        EffectConsent::Impossible => Consent::Impossible,
        EffectConsent::Needed | EffectConsent::Unspecified => Consent::Needed,
    }
}

/// Returns the line of an effect, with what is accepted.
pub(super) fn line(effect: &ReleaseEffect, accepted: &[Acceptance]) -> String {
    let mut listed = Effect::named(effect);
    listed.add(effect.clone());
    listed.accept(accepted);
    listed.line()
}

/// Returns the line that counts effects by their kind; `None` without any.
pub(super) fn rest<'e>(kinds: impl Iterator<Item = &'e str>) -> Option<String> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    kinds.for_each(|kind| *counts.entry(kind).or_default() += 1);
    let total: u64 = counts.values().sum();
    let counts: Vec<String> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    (total > 0).then(|| {
        let (more, reach) = (
            counted(total, "more change"),
            if total == 1 { "reaches" } else { "reach" },
        );
        format!(
            "  {more} of the schema that {reach} no stored object ({}); -o wide or json lists them",
            counts.join(", ")
        )
    })
}

/// Returns the requests for the versions that effects on objects are about, from the status of the
/// export.
fn usage(export: &serde_json::Value, effects: &[Effect]) -> Vec<Usage> {
    let reaching = effects.iter().filter(|effect| effect.objects > 0);
    let versions: BTreeSet<&str> = reaching.filter_map(Effect::version).collect();
    let counted = export["status"]["usage"].as_array().into_iter().flatten();
    let usage = counted.map(|usage| {
        let (group, plural) = (text(usage, "/group"), text(usage, "/resource"));
        let dot = if group.is_empty() { "" } else { "." };
        Usage {
            version: format!("{plural}{dot}{group}/{}", text(usage, "/version")),
            tenants: usage["tenants"].as_u64().unwrap_or_default(),
            last_used: text(usage, "/lastUsed").to_owned(),
        }
    });
    usage.filter(|usage| versions.contains(&*usage.version)).collect()
}

impl Effect {
    fn named(effect: &ReleaseEffect) -> Self {
        Effect {
            id: effect.id.clone(),
            detail: effect.detail.clone(),
            becomes: effect.becomes.clone(),
            objects: 0,
            examples: Vec::new(),
            workspaces: BTreeMap::new(),
            times: Times::default(),
            consent: consent(effect),
            accepted: false,
        }
    }

    fn add(&mut self, effect: ReleaseEffect) {
        self.objects += effect.objects;
        let text = |at: Option<_>| at.map(|at| time(Some(at))).unwrap_or_default();
        self.times.add(&Times {
            since: text(effect.since_time),
            written: text(effect.last_write_time),
        });
        self.examples.extend(effect.examples);
        self.examples.truncate(LISTED_MAX);
        for one in effect.workspaces {
            *self.workspaces.entry(one.workspace).or_default() += one.objects;
        }
    }

    /// Notes whether somebody's word covers it.
    fn accept(&mut self, accepted: &[Acceptance]) {
        let objects = self.objects.cast_unsigned();
        self.accepted = accepted.iter().any(|one| one.covers(&self.id, objects));
    }

    /// Returns true if it needs somebody's word that it has not.
    fn is_open(&self) -> bool {
        !self.accepted && is_open(&self.id, self.consent, self.objects.cast_unsigned(), &[])
    }

    fn kind(&self) -> &str {
        self.id.split(':').next().unwrap_or_default()
    }

    /// Returns the version that it is about: `pumps.example.io/v2`.
    fn version(&self) -> Option<&str> {
        let api = self.id.split(':').nth(1)?;
        api.contains('/').then_some(api)
    }

    fn line(&self) -> String {
        let mut line = format!(
            "  {}{}: {} in {}",
            if self.is_open() { "refused: " } else { "" },
            self.id,
            counted(self.objects, "object"),
            counted(self.workspaces.len(), "workspace")
        );
        for part in [&self.detail, &self.becomes] {
            if !part.is_empty() {
                line.push_str(&format!("; {part}"));
            }
        }
        if let Some(first) = self.examples.first() {
            line.push_str(&format!("; such as {first}"));
        }
        for (what, time) in [
            ("created since", &self.times.since),
            ("last written", &self.times.written),
        ] {
            if !time.is_empty() {
                line.push_str(&format!("; {what} {time}"));
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn effect(id: &str, objects: i64) -> Effect {
        Effect {
            objects,
            ..Effect::named(&ReleaseEffect {
                id: id.to_owned(),
                ..ReleaseEffect::default()
            })
        }
    }

    #[test]
    fn effects_that_reach_nothing_are_counted() {
        let effects = vec![
            effect("field-removed:pumps.example.io/v1:.spec.a", 2),
            effect("field-removed:pumps.example.io/v2:.spec.b", 0),
            effect("column-removed:pumps.example.io/v2:Age", 0),
        ];
        let of_version = |version: &str, last: &str| {
            let (group, resource) = ("example.io", "pumps");
            json!({"group": group, "resource": resource, "version": version, "tenants": 1, "lastUsed": last})
        };
        let export = json!({"status": {"usage": [of_version("v1", "2026-11-23T09:00:00Z"), of_version("v2", "")]}});
        let trial = Trial {
            schema: "h1.pumps.example.io".to_owned(),
            objects: 2,
            usage: usage(&export, &effects),
            effects,
            ..Trial::default()
        };
        assert_eq!(
            trial.lines(Listed::Reaching)[1..],
            [
                "  refused: field-removed:pumps.example.io/v1:.spec.a: 2 objects in 0 workspaces",
                "  2 more changes of the schema that reach no stored object (column-removed 1, field-removed 1); \
                 -o wide or json lists them",
                "  clients of pumps.example.io/v1: 1 workspace, last request 2026-11-23T09:00:00Z",
            ]
        );
        assert_eq!(trial.lines(Listed::All).len(), 5);
    }
}

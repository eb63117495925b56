//! Trial of new schemas and rules on the stored objects of all consumers, before they are offered:
//! the server computes what the release does to them.

use anyhow::{Context, bail};
use insula_admission::publication::{Acceptance, Published, Times};
use insula_api::names::effects::{UNREADABLE, needs_acceptance};
use insula_proto::{
    admin::v1::{CheckRolloutRequest, CheckRolloutResponse, ReleaseEffect},
    value,
};
use serde::Serialize;
use std::collections::BTreeMap;

use super::target::Target;
use crate::admin::time;

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
    /// Effects of the release on stored objects and their clients.
    effects: Vec<Effect>,
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
    accepted: bool,
}

impl Trial {
    /// Tries a new schema and its rules on the objects of all consumers.
    pub(super) fn run(target: &Target, export: &str, new: &Published, accepted: &[Acceptance]) -> anyhow::Result<Self> {
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
        for effect in &mut trial.effects {
            effect.accepted = accepted
                .iter()
                .any(|one| one.covers(&effect.id, effect.objects.cast_unsigned()));
        }
        trial.effects.sort_by_key(|effect| std::cmp::Reverse(effect.objects));
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

    /// Returns true if an effect hurts that nobody has accepted, or an object cannot be read for
    /// which there is no accepted effect.
    pub(super) fn fails(&self) -> bool {
        let accepted = self.effects.iter().filter(|it| it.accepted && it.is_of(UNREADABLE));
        let accepted: i64 = accepted.map(|effect| effect.objects).sum();
        self.effects.iter().any(Effect::is_open) || i64::try_from(self.failed).is_ok_and(|failed| failed > accepted)
    }

    /// Formats the outcome, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
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
        for effect in &self.effects {
            lines.push(effect.line());
        }
        lines
    }
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

    /// Returns true if it needs somebody's word that it has not.
    fn is_open(&self) -> bool {
        self.objects > 0 && !self.accepted && needs_acceptance(self.kind())
    }

    fn is_of(&self, kind: &str) -> bool {
        self.kind() == kind
    }

    fn kind(&self) -> &str {
        self.id.split(':').next().unwrap_or_default()
    }

    fn line(&self) -> String {
        let plural = |n: i64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let workspaces = i64::try_from(self.workspaces.len()).unwrap_or(i64::MAX);
        let mut line = format!(
            "  {}{}: {} in {}",
            if self.is_open() { "refused: " } else { "" },
            self.id,
            plural(self.objects, "object"),
            plural(workspaces, "workspace")
        );
        for part in [&self.detail, &self.becomes] {
            if !part.is_empty() {
                line.push_str(&format!("; {part}"));
            }
        }
        if let Some(first) = self.examples.first() {
            line.push_str(&format!("; such as {first}"));
        }
        for (what, time) in [("since", &self.times.since), ("last written", &self.times.written)] {
            if !time.is_empty() {
                line.push_str(&format!("; {what} {time}"));
            }
        }
        line
    }
}

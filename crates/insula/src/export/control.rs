//! `insula export pause`, `resume`, `abort` and `update`.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use insula_api::{LabelSelector, Requirement, kinds::MaxHeld};
use insula_proto::{
    FieldMask,
    admin::v1::{
        AbortRolloutRequest, AbortRolloutResponse, PauseRolloutRequest, PauseRolloutResponse, PublishedExport,
        ResumeRolloutRequest, ResumeRolloutResponse, RolloutSelector, RolloutStep, UpdateExportRequest,
        UpdateExportResponse, rollout_step,
    },
};

use super::read::view;
use crate::{
    admin::{Admin, Etag, InWorkspace, Service, Write},
    duration,
};

/// An export to change.
#[derive(clap::Args)]
pub(crate) struct Named {
    /// The export.
    #[arg(value_name = "EXPORT")]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) etag: Etag,
    #[command(flatten)]
    pub(super) write: Write,
    #[command(flatten)]
    pub(super) call: InWorkspace,
}

/// Continues a paused rollout.
#[derive(clap::Args)]
pub(crate) struct Resume {
    #[command(flatten)]
    named: Named,
    /// Go on with the release on offer, whatever number of bindings stays.
    #[arg(long)]
    with_held: bool,
}

/// Offers the schemas again to which the bindings that have not moved are bound, at once to all.
/// Once all bindings have moved, `insula export rollback` goes back.
#[derive(clap::Args)]
pub(crate) struct Abort {
    #[command(flatten)]
    named: Named,
    /// A version of the release that workspaces used already, and that goes with it.
    #[arg(long, value_name = "RESOURCE/VERSION")]
    remove: Vec<String>,
}

/// Changes how bindings take over releases, and how long a use of a version counts. Settings
/// without a flag stay.
#[derive(clap::Args)]
#[command(after_help = "\
Steps are in the order of the flags. A step is a share of all workspaces (5%), or labels of bindings \
(ring=canary,tier=free); with a time behind it (5%:10m) the next step waits as long.")]
pub(crate) struct Update {
    #[command(flatten)]
    named: Named,
    /// PerBinding: a binding whose objects do not fit stays. AllOrNothing: one such holds all.
    #[arg(long, value_name = "STRATEGY")]
    strategy: Option<String>,
    /// A step of the rollout; several in their order. `none` removes all steps.
    #[arg(long = "step", value_name = "STEP")]
    steps: Vec<String>,
    /// Stop the rollout, or let it go on.
    #[arg(long, value_name = "true|false")]
    paused: Option<bool>,
    /// Bindings that may stay before a step stops the rollout: 2, or 10% of all.
    #[arg(long, value_name = "NUMBER|SHARE")]
    max_held: Option<MaxHeld>,
    /// Days for which a use of a version counts.
    #[arg(long, value_name = "DAYS")]
    retirement_days: Option<i32>,
}

fn shown(named: &Named, export: Option<PublishedExport>) -> anyhow::Result<ExitCode> {
    view(&export.unwrap_or_default()).print(named.call.output, usize::MAX)
}

pub(super) fn pause(named: &Named) -> anyhow::Result<ExitCode> {
    let admin = Admin::in_workspace(&named.call.connection)?;
    let request = PauseRolloutRequest {
        workspace: admin.workspace(),
        export: named.name.clone(),
        etag: named.etag.etag.clone(),
        request_id: named.write.request_id.clone(),
        validate_only: named.write.dry_run,
    };
    let answer: PauseRolloutResponse = admin.call((Service::Api, "PauseRollout"), &request)?;
    shown(named, answer.export)
}

pub(super) fn resume(arguments: &Resume) -> anyhow::Result<ExitCode> {
    let named = &arguments.named;
    let admin = Admin::in_workspace(&named.call.connection)?;
    let request = ResumeRolloutRequest {
        workspace: admin.workspace(),
        export: named.name.clone(),
        etag: named.etag.etag.clone(),
        request_id: named.write.request_id.clone(),
        validate_only: named.write.dry_run,
        with_held: arguments.with_held,
    };
    let answer: ResumeRolloutResponse = admin.call((Service::Api, "ResumeRollout"), &request)?;
    shown(named, answer.export)
}

pub(super) fn abort(arguments: &Abort) -> anyhow::Result<ExitCode> {
    let named = &arguments.named;
    let admin = Admin::in_workspace(&named.call.connection)?;
    let request = AbortRolloutRequest {
        workspace: admin.workspace(),
        export: named.name.clone(),
        confirm_removals: arguments.remove.clone(),
        etag: named.etag.etag.clone(),
        request_id: named.write.request_id.clone(),
        validate_only: named.write.dry_run,
    };
    let answer: AbortRolloutResponse = admin.call((Service::Api, "AbortRollout"), &request)?;
    for restored in &answer.restored {
        eprintln!("note: {} is offered again", restored.schema);
    }
    shown(named, answer.export)
}

pub(super) fn update(arguments: &Update) -> anyhow::Result<ExitCode> {
    let named = &arguments.named;
    let steps = steps(&arguments.steps)?;
    let given = [
        ("strategy", arguments.strategy.is_some()),
        ("paused", arguments.paused.is_some()),
        ("steps", !arguments.steps.is_empty()),
        ("retirement_days", arguments.retirement_days.is_some()),
        ("max_held", arguments.max_held.is_some()),
    ];
    let paths = given.iter().filter(|(_, is_given)| *is_given);
    let paths: Vec<String> = paths.map(|(field, _)| (*field).to_owned()).collect();
    if paths.is_empty() {
        bail!("nothing to change: give --strategy, --step, --paused, --max-held or --retirement-days");
    }
    let admin = Admin::in_workspace(&named.call.connection)?;
    let request = UpdateExportRequest {
        workspace: admin.workspace(),
        export: named.name.clone(),
        strategy: arguments.strategy.clone().unwrap_or_default(),
        paused: arguments.paused.unwrap_or_default(),
        steps,
        retirement_days: arguments.retirement_days.unwrap_or_default(),
        max_held: arguments.max_held.map(|max| max.to_string()).unwrap_or_default(),
        update_mask: Some(FieldMask { paths }),
        etag: named.etag.etag.clone(),
        request_id: named.write.request_id.clone(),
        validate_only: named.write.dry_run,
    };
    let answer: UpdateExportResponse = admin.call((Service::Api, "UpdateExport"), &request)?;
    shown(named, answer.export)
}

fn steps(given: &[String]) -> anyhow::Result<Vec<RolloutStep>> {
    if given == ["none"] {
        return Ok(Vec::new());
    }
    given
        .iter()
        .map(|text| step(text).with_context(|| format!("--step {text}")))
        .collect()
}

/// Reads `5%`, `5%:10m`, `ring=canary,tier=free` or `ring=canary:1h`.
fn step(text: &str) -> anyhow::Result<RolloutStep> {
    let (bindings, pause) = match text.split_once(':') {
        Some((bindings, pause)) => (bindings, duration::parse(pause).map_err(anyhow::Error::msg)?),
        None => (text, Duration::ZERO),
    };
    let of = match bindings.strip_suffix('%') {
        Some(share) => rollout_step::Of::Percentage(share.parse().context("a share is a number from 1 to 100")?),
        None => rollout_step::Of::Selector(labels(bindings)?),
    };
    Ok(RolloutStep {
        of: Some(of),
        pause_seconds: i64::try_from(pause.as_secs())?,
    })
}

/// Reads labels with their values, by the rules of label selectors. Relations other than equality
/// are refused: a lone `5` would be the key of a label.
fn labels(text: &str) -> anyhow::Result<RolloutSelector> {
    let mut selector = RolloutSelector::default();
    for requirement in LabelSelector::parse(text)?.requirements {
        let Requirement::In(key, mut values) = requirement else {
            bail!("a step is a share as 5%, or labels as ring=canary");
        };
        let (Some(value), true) = (values.pop(), values.is_empty()) else {
            bail!("{key} has several values: give each a step of its own");
        };
        if let Some(other) = selector.match_labels.insert(key.clone(), value) {
            bail!("{key} has another value before, {other:?}, and a label has one");
        }
    }
    if selector.match_labels.is_empty() {
        bail!("a step is a share as 5%, or labels as ring=canary");
    }
    Ok(selector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_shares_or_labels_with_a_pause() {
        let share = step("5%:10m").unwrap();
        assert_eq!(
            (share.of, share.pause_seconds),
            (Some(rollout_step::Of::Percentage(5)), 600)
        );
        let Some(rollout_step::Of::Selector(selector)) = step("ring=canary,tier=free").unwrap().of else {
            panic!("labels select");
        };
        assert_eq!(selector.match_labels["tier"], "free");
        assert!(steps(&["none".to_owned()]).unwrap().is_empty());
        for wrong in [
            "",
            "canary",
            "5",
            "x%",
            "5%:soon",
            "ring=in valid",
            "ri ng=a",
            "ring=-",
            "ring!=a",
            "ring in (a,b)",
            "ring=a,ring=b",
        ] {
            let error = steps(&[wrong.to_owned()]).expect_err(wrong);
            assert!(
                format!("{error:#}").starts_with(&format!("--step {wrong}: ")),
                "{error:#}"
            );
        }
    }
}

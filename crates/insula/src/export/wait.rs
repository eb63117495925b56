//! Waiting until the release that an export offers serves its consumers.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use insula_proto::admin::v1::{GetExportRequest, GetExportResponse, Rollout};

use super::target::Target;
use crate::print::Progress;

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits until every consumer is served by the release that is on offer now. Returns the number of
/// consumers. Consumers that were never served are not waited for: nothing of theirs is stored.
///
/// # Errors
/// The rollout has stopped, another release has taken its place, or it takes longer than the limit.
/// The message says why.
pub(super) fn until_rolled_out(target: &Target, name: &str, limit: Duration) -> anyhow::Result<i64> {
    let begun = Instant::now();
    let mut progress = Progress::stderr();
    let mut release = String::new();
    loop {
        let rollout = rollout(target, name)?;
        if release.is_empty() {
            release.clone_from(&rollout.release);
        }
        if rollout.release != release {
            bail!(
                "release {} has taken the place of {release}, whose rollout is not complete",
                rollout.release
            );
        }
        match &*rollout.reason {
            "Complete" => return Ok(rollout.current),
            "Progressing" => {}
            _ => bail!("release {release}: {}: {}", rollout.reason, rollout.message),
        }
        let served = rollout.bindings - rollout.unbound;
        progress.show(&format!(
            "{} of {served} consumers are served by release {release}",
            rollout.current
        ));
        if begun.elapsed() > limit {
            bail!(
                "{} of {served} consumers are not served by release {release} after {} s",
                served - rollout.current,
                limit.as_secs()
            );
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the rollout of the release that an export offers now.
fn rollout(target: &Target, name: &str) -> anyhow::Result<Rollout> {
    let request = GetExportRequest {
        workspace: target.workspace()?,
        export: name.to_owned(),
    };
    let answer: GetExportResponse = target.call("/insula.admin.v1.ApiService/GetExport", &request)?;
    let export = answer.export.context("the answer has no export")?;
    export.rollout.context("the answer has no rollout")
}

//! Waiting until the consumers of an export are served by its new schemas.

use std::time::{Duration, Instant};

use anyhow::bail;
use insula_admission::publication::Published;
use serde_json::Value;

use super::target::Target;
use crate::{files::text, print::Progress};

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits until every consumer is bound to the new schemas. Returns the number of consumers.
///
/// # Errors
/// The rollout has stopped, or takes longer than the limit. The message says why.
pub(super) fn until_rolled_out(
    target: &Target,
    name: &str,
    published: &[Published],
    limit: Duration,
) -> anyhow::Result<usize> {
    let begun = Instant::now();
    let mut progress = Progress::stderr();
    loop {
        let export = target
            .get("apis.kcp.io/v1alpha2", "APIExport", name)?
            .unwrap_or_default();
        let bindings = target.of_consumers(&export, "/clusters/*/apis/apis.kcp.io/v1alpha2/apibindings")?;
        let bindings: Vec<Value> = bindings
            .and_then(|list| list["items"].as_array().cloned())
            .unwrap_or_default();
        let of_export = |binding: &&Value| text(binding, "/spec/reference/export/name") == name;
        let consumers: Vec<&Value> = bindings.iter().filter(of_export).collect();
        let behind = consumers
            .iter()
            .filter(|binding| !is_current(binding, published))
            .count();
        if behind == 0 {
            return Ok(consumers.len());
        }
        progress.show(&format!(
            "{} of {} consumers are served by the new schemas",
            consumers.len() - behind,
            consumers.len()
        ));
        let conditions = export["status"]["conditions"].as_array().into_iter().flatten();
        let mut stopped = conditions.filter(|it| it["type"] == "RolledOut" && it["status"] == "False");
        if let Some(stopped) = stopped.next() {
            bail!("the rollout has stopped: {}", text(stopped, "/message"));
        }
        if begun.elapsed() > limit {
            bail!(
                "{behind} of {} consumers are not bound to the new schemas after {} s",
                consumers.len(),
                limit.as_secs()
            );
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns true if a binding serves all of these schemas. Bindings that have not bound a resource
/// yet are not waited for: nothing of theirs is stored.
fn is_current(binding: &Value, published: &[Published]) -> bool {
    published.iter().all(|api| {
        let mut bound = binding["status"]["boundResources"].as_array().into_iter().flatten();
        bound
            .find(|it| text(it, "/group") == api.group && text(it, "/resource") == api.plural)
            .is_none_or(|it| text(it, "/schema/name") == api.name())
    })
}

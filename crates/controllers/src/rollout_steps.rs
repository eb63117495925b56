//! Steps of a rollout: the order in which the bindings of an export take over a release.
//!
//! A release is the schemas and rules that an export offers at a time. A binding belongs to the
//! first step that selects it, by its labels or by a percentage of all workspaces; the bindings
//! that no step selects come last. `status.rollout.step` of the export opens the steps one after
//! another ([`crate::rollout_status`]), and a binding moves when its step is open.

use insula_api::{
    ClusterName, LabelSelector, Meta,
    kinds::{ApiExport, ApiExportRollout},
};
use insula_catalog::digest;

/// Permission of a binding to take over the present release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StepState {
    /// Its step is open, or there are no steps.
    Open,
    /// Its step is not open, for this reason.
    Waits(String),
}

/// Returns the step of a binding, counted from 1. The last one, after all that are listed, has the
/// bindings that no step selects.
pub(crate) fn step_of(rollout: &ApiExportRollout, cluster: &ClusterName, binding: &Meta) -> usize {
    let share = share_of(cluster);
    let selects = rollout
        .steps
        .iter()
        .position(|step| match (&step.selector, step.percentage) {
            (Some(selector), _) => LabelSelector::from_json(selector).is_ok_and(|s| s.matches(&binding.labels)),
            (None, percentage) => share < percentage.unwrap_or_default(),
        });
    selects.unwrap_or(rollout.steps.len()) + 1
}

/// Returns the place of a workspace among all: 0 to 99, evenly spread. The workspaces of a larger
/// percentage include those of a smaller one.
fn share_of(cluster: &ClusterName) -> u64 {
    let digest = digest::identity(cluster.as_str().as_bytes());
    u64::from_str_radix(&digest[..12], 16).unwrap_or_default() % 100
}

/// Returns true for a release that all bindings take over at once, in spite of steps.
pub(crate) fn is_at_once(rollout: &ApiExportRollout, release: &str) -> bool {
    !rollout.at_once.is_empty() && rollout.at_once == release
}

/// Returns the permission of a binding to take over a release.
pub(crate) fn step_state(export: &ApiExport, release: &str, cluster: &ClusterName, binding: &Meta) -> StepState {
    let (rollout, state) = (&export.spec.rollout, &export.status.rollout);
    let last = rollout.steps.len() + 1;
    if rollout.paused {
        return StepState::Waits("the provider has paused the rollout".to_owned());
    }
    if rollout.steps.is_empty() || is_at_once(rollout, release) {
        return StepState::Open;
    }
    let own = step_of(rollout, cluster, binding);
    let open = if state.release == release { state.step } else { 0 };
    if own <= open {
        return StepState::Open;
    }
    StepState::Waits(format!(
        "it is in step {own} of {last} of the rollout, which is at step {}",
        open.max(1)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_api::{Json, Object, kinds};
    use serde_json::json;

    fn binding(labels: &Json) -> Object {
        let value = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
            "metadata": {"name": "widgets", "labels": labels}});
        Object::new(&value, None).expect("an object")
    }

    fn cluster(number: usize) -> ClusterName {
        ClusterName::parse(&format!("tenant{number}")).expect("a cluster")
    }

    fn export(rollout: &Json, state: &Json) -> ApiExport {
        kinds::read(&json!({"spec": {"rollout": rollout}, "status": {"rollout": state}}))
    }

    #[test]
    fn the_first_step_that_selects_a_binding_has_it() {
        let steps = json!({"steps": [
            {"selector": {"matchLabels": {"ring": "early"}}}, {"percentage": 10}, {"percentage": 50}]});
        let rollout = export(&steps, &json!({})).spec.rollout;
        let (early, other) = (binding(&json!({"ring": "early"})), binding(&json!({"ring": "late"})));
        let mut sizes = [0; 4];
        for number in 0..1000 {
            assert_eq!(step_of(&rollout, &cluster(number), &early.meta), 1);
            sizes[step_of(&rollout, &cluster(number), &other.meta) - 1] += 1;
        }
        // A tenth, four tenths, and the rest.
        assert!(sizes[0] == 0 && (60..140).contains(&sizes[1]), "{sizes:?}");
        assert!(
            (340..460).contains(&sizes[2]) && (440..560).contains(&sizes[3]),
            "{sizes:?}"
        );
    }

    #[test]
    fn a_binding_moves_when_its_step_is_open() {
        let early = binding(&json!({"ring": "early"}));
        let late = binding(&json!({}));
        let steps = json!({"steps": [{"selector": {"matchLabels": {"ring": "early"}}}]});
        let paused = json!({"paused": true, "steps": steps["steps"]});
        let hurried = json!({"atOnce": "r2", "steps": steps["steps"]});
        let hurried_before = json!({"atOnce": "r1", "steps": steps["steps"]});
        let at = |release: &str, step: usize| json!({"release": release, "step": step});
        // Rollout, its state, the binding, whether it may move to release `r2`.
        let cases = [
            (&json!({}), at("r1", 1), &late, true),
            (&steps, json!({}), &early, false),
            (&steps, at("r1", 2), &early, false),
            (&steps, at("r2", 1), &early, true),
            (&steps, at("r2", 1), &late, false),
            (&steps, at("r2", 2), &late, true),
            (&paused, at("r2", 2), &late, false),
            (&hurried, at("r1", 2), &late, true),
            (&hurried_before, at("r1", 2), &late, false),
        ];
        for (rollout, state, binding, moves) in cases {
            let export = export(rollout, &state);
            let found = step_state(&export, "r2", &cluster(1), &binding.meta);
            assert_eq!(found == StepState::Open, moves, "{rollout} {state}: {found:?}");
        }
    }
}

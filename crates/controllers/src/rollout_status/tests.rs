use super::{BINDINGS_PER_SECOND, MESSAGE_MAX, RolloutStatus, cut, decide::held_max};
use crate::{rollout::OF_OTHERS, testing::plan};
use insula_api::{ClusterName, ObjectKey, Timestamp, kinds};
use insula_catalog::{digest, ids};
use serde_json::json;

/// Identifier of a release without resources.
fn nothing() -> String {
    insula_catalog::exports::release_id(std::iter::empty())
}

fn export(spec: &str) -> String {
    format!(
        "
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {{name: widgets}}
spec: {spec}
"
    )
}

/// Returns a binding of the tenant with this number, which was judged by a release.
fn judged(tenant: usize, release: &str, up_to_date: &str) -> String {
    let label = digest::export_label(&ClusterName::root(), "widgets");
    format!(
        "
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata:
  name: widgets
  annotations: {{kcp.io/cluster: t{tenant:02}}}
  labels: {{internal.apis.kcp.io/export: {label}}}
status:
  release: {release}
  conditions: [{{type: BindingUpToDate, {up_to_date}}}, {{type: InitialBindingCompleted, status: 'True'}}]
"
    )
}

fn binding(tenant: usize, up_to_date: &str) -> String {
    judged(tenant, &nothing(), up_to_date)
}

const STAYS: &str = "status: 'False', reason: RolloutBlocked, message: it does not fit";

async fn decide(documents: &[String]) -> String {
    let key = ObjectKey::cluster_scoped(ids::apiexports(), ClusterName::root(), "widgets");
    plan(RolloutStatus::new, &key, &documents.join("---")).await
}

/// Twelve bindings stay for the objects of one, with a strategy by which all move or none.
#[tokio::test]
async fn who_holds_a_rollout_is_named_before_who_stays_with_it() {
    let stays = format!("status: 'False', reason: RolloutBlocked, message: {OF_OTHERS}; it is served on");
    let mut world = vec![export("{strategy: AllOrNothing}")];
    world.extend((0..12).map(|tenant| binding(tenant, &stays)));
    world.push(binding(12, STAYS));
    let plan = decide(&world).await;
    let first = plan.split("heldBindings:").nth(1).expect("some are named");
    let first = first.split("- message:").nth(1).expect("the first");
    assert!(first.contains("it does not fit"), "{plan}");
    assert!(plan.contains("held: 13"), "{plan}");
    assert_eq!(plan.matches(OF_OTHERS).count(), 9, "{plan}");
}

#[tokio::test]
async fn the_export_names_ten_bindings_and_counts_all() {
    let mut world = vec![export("{}")];
    world.extend((0..12).map(|tenant| binding(tenant, STAYS)));
    world.push(binding(12, "status: 'True'"));
    let plan = decide(&world).await;
    for line in [
        "bindings: 13",
        "current: 1",
        "held: 12",
        "12 of 13 bindings stay",
        "reason: Held",
    ] {
        assert!(plan.contains(line), "{line} in {plan}");
    }
    assert_eq!(plan.matches("workspace:").count(), 10, "{plan}");
}

/// The verdict on another release says nothing about this one.
#[tokio::test]
async fn a_binding_counts_for_the_release_it_was_judged_by() {
    let world = [
        export("{}"),
        judged(0, "former", STAYS),
        judged(1, "former", "status: 'True'"),
        binding(2, "status: 'True'"),
    ];
    let plan = decide(&world).await;
    // Nothing is offered, so that the second one serves all of it.
    for line in ["reason: Progressing", "current: 2", "held: 0", "waiting: 1"] {
        assert!(plan.contains(line), "{line} in {plan}");
    }
    assert!(!plan.contains("RolledOut"), "{plan}");
}

#[tokio::test]
async fn an_export_that_nobody_binds_is_left_alone() {
    let plain = decide(&[export("{}")]).await;
    assert!(!plain.contains("rollout"), "{plain}");
    let asked = decide(&[export("{rollout: {strategy: PerBinding}}")]).await;
    assert!(asked.contains("reason: Complete"), "{asked}");
}

#[tokio::test]
async fn a_release_is_complete_when_every_binding_serves_it() {
    let plan = decide(&[export("{}"), binding(0, "status: 'True'")]).await;
    for line in ["reason: Complete", "current: 1", "kind: APIExport", &nothing()] {
        assert!(plan.contains(line), "{line} in {plan}");
    }
    assert!(!plan.contains("message:") && !plan.contains("waiting"), "{plan}");
}

#[tokio::test]
async fn more_bindings_that_stay_than_may_stop_a_rollout_in_steps() {
    let steps = |rest: &str| export(&format!("{{rollout: {{steps: [{{percentage: 100}}]{rest}}}}}"));
    let world = |rest: &str| vec![steps(rest), binding(0, STAYS), binding(1, "status: 'True'")];
    let stopped = decide(&world("")).await;
    assert!(
        stopped.contains("reason: TooManyHeld") && stopped.contains("step: 1"),
        "{stopped}"
    );
    assert!(stopped.contains("export resume widgets --with-held"), "{stopped}");
    let with_held = format!(", withHeld: {}", nothing());
    for rest in [", maxHeld: 1", ", maxHeld: 50%", &with_held] {
        let plan = decide(&world(rest)).await;
        assert!(
            plan.contains("reason: Held") && plan.contains("step: 2"),
            "{rest}: {plan}"
        );
    }
    for rest in [", maxHeld: 49%", ", withHeld: former"] {
        let plan = decide(&world(rest)).await;
        assert!(plan.contains("reason: TooManyHeld"), "{rest}: {plan}");
    }
}

#[test]
fn bindings_that_may_stay_are_a_number_or_a_share() {
    let rollout = |max: serde_json::Value| kinds::read::<kinds::ApiExportRollout>(&json!({"maxHeld": max}));
    for (max, bindings, allowed) in [
        (json!(3), 10, 3),
        (json!("10%"), 25, 2),
        (json!("0%"), 25, 0),
        (json!(null), 25, 0),
    ] {
        assert_eq!(held_max(&rollout(max.clone()), bindings), allowed, "{max}");
    }
}

#[tokio::test]
async fn many_bindings_are_counted_less_often() {
    let rig = crate::testing::TestControlPlane::new().await;
    let status = RolloutStatus::new(rig.registry.clone());
    let key = ObjectKey::cluster_scoped(ids::apiexports(), ClusterName::root(), "widgets");
    let many = 5 * BINDINGS_PER_SECOND;
    assert_eq!(status.too_early(&key, many, Timestamp(0)), None);
    assert_eq!(status.too_early(&key, many, Timestamp(2)), Some(3));
    assert_eq!(status.too_early(&key, 10, Timestamp(2)), None);
    assert_eq!(status.too_early(&key, many, Timestamp(5)), None);
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let long = "é".repeat(MESSAGE_MAX);
    assert!(cut(&long).len() <= MESSAGE_MAX + '…'.len_utf8());
    assert_eq!(cut("short"), "short");
}

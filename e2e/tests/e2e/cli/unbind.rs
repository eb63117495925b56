//! `insula unbind` of a binding with a grace period, and kubectl beside it.

use insula_e2e::{Kubectl, Server, Setup, until};

use super::Shell;
use crate::unbinding::{BINDING, Scene, waits_for};

/// A deletion by kubectl is seen by a user, taken back after a crash of the server, and nothing is
/// lost.
#[test]
fn a_deleted_binding_is_taken_back_and_nothing_is_lost() {
    let mut server = Server::with(Setup::default());
    let scene = Scene::new(&server, Some(3600));
    let before = scene.objects(&server);
    let spec = scene.at_tenant(&server).get(BINDING).expect(200)["spec"].clone();
    if let Some(kubectl) = Kubectl::for_server(&server) {
        let deleted = kubectl.run(&scene.tenant, &["delete", "apibinding", "widgets", "--wait=false"], "");
        assert_eq!(deleted.code, 0, "{}", deleted.text);
        let warning = "Warning: the objects of APIBinding \"widgets\" are kept until ";
        assert!(deleted.text.contains(warning), "{}", deleted.text);
    } else {
        scene.at_tenant(&server).delete(BINDING).expect(200);
    }
    server.kill9();
    let server = server.restart();
    let shell = Shell::admin(&server);
    shell.ok(&["ws", &scene.tenant]);
    let explained = shell.ok(&["workspace", "explain"]);
    for part in [
        "apibinding widgets",
        "its objects are kept until",
        "insula unbind widgets --undelete",
    ] {
        assert!(explained.contains(part), "{part} in {explained}");
    }
    let told = shell.ok(&["unbind", "widgets", "--undelete", "--dry-run"]);
    assert!(
        told.starts_with("apibinding widgets would be back; its grace period ends 2"),
        "{told}"
    );
    assert!(waits_for(&scene.at_tenant(&server).get(BINDING).expect(200)).is_some());

    let back = shell.ok(&["unbind", "widgets", "--undelete"]);
    assert_eq!(back, "apibinding widgets is back\n");
    let shown = until("the binding is as before", || {
        let shown = scene.at_tenant(&server).get(BINDING).expect(200);
        waits_for(&shown).is_none().then_some(shown)
    });
    assert_eq!(shown["spec"], spec);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        assert_eq!(shown["metadata"].get(field), None);
    }
    assert_eq!(scene.objects(&server), before);
    scene.create(&server, "late").expect(201);
    let twice = shell.fails(&["unbind", "widgets", "--undelete"]);
    assert!(
        twice.contains("is not deleted: there is nothing to take back"),
        "{twice}"
    );
}

/// The command says until when objects are kept, and ends the wait.
#[test]
fn unbinding_tells_the_end_of_the_period_and_ends_it() {
    let server = insula_e2e::shared();
    let scene = Scene::new(&server, Some(3600));
    let shell = Shell::admin(&server);
    shell.ok(&["ws", &scene.tenant]);
    let told = shell.ok(&["unbind", "widgets", "--dry-run"]);
    assert!(
        told.starts_with("2 widgets.example.io would go with apibinding widgets at 2"),
        "{told}"
    );
    let told = shell.ok(&["unbind", "widgets", "--dry-run", "--now"]);
    assert_eq!(told, "2 widgets.example.io would go with apibinding widgets\n");
    let deleted = shell.ok(&["unbind", "widgets", "--yes"]);
    for part in [
        "apibinding widgets is deleted, and its 2 objects are kept until 2",
        "`insula unbind widgets --undelete`",
        "`insula unbind widgets --now`",
    ] {
        assert!(deleted.contains(part), "{part} in {deleted}");
    }
    let question = shell.run(&["unbind", "widgets", "--now"]);
    assert_eq!(question.code, 1, "{question:?}");
    let ended = shell.ok(&["unbind", "widgets", "--now", "--yes"]);
    assert_eq!(ended, "apibinding widgets removed, with 2 objects\n");
    scene.until_gone(&server);
    let late = shell.fails(&["unbind", "widgets", "--undelete"]);
    assert!(late.contains("apibindings.apis.kcp.io \"widgets\" not found"), "{late}");
}

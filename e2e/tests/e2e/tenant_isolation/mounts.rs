//! Row 64: a workspace mounted from another tenant's workspace on the same server. The operator
//! allows a server as a target; that server authorizes each request as the user who sent it, who
//! gets no further than by the direct way.

use insula_e2e::Setup;

use super::*;
use crate::workspaces::{REMOTES, mount, remote, remotes};

#[test]
fn a_mount_of_another_tenants_workspace_is_forbidden() {
    let server = Server::with(Setup {
        environment: vec![("INSULA_WORKSPACES_MOUNTS".to_owned(), "127.0.0.1/32".to_owned())],
        ..Setup::default()
    });
    let (mine, theirs) = (owned_by(&server, "alice"), owned_by(&server, "bob"));
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": {"a": scene::SECRET}});
    server.admin().in_workspace(&theirs.path).post(MAPS, &map).expect(201);
    let alice = server.client(Who::Token("alice-token".to_owned()));
    let here = alice.in_workspace(&mine.path);
    here.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &remotes())
        .expect(201);
    until("remotes are served", || (here.get(REMOTES).code == 200).then_some(()));
    let targets = [
        ("path", format!("/clusters/{}", theirs.path)),
        ("name", format!("/clusters/{}", theirs.cluster)),
        ("all", "/clusters/*".to_owned()),
        ("system", "/clusters/system:bound-crds".to_owned()),
        ("root", "/clusters/root".to_owned()),
        ("own", format!("/clusters/{}", mine.path)),
        ("server", String::new()),
        ("dots", format!("/clusters/{}/../{}", mine.path, theirs.path)),
    ];
    let workspaces = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
    for (name, target) in &targets {
        here.post(REMOTES, &remote(name, &format!("{}{target}", server.url()), "Ready"))
            .expect(201);
        here.post(workspaces, &mount(name)).expect(201);
    }
    let claims = [("x-remote-user", "kcp-admin"), ("x-remote-group", "system:masters")];
    for (name, target) in &targets {
        let through = alice.in_workspace(&format!("{}:{name}", mine.path));
        until("the mount was looked at", || {
            (here.get(&format!("{workspaces}/{name}")).body["status"]["phase"] != "Scheduling").then_some(())
        });
        for path in [
            format!("{MAPS}/map"),
            MAPS.to_owned(),
            "/api/v1/configmaps?watch=true&timeoutSeconds=1".to_owned(),
            "/metrics".to_owned(),
        ] {
            let answer = through.get_with(&path, &claims);
            assert!(
                [400, 403, 404, 501, 503].contains(&answer.code) || (*name == "own" && answer.code == 200),
                "{target}{path}: {} {}",
                answer.code,
                answer.text
            );
            let shown = format!("{}{:?}", answer.text, answer.headers);
            assert!(
                !shown.contains(scene::SECRET) && !shown.contains("\"bob\""),
                "{target}{path}: {shown}"
            );
        }
        let made = through.post(MAPS, &map);
        assert!(
            [400, 403, 404, 405, 503].contains(&made.code) || (*name == "own" && made.code == 201),
            "{target}: {} {}",
            made.code,
            made.text
        );
    }
}

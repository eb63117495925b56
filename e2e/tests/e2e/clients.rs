//! Common Kubernetes clients in their oldest and newest version that can be had, each against a
//! workspace of its own. `e2e/clients` has their programs.

use insula_e2e::{Edition, Runtime, shared, with_widgets};

fn check(client: Runtime) {
    let server = shared();
    for edition in Edition::ALL {
        client.check(&server, &with_widgets(&server), edition);
    }
}

#[test]
fn the_python_client_works() {
    check(Runtime::Python);
}

#[test]
fn the_go_clients_work() {
    let server = shared();
    Runtime::Go.check(&server, &with_widgets(&server), Edition::Newest);
}

#[test]
fn the_javascript_client_works() {
    check(Runtime::Node);
}

#[test]
fn the_java_clients_work() {
    let server = shared();
    for (client, edition) in [
        ("fabric8", Edition::Oldest),
        ("fabric8", Edition::Newest),
        ("official", Edition::Newest),
    ] {
        Runtime::Java.check_part(&server, &with_widgets(&server), edition, client);
    }
}

//! Common Kubernetes clients, each against a workspace of its own. `e2e/clients` has their
//! programs.

use insula_e2e::{Runtime, shared, with_widgets};

#[test]
fn the_python_client_works() {
    let server = shared();
    Runtime::Python.check(&server, &with_widgets(&server));
}

#[test]
fn the_go_clients_work() {
    let server = shared();
    Runtime::Go.check(&server, &with_widgets(&server));
}

#[test]
fn the_javascript_client_works() {
    let server = shared();
    Runtime::Node.check(&server, &with_widgets(&server));
}

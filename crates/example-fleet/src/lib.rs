//! A worked example of `insula-sdk`: ships in two versions, with a strategy, a subresource and a
//! controller.

mod log_book;
pub mod ship;

use insula_sdk::{Controller, Server, ServerBuilder, k8s_openapi::api::core::v1::ConfigMap};

pub use log_book::LogBook;
pub use ship::Ship;

/// Returns the server with its kind and its controller.
pub fn server() -> ServerBuilder {
    Server::builder()
        .program("example-fleet", env!("CARGO_PKG_VERSION"))
        .resource::<Ship>()
        .controller(Controller::new(LogBook).owns::<ConfigMap>())
}

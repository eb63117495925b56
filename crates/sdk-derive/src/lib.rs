//! The derive macro of `insula-sdk`, which documents and re-exports it.
//!
//! Names and versions are checked when the program is compiled: a group has no capital letters, a
//! kind is UpperCamel, and a version is alpha, beta or stable.

mod arguments;
mod expand;
mod lint;

use proc_macro::TokenStream;

/// Makes a struct a version of a kind: its definition, its form in JSON, and what clients of
/// kube-rs need.
///
/// ```text
/// #[derive(Resource, Clone, Debug)]
/// #[resource(group = "fleet.example.com", version = "v1", strategy = RobotStrategy)]
/// #[resource(columns(Mode = ".spec.mode"), subresources(charge = Charge))]
/// pub struct Robot {
///     pub metadata: ObjectMeta,
///     pub spec: RobotSpec,
///     pub status: Option<RobotStatus>,
/// }
/// ```
///
/// `insula_sdk::derive` is its tutorial and lists all arguments.
#[proc_macro_derive(Resource, attributes(resource, serde))]
pub fn derive_resource(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::expand(&input)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

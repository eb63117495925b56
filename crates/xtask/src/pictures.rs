//! The pictures of the documents, drawn as SVG: `docs/pictures`.
//!
//! One function a picture. `cargo xtask docs` writes them, and a test compares them, so a picture
//! whose facts stand in code ([`floors`](crate::floors)) follows it.

mod bindings;
mod conversion;
mod drawing;
mod floors;
mod release;
mod request;

/// Returns the pictures by name.
pub fn all() -> impl Iterator<Item = (&'static str, String)> {
    [
        ("bindings", bindings::draw()),
        ("conversion", conversion::draw()),
        ("floors", floors::draw()),
        ("release", release::draw()),
        ("request", request::draw()),
    ]
    .into_iter()
}

//! The site of the documents is what the documents give: all their links lead somewhere, and
//! `insula docs` serves these pages.

use std::path::Path;

use xtask::{console::Packing, site};

#[test]
fn links_lead_somewhere_and_the_packed_site_is_of_these_documents() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    site::run(&root, Packing::Check).expect("run `cargo xtask docs`");
}

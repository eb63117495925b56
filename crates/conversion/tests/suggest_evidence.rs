//! Kinds of evidence for a suggestion: each makes a pair sure that would be a guess or none without
//! it, and does not where it says too little.
#![allow(clippy::unwrap_used)]

mod support;

use expect_test::expect;
use support::suggested::sure;

/// Fields that turn several things on are told apart by what they turn on.
#[test]
fn opposite_names_are_pairs_of_one_thing() {
    expect![[r#"
        .spec.disableExternalProbe → .spec.enableExternalProbe by !self
        .spec.disableFloatingCache → .spec.floating.enableCache by !self
        .spec.disablePortSecurity → .spec.port.enablePortSecurity by !self
    "#]]
    .assert_eq(&sure(
        "{spec: {disableExternalProbe: boolean, disablePortSecurity: boolean, disableFloatingCache: boolean, size: \
            string}}",
        "{spec: {enableExternalProbe: boolean, port: {enablePortSecurity: boolean}, floating: {enableCache: boolean}, \
            size: string}}",
    ));
}

//! Definitions for tests.

use insula_api::Json;
use insula_catalog::{Served, compile};
use serde_json::json;
use std::sync::Arc;

/// Returns the `spec` of a definition of `widgets.example.io` with some versions.
pub(crate) fn widgets(versions: Json) -> Json {
    json!({
        "group": "example.io", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": versions,
    })
}

/// Returns the API of a definition.
pub(crate) fn served(spec: &Json) -> Served {
    let definition = compile::Definition {
        spec,
        accepted_names: None,
        rules: None,
        strategy: insula_conversion::LossPolicy::None,
        strict_scale: false,
    };
    Served::system(Arc::new(
        compile::compile(&definition, None).expect("the definition compiles"),
    ))
}

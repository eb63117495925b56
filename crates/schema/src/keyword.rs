//! Keywords of a schema's JSON, read with a default for absent and mistyped ones.

use insula_api::Json;

/// Returns true if the keyword is `true`.
pub(crate) fn flag(schema: &Json, name: &str) -> bool {
    schema.get(name).and_then(Json::as_bool).unwrap_or(false)
}

/// Returns the text of a keyword; empty if it is absent or no text.
pub(crate) fn text<'a>(schema: &'a Json, name: &str) -> &'a str {
    schema.get(name).and_then(Json::as_str).unwrap_or("")
}

/// Returns the texts in a keyword's list; empty if it is absent or no list.
pub(crate) fn strings(schema: &Json, name: &str) -> Vec<String> {
    let list = schema.get(name).and_then(Json::as_array);
    list.map(|l| l.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect())
        .unwrap_or_default()
}

//! Migration from client-side to server-side apply, by kubectl's annotation with the last applied
//! configuration.

use crate::fields::FieldSet;
use crate::typed::{Shape, compare, fields_of, validate};
use insula_api::Json;

/// The only manager whose annotation is read.
pub(super) const MANAGER: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn annotation(object: &Json) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION]
        .as_str()
        .filter(|text| !text.is_empty())
}

/// Returns the fields that client-side apply owns: those last applied and unchanged since.
pub(super) fn fields(live: &Json, api_version: &str, shape: Shape<'_>) -> Option<FieldSet> {
    let last: Json = serde_json::from_str(annotation(live)?).ok()?;
    if last["apiVersion"] != api_version || validate(shape, &last).is_err() {
        return None;
    }
    let mut fields = fields_of(shape, &last);
    let differs = compare(shape, &last, live);
    for changed in [&differs.modified, &differs.added, &differs.removed] {
        fields.subtract(changed);
    }
    Some(fields)
}

/// Updates the annotation of an object that has one, so that client-side apply continues from this
/// configuration.
pub(super) fn renew(live: &Json, object: &mut Option<Json>, config: &Json) {
    let Some(now) = object
        .as_ref()
        .or(Some(live))
        .filter(|object| annotation(object).is_some())
    else {
        return;
    };
    let mut config = config.clone();
    if let Some(Json::Object(annotations)) = config.pointer_mut("/metadata/annotations") {
        annotations.remove(ANNOTATION);
    }
    let text = format!("{config}\n");
    if annotation(now) != Some(&text) {
        let mut renewed = now.clone();
        renewed["metadata"]["annotations"][ANNOTATION] = Json::String(text);
        *object = Some(renewed);
    }
}

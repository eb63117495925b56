//! What clients send as `application/apply-patch+yaml`: YAML or JSON, read as strictly as they ask
//! for.

use crate::{
    body::{self, Decoded},
    negotiate::Format,
    reply::Reply,
    status,
};
use insula_api::Json;
use insula_registry::FieldValidation;
use serde_json::json;

/// A configuration to apply.
pub(crate) struct Configuration {
    pub(crate) value: Json,
    pub(crate) warnings: Vec<String>,
}

/// Reads a configuration. Keys that come twice are told of or refused, as is asked for; unknown
/// fields always are, by whom it is applied to.
pub(crate) fn configuration(bytes: &[u8], validation: FieldValidation) -> Result<Configuration, Reply> {
    let Decoded { value, duplicates } = decode(bytes)?;
    // Looked for once more, with lines: nearly no configuration has any.
    let repeated = match duplicates.is_empty() {
        true => Vec::new(),
        false => body::repeated_keys(bytes),
    };
    let warnings = match validation {
        FieldValidation::Ignore => Vec::new(),
        FieldValidation::Warn => repeated,
        FieldValidation::Strict if repeated.is_empty() => repeated,
        FieldValidation::Strict => {
            let lines = repeated.join("\n  ");
            return Err(status::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {lines}"
            ))
            .into());
        }
    };
    let value = match value {
        Json::Null => json!({}),
        Json::Object(_) => value,
        other => return Err(status::bad_request(format!("error decoding YAML: {other} is no object")).into()),
    };
    Ok(Configuration { value, warnings })
}

/// Most clients send JSON, which may be nested deeper than YAML.
fn decode(bytes: &[u8]) -> Result<Decoded, Reply> {
    let json = bytes.trim_ascii_start().first() == Some(&b'{');
    let decoded = match json.then(|| body::decode(bytes, Format::Json)) {
        Some(Ok(decoded)) => Ok(decoded),
        _ => body::decode(bytes, Format::Yaml),
    };
    decoded.map_err(Reply::from)
}

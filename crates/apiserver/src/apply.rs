//! Configurations of server-side apply (`application/apply-patch+yaml`): YAML or JSON, decoded by
//! the requested field validation.

use crate::{
    body::{self, Decoded},
    negotiate::Format,
};
use insula_api::Json;
use insula_pipeline::Refusal;
use insula_registry::FieldValidation;
use serde_json::json;

/// A configuration to apply.
pub(crate) struct Configuration {
    pub(crate) value: Json,
    pub(crate) warnings: Vec<String>,
}

/// Decodes a configuration. Duplicate keys are reported or refused, by the field validation;
/// unknown fields are always refused, when it is applied.
pub(crate) fn configuration(bytes: &[u8], validation: FieldValidation) -> Result<Configuration, Refusal> {
    let Decoded { value, duplicates } = decode(bytes)?;
    // A second pass for their lines: hardly any configuration has duplicate keys.
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
            return Err(Refusal::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {lines}"
            )));
        }
    };
    let value = match value {
        Json::Null => json!({}),
        Json::Object(_) => value,
        other => {
            return Err(Refusal::bad_request(format!(
                "error decoding YAML: {other} is no object"
            )));
        }
    };
    Ok(Configuration { value, warnings })
}

/// Decodes JSON first: most clients send it, and it may be nested deeper than YAML.
fn decode(bytes: &[u8]) -> Result<Decoded, Refusal> {
    let json = bytes.trim_ascii_start().first() == Some(&b'{');
    match json.then(|| body::decode(bytes, Format::Json)) {
        Some(Ok(decoded)) => Ok(decoded),
        _ => body::decode(bytes, Format::Yaml),
    }
}

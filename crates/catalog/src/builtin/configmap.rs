//! ConfigMaps.

use super::config_data::{DATA_MAX, check_key, immutable, too_long};
use crate::{Builtin, CellValue, Strategy, Table, TableColumn, Traits, kind::crd};
use insula_api::{FieldError, FieldPath, Json};
use serde_json::json;

pub(super) const KINDS: &[Builtin] = &[Builtin {
    strategy: &ConfigMaps,
    claimable: true,
    table: Some(Table::new(&[
        TableColumn::NAME,
        TableColumn::text("Data", DATA_TEXT, CellValue::Entries(&["data", "binaryData"])),
        TableColumn::AGE,
    ])),
    ..Builtin::new(crd!("core_configmaps"))
}];

const DATA_TEXT: &str = "Data contains the configuration data. Each key must consist of alphanumeric characters, \
    '-', '_' or '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The keys stored in Data must \
    not overlap with the keys in the BinaryData field, this is enforced during validation process.";

/// ConfigMaps.
struct ConfigMaps;

impl Strategy for ConfigMaps {
    fn traits(&self) -> Traits {
        Traits::BUILT_IN
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut size = 0;
        for field in ["data", "binaryData"] {
            for (key, value) in new[field].as_object().into_iter().flatten() {
                size += value.as_str().map_or(0, str::len);
                check_key(&FieldPath::new(field).key(key), key, &mut errors);
                if field == "data" && new["binaryData"].get(key).is_some() {
                    let text = "duplicate of key present in binaryData";
                    errors.push(FieldError::invalid(&FieldPath::new("data").key(key), &json!(key), text));
                }
            }
        }
        if size > DATA_MAX {
            errors.push(too_long(&FieldPath::new("[]")));
        }
        errors
    }

    fn validate_update(&self, new: &Json, old: &Json) -> Vec<FieldError> {
        immutable(new, old, &["data", "binaryData"])
    }
}

//! Admission of schemas.

use crate::structural::Structural;
use insula_api::{FieldError, FieldPath, Json};

pub(crate) fn check(_schema: &Json, _path: &FieldPath) -> Vec<FieldError> {
    Vec::new()
}

pub(crate) fn check_compiled(_schema: &Json, _compiled: &Structural, _path: &FieldPath) -> Vec<FieldError> {
    Vec::new()
}

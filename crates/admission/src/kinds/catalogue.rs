//! Admission of the annotations by which an APIExport describes itself to those who look for an
//! API. Others print them, so they have limits and no control characters.

use crate::kinds::review::Review;
use insula_api::{FieldError, FieldPath, Json, aggregate, names::annotations};
use insula_catalog::{
    Result,
    exports::{bind_request, unbind},
};

/// Characters of each text.
const TITLE_CHARS_MAX: usize = 100;
const DESCRIPTION_CHARS_MAX: usize = 1_024;
const DOCS_CHARS_MAX: usize = 512;
const OWNER_CHARS_MAX: usize = 200;

/// Refuses a value that the request sets or changes, so that an export keeps what it has.
pub(super) fn review(review: &Review<'_>, new: &Json, old: Option<&Json>) -> Result<()> {
    let at = FieldPath::new("metadata").child("annotations");
    let mut errors = Vec::new();
    for (name, chars_max) in [
        (annotations::API_TITLE, TITLE_CHARS_MAX),
        (annotations::API_DESCRIPTION, DESCRIPTION_CHARS_MAX),
        (annotations::API_DOCS, DOCS_CHARS_MAX),
        (annotations::API_OWNER, OWNER_CHARS_MAX),
        (annotations::API_LISTED, DOCS_CHARS_MAX),
        (annotations::API_REQUESTS, DOCS_CHARS_MAX),
        (annotations::API_REQUEST_SECONDS, DOCS_CHARS_MAX),
        (annotations::API_REQUEST_GROUPS, DOCS_CHARS_MAX),
        (annotations::UNBIND_GRACE_SECONDS, DOCS_CHARS_MAX),
    ] {
        let value = &new["metadata"]["annotations"][name];
        let Some(text) = value.as_str() else { continue };
        if old.is_some_and(|old| old["metadata"]["annotations"][name] == *value) {
            continue;
        }
        if let Some(why) = problem(name, text, chars_max) {
            errors.push(FieldError::invalid_text(&at.key(name), shortened(text), why));
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(review.forbid(new, aggregate(&errors))),
    }
}

/// Returns the begin of a text for a message.
fn shortened(text: &str) -> String {
    format!("{:?}", text.chars().take(TITLE_CHARS_MAX).collect::<String>())
}

/// Returns true for a character that changes how a line is shown, and for a line break.
pub fn is_hidden(c: char) -> bool {
    // Marks that turn the direction of text would let it look like another.
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn problem(name: &str, text: &str, chars_max: usize) -> Option<String> {
    let is_url = ["https://", "http://"].iter().any(|scheme| text.starts_with(scheme));
    match name {
        _ if text.chars().count() > chars_max => Some(format!("must have at most {chars_max} characters")),
        _ if text.chars().any(is_hidden) => Some("must not have control characters or line breaks".to_owned()),
        annotations::API_DOCS if !is_url || text.contains(char::is_whitespace) => {
            Some("must be a URL that begins with https:// or http://".to_owned())
        }
        annotations::API_LISTED if !matches!(text, "true" | "false") => Some("must be true or false".to_owned()),
        annotations::API_REQUESTS if text != bind_request::ALLOWED => Some(format!(
            "must be {:?}; without it nobody may ask",
            bind_request::ALLOWED
        )),
        annotations::API_REQUEST_SECONDS if bind_request::seconds(text).is_none() => Some(format!(
            "must be a number of seconds from 1 to {}",
            bind_request::SECONDS_MAX
        )),
        annotations::API_REQUEST_GROUPS if bind_request::groups(text).is_empty() => Some(
            "must name a group, or several between commas; without it everybody who sees the export may ask".to_owned(),
        ),
        annotations::UNBIND_GRACE_SECONDS if unbind::grace_seconds(text).is_none() => {
            Some(unbind::grace_seconds_problem())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_limits_and_no_control_characters() {
        let long = "é".repeat(TITLE_CHARS_MAX + 1);
        for (name, text, is_valid) in [
            (annotations::API_TITLE, "Wídgets", true),
            (annotations::API_TITLE, &long[2..], true),
            (annotations::API_TITLE, &long, false),
            (annotations::API_TITLE, "a\u{1b}[31mb", false),
            (annotations::API_OWNER, "team\u{202e}x", false),
            (annotations::API_DOCS, "https://docs.example.io/widgets", true),
            (annotations::API_DOCS, "javascript:alert(1)", false),
            (annotations::API_DOCS, "https://a b", false),
            (annotations::API_LISTED, "true", true),
            (annotations::API_LISTED, "yes", false),
            (annotations::API_REQUESTS, "allowed", true),
            (annotations::API_REQUESTS, "true", false),
            (annotations::API_REQUEST_SECONDS, "3600", true),
            (annotations::API_REQUEST_GROUPS, "shop, platform", true),
            (annotations::API_REQUEST_GROUPS, " , ", false),
            (annotations::API_REQUEST_SECONDS, "0", false),
            (annotations::API_REQUEST_SECONDS, "7776001", false),
            (annotations::API_REQUEST_SECONDS, "+5", false),
            (annotations::UNBIND_GRACE_SECONDS, "86400", true),
            (annotations::UNBIND_GRACE_SECONDS, "1d", false),
        ] {
            assert_eq!(
                problem(name, text, TITLE_CHARS_MAX).is_none(),
                is_valid,
                "{name} {text}"
            );
        }
    }
}

//! Identities that headers name: `Impersonate-*` of clients and `X-Remote-*` of proxies.
//!
//! Go's clients send names as UTF-8. A header that is no text is refused and never read as an empty
//! one: without its name a request would go on with the rights of its credential, and without one
//! of its scopes an identity would have more rights.

use crate::query::percent_decoded_bytes;
use http::HeaderMap;
use insula_access::Unauthenticated;
use insula_catalog::Error;
use insula_pipeline::Refusal;
use std::collections::BTreeMap;

/// Identity that the headers of one prefix name, as it was sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedIdentity {
    /// Name of the user, if a header names one. It may be empty.
    pub(crate) name: Option<String>,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
    /// True if a header of the prefix says more than the name.
    pub(crate) has_more: bool,
}

/// The refusal of headers that name an identity: 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// A value that is no text.
    #[error("header {0}: the value is not valid UTF-8: send names in UTF-8")]
    Value(String),
    /// An extra key that is no text once it is decoded.
    #[error("header {0}: the key is not valid UTF-8 after percent-decoding: encode keys in UTF-8")]
    Key(String),
    /// Groups, a UID or extra fields without a user.
    #[error("requested impersonation of groups, uid or extra without impersonating a user")]
    WithoutUser,
    /// A proxy that names a user with an empty name.
    #[error("header X-Remote-User: the name is empty: send the name of the user")]
    NoName,
}

impl From<IdentityError> for Unauthenticated {
    fn from(why: IdentityError) -> Self {
        Unauthenticated::Malformed(why.to_string())
    }
}

impl From<IdentityError> for Refusal {
    fn from(why: IdentityError) -> Self {
        Refusal::from(Error::BadRequest(why.to_string()))
    }
}

impl NamedIdentity {
    /// Reads every header of a prefix: `impersonate-` or `x-remote-`. The first name and the first
    /// UID count, as in Kubernetes.
    ///
    /// # Errors
    /// The first header that is no text.
    pub(crate) fn read(headers: &HeaderMap, prefix: &str) -> Result<NamedIdentity, IdentityError> {
        let mut named = NamedIdentity::default();
        for header in headers.keys() {
            let Some(field) = header.as_str().strip_prefix(prefix) else {
                continue;
            };
            let text = |value: &http::HeaderValue| match std::str::from_utf8(value.as_bytes()) {
                Ok(text) => Ok(text.to_owned()),
                Err(_) => Err(IdentityError::Value(canonical(header.as_str()))),
            };
            let values: Result<Vec<String>, _> = headers.get_all(header).iter().map(text).collect();
            let values = values?;
            named.has_more |= field != "user";
            match (field, field.strip_prefix("extra-")) {
                ("user", _) => named.name = values.into_iter().next(),
                ("uid", _) => named.uid = values.into_iter().next().unwrap_or_default(),
                ("group", _) => named.groups = values,
                (_, Some(key)) => {
                    let key = String::from_utf8(percent_decoded_bytes(key));
                    let key = key.map_err(|_| IdentityError::Key(canonical(header.as_str())))?;
                    named.extra.entry(key.to_lowercase()).or_default().extend(values);
                }
                _ => {}
            }
        }
        Ok(named)
    }
}

/// Returns the usual spelling of a header's name: `Impersonate-User`.
fn canonical(header: &str) -> String {
    let capital = |word: &str| match word.split_at_checked(1) {
        Some((first, rest)) => first.to_uppercase() + rest,
        None => String::new(),
    };
    header.split('-').map(capital).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    type Fields<'a> = &'a [(&'a str, &'a [u8])];

    fn read(fields: Fields<'_>) -> Result<NamedIdentity, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name: HeaderName = name.parse().expect("a name");
            headers.append(name, HeaderValue::from_bytes(value).expect("a value"));
        }
        NamedIdentity::read(&headers, "impersonate-").map_err(|why| why.to_string())
    }

    #[test]
    fn names_are_utf_8() {
        let named = read(&[
            ("Impersonate-User", "prüfer".as_bytes()),
            ("Impersonate-User", b"second"),
            ("Impersonate-Group", "名前".as_bytes()),
            ("Impersonate-Group", b""),
            ("Impersonate-Uid", b"7"),
            ("Impersonate-Extra-Example.com%2fTe%C3%A4m", "blå".as_bytes()),
            ("X-Remote-User", b"\xff"),
        ]);
        let want = NamedIdentity {
            name: Some("prüfer".into()),
            uid: "7".into(),
            groups: vec!["名前".into(), String::new()],
            extra: BTreeMap::from([("example.com/teäm".into(), vec!["blå".into()])]),
            has_more: true,
        };
        assert_eq!(named, Ok(want));
        assert_eq!(
            read(&[("Impersonate-User", b"")]).expect("text").name.as_deref(),
            Some("")
        );
        assert_eq!(read(&[("accept", b"\xff")]), Ok(NamedIdentity::default()));
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_with_their_header() {
        let value = "the value is not valid UTF-8: send names in UTF-8";
        let rows: [(Fields<'_>, String); 6] = [
            (
                &[("impersonate-user", b"pr\xfcfer")],
                format!("header Impersonate-User: {value}"),
            ),
            // A second name does not count, and is refused all the same.
            (
                &[("impersonate-user", b"a"), ("impersonate-user", b"\xff")],
                format!("header Impersonate-User: {value}"),
            ),
            (
                &[("impersonate-group", b"\xc3")],
                format!("header Impersonate-Group: {value}"),
            ),
            (
                &[("impersonate-uid", b"\xed\xa0\x80")],
                format!("header Impersonate-Uid: {value}"),
            ),
            (
                &[("impersonate-extra-a", b"\x80")],
                format!("header Impersonate-Extra-A: {value}"),
            ),
            (
                &[("impersonate-extra-%ff", b"x")],
                "header Impersonate-Extra-%ff: the key is not valid UTF-8 after percent-decoding: \
                 encode keys in UTF-8"
                    .to_owned(),
            ),
        ];
        for (fields, want) in rows {
            assert_eq!(read(fields), Err(want), "{fields:?}");
        }
    }
}

//! Query parameters of the verbs, with Kubernetes' refusals. Those of writes are in [`write`].

mod write;

use insula_api::{FieldError, FieldPath, FieldSelector, LabelSelector, Revision};
use insula_catalog::{Error, Named};
use insula_goformat::duration;
use insula_pipeline::ReadAt;
use insula_registry::{ListOptions, WatchOptions};
use serde_json::json;
use std::time::Duration;

/// Decoded query parameters, in order of appearance.
#[derive(Debug, Clone, Default)]
pub struct Query(Vec<(String, String)>);

/// The start of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchStart {
    /// The state, then the changes after it; with `bookmark` a bookmark marks the end of the state.
    State { at: ReadAt, bookmark: bool },
    /// The changes after a revision.
    After(Revision),
    /// The changes from now on, without the state.
    Now,
}

/// Decodes the percent-encoded bytes of a text. Invalid codes stay as they are, and bytes that are
/// not UTF-8 are replaced: not for names by which rights are decided.
pub fn percent_decoded(text: &str) -> String {
    String::from_utf8_lossy(&percent_decoded_bytes(text)).into_owned()
}

/// Decodes the percent-encoded bytes of a text. Invalid codes stay as they are.
pub(crate) fn percent_decoded_bytes(text: &str) -> Vec<u8> {
    let (mut out, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits: Vec<u8> = bytes.clone().take(2).collect();
        let hex = std::str::from_utf8(&digits).ok();
        let hex = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match hex.filter(|_| digits.len() == 2) {
            Some(code) => {
                out.push(code);
                bytes.nth(1);
            }
            None => out.push(byte),
        }
    }
    out
}

impl Query {
    /// Decodes `a=b&c=d`.
    pub fn parse(text: &str) -> Query {
        let decode = |part: &str| percent_decoded(&part.replace('+', " "));
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Query(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(k, v)| (decode(k), decode(v)))
                .collect(),
        )
    }

    /// Returns all parameters, decoded, in their order.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// Returns the first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    fn all(&self, name: &str) -> Vec<&str> {
        self.0
            .iter()
            .filter(|(key, _)| key == name)
            .map(|(_, value)| &**value)
            .collect()
    }

    /// Returns a boolean as Kubernetes reads it: a parameter that is present means true, unless it
    /// is `0` or `false`.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value != "0" && value != "false")
    }

    /// Returns the time within which the client wants its answer; `None` for no wish, which 0 and
    /// less are, too.
    ///
    /// # Errors
    /// 400 for what is no duration of Go's.
    pub(crate) fn timeout(&self) -> Result<Option<Duration>, Error> {
        let text = self.text("timeout");
        if text.is_empty() {
            return Ok(None);
        }
        let nanos = duration::parse(text)
            .map_err(|error| Error::BadRequest(format!("invalid timeout specified in the request URL - {error}")))?;
        let nanos = u64::try_from(nanos).ok().filter(|nanos| *nanos > 0);
        Ok(nanos.map(Duration::from_nanos))
    }

    fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    fn number(&self, name: &str) -> Result<i64, Error> {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let text = self.text(name);
        if text.is_empty() {
            return Ok(0);
        }
        text.parse().map_err(|error: std::num::ParseIntError| {
            let why = match error.kind() {
                PosOverflow | NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            Error::BadRequest(format!("strconv.ParseInt: parsing {text:?}: {why}"))
        })
    }

    fn revision(&self) -> Result<Option<Revision>, Error> {
        match self.text("resourceVersion") {
            "" => Ok(None),
            text => text.parse().map(|number| Some(Revision(number))).map_err(|_| {
                let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
                Error::BadRequest(format!(
                    "invalid resource version: resourceVersion: Invalid value: {text:?}: {why}"
                ))
            }),
        }
    }

    fn labels(&self) -> Result<LabelSelector, Error> {
        LabelSelector::parse(self.text("labelSelector")).map_err(|error| Error::BadRequest(error.to_string()))
    }

    fn fields(&self) -> Result<FieldSelector, Error> {
        FieldSelector::parse(self.text("fieldSelector")).map_err(|error| Error::BadRequest(error.to_string()))
    }

    /// Returns the name of the one object that a field selector selects in a list or a watch.
    pub(crate) fn selected_name(&self) -> Option<String> {
        let terms = self.fields().ok()?.terms.into_iter();
        let mut names = terms.filter_map(|(field, name, equal)| (equal && field == "metadata.name").then_some(name));
        names.next().filter(|name| {
            let is_segment = name != "." && name != ".." && !name.contains(['/', '%']);
            is_segment && !name.is_empty()
        })
    }

    /// Parses `resourceVersion` of a GET.
    pub fn get_at(&self) -> Result<ReadAt, Error> {
        Ok(match self.revision()? {
            None => ReadAt::Latest,
            Some(Revision(0)) => ReadAt::Any,
            Some(revision) => ReadAt::NotOlderThan(revision),
        })
    }

    /// Parses the parameters of a LIST, and the state at which it looks (kube's delegator matrix).
    pub fn list(&self) -> Result<(ListOptions, ReadAt), Error> {
        let limit = self.number("limit")?.max(0) as usize;
        self.timeout_seconds()?;
        let next = Some(self.text("continue"))
            .filter(|token| !token.is_empty())
            .map(str::to_owned);
        let labels = self.labels()?;
        let fields = self.fields()?;
        let revision = self.revision()?;
        let rule = self.text("resourceVersionMatch");
        self.check_list_match(rule, next.is_some())?;
        let at = match (&next, revision, rule) {
            (Some(_), Some(revision), _) if revision.0 != 0 => {
                return Err(Error::BadRequest(
                    "specifying resource version is not allowed when using continue".into(),
                ));
            }
            (Some(token), _, _) => ReadAt::of_page(token)?,
            (None, None, _) => ReadAt::Latest,
            (None, Some(Revision(0)), _) => ReadAt::Any,
            (None, Some(revision), "Exact") => ReadAt::Exactly(revision),
            // Without `resourceVersionMatch`, a limited list at a revision reads exactly that
            // revision.
            (None, Some(revision), "") if limit > 0 => ReadAt::Exactly(revision),
            (None, Some(revision), _) => ReadAt::NotOlderThan(revision),
        };
        Ok((
            ListOptions {
                labels,
                fields,
                limit,
                next,
            },
            at,
        ))
    }

    fn check_list_match(&self, rule: &str, continues: bool) -> Result<(), Error> {
        let at = FieldPath::new("resourceVersionMatch");
        let revision = self.text("resourceVersion");
        let mut errors = Vec::new();
        if !rule.is_empty() {
            if revision.is_empty() {
                errors.push(FieldError::forbidden(
                    &at,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if continues {
                errors.push(FieldError::forbidden(
                    &at,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if rule != "Exact" && rule != "NotOlderThan" {
                errors.push(FieldError::not_supported(
                    &at,
                    &json!(rule),
                    &["Exact", "NotOlderThan", ""],
                ));
            }
            if rule == "Exact" && revision == "0" {
                errors.push(FieldError::forbidden(
                    &at,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if self.get("sendInitialEvents").is_some() {
            let at = FieldPath::new("sendInitialEvents");
            errors.push(FieldError::forbidden(&at, "sendInitialEvents is forbidden for list"));
        }
        list_options_errors(errors)
    }

    /// Parses the parameters of a WATCH.
    pub fn watch(&self) -> Result<(WatchOptions, WatchStart), Error> {
        let options = WatchOptions {
            labels: self.labels()?,
            fields: self.fields()?,
        };
        let revision = self.revision()?;
        let rule = self.text("resourceVersionMatch");
        let initial = self
            .get("sendInitialEvents")
            .map(|value| value != "0" && value != "false");
        let bookmarks = self.flag("allowWatchBookmarks");
        let at = FieldPath::new("resourceVersionMatch");
        let mut errors = Vec::new();
        if initial.is_some() && rule != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(&at, why));
        }
        if initial.is_none() && !rule.is_empty() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(&at, why));
        }
        if !rule.is_empty() && rule != "NotOlderThan" {
            errors.push(FieldError::not_supported(&at, &json!(rule), &["NotOlderThan"]));
        }
        if !self.text("continue").is_empty() {
            errors.push(FieldError::forbidden(
                &at,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        list_options_errors(errors)?;
        let start = match (initial, revision) {
            (Some(true), None) => WatchStart::State {
                at: ReadAt::Latest,
                bookmark: bookmarks,
            },
            (Some(true), Some(Revision(0))) => WatchStart::State {
                at: ReadAt::Any,
                bookmark: bookmarks,
            },
            (Some(true), Some(revision)) => WatchStart::State {
                at: ReadAt::NotOlderThan(revision),
                bookmark: bookmarks,
            },
            (Some(false), None | Some(Revision(0))) => WatchStart::Now,
            // Without a revision the initial state is sent to every client.
            (None, None) => WatchStart::State {
                at: ReadAt::Latest,
                bookmark: bookmarks,
            },
            (None, Some(Revision(0))) => WatchStart::State {
                at: ReadAt::Any,
                bookmark: false,
            },
            (_, Some(revision)) => WatchStart::After(revision),
        };
        Ok((options, start))
    }

    /// Parses `timeoutSeconds`, the seconds that a watch may last.
    pub fn timeout_seconds(&self) -> Result<Option<u64>, Error> {
        Ok(Some(self.number("timeoutSeconds")?)
            .filter(|n| *n > 0)
            .map(|n| n as u64))
    }
}

fn list_options_errors(errors: Vec<FieldError>) -> Result<(), Error> {
    meta_options_errors("ListOptions", errors)
}

/// Returns 422 for invalid options of a kind in `meta.k8s.io`.
fn meta_options_errors(kind: &str, errors: Vec<FieldError>) -> Result<(), Error> {
    if errors.is_empty() {
        return Ok(());
    }
    let subject = Named {
        group: "meta.k8s.io".into(),
        resource: kind.into(),
    };
    Err(Error::Invalid {
        subject,
        name: String::new(),
        errors,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_decode() {
        let query = Query::parse("labelSelector=a%3Db&watch&x=1+2&bad=%zz");
        assert_eq!(query.get("labelSelector"), Some("a=b"));
        assert_eq!(query.get("x"), Some("1 2"));
        assert_eq!(query.get("bad"), Some("%zz"));
        assert!(query.flag("watch"));
        assert!(!Query::parse("watch=false").flag("watch"));
    }

    #[test]
    fn lists_read_the_state_that_kubernetes_reads() {
        for (text, want) in [
            ("", ReadAt::Latest),
            ("resourceVersion=0", ReadAt::Any),
            ("resourceVersion=7", ReadAt::NotOlderThan(Revision(7))),
            ("resourceVersion=7&limit=2", ReadAt::Exactly(Revision(7))),
            (
                "resourceVersion=7&resourceVersionMatch=Exact",
                ReadAt::Exactly(Revision(7)),
            ),
            (
                "resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=2",
                ReadAt::NotOlderThan(Revision(7)),
            ),
        ] {
            assert_eq!(Query::parse(text).list().expect(text).1, want, "{text}");
        }
        for text in [
            "resourceVersionMatch=Exact",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersion=1&resourceVersionMatch=x",
            "sendInitialEvents=true",
            "limit=abc",
            "limit=99999999999999999999",
            "timeoutSeconds=soon",
            "resourceVersion=abc",
            "continue=garbage",
        ] {
            assert!(Query::parse(text).list().is_err(), "{text}");
        }
    }
}

//! Conversion of an API's objects between versions: by the rules of its bundle, or by the webhook
//! of its definition. Every read and write of an object in a version uses this module.

use crate::{Api, Error, Respelled, Served, kind::CodedVersion, webhook::PendingCall};
use insula_api::{FieldError, Json};
use insula_conversion::{ConvertError, Stored, ToStore};
use std::{fmt, sync::Arc};

/// The reason that an object cannot be converted to a version.
#[derive(Debug, Clone)]
pub enum Failed {
    /// A conversion rule failed.
    Rules(ConvertError),
    /// The webhook failed, or its response is still pending.
    Webhook(Arc<str>),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Rules(error) => error.fmt(f),
            Failed::Webhook(why) => f.write_str(why),
        }
    }
}

impl From<ConvertError> for Failed {
    fn from(error: ConvertError) -> Self {
        Failed::Rules(error)
    }
}

impl Failed {
    /// Converts the failure to an error of a verb. `rules` maps the failure of a rule.
    pub fn or(self, rules: impl FnOnce(&ConvertError) -> Error) -> Error {
        match self {
            Failed::Rules(error) => rules(&error),
            Failed::Webhook(why) => Error::Webhook(why),
        }
    }
}

type Converted<T> = Result<T, Failed>;

impl Respelled {
    /// Returns a stored object with the field names of the alias. Omits fields with empty strings.
    pub fn shown(&self, stored: Json) -> Json {
        let names = self.fields.iter().map(|(stored, shown)| (*stored, *shown));
        let mut shown = renamed(stored, names, &self.api);
        if let Some(map) = shown.as_object_mut() {
            map.retain(|_, value| value != "");
        }
        shown
    }

    /// Returns an object of the alias in its stored form, with the defaults of the storage version.
    pub fn stored(&self, shown: Json, api: &Api) -> Json {
        let names = self.fields.iter().map(|(stored, shown)| (*shown, *stored));
        let mut stored = renamed(shown, names, api);
        insula_schema::default(&mut stored, &api.storage_version().schema);
        stored
    }
}

/// Renames fields of an object and sets its `apiVersion` to the storage version of `api`.
fn renamed<'a>(object: Json, names: impl Iterator<Item = (&'a str, &'a str)>, api: &Api) -> Json {
    let Json::Object(mut map) = object else { return object };
    for (from, to) in names {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
    map.insert(
        "apiVersion".to_owned(),
        Json::String(api.api_version(&api.storage_version().name)),
    );
    Json::Object(map)
}

impl Served {
    /// Converts a stored object to a version.
    ///
    /// # Errors
    /// A rule fails, the webhook fails, or its response is pending.
    pub fn get(&self, stored: Stored<'_>, to: &str) -> Converted<Json> {
        if self.goes_around(stored.version, to) {
            return self.get_around(stored.value.clone(), stored.version, stored.residual, to);
        }
        Ok(self
            .api
            .bundle
            .get(stored, to, &mut insula_conversion::object_budget(&self.meter))?)
    }

    /// Converts a stored object to a version. Consumes the object, so it avoids a copy.
    /// `written_under` is the fingerprint of the definition that it was written under.
    pub(crate) fn get_owned(
        &self,
        value: Json,
        version: &str,
        residual: Option<&[u8]>,
        to: &str,
        written_under: u64,
    ) -> Converted<Json> {
        if self.goes_around(version, to) {
            return self.get_around(value, version, residual, to);
        }
        let (bundle, mut budget) = (&self.api.bundle, insula_conversion::object_budget(&self.meter));
        Ok(match written_under == self.api.fingerprint {
            true => bundle.get_current(value, version, residual, to, &mut budget)?,
            false => bundle.get_owned(value, version, residual, to, &mut budget)?,
        })
    }

    /// Returns true if more than the bundle converts between two versions: an alias with other
    /// names, code, or a webhook.
    fn goes_around(&self, version: &str, to: &str) -> bool {
        self.asks(version, to) || self.respelled().is_some() || self.coded(to).is_some()
    }

    fn get_around(&self, value: Json, version: &str, residual: Option<&[u8]>, to: &str) -> Converted<Json> {
        let mut budget = insula_conversion::object_budget(&self.meter);
        if let Some(spelling) = self.respelled() {
            let shown = spelling.shown(value);
            return Ok(spelling.api.bundle.get_owned(shown, version, None, to, &mut budget)?);
        }
        let bundle = &self.api.bundle;
        if let Some(coded) = self.coded(to) {
            let storage = bundle.storage();
            let stored = bundle.get_owned(value, version, residual, storage, &mut budget)?;
            return Ok((coded.from_storage)(stored));
        }
        // Complete the stored object in its own version before the webhook converts it.
        let complete = match bundle.schema(version) {
            Some(_) => bundle.get_owned(value, version, residual, version, &mut budget)?,
            None => value,
        };
        self.request(complete, to)
    }

    /// Converts an object of version `from` to its stored form. `old` is the present stored object.
    ///
    /// # Errors
    /// A rule fails, the webhook fails, or its response is pending.
    pub fn put(&self, new: &Json, from: &str, old: Option<Stored<'_>>) -> Converted<ToStore> {
        let mut budget = insula_conversion::object_budget(&self.meter);
        if let Some(spelling) = self.respelled() {
            // The store holds only fields that both APIs show, so nothing of the old object is
            // preserved.
            let mut owned = spelling.api.bundle.put(new, from, None, &mut budget)?;
            owned.value = spelling.stored(owned.value, &self.api);
            return Ok(owned);
        }
        let bundle = &self.api.bundle;
        let storage = bundle.storage();
        if let Some(coded) = self.coded(from) {
            let converted = (coded.to_storage)(new.clone());
            return Ok(bundle.put(&converted, storage, old, &mut budget)?);
        }
        if !self.asks(from, storage) {
            return Ok(bundle.put(new, from, old, &mut budget)?);
        }
        let converted = self.request(new.clone(), storage)?;
        Ok(bundle.put(&converted, storage, None, &mut budget)?)
    }

    /// Converts an object to another version, without its residual.
    ///
    /// # Errors
    /// A rule fails, the webhook fails, or its response is pending.
    pub fn convert(&self, object: &Json, to: &str) -> Converted<Json> {
        let from = object["apiVersion"].as_str().unwrap_or_default();
        let from = insula_api::names::version_of(from);
        if self.asks(from, to) {
            return self.request(object.clone(), to);
        }
        let mut budget = insula_conversion::object_budget(&self.meter);
        let bundle = &self.api.bundle;
        match (self.coded(from), self.coded(to)) {
            (None, None) => Ok(bundle.convert(object, to, &mut budget)?),
            (Some(coded), None) => {
                let stored = (coded.to_storage)(object.clone());
                Ok(bundle.convert(&stored, to, &mut budget)?)
            }
            (None, Some(coded)) => {
                let stored = bundle.convert(object, bundle.storage(), &mut budget)?;
                Ok((coded.from_storage)(stored))
            }
            (Some(_), Some(_)) => Ok(object.clone()),
        }
    }

    /// Returns the errors of an object that only its version can have.
    pub fn errors_of_version(&self, object: &Json, version: &str) -> Vec<FieldError> {
        self.coded(version)
            .map(|coded| (coded.validate)(object))
            .unwrap_or_default()
    }

    /// Returns the functions of a version that code converts.
    #[inline]
    fn coded(&self, version: &str) -> Option<CodedVersion> {
        let coded = self.api.builtin?.coded_version?;
        (coded.name == version).then_some(coded)
    }

    /// Checks that the request may have a result: no webhook call of it is pending, and it may
    /// compute further. Else what was computed is no verdict.
    ///
    /// # Errors
    /// Returns `Error::Webhook` while a call is pending, and `Error::Ended` for a request that has
    /// ended.
    #[inline]
    pub fn check_answers(&self) -> crate::Result<()> {
        self.meter.check()?;
        self.pending_calls
            .as_ref()
            .map_or(Ok(()), |pending_calls| pending_calls.check())
    }

    /// Returns true if a conversion between the versions needs a call to a webhook.
    #[inline]
    pub fn asks(&self, from: &str, to: &str) -> bool {
        self.api.webhook.is_some() && from != to
    }

    fn request(&self, object: Json, to: &str) -> Converted<Json> {
        let not_called = || Failed::Webhook("the conversion webhook is not asked here".into());
        let (Some(webhook), Some(pending_calls)) = (&self.api.webhook, &self.pending_calls) else {
            return Err(not_called());
        };
        let pending_call = PendingCall::Convert {
            webhook: webhook.clone(),
            object,
            to: to.into(),
        };
        let answer = pending_calls.request(pending_call).ok_or_else(not_called)?;
        let mut converted = (*answer.map_err(Failed::Webhook)?).clone();
        if let Some(schema) = self.api.bundle.schema(to) {
            insula_schema::prune(&mut converted, schema);
        }
        Ok(converted)
    }
}

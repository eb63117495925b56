//! The draft of a write: an object in its storage version before it is committed.

use crate::owners;
use insula_access::view::WrittenObject;
use insula_admission::policy;
use insula_api::{Json, Object};
use insula_catalog::{Error, Result, Served};
use insula_store::TXN_BYTES_MAX;

/// Bytes reserved in a transaction for keys and quota objects.
const BESIDE_BYTES_MAX: usize = 16 << 10;

/// An object in its storage version, before admission has looked at it.
#[derive(Debug)]
pub(crate) struct Draft {
    /// The object.
    pub(crate) value: Json,
    pub(crate) residual: Option<Vec<u8>>,
    /// The schema mark of the object, if it differs from the serving schema's.
    pub(crate) written_under: Option<u64>,
    /// The object as readers of the request's version see it, if that is known and differs from the
    /// stored form.
    pub(crate) shown: Option<Json>,
    /// For `Warning` headers.
    pub(crate) warnings: Vec<String>,
}

impl Draft {
    /// Returns the object as policies see it.
    pub(crate) fn as_new(&self) -> policy::New<'_> {
        policy::New::Stored {
            value: &self.value,
            residual: self.residual.as_deref(),
        }
    }

    /// Returns the object for a grant to complete.
    pub(crate) fn written_object(&mut self) -> WrittenObject<'_> {
        WrittenObject {
            stored: &mut self.value,
            shown: self.shown.as_mut(),
        }
    }

    /// Returns the object to store, and its form in the request's version. An object that is too
    /// large with its field owners is stored without them, as in Kubernetes. It then has no owners
    /// until a client applies.
    pub(crate) fn finish(mut self, served: &Served) -> Result<(Object, Option<Json>)> {
        let mut object = self.object(served)?;
        let bytes = object.body_len() + self.residual.as_ref().map_or(0, Vec::len);
        if bytes > TXN_BYTES_MAX - BESIDE_BYTES_MAX && !owners::take(&mut self.value).is_null() {
            self.shown.as_mut().map(owners::take);
            object = self.object(served)?;
        }
        Ok((object, self.shown))
    }

    fn object(&self, served: &Served) -> Result<Object> {
        Object::new(&self.value, self.residual.as_deref().map(Into::into))
            .map(|object| object.written_under(self.written_under.unwrap_or(served.api.fingerprint)))
            .map_err(|error| {
                let kind = &served.names().kind;
                Error::BadRequest(format!(
                    "{kind} in version {:?} cannot be handled as a {kind}: {error}",
                    self.value["apiVersion"]
                ))
            })
    }
}

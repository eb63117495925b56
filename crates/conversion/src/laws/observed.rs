//! A stored object as every version shows it. Each view and each conversion is made once, because
//! several laws compare them, and the next write compares them again.

use crate::bundle::{Bundle, ToStore};
use crate::error::ConvertError;
use crate::object_budget;
use crate::trace::Trace;
use insula_meter::Meter;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A conversion of a view to another version, with the trace of its inputs; `None` if it fails.
pub(super) type Conversion = Option<(Json, Trace)>;

/// A stored object and its views.
pub(crate) struct Observed<'b> {
    bundle: &'b Bundle,
    /// Pays for the conversions.
    meter: Meter,
    stored: Cow<'b, ToStore>,
    /// Views by the index of their version.
    views: Vec<OnceCell<Result<Json, ConvertError>>>,
    conversions: RefCell<BTreeMap<(usize, usize), Rc<Conversion>>>,
}

impl<'b> Observed<'b> {
    pub(crate) fn new(bundle: &'b Bundle, stored: Cow<'b, ToStore>, meter: &Meter) -> Self {
        Observed {
            bundle,
            meter: meter.clone(),
            stored,
            views: bundle.versions.iter().map(|_| OnceCell::new()).collect(),
            conversions: RefCell::default(),
        }
    }

    pub(crate) fn to_store(&self) -> &ToStore {
        &self.stored
    }

    /// Returns the object as a version shows it.
    ///
    /// # Errors
    /// The version is unknown, or a rule fails for this object.
    pub(crate) fn view(&self, version: &str) -> Result<&Json, ConvertError> {
        let read = || {
            let stored = self.stored.stored(self.bundle.storage());
            self.bundle.get(stored, version, &mut object_budget(&self.meter))
        };
        let view = &self.views[self.bundle.index(version)?];
        view.get_or_init(read).as_ref().map_err(ConvertError::clone)
    }

    /// Converts the view of version `a` to version `b`, without dropped fields, and traces the
    /// inputs.
    ///
    /// # Errors
    /// Version `a` cannot be read.
    pub(super) fn conversion(&self, (a, b): (&str, &str)) -> Result<Rc<Conversion>, ConvertError> {
        let bundle = self.bundle;
        let key = (bundle.index(a)?, bundle.index(b)?);
        if let Some(known) = self.conversions.borrow().get(&key) {
            return Ok(known.clone());
        }
        let mut object = self.view(a)?.clone();
        if let Some(schema) = bundle.schema(a) {
            insula_schema::default(&mut object, schema);
        }
        let made = bundle.traced(&object, (a, b), &mut object_budget(&self.meter)).ok();
        let kept = |(made, trace)| match bundle.without_dropped(&made, b) {
            Cow::Owned(kept) => (kept, trace),
            Cow::Borrowed(_) => (made, trace),
        };
        let made = Rc::new(made.map(kept));
        self.conversions.borrow_mut().insert(key, made.clone());
        Ok(made)
    }
}

//! An object that is written through several versions, with the laws checked after each write.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "shared by several test files"
)]

use super::object;
use insula_conversion::{Bundle, ToStore, laws, unmetered_budget};
use serde_json::{Value as Json, json};

/// An object in the making, written through several versions.
pub struct Written<'b> {
    pub bundle: &'b Bundle,
    pub stored: Option<ToStore>,
}

impl<'b> Written<'b> {
    pub fn new(bundle: &'b Bundle) -> Self {
        Written { bundle, stored: None }
    }

    pub fn put(&mut self, version: &str, spec: Json) -> &mut Self {
        let x = object(version, &json!({"spec": spec}));
        let old = self.stored.as_ref().map(|stored| stored.stored(self.bundle.storage()));
        let after = self.bundle.put(&x, version, old, &mut unmetered_budget()).unwrap();
        laws::put_get(self.bundle, &x, version, &after).unwrap();
        laws::get_put(self.bundle, &after).unwrap();
        laws::carried(self.bundle, &after).unwrap();
        self.stored = Some(after);
        self
    }

    pub fn shows(&self, version: &str) -> Json {
        let stored = self.stored.as_ref().unwrap().stored(self.bundle.storage());
        self.bundle.get(stored, version, &mut unmetered_budget()).unwrap()["spec"].clone()
    }

    pub fn residuals(&self) -> Json {
        residuals_of(self.stored.as_ref().unwrap())
    }
}

/// Returns what is stored beside an object, without the layout.
pub fn residuals_of(stored: &ToStore) -> Json {
    let mut residuals: Json = serde_json::from_slice(stored.residual.as_deref().unwrap()).unwrap();
    residuals.as_object_mut().unwrap().remove("");
    residuals
}

//! GET of one object.

use super::{ResourceRequest, home};
use crate::{negotiate::Supported, request::Answer};
use insula_registry::verbs;

impl ResourceRequest<'_> {
    pub(crate) async fn get(&mut self) -> Answer {
        let renderer = self.renderer(self.negotiate(Supported::Object)?)?;
        let (registry, snapshot) = (&self.server.registry, &self.request.authorized.scope().snapshot);
        let entry = match home::is_requested(self) {
            true => home::find(self).await?,
            false => verbs::get(registry, snapshot, &self.target, &self.name)?,
        };
        renderer.object(200, &entry, &self.warnings).await
    }
}

//! GET of a collection.

use super::ResourceRequest;
use crate::{negotiate::Supported, request::Answer};

impl ResourceRequest<'_> {
    pub(crate) async fn list(&mut self) -> Answer {
        let renderer = self.renderer(self.negotiate(Supported::List)?)?;
        let options = match self.request.scope.list_options.take() {
            Some(options) => options,
            // A HEAD reads the latest state, whatever its parameters, which are parsed here.
            None => self.request.parsed.query.list()?.0,
        };
        let (registry, scope) = (&self.server.registry, &self.request.scope);
        let target = registry.asking(&self.target);
        registry.prepare_to_select(&target, &scope.read, &options.fields).await;
        let list = registry.list_at(&scope.snapshot, &scope.read, &target, &options)?;
        renderer.list(list, &self.warnings).await
    }
}

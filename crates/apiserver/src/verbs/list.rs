//! GET of a collection.

use super::ResourceRequest;
use crate::{negotiate::Supported, request::Answer};
use insula_registry::verbs;

impl ResourceRequest<'_> {
    pub(crate) async fn list(&mut self) -> Answer {
        let renderer = self.renderer(self.negotiate(Supported::List)?)?;
        let options = match self.request.parsed.list_options.take() {
            Some(options) => options,
            // A HEAD reads the latest state, whatever its parameters, which are parsed here.
            None => self.request.parsed.query.list()?.0,
        };
        let (registry, scope) = (&self.server.registry, self.request.authorized.scope());
        let list = verbs::list_at(registry, &scope.snapshot, &scope.read, &self.target, &options).await?;
        renderer.list(list, &self.warnings).await
    }
}

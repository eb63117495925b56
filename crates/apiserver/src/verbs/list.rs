//! GET of a collection.

use super::ResourceRequest;
use crate::{negotiate::Supported, reply::Replied};

impl ResourceRequest<'_> {
    pub(crate) async fn list(&mut self) -> Replied {
        let renderer = self.renderer(self.negotiate(Supported::List)?)?;
        let options = match self.request.parsed.list_options.take() {
            Some(options) => options,
            // A HEAD reads the latest state, whatever its parameters, which are parsed here.
            None => self.request.parsed.query.list()?.0,
        };
        let list = self.objects().list(&options).await?;
        renderer.list(list, &self.warnings).await
    }
}

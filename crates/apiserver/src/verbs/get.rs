//! GET of one object.

use super::ResourceRequest;
use crate::{negotiate::Supported, request::Answer};

impl ResourceRequest<'_> {
    pub(crate) async fn get(&mut self) -> Answer {
        let renderer = self.renderer(self.negotiate(Supported::Object)?)?;
        let entry = self.objects().get().await?;
        renderer.object(200, &entry, &self.warnings).await
    }
}

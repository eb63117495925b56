//! The controller of log books: a ConfigMap for each ship, which belongs to it.

use insula_sdk::{
    Action, ObjectMeta, ReconcileResult, Reconciler, Request, k8s_openapi::api::core::v1::ConfigMap, serde_json::json,
};

use crate::Ship;

/// Writes the log books.
#[derive(Debug, Clone, Copy)]
pub struct LogBook;

impl Reconciler for LogBook {
    type Object = Ship;
    const NAME: &'static str = "log-books";

    async fn reconcile(&self, request: &Request<Ship>) -> ReconcileResult {
        let Ship { spec, status, .. } = &*request.object;
        let name = format!("{}-log-book", request.key.name);
        let port = status.as_ref().and_then(|status| status.port.clone());
        let entries = [
            ("flag", spec.flag.clone()),
            ("crew", spec.crew.join(", ")),
            ("port", port.unwrap_or_else(|| "at sea".to_owned())),
        ];
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            data: Some(entries.map(|(key, value)| (key.to_owned(), value)).into()),
            ..ConfigMap::default()
        };
        request.apply_owned(map).await?;
        request.patch_status(json!({"logBook": name})).await?;
        Ok(Action::await_change())
    }
}

//! The subresource `dock`: POST docks a ship in a port, DELETE undocks it.

use insula_sdk::{Call, FieldError, FieldPath, Refusal, Reply, Subresource, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Ship;

/// The body of a request.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default)]
pub struct DockRequest {
    /// The port.
    #[serde(default)]
    pub port: String,
}

/// The body of an answer.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct DockResponse {
    /// The outcome, for people.
    pub message: String,
}

/// Docks and undocks ships.
#[derive(Debug, Clone, Copy)]
pub struct Dock;

impl Subresource<Ship> for Dock {
    type Request = DockRequest;
    type Response = DockResponse;
    const VERBS: &'static [Verb] = &[Verb::Create, Verb::Delete];

    async fn call(&self, call: Call<Ship, DockRequest>) -> Result<Reply<Ship, DockResponse>, Refusal> {
        let mut ship = call.object;
        let status = ship.status.get_or_insert_default();
        let message = if call.verb == Verb::Delete {
            status.port = None;
            "at sea".to_owned()
        } else {
            let DockRequest { port } = call.request.unwrap_or_default();
            if port.is_empty() {
                let why = "the port to dock in";
                return Err(Refusal::Invalid(vec![FieldError::required(
                    &FieldPath::new("port"),
                    why,
                )]));
            }
            let message = format!("docked in {port}");
            status.port = Some(port);
            message
        };
        Ok(Reply::new(DockResponse { message }).update_status(ship))
    }
}

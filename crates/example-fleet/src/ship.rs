//! Ships: the hub version v1, and the behaviour of every write.

pub mod dock;
pub mod v1alpha1;

use insula_sdk::{FieldError, FieldPath, ObjectMeta, Resource, Strategy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A ship of the fleet.
#[derive(Resource, Clone, Debug, Default)]
#[resource(group = "fleet.example.com", version = "v1", strategy = ShipStrategy)]
#[resource(versions(v1alpha1::Ship), subresources(dock = dock::Dock))]
#[resource(columns(Flag = ".spec.flag", Knots = ".spec.speed.knots", Port = ".status.port"))]
pub struct Ship {
    pub metadata: ObjectMeta,
    /// The desired state.
    pub spec: ShipSpec,
    /// The observed state.
    pub status: Option<ShipStatus>,
}

/// The desired state of a ship.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ShipSpec {
    /// Country of registration: two capital letters. It never changes.
    pub flag: String,
    /// Speed to sail at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<Speed>,
    /// Names of the crew, each once, in alphabetical order.
    #[serde(default)]
    pub crew: Vec<String>,
    /// Load of the ship. v1alpha1 has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cargo: Option<String>,
}

/// A speed.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Speed {
    /// Nautical miles an hour.
    pub knots: i32,
}

/// The observed state of a ship.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ShipStatus {
    /// Port in which the ship is docked. The subresource `dock` writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// ConfigMap with the log book. The controller writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_book: Option<String>,
}

/// Behaviour of ships.
#[derive(Debug, Clone, Copy)]
pub struct ShipStrategy;

impl Strategy<Ship> for ShipStrategy {
    fn validate(&self, new: &Ship) -> Vec<FieldError> {
        let flag = &new.spec.flag;
        if flag.len() == 2 && flag.chars().all(|c| c.is_ascii_uppercase()) {
            return Vec::new();
        }
        let at = FieldPath::new("spec").child("flag");
        vec![FieldError::invalid(
            &at,
            &flag.as_str().into(),
            "two capital letters, such as NO",
        )]
    }

    fn validate_update(&self, new: &Ship, old: &Ship) -> Vec<FieldError> {
        if new.spec.flag == old.spec.flag {
            return Vec::new();
        }
        let at = FieldPath::new("spec").child("flag");
        vec![FieldError::forbidden(&at, "a ship keeps its flag")]
    }

    fn canonicalize(&self, new: &mut Ship) {
        new.spec.crew.sort();
        new.spec.crew.dedup();
    }
}

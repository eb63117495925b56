//! Version v1alpha1 of ships: the speed is a number, and there is no cargo.

use insula_sdk::{ObjectMeta, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ShipStatus, Speed};

/// A ship of the fleet.
#[derive(Resource, Clone, Debug, Default)]
#[resource(
    group = "fleet.example.com",
    version = "v1alpha1",
    deprecated = "use fleet.example.com/v1"
)]
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
    /// Speed to sail at, in nautical miles an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knots: Option<i32>,
    /// Names of the crew.
    #[serde(default)]
    pub crew: Vec<String>,
}

impl From<super::Ship> for Ship {
    fn from(hub: super::Ship) -> Self {
        // The cargo has no place here: the server keeps it beside the object.
        let super::ShipSpec {
            flag,
            speed,
            crew,
            cargo: _,
        } = hub.spec;
        let knots = speed.map(|speed| speed.knots);
        Self {
            metadata: hub.metadata,
            spec: ShipSpec { flag, knots, crew },
            status: hub.status,
        }
    }
}

impl From<Ship> for super::Ship {
    fn from(own: Ship) -> Self {
        let ShipSpec { flag, knots, crew } = own.spec;
        let spec = super::ShipSpec {
            flag,
            speed: knots.map(|knots| Speed { knots }),
            crew,
            cargo: None,
        };
        Self {
            metadata: own.metadata,
            spec,
            status: own.status,
        }
    }
}

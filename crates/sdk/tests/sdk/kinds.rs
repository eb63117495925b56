//! A kind in two versions, with a strategy and a subresource.
#![allow(unreachable_pub, reason = "as in a program")]

use insula_sdk::{
    Call, Context, FieldError, FieldPath, ObjectMeta, Refusal, Reply, Resource, Strategy, Subresource, Verb,
    kube::ResourceExt,
    schemars::JsonSchema,
    serde::{Deserialize, Serialize},
};

/// A machine that moves on its own.
#[derive(Resource, Clone, Debug)]
#[resource(group = "fleet.example.com", version = "v1", short = "rb", category = "fleet")]
#[resource(columns(Mode = ".spec.mode", Charge = ".status.charge"), selectable(".spec.mode"))]
#[resource(strategy = RobotStrategy, subresources(charge = Charge))]
#[resource(versions(v1alpha1::Robot(strategy = v1alpha1::Defaults)))]
pub struct Robot {
    pub metadata: ObjectMeta,
    pub spec: RobotSpec,
    pub status: Option<RobotStatus>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RobotSpec {
    /// Occupation of the robot.
    pub mode: Option<String>,
    /// Places to visit, in any order.
    #[serde(default)]
    pub places: Vec<String>,
    /// Number of the maker. It never changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct RobotStatus {
    /// Per cent of the battery.
    pub charge: u8,
}

pub struct RobotStrategy;

impl Strategy<Robot> for RobotStrategy {
    fn default(&self, new: &mut Robot) {
        new.spec.mode.get_or_insert("Idle".into());
    }

    fn prepare_for_create(&self, new: &mut Robot, _: &Context) {
        new.labels_mut().insert("made-by".into(), "strategy".into());
        if new.spec.serial.as_deref() == Some("held") {
            new.finalizers_mut().push("fleet.example.com/dock".into());
        }
    }

    fn prepare_for_update(&self, new: &mut Robot, old: &Robot, _: &Context) {
        if new.spec != old.spec {
            new.annotations_mut().insert("changed".into(), "yes".into());
        }
        // A write to the status cannot change the spec, not even here.
        if new.labels().contains_key("seen") && !old.labels().contains_key("seen") {
            new.spec.mode = Some("Off".into());
        }
    }

    fn validate(&self, new: &Robot) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let at = FieldPath::new("spec");
        if new.spec.mode.as_deref() == Some("Patrol") && new.spec.places.is_empty() {
            errors.push(FieldError::required(
                &at.child("places"),
                "a patrol visits at least one place",
            ));
        }
        if new.spec.serial.as_deref() == Some("held") && new.metadata.deletion_timestamp.is_some() {
            errors.push(FieldError::forbidden(&at.child("serial"), "is refused when it goes"));
        }
        errors
    }

    fn validate_update(&self, new: &Robot, old: &Robot) -> Vec<FieldError> {
        match old.spec.serial.is_some() && new.spec.serial != old.spec.serial || new.spec.serial.as_deref() == Some("B")
        {
            true => vec![FieldError::forbidden(
                &FieldPath::new("spec").child("serial"),
                "is immutable",
            )],
            false => Vec::new(),
        }
    }

    fn canonicalize(&self, new: &mut Robot) {
        new.spec.places.sort();
    }
}

/// Charges the battery, and tells its charge.
pub struct Charge;

#[derive(Deserialize, JsonSchema)]
pub struct ChargeRequest {
    /// Per cent to add.
    percent: u8,
}

#[derive(Serialize, JsonSchema)]
pub struct ChargeAnswer {
    /// Per cent afterwards.
    charge: u8,
}

impl Subresource<Robot> for Charge {
    type Request = ChargeRequest;
    type Response = ChargeAnswer;
    const VERBS: &'static [Verb] = &[Verb::Get, Verb::Create];
    const KIND: Option<&'static str> = Some("Charge");

    async fn call(&self, call: Call<Robot, ChargeRequest>) -> Result<Reply<Robot, ChargeAnswer>, Refusal> {
        let mut robot = call.object;
        let now = robot.status.as_ref().map_or(0, |status| status.charge);
        if call.verb == Verb::Get {
            return Ok(Reply::text(format!("{now} %\n")));
        }
        let Some(request) = call.request else {
            return Err(Refusal::BadRequest("a body with `percent` is required".into()));
        };
        if request.percent > 100 {
            let at = FieldPath::new("percent");
            return Err(Refusal::Invalid(vec![FieldError::invalid(
                &at,
                &request.percent.into(),
                "at most 100",
            )]));
        }
        let charge = now.saturating_add(request.percent).min(100);
        robot.status = Some(RobotStatus { charge });
        Ok(Reply::new(ChargeAnswer { charge }).update_status(robot))
    }
}

pub mod v1alpha1 {
    use super::*;

    /// A machine that moves on its own, as it was described first.
    #[derive(Resource, Clone, Debug)]
    #[resource(
        group = "fleet.example.com",
        version = "v1alpha1",
        deprecated = "use fleet.example.com/v1"
    )]
    pub struct Robot {
        pub metadata: ObjectMeta,
        pub spec: RobotSpec,
        pub status: Option<RobotStatus>,
    }

    #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default)]
    pub struct RobotSpec {
        /// Occupation of the robot.
        pub mode: Option<String>,
        /// Places to visit, commas between.
        #[serde(default)]
        pub route: String,
        /// Color of the body.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub color: Option<String>,
        /// Remark.
        #[serde(default)]
        pub note: String,
    }

    pub struct Defaults;

    impl Strategy<Robot> for Defaults {
        fn default(&self, new: &mut Robot) {
            if new.spec.note.is_empty() {
                new.spec.note = "from v1alpha1".into();
            }
        }
    }

    impl From<super::Robot> for Robot {
        fn from(robot: super::Robot) -> Self {
            let spec = RobotSpec {
                mode: robot.spec.mode,
                route: robot.spec.places.join(","),
                ..RobotSpec::default()
            };
            Self {
                metadata: robot.metadata,
                spec,
                status: robot.status,
            }
        }
    }

    impl From<Robot> for super::Robot {
        fn from(robot: Robot) -> Self {
            let places = robot.spec.route.split(',').filter(|place| !place.is_empty());
            let spec = super::RobotSpec {
                mode: robot.spec.mode,
                places: places.map(str::to_owned).collect(),
                serial: None,
            };
            Self {
                metadata: robot.metadata,
                spec,
                status: robot.status,
            }
        }
    }
}

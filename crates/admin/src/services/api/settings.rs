//! `ApiService`: settings of an export.

use super::{
    objects::{check_etag, export_message},
    once,
};
use crate::{
    fields::Mask,
    services::retry::retried,
    session::{AdminService, Session},
    status::invalid,
};
use insula_api::{Json, LabelSelector, Verb, kinds::MaxHeld};
use insula_proto::admin::v1::{RolloutStep, UpdateExportRequest, UpdateExportResponse, rollout_step};
use serde_json::json;
use tonic::Status;

/// Steps of a rollout, as many as an APIExport may have.
const STEPS_MAX: usize = 20;
/// Days for which a use of a version may count.
const RETIREMENT_DAYS_MAX: i32 = 3650;
/// Strategies of rollouts.
const STRATEGIES: [&str; 2] = ["PerBinding", "AllOrNothing"];

impl AdminService {
    pub(super) async fn changed_export(
        &self,
        session: &Session,
        request: UpdateExportRequest,
    ) -> Result<UpdateExportResponse, Status> {
        let located = session.export_workspace(&request.workspace, &request.export, Verb::Update, "")?;
        let mask = mask(&request)?;
        check(&request, &mask)?;
        let max_held = max_held(&request, &mask)?;
        let once = once(&request.request_id, request.validate_only);
        let work = async {
            let (name, etag) = (request.export.as_str(), request.etag.as_str());
            let (changed, request, mask, located) = (session, &request, &mask, &located);
            retried(session, etag, move |snapshot| async move {
                let (_, mut value) = changed.find_export(&snapshot, located, name)?;
                check_etag(etag, ("apiexports", name), Some(&value))?;
                let new = with_settings(&value, request, max_held, mask);
                if new["spec"] != value["spec"] {
                    value = changed.write(located, &new, request.validate_only).await?;
                }
                Ok(UpdateExportResponse {
                    header: changed.header_of(&value),
                    export: Some(export_message(&located.path, &value)),
                })
            })
            .await
        };
        self.once(session, once, &request, work).await
    }
}

fn mask(request: &UpdateExportRequest) -> Result<Mask, Status> {
    let known = [
        ("strategy", !request.strategy.is_empty()),
        ("paused", request.paused),
        ("steps", !request.steps.is_empty()),
        ("retirement_days", request.retirement_days != 0),
        ("max_held", !request.max_held.is_empty()),
    ];
    Mask::read(request.update_mask.as_ref(), &known)
}

/// Refuses settings that no export may have, by the names of the request's fields.
fn check(request: &UpdateExportRequest, mask: &Mask) -> Result<(), Status> {
    let strategy = request.strategy.as_str();
    if mask.has("strategy") && !strategy.is_empty() && !STRATEGIES.contains(&strategy) {
        let problem = format!("is {strategy:?}: choose {}", STRATEGIES.join(" or "));
        return Err(invalid("strategy", problem));
    }
    let days = request.retirement_days;
    if mask.has("retirement_days") && !(0..=RETIREMENT_DAYS_MAX).contains(&days) {
        let problem = format!("is {days}: choose 0 to {RETIREMENT_DAYS_MAX}");
        return Err(invalid("retirement_days", problem));
    }
    if request.steps.len() > STEPS_MAX {
        let problem = format!("has {} items: at most {STEPS_MAX} are possible", request.steps.len());
        return Err(invalid("steps", problem));
    }
    for (index, sent) in request.steps.iter().enumerate() {
        let field = |name: &str| format!("steps[{index}]{name}");
        match &sent.of {
            None => return Err(invalid(&field(""), "needs selector or percentage")),
            Some(rollout_step::Of::Percentage(share)) if !(1..=100).contains(share) => {
                return Err(invalid(&field(".percentage"), format!("is {share}: choose 1 to 100")));
            }
            Some(rollout_step::Of::Percentage(_)) => {}
            Some(rollout_step::Of::Selector(_)) => {
                LabelSelector::from_json(&step(sent)["selector"])
                    .map_err(|error| invalid(&field(".selector"), format!("is none: {error}")))?;
            }
        }
        if sent.pause_seconds < 0 {
            return Err(invalid(&field(".pause_seconds"), "must not be negative"));
        }
    }
    Ok(())
}

/// Reads the bindings that may stay; `None` for 0, and if the mask leaves them as they are.
fn max_held(request: &UpdateExportRequest, mask: &Mask) -> Result<Option<MaxHeld>, Status> {
    let text = request.max_held.as_str();
    if text.is_empty() || !mask.has("max_held") {
        return Ok(None);
    }
    let read = text.parse();
    read.map(Some)
        .map_err(|error| invalid("max_held", format!("is {text:?}: {error}")))
}

/// Returns the export with the settings that a mask names. Other parts of it stay.
fn with_settings(export: &Json, request: &UpdateExportRequest, max_held: Option<MaxHeld>, mask: &Mask) -> Json {
    let mut new = export.clone();
    let spec = &mut new["spec"];
    let mut set = |part: &str, field: &str, value: Option<Json>| {
        let absent = !spec[part].is_object();
        match value {
            None if absent => {}
            None => drop(spec[part].as_object_mut().map(|part| part.remove(field))),
            Some(value) if absent => spec[part] = json!({field: value}),
            Some(value) => spec[part][field] = value,
        }
    };
    if mask.has("strategy") {
        let strategy = (!request.strategy.is_empty()).then(|| request.strategy.as_str().into());
        set("rollout", "strategy", strategy);
    }
    if mask.has("paused") {
        set("rollout", "paused", request.paused.then_some(true.into()));
    }
    if mask.has("steps") {
        let steps: Vec<Json> = request.steps.iter().map(step).collect();
        set("rollout", "steps", (!steps.is_empty()).then_some(steps.into()));
    }
    if mask.has("max_held") {
        set("rollout", "maxHeld", max_held.map(MaxHeld::to_json));
    }
    if mask.has("retirement_days") {
        set("retirement", "days", Some(request.retirement_days.into()));
    }
    new
}

fn step(step: &RolloutStep) -> Json {
    let mut json = match &step.of {
        None => json!({}),
        Some(rollout_step::Of::Percentage(share)) => json!({"percentage": share}),
        Some(rollout_step::Of::Selector(selector)) => {
            let mut labels = json!({});
            if !selector.match_labels.is_empty() {
                labels["matchLabels"] = json!(selector.match_labels);
            }
            let requirements = selector.match_expressions.iter().map(|it| {
                let mut requirement = json!({"key": it.key, "operator": it.operator});
                if !it.values.is_empty() {
                    requirement["values"] = json!(it.values);
                }
                requirement
            });
            let requirements: Vec<Json> = requirements.collect();
            if !requirements.is_empty() {
                labels["matchExpressions"] = requirements.into();
            }
            json!({"selector": labels})
        }
    };
    if step.pause_seconds > 0 {
        json["pauseSeconds"] = step.pause_seconds.into();
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_a_mask_does_not_name_stay() {
        let export = json!({"spec": {"rollout": {"strategy": "AllOrNothing", "paused": true, "maxHeld": 2}}});
        let request = UpdateExportRequest {
            steps: vec![RolloutStep {
                of: Some(rollout_step::Of::Percentage(5)),
                pause_seconds: 60,
            }],
            retirement_days: 7,
            ..UpdateExportRequest::default()
        };
        let asked = mask(&request).unwrap();
        assert_eq!(
            with_settings(&export, &request, None, &asked)["spec"],
            json!({
                "rollout": {"strategy": "AllOrNothing", "paused": true, "maxHeld": 2,
                            "steps": [{"percentage": 5, "pauseSeconds": 60}]},
                "retirement": {"days": 7},
            })
        );
        let share = UpdateExportRequest {
            max_held: "10%".to_owned(),
            ..UpdateExportRequest::default()
        };
        let asked = mask(&share).unwrap();
        let max_held = max_held(&share, &asked).unwrap();
        let spec = &with_settings(&export, &share, max_held, &asked)["spec"];
        assert_eq!(spec["rollout"]["maxHeld"], "10%");
        assert_eq!(spec["rollout"]["strategy"], "AllOrNothing");
        let cleared = Mask::read(
            Some(&prost_types::FieldMask {
                paths: vec!["*".to_owned()],
            }),
            &[
                ("strategy", false),
                ("paused", false),
                ("steps", false),
                ("max_held", false),
            ],
        );
        let none = UpdateExportRequest::default();
        assert_eq!(
            with_settings(&export, &none, None, &cleared.unwrap())["spec"],
            json!({"rollout": {}})
        );
    }
}

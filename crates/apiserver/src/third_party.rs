//! ThirdPartyResources over HTTP: the documents below `/thirdparty`, and the setting that switches
//! both generations off.

use crate::discovery;
use insula_api::Json;
use insula_catalog::{Error, Served, registration};
use insula_pipeline::{Refusal, third_party::is_first_generation};
use serde_json::json;

/// Returns the name of a new object whose path names it; the body may leave the name out.
///
/// # Errors
/// 400 if path and body name different objects.
pub(crate) fn name_by_path(new: &mut Json, name: &str) -> Result<(), Refusal> {
    match new["metadata"]["name"].as_str().unwrap_or_default() {
        "" => new["metadata"]["name"] = json!(name),
        given if given != name => {
            let why = format!("the name of the object ({given}) does not match the name on the URL ({name})");
            return Err(Refusal::from(Error::BadRequest(why)));
        }
        _ => {}
    }
    Ok(())
}

/// Removes the resources of ThirdPartyResources, and the registrations, while the setting is off.
pub(crate) fn without_switched_off(is_on: bool, mut served: Vec<Served>) -> Vec<Served> {
    if !is_on {
        served.retain(|served| !served.is_third_party());
    }
    served
}

/// Returns the discovery document of `/thirdparty`, of a group below it, or of a version of a
/// group. `None` if nothing is served there.
pub(crate) fn document(served: &[Served], group: Option<&str>, version: Option<&str>) -> Option<Json> {
    let mut own: Vec<&Served> = served.iter().filter(|served| is_first_generation(served)).collect();
    own.retain(|served| group.is_none_or(|group| **served.group() == *group));
    let Some(group) = group else {
        let mut names: Vec<&str> = own.iter().map(|served| &**served.group()).collect();
        names.dedup();
        let groups: Vec<Json> = names.into_iter().map(|name| group_of(&own, name)).collect();
        return Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}));
    };
    if own.is_empty() {
        return None;
    }
    let Some(version) = version else {
        let mut body = group_of(&own, group);
        body["kind"] = json!("APIGroup");
        body["apiVersion"] = json!("v1");
        return Some(body);
    };
    let entries = own.into_iter().filter_map(|served| {
        let version = served.served_versions().find(|served| *served.name == *version)?;
        Some(discovery::resource_entries(served, version))
    });
    let entries: Vec<Json> = entries.flatten().collect();
    (!entries.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/{version}"),
            "resources": entries,
        })
    })
}

/// Returns a group with the versions of its registrations, in their order.
fn group_of(served: &[&Served], group: &str) -> Json {
    let mut versions: Vec<Json> = Vec::new();
    for served in served.iter().filter(|served| **served.group() == *group) {
        for version in served.served_versions() {
            let entry = json!({"groupVersion": served.api_version(&version.name), "version": &*version.name});
            if !versions.contains(&entry) {
                versions.push(entry);
            }
        }
    }
    json!({"name": group, "preferredVersion": versions.first(), "versions": versions})
}

/// Returns the path of the documents of a version: `apis/<group>/<version>`, or below `thirdparty`
/// for versions with a slash.
pub(crate) fn root(group: &str, version: &str) -> String {
    match registration::is_nested(version) {
        true => format!("thirdparty/{group}/{version}"),
        false => format!("apis/{group}/{version}"),
    }
}

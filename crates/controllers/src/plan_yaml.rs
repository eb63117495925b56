//! Plans as YAML, for logs and tests.

use insula_api::{Json, ObjectKey};
use insula_catalog::ids;
use insula_registry::{Intent, Plan};
use serde::Serialize;
use serde_json::{Map, json};
use std::fmt;

/// Displays a plan as YAML: a list of its intents, and the pause until the next look.
///
/// An update shows the fields that it changes, as a JSON merge patch. An update that changes
/// nothing is left out, as it is not written. The content of Secrets is redacted, and large objects
/// are not shown.
pub(crate) struct PlanYaml<'a>(pub(crate) &'a Plan);

/// Bytes of JSON of an object or a change that is shown.
const SHOWN_BYTES_MAX: usize = 16 * 1024;

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    intents: Vec<Step>,
    #[serde(skip_serializing_if = "Option::is_none")]
    again_after_seconds: Option<u64>,
}

/// One intent: a verb with the key of its object.
#[derive(Default, Serialize)]
struct Step {
    #[serde(skip_serializing_if = "Option::is_none")]
    create: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    update: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rewrite: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delete: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unchanged: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    absent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serialize: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Json>,
}

impl fmt::Display for PlanYaml<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let document = Document {
            intents: self.0.intents.iter().filter_map(step).collect(),
            again_after_seconds: self.0.again_after,
        };
        f.write_str(&serde_saphyr::to_string(&document).map_err(|_| fmt::Error)?)
    }
}

fn step(intent: &Intent) -> Option<Step> {
    let mut step = Step::default();
    match intent {
        Intent::Create(key, value) => {
            step.create = Some(name(key));
            step.object = Some(shown(key, value.clone()));
        }
        Intent::Update(entry, value) => {
            step.update = Some(name(&entry.key));
            let changes = changes(&entry.object.body_value(), value)?;
            step.changes = Some(shown(&entry.key, changes));
        }
        Intent::Rewrite(entry, _) => step.rewrite = Some(name(&entry.key)),
        Intent::Delete(entry) => step.delete = Some(name(&entry.key)),
        Intent::Expect(key, Some(_)) => step.unchanged = Some(name(key)),
        Intent::Expect(key, None) => step.absent = Some(name(key)),
        Intent::Sign(point) => step.serialize = Some(format!("{point:?}")),
    }
    Some(step)
}

/// Names an object: `widgets.example.io root/default/a`.
fn name(key: &ObjectKey) -> String {
    let mut name = key.resource.resource.to_string();
    if !key.resource.group.is_empty() {
        name = format!("{name}.{}", key.resource.group);
    }
    let namespace = match key.namespace.is_empty() {
        true => String::new(),
        false => format!("{}/", key.namespace),
    };
    format!("{name} {}/{namespace}{}", key.cluster, key.name)
}

/// Returns the JSON merge patch from one value to another, if they differ.
fn changes(old: &Json, new: &Json) -> Option<Json> {
    if old == new {
        return None;
    }
    let (Json::Object(old), Json::Object(new)) = (old, new) else {
        return Some(new.clone());
    };
    let removed = old.keys().filter(|key| !new.contains_key(*key));
    let mut patch: Map<String, Json> = removed.map(|key| (key.clone(), Json::Null)).collect();
    for (key, value) in new {
        let change = old
            .get(key)
            .map_or_else(|| Some(value.clone()), |old| changes(old, value));
        patch.extend(change.map(|change| (key.clone(), change)));
    }
    Some(Json::Object(patch))
}

fn shown(key: &ObjectKey, mut value: Json) -> Json {
    if key.resource == ids::secrets() {
        for field in ["data", "stringData"] {
            if value.get(field).is_some() {
                value[field] = json!("(redacted)");
            }
        }
    }
    match value.to_string().len() {
        bytes if bytes > SHOWN_BYTES_MAX => json!(format!("({bytes} bytes)")),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::PlanYaml;
    use expect_test::expect;
    use insula_api::{ClusterName, Object, ObjectKey, Revision};
    use insula_catalog::ids;
    use insula_registry::{Intent, Plan};
    use insula_store::Entry;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn a_plan_prints_its_changes_and_no_secrets() {
        let root = ClusterName::root();
        let key = ObjectKey::cluster_scoped(ids::workspaces(), root.clone(), "a");
        let old = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "a"},
            "spec": {"cluster": "c", "URL": "u"}, "status": {"phase": "Scheduling"}});
        let mut new = old.clone();
        new["status"]["phase"] = json!("Ready");
        new["spec"] = json!({"cluster": "c", "type": {"name": "universal"}});
        let entry = Entry {
            key: key.clone(),
            object: Arc::new(Object::new(&old, None).expect("an object")),
            revision: Revision(7),
            created: Revision(7),
        };
        let secret = ObjectKey {
            resource: ids::secrets(),
            cluster: root.clone(),
            namespace: "default".into(),
            name: "key".into(),
        };
        let plan = Plan {
            intents: vec![
                Intent::Expect(ids::logical_cluster(&root), Some(Revision(3))),
                Intent::Update(entry.clone(), old),
                Intent::Update(entry, new),
                Intent::Create(secret, json!({"kind": "Secret", "data": {"key": "c2VjcmV0"}})),
            ],
            again_after: Some(30),
        };
        expect![[r#"
            intents:
            - unchanged: logicalclusters.core.kcp.io root/cluster
            - update: workspaces.tenancy.kcp.io root/a
              changes:
                spec:
                  URL: null
                  type:
                    name: universal
                status:
                  phase: Ready
            - create: secrets root/default/key
              object:
                data: (redacted)
                kind: Secret
            againAfterSeconds: 30
        "#]]
        .assert_eq(&PlanYaml(&plan).to_string());
    }
}

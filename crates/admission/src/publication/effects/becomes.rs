//! Description of what becomes of the values or objects that an effect reaches.

use super::{
    Effect, names,
    paths::{is_of_embedded, list_around},
};
use insula_catalog::Api;
use insula_conversion::SchemaPath;
use std::borrow::Cow;

impl Effect {
    /// Looks up what is around its path, and in the other versions.
    pub(super) fn place_in(&mut self, after: &Api) {
        let schema = after.bundle.schema(&self.version);
        let list = schema.and_then(|schema| list_around(&self.path, schema.root()));
        self.list = list.unwrap_or_default().to_owned();
        self.is_unforgiven = schema.is_some_and(|schema| is_of_embedded(&self.path, schema.root()));
        self.is_elsewhere = self.is_elsewhere_in(after);
    }

    /// Returns true if a served version beside its own has a field at its path.
    fn is_elsewhere_in(&self, after: &Api) -> bool {
        let Ok(path) = SchemaPath::parse(&self.path) else {
            return false;
        };
        let lacking: Vec<&str> = after.bundle.lacking(&path).collect();
        let mut served = after.bundle.served();
        served.any(|version| version != self.version && !lacking.contains(&version))
    }

    /// Returns what becomes of the values or objects that it reaches.
    pub fn becomes(&self) -> Cow<'static, str> {
        let (is, without) = match self.kind {
            names::VALUE_REFUSED => ("shown as it is", "while it is there"),
            names::FIELD_REQUIRED => ("absent where it is required", "without it"),
            _ => return self.becomes_alone().into(),
        };
        match &*self.list {
            _ if self.is_unforgiven => format!("{is}; every write of the object is refused {without}").into(),
            "" => self.becomes_alone().into(),
            list => format!("{is}; a write that changes anything in the list {list} is refused {without}").into(),
        }
    }

    fn becomes_alone(&self) -> &'static str {
        match self.kind {
            names::FIELD_REMOVED if self.is_lossy => {
                "shown no longer in this version, and gone with the next write through it, as in Kubernetes"
            }
            names::FIELD_REMOVED if self.is_elsewhere => {
                "shown no longer in this version; kept, and served versions that have the field show it"
            }
            names::FIELD_REMOVED if self.is_local => {
                "shown no longer; kept until `insula conversion retire`, and shown if the field returns"
            }
            names::FIELD_REMOVED => {
                "shown no longer; kept until `insula export retire --field`, and shown if the field returns"
            }
            names::VALUE_REFUSED if self.detail == insula_schema::NULL_REFUSED => {
                "shown as it is; any write of the object drops it, as in Kubernetes, and it does not come back"
            }
            names::VALUE_REFUSED => "shown as it is; a write that changes it is refused",
            names::CHANGE_REFUSED => {
                "shown as it is, and valid; a rule compares what is written with it, and may refuse a change"
            }
            names::FIELD_REQUIRED => "absent where it is required; a write that changes the object may be refused",
            names::DEFAULT_CHANGED => "another value, or none, is read where none was written",
            names::DEFAULT_ADDED => "the default is read where nothing was written",
            names::API_REMOVED => {
                "served on in a workspace until its last object is deleted, and no release changes it"
            }
            names::VERSION_REMOVED => "404 for clients of the version",
            names::VALUE_HIDDEN if self.begins && self.is_lossy => {
                "not shown in this version, and gone with the next write through it, as in Kubernetes"
            }
            names::VALUE_HIDDEN if self.begins => "not shown in this version",
            names::VALUE_HIDDEN => "shown no longer",
            names::VALUE_CHANGED => "another value is read",
            names::VALUE_ADDED => "a value is read where none was shown",
            names::WRITE_HIDDEN => "shown as it is until the next write in that version, and nothing of it afterwards",
            names::WRITE_CHANGED => {
                "shown as it is until the next write in that version, and as another value afterwards"
            }
            names::WRITE_ADDED => {
                "shown as it is until the next write in that version, and with a value where none was afterwards"
            }
            names::COLUMN_REMOVED => "not in the tables of kubectl",
            names::NAME_REMOVED => "not found by commands that say the name",
            names::VERSION_STORED => {
                "no release without the version is taken, and no word accepts it: keep it in spec.versions, not \
                 served, until they were written in another storage version"
            }
            names::UNREADABLE => "what was served before is served on in the workspace",
            _ => "clients may fail",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Generation,
        tests::{api, fields, v1},
    };
    use insula_api::Object;
    use insula_meter::Meter;
    use serde_json::json;

    #[test]
    fn an_embedded_resource_is_validated_with_each_write() {
        let template = |embedded: bool| {
            fields(
                json!({"template": {"type": "object", "x-kubernetes-embedded-resource": embedded,
                "x-kubernetes-preserve-unknown-fields": true}}),
            )
        };
        let (before, after) = (api(&[v1(template(false))]), api(&[v1(template(true))]));
        let spec = json!({"template": {"kind": "Pod"}});
        let value = json!({"apiVersion": "example.io/v1", "kind": "Pump", "metadata": {"name": "main"}, "spec": spec});
        let mut effects = Generation::new(&before, &after, &Meter::unbounded());
        let object = Object::new(&value, None).expect("an object");
        let found = effects.of_object(&object, &value, &mut None);
        assert!(!found.is_empty());
        for mut effect in found.into_iter().map(|at| effects.found[at].clone()) {
            effect.place_in(&after);
            let told = effect.becomes();
            assert!(
                effect.path.starts_with(".spec.template") && told.contains("every write of the object is refused"),
                "{}: {told}",
                effect.id()
            );
        }
    }
}

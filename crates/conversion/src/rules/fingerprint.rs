//! Fingerprints of rules: equal for rules that convert alike, in every notation and order of
//! directions. Stored with objects, so they must never change.

use super::{Direction, Rule, Source, Template};
use crate::trace::Inputs;
use insula_api::Json;
use serde_json::{Map, json};

impl Direction {
    /// Returns the first 64 bits of the SHA-256 of the direction's rules. Paths in error messages,
    /// `mayFail` and `preserve` do not count: they change no conversion.
    pub(crate) fn fingerprint(&self) -> u64 {
        let drop: Vec<String> = self.drop.iter().map(ToString::to_string).collect();
        let normal = json!({
            "from": self.from, "to": self.to, "drop": drop,
            "rules": self.rules.iter().map(rule).collect::<Json>(),
        });
        let mut hash = Inputs::default();
        hash.value(Some(&normal));
        hash.finish()
    }
}

fn rule(rule_: &Rule) -> Json {
    let mut out = Map::new();
    let (form, source) = match &rule_.source {
        Source::Field(path) => ("field", path.to_string()),
        Source::Expression(text) => ("expression", text.clone()),
    };
    out.insert(form.to_owned(), Json::String(source));
    out.insert("to".to_owned(), Json::String(rule_.destination.to_string()));
    out.insert("moves".to_owned(), Json::Bool(rule_.moved().is_some()));
    if let Some(computed) = &rule_.transformation {
        out.insert("computed".to_owned(), template(computed));
    }
    if !rule_.item_rules.is_empty() {
        out.insert("items".to_owned(), rule_.item_rules.iter().map(rule).collect());
        out.extend(rule_.set.iter().map(|set| ("set".to_owned(), Json::from(set.as_str()))));
    }
    if let Some(set) = &rule_.uses {
        out.insert("uses".to_owned(), Json::from(set.as_str()));
    }
    if rule_.only_if_absent {
        out.insert("onlyIfAbsent".to_owned(), Json::Bool(true));
    }
    Json::Object(out)
}

fn template(computed: &Template) -> Json {
    match computed {
        Template::Expression(text) => json!({"expression": text}),
        Template::Fields(fields) => {
            let fields: Map<String, Json> = fields.iter().map(|(name, it)| (name.clone(), template(it))).collect();
            json!({"fields": fields})
        }
        Template::Items(items) => json!({"items": items.iter().map(template).collect::<Json>()}),
        Template::Constant(value) => json!({"constant": value}),
    }
}

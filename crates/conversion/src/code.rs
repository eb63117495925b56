//! Conversions by functions of a program, in place of rules.
//!
//! The algebra is that of rules: what a function loses on its way to another version is kept in the
//! residual. A function has no traced inputs, so a preserved value gives way only to an edit that
//! changes the function's result at that path.

use crate::bundle::{Bundle, LossPolicy};
use crate::convert::Converter;
use crate::error::{Cause, ConvertError};
use insula_api::{FieldError, FieldPath, Json};
use std::{fmt, sync::Arc};

/// A function from an object of one version to the object of another. It sees the whole object; of
/// its result, all fields but `apiVersion`, `kind` and `metadata` count.
pub type ConvertFn = Arc<dyn Fn(&Json) -> Result<Json, String> + Send + Sync>;

/// The conversion of one direction, as code.
#[derive(Clone)]
pub struct Code {
    /// The version converted from.
    pub from: String,
    /// The version converted to.
    pub to: String,
    /// The function. Its error is a message for the client, and names no values.
    pub convert: ConvertFn,
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({} → {})", self.from, self.to)
    }
}

impl Bundle {
    /// Replaces the plans of some directions by code. Each direction is one between the storage
    /// version and another one. The bundle becomes lossless.
    ///
    /// # Errors
    /// Returns an error for each direction that does not exist.
    pub fn with_code(mut self, codes: Vec<Code>, path: &FieldPath) -> Result<Bundle, Vec<FieldError>> {
        let mut errors = Vec::new();
        for code in codes {
            let known = self.pair(&code.from, &code.to);
            let Some(converter) = known.and_then(|pair| self.converters.get_mut(&pair)) else {
                let why = format!("no direct conversion from {} to {}", code.from, code.to);
                errors.push(FieldError::invalid_text(path, "", why));
                continue;
            };
            converter.ruled = true;
            converter.decided = true;
            converter.code = Some(code.convert);
            self.loss_policy = LossPolicy::Lossless;
            self.without_union();
            // Code may move any field.
            if let Some((a, b)) = known {
                self.claims.remove(&(a.min(b), a.max(b)));
            }
        }
        match errors.is_empty() {
            true => Ok(self),
            false => Err(errors),
        }
    }

    fn pair(&self, from: &str, to: &str) -> Option<(usize, usize)> {
        let at = |name: &str| self.versions.iter().position(|version| version.name == name);
        Some((at(from)?, at(to)?))
    }
}

impl fmt::Debug for Converter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.code.is_some() { " by code" } else { "" };
        write!(f, "Converter({} → {}{how})", self.from, self.to)
    }
}

impl Converter {
    /// Converts an object by code.
    pub(crate) fn run_code(&self, code: &ConvertFn, source: &Json) -> Result<Json, ConvertError> {
        let made = code(source).map_err(|why| ConvertError {
            group: self.group.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            rule: None,
            cause: Cause::Code(why),
        })?;
        let Json::Object(mut made) = made else {
            return Ok(source.clone());
        };
        for name in ["kind", "metadata"] {
            match source.get(name) {
                Some(own) => made.insert(name.to_owned(), own.clone()),
                None => made.remove(name),
            };
        }
        self.relabel(&mut made);
        let mut out = Json::Object(made);
        insula_schema::prune(&mut out, &self.schema);
        // A server drops such nulls from what a client sends back.
        insula_schema::drop_nulls(&mut out, &self.schema);
        if self.defaults {
            insula_schema::default(&mut out, &self.schema);
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{VersionSchema, proof, unmetered_budget};
    use insula_schema::Structural;
    use serde_json::json;

    fn version(name: &str, fields: Json) -> VersionSchema {
        let spec = json!({"type": "object", "properties": fields});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        let schema = Structural::parse_trusted(&schema).unwrap().into();
        VersionSchema {
            name: name.into(),
            served: true,
            schema,
        }
    }

    fn code(from: &str, to: &str, convert: fn(&Json) -> Result<Json, String>) -> Code {
        Code {
            from: from.into(),
            to: to.into(),
            convert: Arc::new(convert),
        }
    }

    fn bundle() -> Bundle {
        let text = json!({"type": "string"});
        let versions = vec![
            version("v1", json!({"name": text, "mood": text})),
            version("v1alpha1", json!({"title": text, "color": text})),
        ];
        let at = FieldPath::new("spec");
        let bundle = Bundle::compile("example.io", versions, "v1", None, LossPolicy::None, &at).unwrap();
        let down = |x: &Json| Ok(json!({"spec": {"title": x["spec"]["name"]}}));
        let up = |x: &Json| match &x["spec"]["title"] {
            title if *title == "bad" => Err("no such title".to_owned()),
            title => Ok(json!({"spec": {"name": title}})),
        };
        let codes = vec![code("v1", "v1alpha1", down), code("v1alpha1", "v1", up)];
        bundle.with_code(codes, &at).unwrap()
    }

    #[test]
    fn fields_that_code_does_not_carry_are_kept_in_both_directions() {
        let (bundle, mut budget) = (bundle(), unmetered_budget());
        let spec = json!({"title": "t", "color": "red"});
        let x = json!({"apiVersion": "example.io/v1alpha1", "metadata": {"name": "a"}, "spec": spec});
        let stored = bundle.put(&x, "v1alpha1", None, &mut budget).unwrap();
        assert_eq!(stored.value["spec"], json!({"name": "t"}));
        assert_eq!(stored.value["metadata"], x["metadata"]);
        let shown = |stored: &crate::ToStore, version| {
            bundle
                .get(stored.stored("v1"), version, &mut unmetered_budget())
                .unwrap()["spec"]
                .clone()
        };
        let y = json!({"apiVersion": "example.io/v1", "metadata": {"name": "a"}, "spec": {"name": "u", "mood": "ok"}});
        let stored = bundle.put(&y, "v1", Some(stored.stored("v1")), &mut budget).unwrap();
        assert_eq!(shown(&stored, "v1alpha1"), json!({"title": "u", "color": "red"}));
        let spec = json!({"title": "w", "color": "red"});
        let z = json!({"apiVersion": "example.io/v1alpha1", "metadata": {"name": "a"}, "spec": spec});
        let stored = bundle
            .put(&z, "v1alpha1", Some(stored.stored("v1")), &mut budget)
            .unwrap();
        assert_eq!(shown(&stored, "v1"), json!({"name": "w", "mood": "ok"}));
    }

    #[test]
    fn the_laws_hold_for_code() {
        let searched = proof::search(&bundle(), proof::Search::default()).unwrap();
        assert!(searched.writes > 100);
    }

    #[test]
    fn an_error_of_code_names_the_versions() {
        let x = json!({"apiVersion": "example.io/v1alpha1", "spec": {"title": "bad"}});
        let error = bundle().put(&x, "v1alpha1", None, &mut unmetered_budget()).unwrap_err();
        let text = "converting example.io/v1alpha1 to v1: no such title";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn code_for_an_unknown_direction_is_refused() {
        let codes = vec![code("v1", "v3", |x| Ok(x.clone()))];
        let errors = bundle().with_code(codes, &FieldPath::new("spec")).unwrap_err();
        assert_eq!(errors[0].detail, "no direct conversion from v1 to v3");
    }
}

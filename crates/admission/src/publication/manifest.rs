//! A schema with its conversion rules, as files or requests bring them.

use super::text;
use crate::kinds::check_schema;
use insula_api::{FieldError, FieldPath, Json};
use insula_catalog::{Api, bundle, compile};
use insula_conversion::{
    LossPolicy, RuleSet, parse_rules,
    proof::{self, Search},
    rules_in_schema,
};
use insula_meter::Meter;

/// An APIResourceSchema or a CustomResourceDefinition, and the rules outside of it.
#[derive(Debug, Clone, Copy)]
pub struct Manifest<'a> {
    /// The schema or definition.
    pub schema: &'a Json,
    /// The rules: an APIConversion, or several joined ones.
    pub conversion: Option<&'a Json>,
    /// The payer of its compilation and of the searches in it. Once it has ended, their results are
    /// no verdict.
    pub meter: &'a Meter,
}

/// Drops the rules inside a schema.
pub fn without_rules(schema: &mut Json) {
    let spec = &mut schema["spec"];
    if let Some(conversion) = spec.get_mut("conversion").and_then(Json::as_object_mut) {
        conversion.retain(|name, _| name != "hub" && name != "conversions");
    }
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("hubVersion");
    }
    for version in spec["versions"].as_array_mut().into_iter().flatten() {
        version.as_object_mut().map(|version| version.remove("conversion"));
    }
}

impl Manifest<'_> {
    /// Returns true for a CustomResourceDefinition.
    pub fn is_definition(&self) -> bool {
        text(self.schema, "/kind") == "CustomResourceDefinition"
    }

    /// Returns the errors of the schema alone.
    pub fn schema_errors(&self) -> Vec<FieldError> {
        if self.is_definition() {
            insula_schema::validate_definition(self.schema)
        } else {
            check_schema(self.schema)
        }
    }

    /// Returns the rules, inside or outside of the schema.
    ///
    /// # Errors
    /// The errors of rules that do not parse.
    pub fn rules(&self) -> Result<Option<RuleSet>, Vec<FieldError>> {
        match self.conversion {
            Some(conversion) => Ok(Some(parse_rules(&conversion["spec"], &FieldPath::new("spec"))?)),
            None if self.is_definition() => Ok(None),
            None => Ok(rules_in_schema(self.schema)?),
        }
    }

    /// Compiles the API as the server would serve it.
    ///
    /// # Errors
    /// The errors of admission, or of the schema.
    pub fn compile(&self) -> Result<Api, Vec<FieldError>> {
        let errors = self.schema_errors();
        if !errors.is_empty() {
            return Err(errors);
        }
        self.assemble()
    }

    /// Compiles the API without the checks of admission, so that a refused API can be examined,
    /// too.
    ///
    /// # Errors
    /// The errors of the compilation.
    pub fn assemble(&self) -> Result<Api, Vec<FieldError>> {
        let api = self.compiled()?;
        // Sequences of writes are for `conversion test`, and take longer.
        let edges = Search {
            cases: 0,
            ..Search::default()
        };
        proof::prove(&api.bundle, edges, self.meter)?;
        Ok(api)
    }

    /// Returns all findings of the server's search; `None` if the API does not compile, or there
    /// are none.
    pub fn findings(&self) -> Option<Vec<FieldError>> {
        let api = self
            .schema_errors()
            .is_empty()
            .then(|| self.compiled().ok())
            .flatten()?;
        proof::prove(&api.bundle, Search::default(), self.meter).err()
    }

    /// Compiles it without the search for counterexamples.
    ///
    /// # Errors
    /// Schema or rules do not compile.
    pub(super) fn compiled(&self) -> Result<Api, Vec<FieldError>> {
        let Manifest { schema, conversion, .. } = *self;
        let whole = match (self.is_definition(), conversion) {
            (false, conversion) => bundle::of_schema(schema, conversion),
            (true, Some(conversion)) => bundle::of_definition(schema, conversion),
            (true, None) => schema.clone(),
        };
        // The conversion of a definition names a webhook, which is not called here.
        let plain = self.is_definition() && conversion.is_none();
        let definition = compile::Definition {
            spec: &whole["spec"],
            accepted_names: None,
            rules: whole.get("rules").filter(|rules| rules.is_object()),
            strategy: if plain { LossPolicy::None } else { LossPolicy::Lossless },
            strict_scale: false,
        };
        compile::compile(&definition, None)
    }
}

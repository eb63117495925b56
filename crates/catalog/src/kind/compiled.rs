//! Kinds that a program adds to the server.

use crate::{Api, Builtin, Strategy, Subresource, SubresourceHandler, system};
use insula_api::{FieldError, Json};
use insula_conversion::Code;

/// A kind that a program adds to the server: a definition as tenants write them, with behaviour as
/// built-in kinds have. It lives as long as the program.
pub struct CompiledKind {
    /// A CustomResourceDefinition.
    pub definition: Json,
    /// Conversion between its versions.
    pub conversion: CompiledConversion,
    /// Behaviour that the definition cannot express.
    pub strategy: Box<dyn Strategy>,
    /// Subresources beside `status` and `scale`, each with the function that answers.
    pub subresources: Vec<(Subresource, Box<dyn SubresourceHandler>)>,
}

/// Conversion between the versions of a kind.
pub enum CompiledConversion {
    /// Fields of the same name are the same; nothing is lost.
    Names,
    /// Rules of an APIConversion.
    Rules(Json),
    /// Functions to and from the storage version.
    Code(Vec<Code>),
}

impl CompiledKind {
    /// Compiles the kind as the server does at its start.
    ///
    /// # Errors
    /// Returns the field errors of a definition that is not valid or does not compile.
    pub fn api(mut self) -> Result<Api, Vec<FieldError>> {
        insula_schema::default_definition(&mut self.definition);
        let definition = self.definition.clone();
        let errors = insula_schema::validate_definition(&definition);
        if !errors.is_empty() {
            return Err(errors);
        }
        let builtin = self.into_builtin();
        let rules = builtin.conversions.map(system::yaml);
        system::compile_definition(&definition, rules.as_ref(), builtin)
    }

    /// Returns the kind as a built-in one. Its parts are never freed: a program has few kinds, and
    /// serves them to its end.
    fn into_builtin(self) -> &'static Builtin {
        let CompiledKind {
            definition,
            conversion,
            strategy,
            subresources,
        } = self;
        let (rules, code) = match conversion {
            CompiledConversion::Names => (None, Vec::new()),
            CompiledConversion::Rules(rules) => (Some(rules), Vec::new()),
            CompiledConversion::Code(code) => (None, code),
        };
        let text = |json: Json| -> &'static str { Box::leak(json.to_string().into_boxed_str()) };
        let mut named = Vec::new();
        let mut handlers: Vec<(&'static str, &'static dyn SubresourceHandler)> = Vec::new();
        for (subresource, handler) in subresources {
            named.push(subresource);
            handlers.push((subresource.name, Box::leak(handler)));
        }
        let conversions = rules.map(text);
        let builtin = Builtin {
            conversions,
            strategy: Box::leak(strategy),
            subresources: named.leak(),
            code: code.leak(),
            handlers: handlers.leak(),
            claimable: true,
            compiled: true,
            ..Builtin::new(text(definition))
        };
        Box::leak(Box::new(builtin))
    }
}

//! Kinds: a hub type with its strategy, other versions and subresources.

use crate::{
    Resource, Strategy, Subresource, convert, definition,
    strategy::{Adapter, Defaults, NoStrategy, defaults},
    subresource,
};
use insula_api::{FieldError, FieldPath, Json, aggregate};
use insula_catalog::{Api, CompiledConversion, CompiledKind, SubresourceHandler};
use insula_conversion::Code;
use insula_schema::Structural;
use serde_json::json;
use std::{collections::BTreeMap, fmt::Display, sync::Arc};

/// A kind as a server serves it: the hub type `T`, in whose version objects are stored, and
/// everything that belongs to it.
///
/// `#[derive(Resource)]` describes it by attributes; for a type of kube-rs it is built here:
///
/// ```
/// # use insula_sdk::{Kind, schemars::JsonSchema, serde::{Deserialize, Serialize}};
/// # use insula_sdk::kube::CustomResource;
/// #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #[kube(group = "fleet.example.com", version = "v1", kind = "Robot", namespaced)]
/// struct RobotSpec {
///     mode: String,
/// }
///
/// let kind = Kind::<Robot>::new();
/// assert_eq!(kind.name(), "robots.fleet.example.com");
/// ```
pub struct Kind<T: Resource> {
    definition: Json,
    strategy: Arc<dyn Strategy<T>>,
    /// Defaults of versions other than the hub's.
    defaults: BTreeMap<String, Defaults>,
    code: Vec<Code>,
    rules: Option<Json>,
    subresources: Vec<(insula_catalog::Subresource, Box<dyn SubresourceHandler>)>,
    mistakes: Vec<String>,
}

impl<T: Resource> Default for Kind<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Resource> Kind<T> {
    /// Returns the kind of a type, in its version alone.
    pub fn new() -> Self {
        Self {
            definition: definition_of::<T>(),
            strategy: Arc::new(NoStrategy),
            defaults: BTreeMap::new(),
            code: Vec::new(),
            rules: None,
            subresources: Vec::new(),
            mistakes: Vec::new(),
        }
    }

    /// Sets the strategy.
    #[must_use]
    pub fn strategy(mut self, strategy: impl Strategy<T>) -> Self {
        self.strategy = Arc::new(strategy);
        self
    }

    /// Adds a version that is converted to the hub type and from it by `From` or `TryFrom`. Fields
    /// that only one of the types has are kept: the server stores them beside the object.
    #[must_use]
    pub fn version<V>(self) -> Self
    where
        V: Resource + TryFrom<T>,
        T: TryFrom<V>,
        <V as TryFrom<T>>::Error: Display,
        <T as TryFrom<V>>::Error: Display,
    {
        self.version_with::<V>(NoStrategy)
    }

    /// Adds a version as [`Kind::version`] does, with defaults of its own. Of the strategy only
    /// [`Strategy::default`] runs.
    #[must_use]
    pub fn version_with<V>(mut self, strategy: impl Strategy<V>) -> Self
    where
        V: Resource + TryFrom<T>,
        T: TryFrom<V>,
        <V as TryFrom<T>>::Error: Display,
        <T as TryFrom<V>>::Error: Display,
    {
        self.code.extend([convert::code::<T, V>(), convert::code::<V, T>()]);
        self.add::<V>(strategy)
    }

    /// Adds a version that is converted by rules: `rules` is an APIConversion.
    #[must_use]
    pub fn version_by_rules<V: Resource>(mut self, rules: Json) -> Self {
        self.rules = Some(rules);
        self.add::<V>(NoStrategy)
    }

    fn add<V: Resource>(mut self, strategy: impl Strategy<V>) -> Self {
        let other = definition_of::<V>();
        for field in ["/spec/group", "/spec/names/kind", "/spec/names/plural", "/spec/scope"] {
            let (hub, own) = (self.definition.pointer(field), other.pointer(field));
            if hub != own {
                let version = V::version(&());
                let shown = |value: Option<&Json>| value.unwrap_or(&Json::Null).to_string();
                let why = format!("{field} of {version} is {}, and of the hub {}", shown(own), shown(hub));
                self.mistakes.push(why);
            }
        }
        let mut version = other["spec"]["versions"][0].clone();
        version["storage"] = json!(false);
        match schema_of(&version) {
            Ok(schema) => {
                let set = defaults::<V>(Arc::new(strategy), schema);
                self.defaults.insert(V::version(&()).into_owned(), set);
            }
            Err(errors) => self.mistakes.push(aggregate(&errors)),
        }
        if let Some(versions) = self.definition["spec"]["versions"].as_array_mut() {
            versions.push(version);
        }
        self
    }

    /// Adds a subresource, which `handler` answers.
    #[must_use]
    pub fn subresource<S: Subresource<T>>(mut self, name: &str, handler: S) -> Self {
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || !name.chars().all(is_word) {
            let why = format!("the subresource `{name}` must be lower-case letters, digits and `-`");
            self.mistakes.push(why);
        }
        if matches!(name, "status" | "scale") {
            let why = format!("the subresource `{name}` comes with the type: its field, or its attribute");
            self.mistakes.push(why);
        }
        if self.subresources.iter().any(|(known, _)| known.name == name) {
            self.mistakes.push(format!("the subresource `{name}` twice"));
        }
        self.subresources.push(subresource::described(name, handler));
        self
    }

    /// Returns the name of the definition: plural and group.
    pub fn name(&self) -> &str {
        self.definition["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Returns the CustomResourceDefinition with all versions, for example to install it elsewhere.
    pub fn definition(&self) -> &Json {
        &self.definition
    }

    /// Returns the kind as a server takes it.
    pub(crate) fn compiled(mut self) -> Result<CompiledKind, String> {
        let name = self.name().to_owned();
        let schema = schema_of(&self.definition["spec"]["versions"][0]);
        let schema = schema.map_err(|errors| self.mistakes.push(aggregate(&errors))).ok();
        let (Some(schema), true) = (schema, self.mistakes.is_empty()) else {
            return Err(format!("the kind {name}: {}", self.mistakes.join("; ")));
        };
        let hub = defaults::<T>(Arc::clone(&self.strategy), Arc::clone(&schema));
        self.defaults.insert(T::version(&()).into_owned(), hub);
        let adapter = Adapter {
            strategy: self.strategy,
            schema,
            defaults: self.defaults,
        };
        Ok(CompiledKind {
            definition: self.definition,
            conversion: match (self.rules, self.code) {
                (Some(rules), _) => CompiledConversion::Rules(rules),
                (None, code) if code.is_empty() => CompiledConversion::Names,
                (None, code) => CompiledConversion::Code(code),
            },
            strategy: Box::new(adapter),
            subresources: self.subresources,
        })
    }

    /// Returns the compiled API of the kind, as a server would serve it.
    pub(crate) fn api(self) -> Result<Api, String> {
        let name = self.name().to_owned();
        let compiled = self.compiled()?.api();
        compiled.map_err(|errors| format!("the kind {name}: {}", aggregate(&errors)))
    }
}

/// Returns the definition of a type as JSON, with one version.
fn definition_of<T: Resource>() -> Json {
    let mut definition = serde_json::to_value(T::crd()).expect("definitions are JSON");
    definition["spec"]["versions"][0]["storage"] = json!(true);
    if let Some(schema) = definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema") {
        definition::tidy(schema);
    }
    // Removes what the API drops as well, such as defaults of null.
    insula_schema::default_definition(&mut definition);
    definition
}

fn schema_of(version: &Json) -> Result<Arc<Structural>, Vec<FieldError>> {
    let schema = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default();
    Structural::parse(&schema, &FieldPath::new("schema")).map(Arc::new)
}

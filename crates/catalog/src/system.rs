//! The built-in kinds, compiled.

use crate::{
    Alias, Api, Builtin, CompiledKind, Gates, Names, Respelled, Served, builtin,
    compile::{Definition, compile},
    definitions,
    kind::OtherName,
};
use insula_api::{FieldError, FieldPath, Json};
use std::{collections::BTreeMap, sync::Arc};

/// All built-in kinds by `(group, plural)`, aliases included.
#[derive(Debug)]
pub struct System {
    by_name: BTreeMap<(Arc<str>, Arc<str>), Served>,
}

impl System {
    /// Compiles all built-in kinds. A mistake in a definition is a mistake of ours, found by the
    /// first test that starts a server.
    pub fn load() -> Self {
        let mut by_name = BTreeMap::new();
        for kind in builtin::all() {
            let served = serve(kind, &Gates::default());
            for name in kind.other_names {
                let alias = alias_of(&served, name, kind);
                let other = Served {
                    alias: Some(alias),
                    ..served.clone()
                };
                by_name.insert((other.group().clone(), other.names().plural.clone()), other);
            }
            by_name.insert((served.group().clone(), served.names().plural.clone()), served);
        }
        System { by_name }
    }

    /// Leaves out what the server's settings switch off.
    pub fn close(&mut self, gates: &Gates) {
        if *gates == Gates::default() {
            return;
        }
        for kind in builtin::all().filter(|kind| kind.gate.is_some()) {
            let served = serve(kind, gates);
            self.by_name
                .insert((served.group().clone(), served.names().plural.clone()), served);
        }
    }

    /// Adds a kind of the program. It is served as a custom resource of every cluster.
    ///
    /// # Errors
    /// Returns the field errors of a definition that is not valid, does not compile, or has the
    /// name of another kind.
    pub(crate) fn add(&mut self, kind: CompiledKind) -> Result<(), Vec<FieldError>> {
        let api = kind.api()?;
        let name = (api.group.clone(), api.names.plural.clone());
        if self.by_name.contains_key(&name) {
            let at = FieldPath::new("spec").child("names").child("plural");
            return Err(vec![FieldError::duplicate(&at, &Json::from(&*api.names.plural))]);
        }
        self.by_name.insert(name, Served::system(Arc::new(api)));
        Ok(())
    }

    /// One kind.
    pub fn get(&self, group: &str, plural: &str) -> Option<&Served> {
        self.by_name.get(&(Arc::from(group), Arc::from(plural)))
    }

    /// All kinds in order.
    pub fn iter(&self) -> impl Iterator<Item = &Served> {
        self.by_name.values()
    }
}

fn serve(kind: &'static Builtin, gates: &Gates) -> Served {
    let api = compile_builtin(kind.definition, kind.conversions, kind, gates);
    Served::system(Arc::new(api))
}

fn alias_of(own: &Served, name: &OtherName, builtin: &'static Builtin) -> Alias {
    match *name {
        OtherName::Renamed {
            group,
            version,
            plural,
            kind,
        } => Alias {
            group: group.into(),
            names: Names {
                plural: plural.into(),
                singular: kind.to_lowercase().into(),
                kind: kind.into(),
                list_kind: format!("{kind}List").into(),
                ..own.names().clone()
            },
            version: version.into(),
            respelled: None,
        },
        OtherName::Respelled { definition, fields } => {
            let api = Arc::new(compile_builtin(definition, None, builtin, &Gates::default()));
            let spelling = Respelled {
                api: api.clone(),
                fields,
            };
            Alias {
                group: api.group.clone(),
                names: api.names.clone(),
                version: api.storage_version().name.clone(),
                respelled: Some(own.api.spelling.get_or_init(|| Arc::new(spelling)).clone()),
            }
        }
    }
}

fn compile_builtin(definition: &str, rules: Option<&str>, kind: &'static Builtin, gates: &Gates) -> Api {
    let yaml = |file: &str| yaml(definitions::text(file));
    let mut definition = yaml(definition);
    if let Some(gate) = kind.gate {
        gate(&mut definition, gates);
    }
    let rules = rules.map(yaml);
    match compile_definition(&definition, rules.as_ref(), kind) {
        Ok(api) => api,
        Err(errors) => panic!(
            "config/crds: {}: {}",
            definition["metadata"]["name"],
            insula_api::aggregate(&errors)
        ),
    }
}

pub(crate) fn yaml(text: &str) -> Json {
    serde_saphyr::from_str(text).expect("config/ holds valid YAML")
}

pub(crate) fn compile_definition(
    definition: &Json,
    rules: Option<&Json>,
    kind: &'static Builtin,
) -> Result<Api, Vec<FieldError>> {
    let source = Definition {
        spec: &definition["spec"],
        accepted_names: None,
        rules: rules.map(|rules| &rules["spec"]),
        strategy: insula_conversion::LossPolicy::Lossless,
        strict_scale: false,
    };
    compile(&source, Some(kind))
}

//! The CEL environment of policy expressions, as Kubernetes declares it: `object`, `oldObject`,
//! `params`, `request`, `namespaceObject`, `authorizer` and `variables`.

use insula_cel::{AbsenceMode, Decl, Env, Field, ListKind, Type};
use std::sync::LazyLock;

/// The declarations that vary between the expressions of a policy.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Type of `object` and `oldObject`.
    pub object: Decl,
    /// Type of `params`; `None` for a policy without parameters.
    pub params: Option<Decl>,
    /// True if `authorizer` is declared.
    pub authorizer: bool,
    /// Fields of `variables`; `None` if the policy has none.
    pub variables: Option<Vec<Field>>,
    /// True for mutations, which may construct `Object{}` and `JSONPatch{}`.
    pub patches: bool,
}

impl Scope {
    /// Returns the scope for evaluation, in which objects and parameters are `dyn`.
    pub fn dynamic(params: bool) -> Scope {
        Scope {
            object: Decl::dynamic(),
            params: params.then(Decl::dynamic),
            authorizer: true,
            variables: None,
            patches: false,
        }
    }

    /// Builds the environment with all declarations of the scope.
    pub fn environment(&self) -> Env {
        let mut env = Env::new(AbsenceMode::Error)
            .with("object", self.object.clone())
            .with("oldObject", self.object.clone())
            .with("request", REQUEST.clone())
            .with("namespaceObject", NAMESPACE.clone());
        if let Some(params) = &self.params {
            env = env.with("params", params.clone());
        }
        if let Some(fields) = &self.variables {
            env = env.with("variables", Decl::object("kubernetes.variables", fields.clone()));
        }
        if self.authorizer {
            env = env
                .authorizer()
                .with(
                    "authorizer",
                    Decl::scalar(Type::Opaque("kubernetes.authorization.Authorizer")),
                )
                .with(
                    "authorizer.requestResource",
                    Decl::scalar(Type::Opaque("kubernetes.authorization.ResourceCheck")),
                );
        }
        if self.patches {
            env = env.json_patch();
        }
        env
    }
}

/// Returns the declaration of a variable for later expressions. Named types are declared as `dyn`.
pub fn declare(ty: &Type) -> Decl {
    match ty {
        Type::List(item) => Decl::list(declare(item), ListKind::Atomic),
        Type::Map(pair) => Decl::map(declare(&pair.1)),
        Type::Null
        | Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Timestamp
        | Type::Duration => Decl::scalar(ty.clone()),
        _ => Decl::dynamic(),
    }
}

/// Builds a field and escapes its name if it is a reserved word.
pub fn field(name: &str, decl: Decl) -> Field {
    Field {
        name: name.into(),
        written: escaped(name).into(),
        decl,
    }
}

/// Escapes a reserved word of the grammar as `__name__`.
fn escaped(name: &str) -> String {
    match name {
        "namespace" => "__namespace__".to_owned(),
        _ => name.to_owned(),
    }
}

fn object(name: &str, fields: &[(&str, Decl)]) -> Decl {
    let fields = fields.iter().map(|(name, decl)| field(name, decl.clone())).collect();
    Decl::object(name, fields)
}

static REQUEST: LazyLock<Decl> = LazyLock::new(|| {
    let text = || Decl::scalar(Type::String);
    let texts = || Decl::list(text(), ListKind::Atomic);
    let kind = object(
        "kubernetes.GroupVersionKind",
        &[("group", text()), ("version", text()), ("kind", text())],
    );
    let resource = object(
        "kubernetes.GroupVersionResource",
        &[("group", text()), ("version", text()), ("resource", text())],
    );
    let user = object(
        "kubernetes.UserInfo",
        &[
            ("username", text()),
            ("uid", text()),
            ("groups", texts()),
            ("extra", Decl::map(texts())),
        ],
    );
    object(
        "kubernetes.AdmissionRequest",
        &[
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", Decl::scalar(Type::Bool)),
            ("options", Decl::dynamic()),
        ],
    )
});

static NAMESPACE: LazyLock<Decl> = LazyLock::new(|| {
    let text = || Decl::scalar(Type::String);
    let time = || Decl::scalar(Type::Timestamp);
    let count = || Decl::scalar(Type::Int);
    let texts = || Decl::list(text(), ListKind::Atomic);
    let condition = object(
        "kubernetes.NamespaceCondition",
        &[
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", time()),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let status = object(
        "kubernetes.NamespaceStatus",
        &[
            ("conditions", Decl::list(condition, ListKind::Atomic)),
            ("phase", text()),
        ],
    );
    // `UID` is how Kubernetes spells the field in its declaration.
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", Decl::map(text())),
            ("annotations", Decl::map(text())),
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", count()),
            ("deletionTimestamp", time()),
            ("generation", count()),
            ("resourceVersion", text()),
            ("finalizers", texts()),
        ],
    );
    object(
        "kubernetes.Namespace",
        &[
            ("metadata", metadata),
            ("spec", object("kubernetes.NamespaceSpec", &[("finalizers", texts())])),
            ("status", status),
        ],
    )
});

//! Type checks of a policy's expressions against the objects that they match. The status of the
//! policy reports them; they refuse nothing, since types may be unknown and may change.

use insula_api::{ClusterName, Json};
use insula_catalog::{
    Catalog, Served,
    policies::{
        compile::{Expression, Want, compile_variables},
        environment::{Scope, field},
        spec::{PolicySpec, Rule},
    },
};
use insula_cel::{Decl, ListKind, Shape, Type};
use insula_store::Snapshot;
use std::{collections::BTreeMap, sync::LazyLock};

/// Maximum number of types that a policy is checked against, as in Kubernetes.
const TYPES_MAX: usize = 10;

/// Type error of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionWarning {
    /// E.g. `spec.validations[0].expression`.
    pub field: String,
    /// One paragraph a type.
    pub warning: String,
}

/// Checks a ValidatingAdmissionPolicy against the types that its cluster serves now.
pub fn type_check(
    catalog: &Catalog,
    snapshot: &Snapshot,
    cluster: &ClusterName,
    policy: &Json,
) -> Vec<ExpressionWarning> {
    let spec = PolicySpec::read(policy);
    let kinds = kinds(catalog, snapshot, cluster, &spec);
    let params = spec.param_kind.as_ref().and_then(|kind| {
        let (group, version) = kind.group_version();
        let served = catalog.served(snapshot, cluster).into_iter();
        let mut found = served.filter(|served| **served.group() == *group && *served.names().kind == *kind.kind);
        declared(&found.next()?, version)
    });
    let scopes: Vec<(String, Scope)> = kinds
        .into_iter()
        .map(|(kind, object)| {
            let scope = Scope {
                object,
                params: params.clone(),
                ..Scope::dynamic(false)
            };
            (kind, compile_variables(&spec, scope).1)
        })
        .collect();
    let mut warnings = Vec::new();
    for (index, validation) in spec.validations.iter().enumerate() {
        for (field, source) in [
            ("expression", &validation.expression),
            ("messageExpression", &validation.message_expression),
        ] {
            let warning = match source.is_empty() {
                true => String::new(),
                false => check(&scopes, source),
            };
            if !warning.is_empty() {
                let field = format!("spec.validations[{index}].{field}");
                warnings.push(ExpressionWarning { field, warning });
            }
        }
    }
    warnings
}

fn check(scopes: &[(String, Scope)], source: &str) -> String {
    let mut paragraphs = Vec::new();
    for (kind, scope) in scopes {
        if let Err(why) = Expression::compile(source, scope, Want::Anything).program {
            let why = why.strip_prefix("compilation failed: ").unwrap_or(&why);
            paragraphs.push(format!("{kind}: {why}\n"));
        }
    }
    paragraphs.join("\n")
}

/// Returns the kinds that the rules name without wildcards, with their types, in order of group,
/// version and kind.
fn kinds(catalog: &Catalog, snapshot: &Snapshot, cluster: &ClusterName, spec: &PolicySpec) -> Vec<(String, Decl)> {
    let mut found = BTreeMap::new();
    let rules = spec
        .match_constraints
        .iter()
        .flat_map(|constraints| &constraints.resource_rules);
    for rule in rules.filter(|rule| !is_wild(rule)) {
        for (group, version, resource) in named(rule) {
            if found.len() == TYPES_MAX {
                break;
            }
            let Some(served) = catalog.resolve(snapshot, cluster, group, resource) else {
                continue;
            };
            if let Some(decl) = declared(&served, version) {
                found.insert((group, version, served.names().kind.clone()), decl);
            }
        }
    }
    let print =
        |((group, version, kind), decl): ((&str, &str, _), Decl)| (format!("{group}/{version}, Kind={kind}"), decl);
    found.into_iter().map(print).collect()
}

fn is_wild(rule: &Rule) -> bool {
    rule.api_groups
        .iter()
        .chain(&rule.api_versions)
        .any(|name| name.contains('*'))
}

fn named(rule: &Rule) -> impl Iterator<Item = (&str, &str, &str)> {
    let resources = rule.resources.iter().filter(|resource| !resource.contains(['*', '/']));
    resources.flat_map(move |resource| {
        rule.api_groups.iter().flat_map(move |group| {
            rule.api_versions
                .iter()
                .map(move |version| (group.as_str(), version.as_str(), resource.as_str()))
        })
    })
}

/// Returns the type of a served kind's objects. It includes all metadata, of which schema rules see
/// only a part.
fn declared(served: &Served, version: &str) -> Option<Decl> {
    let version = served.served_versions().find(|known| &*known.name == version)?;
    let decl = version.schema.declaration();
    let Shape::Object { fields, .. } = decl.shape() else {
        return Some(decl.clone());
    };
    let mut fields: Vec<_> = fields
        .iter()
        .filter(|field| &*field.name != "metadata")
        .cloned()
        .collect();
    fields.push(field("metadata", METADATA.clone()));
    Some(Decl::object(&served.names().kind, fields))
}

static METADATA: LazyLock<Decl> = LazyLock::new(|| {
    let text = || Decl::scalar(Type::String);
    let time = || Decl::scalar(Type::Timestamp);
    let number = || Decl::scalar(Type::Int);
    let flag = || Decl::scalar(Type::Bool);
    let list = |items| Decl::list(items, ListKind::Atomic);
    let owner = [
        ("apiVersion", text()),
        ("kind", text()),
        ("name", text()),
        ("uid", text()),
        ("controller", flag()),
        ("blockOwnerDeletion", flag()),
    ];
    let manager = [
        ("manager", text()),
        ("operation", text()),
        ("apiVersion", text()),
        ("time", time()),
        ("fieldsType", text()),
        ("fieldsV1", Decl::dynamic()),
        ("subresource", text()),
    ];
    let object = |name: &str, fields: &[(&str, Decl)]| {
        Decl::object(
            name,
            fields.iter().map(|(name, decl)| field(name, decl.clone())).collect(),
        )
    };
    object(
        "ObjectMeta",
        &[
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", Decl::map(text())),
            ("annotations", Decl::map(text())),
            ("uid", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", number()),
            ("deletionTimestamp", time()),
            ("generation", number()),
            ("resourceVersion", text()),
            ("selfLink", text()),
            ("finalizers", list(text())),
            ("ownerReferences", list(object("OwnerReference", &owner))),
            ("managedFields", list(object("ManagedFieldsEntry", &manager))),
        ],
    )
});

//! Naming conflicts with other APIs of a cluster.

use super::{served::ServedApi, world::Resource};
use insula_catalog::{Api, Names};

/// Returns the first conflict: kcp's message, and the way out where another binding brings the same
/// resource.
pub(super) fn find(resource: &Resource, api: &Api, others: &[ServedApi]) -> Option<String> {
    if resource.built_in {
        let Resource { group, name, .. } = resource;
        return Some(format!(
            "naming conflict with the built-in API {group:?}: spec.names.plural={name} is forbidden"
        ));
    }
    let named = others.iter().filter(|other| other.group == *api.group);
    if resource.route_is_taken && !named.clone().any(|other| other.names.plural == api.names.plural) {
        let plural = &api.names.plural;
        return Some(format!(
            "naming conflict with an API that is not served: spec.names.plural={plural} is forbidden"
        ));
    }
    named
        .filter_map(|other| Some((other, clash(&api.names, &other.names)?)))
        .next()
        .map(|(other, clash)| {
            let conflict = format!("naming conflict with {}: spec.names.{clash} is forbidden", other.origin);
            match &other.kept {
                Some((name, end)) => format!(
                    "{conflict}; APIBinding {name:?} is deleted and keeps its objects and names until {end}: take that \
                     back (`insula unbind {name} --undelete`), or end it (`insula unbind {name} --now`)"
                ),
                None if other.is_bound && other.names.plural == api.names.plural => {
                    format!("{conflict}; the API is bound already, delete one of the two bindings")
                }
                None => conflict,
            }
        })
}

fn clash(wanted: &Names, taken: &Names) -> Option<String> {
    let resources = |name: &str| {
        *taken.plural == *name || *taken.singular == *name || taken.short_names.iter().any(|short| short == name)
    };
    let kinds = |kind: &str| *taken.kind == *kind || *taken.list_kind == *kind;
    let single = |field: &str, name: &str, taken: bool| taken.then(|| format!("{field}={name}"));
    let short: Vec<&str> = wanted
        .short_names
        .iter()
        .map(String::as_str)
        .filter(|name| resources(name))
        .collect();
    single("plural", &wanted.plural, resources(&wanted.plural))
        .or_else(|| single("singular", &wanted.singular, resources(&wanted.singular)))
        .or_else(|| (!short.is_empty()).then(|| format!("shortNames=[{}]", short.join(" "))))
        .or_else(|| single("kind", &wanted.kind, kinds(&wanted.kind)))
        .or_else(|| single("listKind", &wanted.list_kind, kinds(&wanted.list_kind)))
}

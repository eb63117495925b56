//! The built-in kinds: schemas from `config/crds`, strategies from [`crate::strategies`].

use crate::{
    Alias, Api, Names, Respelled, Served,
    compile::{Definition, compile},
    strategies,
};
use insula_api::Json;
use std::{collections::BTreeMap, sync::Arc};

/// Definitions as they stand in `config/crds`, with the rules between their versions where there
/// are some.
const DEFINITIONS: &[(&str, Option<&str>)] = &[
    (include_str!("../../../config/crds/core_namespaces.yaml"), None),
    (include_str!("../../../config/crds/core_configmaps.yaml"), None),
    (include_str!("../../../config/crds/core_secrets.yaml"), None),
    (include_str!("../../../config/crds/core_serviceaccounts.yaml"), None),
    (include_str!("../../../config/crds/core_events.yaml"), None),
    (include_str!("../../../config/crds/core_resourcequotas.yaml"), None),
    (
        include_str!("../../../config/crds/certificates.k8s.io_certificatesigningrequests.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/coordination.k8s.io_leases.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/rbac.authorization.k8s.io_roles.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/rbac.authorization.k8s.io_rolebindings.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/rbac.authorization.k8s.io_clusterroles.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/rbac.authorization.k8s.io_clusterrolebindings.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/authorization.k8s.io_subjectaccessreviews.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/authorization.k8s.io_localsubjectaccessreviews.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/authorization.k8s.io_selfsubjectaccessreviews.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/authorization.k8s.io_selfsubjectrulesreviews.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/authentication.k8s.io_selfsubjectreviews.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/authentication.k8s.io_tokenreviews.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/apiextensions.k8s.io_customresourcedefinitions.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/admissionregistration.k8s.io_validatingadmissionpolicies.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/admissionregistration.k8s.io_validatingadmissionpolicybindings.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/admissionregistration.k8s.io_mutatingadmissionpolicies.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/admissionregistration.k8s.io_mutatingadmissionpolicybindings.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/admissionregistration.k8s.io_validatingwebhookconfigurations.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/admissionregistration.k8s.io_mutatingwebhookconfigurations.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/storagemigration.k8s.io_storageversionmigrations.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/tenancy.kcp.io_workspaces.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/tenancy.kcp.io_workspacetypes.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/tenancy.kcp.io_workspaceauthenticationconfigurations.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/core.kcp.io_logicalclusters.yaml"),
        None,
    ),
    (include_str!("../../../config/crds/core.kcp.io_shards.yaml"), None),
    (
        include_str!("../../../config/crds/apis.kcp.io_apiresourceschemas.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/apis.kcp.io_apiconversions.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/apis.kcp.io_apiexports.yaml"),
        Some(include_str!("../../../config/conversions/apis.kcp.io_apiexports.yaml")),
    ),
    (
        include_str!("../../../config/crds/apis.kcp.io_apibindings.yaml"),
        Some(include_str!("../../../config/conversions/apis.kcp.io_apibindings.yaml")),
    ),
    (
        include_str!("../../../config/crds/apis.kcp.io_apiexportendpointslices.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/topology.kcp.io_partitions.yaml"),
        None,
    ),
    (
        include_str!("../../../config/crds/topology.kcp.io_partitionsets.yaml"),
        None,
    ),
];

/// Group and kinds of kcp's first spelling, which the seed's manifests use:
/// `(resource, its plural there, kind there)`.
const OLD_GROUP: &str = "apis.kcp.dev";
const OLD_NAMES: &[(&str, &str, &str)] = &[
    ("apiresourceschemas", "apiresourceschemas", "APIResourceSchema"),
    ("apiexports", "apiexports", "APIExport"),
    ("apibindings", "apibindings", "APIBinding"),
    ("apiconversions", "apiconversionrules", "APIConversionRules"),
];

/// All built-in kinds by `(group, plural)`, aliases included.
#[derive(Debug)]
pub struct System {
    by_name: BTreeMap<(Arc<str>, Arc<str>), Served>,
}

impl System {
    /// Compiles what stands in `config/`. A mistake there is a mistake of ours, found by the first
    /// test that starts a server.
    pub fn load() -> Self {
        let mut by_name = BTreeMap::new();
        for (definition, rules) in DEFINITIONS {
            let served = Served::system(Arc::new(load_one(definition, *rules)));
            by_name.insert((served.group().clone(), served.names().plural.clone()), served);
        }
        for (resource, plural, kind) in OLD_NAMES {
            let Some(own) = by_name.get(&("apis.kcp.io".into(), Arc::from(*resource))).cloned() else {
                continue;
            };
            let names = Names {
                plural: (*plural).into(),
                singular: kind.to_lowercase().into(),
                kind: (*kind).into(),
                list_kind: format!("{kind}List").into(),
                ..own.names().clone()
            };
            let alias = Alias {
                group: OLD_GROUP.into(),
                names,
                version: "v1alpha1".into(),
                respelled: None,
            };
            insert_alias(&mut by_name, own, alias);
        }
        respell_events(&mut by_name);
        System { by_name }
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

fn insert_alias(by_name: &mut BTreeMap<(Arc<str>, Arc<str>), Served>, own: Served, alias: Alias) {
    by_name.insert(
        (alias.group.clone(), alias.names.plural.clone()),
        Served {
            alias: Some(alias),
            ..own
        },
    );
}

/// Events of `events.k8s.io` are those of the core group, with other names for some fields.
fn respell_events(by_name: &mut BTreeMap<(Arc<str>, Arc<str>), Served>) {
    let api = Arc::new(load_one(
        include_str!("../../../config/crds/events.k8s.io_events.yaml"),
        None,
    ));
    let Some(own) = by_name.get(&("".into(), api.names.plural.clone())).cloned() else {
        return;
    };
    let spelling = Respelled {
        api: api.clone(),
        fields: strategies::EVENT_FIELDS,
    };
    let alias = Alias {
        group: api.group.clone(),
        names: api.names.clone(),
        version: api.storage_version().name.clone(),
        respelled: Some(own.api.spelling.get_or_init(|| Arc::new(spelling)).clone()),
    };
    insert_alias(by_name, own, alias);
}

fn load_one(definition: &str, rules: Option<&str>) -> Api {
    let yaml = |text: &str| -> Json { serde_saphyr::from_str(text).expect("config/ holds valid YAML") };
    let definition = yaml(definition);
    let rules = rules.map(yaml);
    let spec = &definition["spec"];
    let id = (
        spec["group"].as_str().unwrap_or_default(),
        spec["names"]["plural"].as_str().unwrap_or_default(),
    );
    let definition = Definition {
        spec,
        accepted_names: None,
        rules: rules.as_ref().map(|rules| &rules["spec"]),
        strategy: insula_conversion::LossPolicy::Lossless,
    };
    match compile(&definition, Some(strategies::of(id.0, id.1))) {
        Ok(api) => api,
        Err(errors) => panic!("config/crds: {}.{}: {}", id.1, id.0, insula_api::aggregate(&errors)),
    }
}

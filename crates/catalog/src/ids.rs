//! Resource ids and keys of the objects that the server itself reads.

use insula_api::{ClusterName, Json, ObjectKey, ResourceId};
use std::sync::LazyLock;

/// Group of the objects that tenants cannot see: routes, bundles and serialization points.
pub const INTERNAL: &str = "internal.insula.io";

/// Version of the objects that tenants cannot see.
pub const INTERNAL_V1: &str = "internal.insula.io/v1";

/// Resource of the routes of resource names.
pub const RESOURCE_ROUTES: &str = "resourceroutes";
/// Kind of the routes of resource names.
pub const RESOURCE_ROUTE: &str = "ResourceRoute";

/// Resource of the serialization points.
pub const SERIALIZATION_POINTS: &str = "serializationpoints";
/// Kind of the serialization points.
pub const SERIALIZATION_POINT: &str = "SerializationPoint";

/// Group of roles and their bindings.
pub const RBAC: &str = "rbac.authorization.k8s.io";

/// Group of the access reviews.
pub const AUTHORIZATION: &str = "authorization.k8s.io";

/// Group of the identity reviews.
pub const AUTHENTICATION: &str = "authentication.k8s.io";

macro_rules! resource {
    ($($(#[$doc:meta])* $name:ident = $group:expr, $plural:expr;)*) => {
        $($(#[$doc])* pub fn $name() -> ResourceId {
            // Shared by all keys of the resource: a request builds several keys.
            static ID: LazyLock<ResourceId> = LazyLock::new(|| ResourceId::local($group, $plural));
            ID.clone()
        })*
    };
}

resource! {
    /// Routes of resource names in a cluster.
    resource_routes = INTERNAL, RESOURCE_ROUTES;
    /// Bundles of schema and rules in `system:bound-crds`.
    bundles = INTERNAL, "bundles";
    /// Records of the versions that tenants use ([`crate::version_uses::UseRecord`]).
    version_uses = INTERNAL, "versionuses";
    /// Serialization points ([`crate::SerializationPoint`]).
    serialization_points = INTERNAL, SERIALIZATION_POINTS;
    /// Records of migrations of ThirdPartyResources ([`crate::registration::Migration`]).
    registration_migrations = INTERNAL, "registrationmigrations";
    /// Records of the requests of gRPC clients that are answered once.
    requests = INTERNAL, "requests";
    /// Records of operations of administrators, in `root`.
    operations = INTERNAL, "operations";
    /// Records of the servers on one store, in `root`.
    servers = INTERNAL, "servers";
    /// The record of the keys that all servers on one store have, in `root`.
    installation_keys = INTERNAL, "installationkeys";
    /// Records of metered amounts ([`crate::metering`]).
    meterings = INTERNAL, "meterings";
    /// Namespaces.
    namespaces = "", "namespaces";
    /// Secrets.
    secrets = "", "secrets";
    /// ServiceAccounts.
    serviceaccounts = "", "serviceaccounts";
    /// Events.
    events = "", "events";
    /// ResourceQuotas.
    resourcequotas = "", "resourcequotas";
    /// ConfigMaps.
    configmaps = "", "configmaps";
    /// Workspaces.
    workspaces = "tenancy.kcp.io", "workspaces";
    /// WorkspaceTypes.
    workspacetypes = "tenancy.kcp.io", "workspacetypes";
    /// WorkspaceAuthenticationConfigurations.
    workspaceauthenticationconfigurations = "tenancy.kcp.io", "workspaceauthenticationconfigurations";
    /// LogicalClusters.
    logicalclusters = "core.kcp.io", "logicalclusters";
    /// Shards.
    shards = "core.kcp.io", "shards";
    /// Partitions.
    partitions = "topology.kcp.io", "partitions";
    /// PartitionSets.
    partitionsets = "topology.kcp.io", "partitionsets";
    /// APIResourceSchemas.
    apiresourceschemas = "apis.kcp.io", "apiresourceschemas";
    /// APIExports.
    apiexports = "apis.kcp.io", "apiexports";
    /// APIBindings.
    apibindings = "apis.kcp.io", "apibindings";
    /// APIConversions.
    apiconversions = "apis.kcp.io", "apiconversions";
    /// APIExportEndpointSlices.
    apiexportendpointslices = "apis.kcp.io", "apiexportendpointslices";
    /// APIBindRequests.
    apibindrequests = "apis.insula.io", "apibindrequests";
    /// CustomResourceDefinitions.
    customresourcedefinitions = "apiextensions.k8s.io", "customresourcedefinitions";
    /// APIServices.
    apiservices = "apiregistration.k8s.io", "apiservices";
    /// ThirdPartyResources of the first generation.
    first_registrations = "extensions", "thirdpartyresources";
    /// ThirdPartyResources of the second generation.
    second_registrations = "apiextension.k8s.io", "thirdpartyresources";
    /// StorageVersionMigrations.
    storageversionmigrations = "storagemigration.k8s.io", "storageversionmigrations";
    /// Roles.
    roles = "rbac.authorization.k8s.io", "roles";
    /// RoleBindings.
    rolebindings = "rbac.authorization.k8s.io", "rolebindings";
    /// ClusterRoles.
    clusterroles = "rbac.authorization.k8s.io", "clusterroles";
    /// ClusterRoleBindings.
    clusterrolebindings = "rbac.authorization.k8s.io", "clusterrolebindings";
    /// ValidatingAdmissionPolicies.
    validatingadmissionpolicies = "admissionregistration.k8s.io", "validatingadmissionpolicies";
    /// ValidatingAdmissionPolicyBindings.
    validatingadmissionpolicybindings = "admissionregistration.k8s.io", "validatingadmissionpolicybindings";
    /// MutatingAdmissionPolicies.
    mutatingadmissionpolicies = "admissionregistration.k8s.io", "mutatingadmissionpolicies";
    /// MutatingAdmissionPolicyBindings.
    mutatingadmissionpolicybindings = "admissionregistration.k8s.io", "mutatingadmissionpolicybindings";
    /// ValidatingWebhookConfigurations.
    validatingwebhookconfigurations = "admissionregistration.k8s.io", "validatingwebhookconfigurations";
    /// MutatingWebhookConfigurations.
    mutatingwebhookconfigurations = "admissionregistration.k8s.io", "mutatingwebhookconfigurations";
}

/// Returns the key of a cluster's LogicalCluster, which is always named `cluster`.
pub fn logical_cluster(cluster: &ClusterName) -> ObjectKey {
    ObjectKey::cluster_scoped(logicalclusters(), cluster.clone(), "cluster")
}

/// Returns the key of the route of a resource name in a cluster. `core` stands for the empty group,
/// as in names of schemas.
pub fn resource_route(cluster: &ClusterName, group: &str, plural: &str) -> ObjectKey {
    let group = if group.is_empty() { "core" } else { group };
    ObjectKey::cluster_scoped(resource_routes(), cluster.clone(), &format!("{plural}.{group}"))
}

/// Returns the key of the route of the resource that a definition of a cluster names.
pub fn route_of_definition(cluster: &ClusterName, definition: &Json) -> ObjectKey {
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let spec = &definition["spec"];
    resource_route(cluster, &text(&spec["group"]), &text(&spec["names"]["plural"]))
}

/// Returns the key of a serialization point of a cluster.
pub fn serialization_point(cluster: &ClusterName, of: &str) -> ObjectKey {
    ObjectKey::cluster_scoped(serialization_points(), cluster.clone(), of)
}

/// Returns the key of the record of a home that a restore has closed: its user does not create it
/// anew meanwhile.
pub fn closed_home(cluster: &ClusterName) -> ObjectKey {
    serialization_point(&ClusterName::root(), &format!("closed/{cluster}"))
}

/// Returns the group in the name of a route; the empty string for the core group.
pub fn group_of(route: &str) -> &str {
    match route.split_once('.') {
        Some((_, "core")) | None => "",
        Some((_, group)) => group,
    }
}

/// Returns the key of a bundle. Its name is the UID of the schema or definition it was made from;
/// see [`bundle_generation`] for further generations of the rules of one schema.
pub fn bundle(name: &str) -> ObjectKey {
    ObjectKey::cluster_scoped(bundles(), ClusterName::bound_crds(), name)
}

/// Returns the name of a bundle beside the one that is named like the schema's UID: other rules for
/// the same schema, told apart by the fingerprint of schema and rules.
pub fn bundle_generation(uid: &str, fingerprint: u64) -> String {
    format!("{uid}.{}", self::fingerprint(fingerprint))
}

/// Returns the text of a fingerprint, as names of bundles and the status of exports have it.
pub fn fingerprint(fingerprint: u64) -> String {
    format!("{fingerprint:016x}")
}

/// Returns the names that the bundle of a schema with rules of this fingerprint may have.
pub fn bundle_names(uid: &str, fingerprint: &str) -> [String; 2] {
    [format!("{uid}.{fingerprint}"), uid.to_owned()]
}

/// Returns the UID of the schema or definition that a bundle was made from.
pub fn schema_of_bundle(name: &str) -> &str {
    name.split_once('.').map_or(name, |(uid, _)| uid)
}

/// Returns true if a bundle was made from the schema of this UID, with whatever rules.
pub fn is_bundle_of(name: &str, uid: &str) -> bool {
    schema_of_bundle(name) == uid
}

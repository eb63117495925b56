//! Names that are part of the API: groups, API versions, finalizers, annotations, labels and
//! well-known objects.
//!
//! Each has one home here, so that a reader finds every use of it and a typing error does not
//! compile. Names that kcp defines are spelled as in kcp (`github.com/kcp-dev/sdk/apis` and, for
//! those with `internal` in them, `github.com/kcp-dev/kcp/pkg`); names of Kubernetes as in
//! `k8s.io/api` and `k8s.io/apiextensions-apiserver`.

/// API groups.
pub mod groups {
    /// Workspaces, WorkspaceTypes and WorkspaceAuthenticationConfigurations (kcp).
    pub const TENANCY: &str = "tenancy.kcp.io";
    /// LogicalClusters and Shards (kcp).
    pub const CORE: &str = "core.kcp.io";
    /// APIExports, APIBindings, APIResourceSchemas, APIConversions and APIExportEndpointSlices
    /// (kcp).
    pub const APIS: &str = "apis.kcp.io";
    /// APIBindRequests.
    pub const REQUESTS: &str = "apis.insula.io";
    /// Partitions and PartitionSets (kcp).
    pub const TOPOLOGY: &str = "topology.kcp.io";
    /// CustomResourceDefinitions (Kubernetes).
    pub const APIEXTENSIONS: &str = "apiextensions.k8s.io";
    /// APIServices (Kubernetes).
    pub const APIREGISTRATION: &str = "apiregistration.k8s.io";
    /// ThirdPartyResources of the first generation (Kubernetes 1.2 to 1.7).
    pub const EXTENSIONS: &str = "extensions";
    /// ThirdPartyResources of the second generation, as the proposal for their beta spells it.
    pub const APIEXTENSION: &str = "apiextension.k8s.io";
    /// Objects that no tenant sees: routes, bundles and serialization points.
    pub const INTERNAL: &str = "internal.insula.io";
    /// Suffixes of groups that only Kubernetes may define: such a definition needs
    /// [`super::annotations::API_APPROVED`].
    pub const PROTECTED: [&str; 2] = ["k8s.io", "kubernetes.io"];
}

/// Returns the version in an `apiVersion`: the text behind the first slash. A group has no slash;
/// versions of the first ThirdPartyResources may have one (`example.com/stable/v1`).
pub fn version_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or(api_version, |(_, version)| version)
}

/// Returns the group of an `apiVersion`; the empty string for the core group.
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Values of `apiVersion`: the storage versions of our own kinds.
pub mod api_versions {
    /// Workspaces and WorkspaceTypes.
    pub const TENANCY: &str = "tenancy.kcp.io/v1alpha1";
    /// LogicalClusters and Shards.
    pub const CORE: &str = "core.kcp.io/v1alpha1";
    /// APIResourceSchemas, APIConversions and APIExportEndpointSlices.
    pub const APIS_V1ALPHA1: &str = "apis.kcp.io/v1alpha1";
    /// APIExports and APIBindings.
    pub const APIS_V1ALPHA2: &str = "apis.kcp.io/v1alpha2";
    /// APIBindRequests.
    pub const REQUESTS: &str = "apis.insula.io/v1alpha1";
    /// Partitions and PartitionSets.
    pub const TOPOLOGY: &str = "topology.kcp.io/v1alpha1";
}

/// Finalizers in `metadata.finalizers`, or in the list that their comments name.
pub mod finalizers {
    /// On an APIBinding until the objects of its APIs are gone.
    pub const API_BINDING: &str = "apis.kcp.io/apibinding-finalizer";
    /// On a CustomResourceDefinition until its instances are gone.
    pub const CUSTOM_RESOURCES: &str = "customresourcecleanup.apiextensions.k8s.io";
    /// On a ThirdPartyResource until its objects are gone.
    pub const THIRD_PARTY_RESOURCES: &str = "thirdpartyresourcecleanup.apiextension.k8s.io";
    /// On a Workspace until its LogicalCluster is gone.
    pub const WORKSPACE: &str = "core.kcp.io/logicalcluster";
    /// On a LogicalCluster until its content is gone.
    pub const LOGICAL_CLUSTER: &str = "core.kcp.io/logicalcluster-deletion";
    /// On a LogicalCluster until `status.terminators` is empty.
    pub const TERMINATORS: &str = "kcp.io/has-terminators";
    /// In `spec.finalizers` of a Namespace until its content is gone.
    pub const NAMESPACE: &str = "kubernetes";
}

/// Effects of a change of schemas or rules on stored objects.
pub mod effects {
    /// The word that an effect needs, if it reaches objects.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Consent {
        /// Nobody's.
        Unneeded,
        /// Somebody's.
        Needed,
        /// No word counts: the release is refused.
        Impossible,
    }

    /// Declares the kinds, the list of them, and the consent that each needs.
    macro_rules! kinds {
        ($($(#[$doc:meta])* $name:ident = $text:literal, $consent:ident;)+) => {
            $($(#[$doc])* pub const $name: &str = $text;)+
            /// All kinds.
            pub const ALL: &[&str] = &[$($name),+];

            /// Returns the consent that effects of a kind need.
            pub fn consent(kind: &str) -> Consent {
                match kind {
                    $($name => Consent::$consent,)+
                    _ => Consent::Needed,
                }
            }
        };
    }

    kinds! {
        /// A served version stops showing a value, by rules.
        VALUE_HIDDEN = "value-hidden", Needed;
        /// A field is gone from the schema of a served version.
        FIELD_REMOVED = "field-removed", Needed;
        /// A schema refuses a value that it accepted: another type, a tighter bound, a value of an
        /// enum.
        VALUE_REFUSED = "value-refused", Needed;
        /// A rule compares a value with the one of before, and may refuse changes of it. The value
        /// that is there stays valid.
        CHANGE_REFUSED = "change-refused", Needed;
        /// A field must be there that could be absent.
        FIELD_REQUIRED = "field-required", Needed;
        /// An absent field is read as another value, or not at all.
        DEFAULT_CHANGED = "default-changed", Needed;
        /// An absent field is read as a value. No value that was read changes.
        DEFAULT_ADDED = "default-added", Unneeded;
        /// A served version shows another value, by rules.
        VALUE_CHANGED = "value-changed", Needed;
        /// A served version shows a value where it showed none, by rules. No value that was read
        /// changes.
        VALUE_ADDED = "value-added", Unneeded;
        /// A served version shows nothing of what a client writes in another one, by rules.
        WRITE_HIDDEN = "write-hidden", Needed;
        /// A served version shows another value of what a client writes in another one, by rules.
        WRITE_CHANGED = "write-changed", Needed;
        /// A served version shows a value where it showed none of what a client writes in another
        /// one, by rules.
        WRITE_ADDED = "write-added", Unneeded;
        /// A version is served no longer. Its removal is confirmed by itself.
        VERSION_REMOVED = "version-removed", Unneeded;
        /// The whole resource is on offer no longer.
        API_REMOVED = "api-removed", Needed;
        /// An object cannot be read in a served version.
        UNREADABLE = "unreadable", Needed;
        /// A version is gone in which objects are stored.
        VERSION_STORED = "version-stored", Impossible;
        /// A kind, scope, subresource, selectable field or identity of items is gone or another.
        CLIENT_BROKEN = "client-broken", Needed;
        /// A printer column is gone or shows another value. It hurts nobody's objects.
        COLUMN_REMOVED = "column-removed", Unneeded;
        /// A short name, the singular or a category is gone: commands that say it fail.
        NAME_REMOVED = "name-removed", Unneeded;
    }
}

/// Annotations.
pub mod annotations {
    /// Flat name of the logical cluster that an object is in.
    pub const CLUSTER: &str = "kcp.io/cluster";
    /// Canonical path of the logical cluster that an object is in or stands for.
    pub const PATH: &str = "kcp.io/path";
    /// On a LogicalCluster: `<path of its type>:<name of its type>`.
    pub const WORKSPACE_TYPE: &str = "internal.tenancy.kcp.io/type";
    /// On a Workspace: flat name of its logical cluster.
    pub const WORKSPACE_CLUSTER: &str = "internal.tenancy.kcp.io/cluster";
    /// On a Workspace: name of the shard that holds it.
    pub const SHARD: &str = "core.kcp.io/shard";
    /// On a Workspace: digest of the shard's name, which kcp's tools read.
    pub const SHARD_HASH: &str = "internal.tenancy.kcp.io/shard";
    /// On a Shard: it takes no new workspaces.
    pub const UNSCHEDULABLE: &str = "experimental.core.kcp.io/unschedulable";
    /// On Workspaces and LogicalClusters: the user who created the workspace, as JSON.
    pub const WORKSPACE_OWNER: &str = "experimental.tenancy.kcp.io/owner";
    /// On a LogicalCluster: `"true"` makes its Workspace `Inactive`. The second is kcp's former
    /// name.
    pub const INACTIVE: [&str; 2] = ["core.kcp.io/inactive", "internal.kcp.io/inactive"];
    /// On a LogicalCluster: upper limit of objects in it, as a decimal number.
    pub const OBJECTS_MAX: &str = "core.kcp.io/max-total-objects";
    /// On a LogicalCluster: groups of which a user needs one to enter.
    pub const REQUIRED_GROUPS: &str = "authorization.kcp.io/required-groups";
    /// On an APIExport: it gets no endpoint slice of its own.
    pub const SKIP_ENDPOINT_SLICE: &str = "apiexports.apis.kcp.io/skip-endpointslice";
    /// On an APIResourceSchema: `"true"` accepts that fields break between its versions, which have
    /// no rules.
    pub const ACCEPT_INCOMPATIBLE: &str = "insula.io/accept-incompatible";
    /// On an APIExport: the versions that an update removes although tenants use them, as
    /// `<APIResourceSchema that serves them now>/<version>`, separated by commas.
    pub const CONFIRM_REMOVAL: &str = "insula.io/confirm-removal";
    /// On an APIConversion, an APIExport or a CustomResourceDefinition: effects on stored objects
    /// that its author accepts, as `<effect>[=<number of objects>]`, separated by commas; see
    /// [`super::effects`]. A number keeps a consent from covering objects that come later.
    pub const ACCEPTED_EFFECTS: &str = "insula.io/accepted-effects";
    /// On an APIResourceSchema, an APIConversion or an APIExport that is written: as
    /// [`ACCEPTED_EFFECTS`], for this write alone. The server does not store it.
    pub const ACCEPTED_ONCE: &str = "insula.io/accepted-effects-once";
    /// On a CustomResourceDefinition: the version that it was created in, if that is [`V1BETA1`],
    /// whose rules it keeps.
    pub const MADE_AS: &str = "insula.io/made-as";
    /// Value of [`MADE_AS`].
    pub const V1BETA1: &str = "v1beta1";
    /// Prefix of annotations that an APIExport hands on to its APIBindings.
    pub const EXTRA_PREFIX: &str = "extra.apis.kcp.io/";
    /// On a CustomResourceDefinition or APIResourceSchema of a [protected
    /// group](super::groups::PROTECTED): URL of the approval, or `unapproved…`.
    pub const API_APPROVED: &str = "api-approved.kubernetes.io";
    /// On a Secret for a token: name and UID of the ServiceAccount (Kubernetes).
    pub const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
    /// See [`ACCOUNT_NAME`].
    pub const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
    /// On a LogicalCluster: limits on requests in the place of the server's, as JSON.
    pub const LIMITS: &str = "insula.io/limits";
    /// On a LogicalCluster: its workspace is frozen. JSON with the reason, or the reason alone.
    pub const FROZEN: &str = "insula.io/frozen";
    /// On a LogicalCluster: a workspace above it is frozen with its subtree. JSON as above.
    pub const FROZEN_ABOVE: &str = "insula.io/frozen-above";
    /// On an APIService: URL of its extension server, in the place of its service.
    pub const SERVICE_URL: &str = "insula.io/url";
    /// On an APIExport: names of APIServices of its workspace that it offers, separated by commas.
    pub const AGGREGATED_APIS: &str = "insula.io/aggregated-apis";
    /// On an APIExport: title of the API for those who look for one.
    pub const API_TITLE: &str = "apis.insula.io/title";
    /// On an APIExport: description of the API, as [`API_TITLE`].
    pub const API_DESCRIPTION: &str = "apis.insula.io/description";
    /// On an APIExport: URL of the documents of the API.
    pub const API_DOCS: &str = "apis.insula.io/docs";
    /// On an APIExport: who answers for the API, such as a team or an address.
    pub const API_OWNER: &str = "apis.insula.io/owner";
    /// On an APIExport: `"true"` shows it to everybody who looks for APIs.
    pub const API_LISTED: &str = "apis.insula.io/listed";
    /// On an APIExport: `"allowed"` lets those who see it ask for the right to bind it.
    pub const API_REQUESTS: &str = "apis.insula.io/requests";
    /// On an APIExport: seconds that such a request waits for a decision.
    pub const API_REQUEST_SECONDS: &str = "apis.insula.io/request-expiration-seconds";
    /// On an APIExport: groups of which a user needs one to ask for the right to bind it, separated
    /// by commas; without it, everybody who sees it may ask.
    pub const API_REQUEST_GROUPS: &str = "apis.insula.io/request-groups";
    /// On an APIExport or a LogicalCluster: seconds for which the deletion of an APIBinding with
    /// objects may be taken back, for the bindings of the export or of the workspace.
    pub const UNBIND_GRACE_SECONDS: &str = "apis.insula.io/unbind-grace-seconds";
    /// Human-readable description (Kubernetes).
    pub const DESCRIPTION: &str = "kubernetes.io/description";
}

/// Labels.
pub mod labels {
    /// On an APIBinding: digest of the cluster and name of its APIExport.
    pub const EXPORT: &str = "internal.apis.kcp.io/export";
    /// Prefix of the labels of objects that a provider sees by a permission claim, one for each
    /// export: only shown, and never stored.
    pub const CLAIMED_PREFIX: &str = "claimed.internal.apis.kcp.io/";
    /// On Workspaces and LogicalClusters: `status.phase`.
    pub const PHASE: &str = "tenancy.kcp.io/phase";
    /// Prefix of the labels by which the virtual workspace of an initializer selects the
    /// LogicalClusters that wait for it.
    pub const INITIALIZER_PREFIX: &str = "initializer.internal.kcp.io/";
    /// Prefix of the labels by which the virtual workspace of a terminator selects the
    /// LogicalClusters that wait for it.
    pub const TERMINATOR_PREFIX: &str = "terminator.internal.kcp.io/";
    /// On an APIConversion: name of the APIResourceSchema, or CustomResourceDefinition, that its
    /// rules belong to. The second is in the group of kcp's first releases.
    pub const SCHEMA: [&str; 2] = ["apis.kcp.io/apiresourceschema", "apis.kcp.dev/apiresourceschema"];
    /// On a ClusterRoleBinding that stands for a grant: the level of access, such as `edit`.
    pub const ACCESS: &str = "insula.io/access";
    /// On a Namespace: its own name (Kubernetes).
    pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
}

/// Well-known objects and other values.
pub mod well_known {
    /// The root workspace: flat name and path.
    pub const ROOT: &str = "root";
    /// Cluster of the bundles of schema and rules that bindings copied.
    pub const BOUND_CRDS: &str = "system:bound-crds";
    /// Cluster of what the platform keeps for itself.
    pub const SYSTEM_ADMIN: &str = "system:admin";
    /// Name of the one LogicalCluster in each logical cluster.
    pub const LOGICAL_CLUSTER: &str = "cluster";
    /// Name of the one shard.
    pub const SHARD: &str = "root";
    /// Workspace type, in [`ROOT`], whose workspaces begin with [`NAMESPACES`].
    pub const UNIVERSAL: &str = "universal";
    /// Namespaces of a new universal workspace.
    pub const NAMESPACES: [&str; 2] = ["default", "kube-system"];
    /// The initializer that ends when the default bindings of the workspace's type are bound (kcp
    /// `tenancy/initialization`).
    pub const BINDINGS_INITIALIZER: &str = "system:apibindings";
    /// Namespace of identity secrets that the server makes for exports.
    pub const IDENTITY_NAMESPACE: &str = "kcp-system";
    /// ServiceAccount in each namespace.
    pub const DEFAULT_ACCOUNT: &str = "default";
    /// ConfigMap with the CA of the server, in each namespace.
    pub const ROOT_CA: &str = "kube-root-ca.crt";
    /// Namespace of [`AUTHENTICATION_CONFIG`].
    pub const KUBE_SYSTEM: &str = "kube-system";
    /// ConfigMap by which extension servers recognise proxied requests, in [`KUBE_SYSTEM`].
    pub const AUTHENTICATION_CONFIG: &str = "extension-apiserver-authentication";
    /// Role that reads [`AUTHENTICATION_CONFIG`].
    pub const AUTHENTICATION_CONFIG_READER: &str = "extension-apiserver-authentication-reader";
    /// User of the requests by which the server checks extension servers.
    pub const AGGREGATOR: &str = "system:kube-aggregator";
    /// Key of the extra field by which extension servers learn the workspace of a request.
    pub const EXTRA_WORKSPACE: &str = "insula.io/cluster";
}

/// Returns the common name of the certificate under which requests for extension servers of a
/// cluster are proxied. Each cluster has its own, so that an extension server that accepts the name
/// of its cluster alone gets no requests from others.
pub fn front_proxy_name(cluster: &str) -> String {
    format!("front-proxy-client:{cluster}")
}

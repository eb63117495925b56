//! Views of `apis.kcp.io`.

use super::{MaxHeld, ObjectMetadata, views};
use crate::Json;
use serde::Deserialize;

/// Days after its last use in which a version is not removed without a confirmation, unless the
/// export names another number.
pub const RETIREMENT_DAYS: u32 = 30;

/// Phase of an [`ApiBinding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum ApiBindingPhase {
    /// Not everything that the export offers is served yet.
    Binding,
    /// Everything was served at least once.
    Bound,
}

views! {
    /// APIBinding: a tenant's use of an export's APIs.
    ApiBinding {
        /// Annotations.
        metadata: ObjectMetadata,
        /// Desired state.
        spec: ApiBindingSpec,
        /// Observed state.
        status: ApiBindingStatus,
    }

    /// Desired state of an [`ApiBinding`].
    ApiBindingSpec {
        /// Reference to the export.
        reference: BindingReference,
        /// Decisions of the tenant on permission claims of the export.
        permission_claims: Vec<PermissionClaim>,
    }

    /// Reference of an [`ApiBinding`].
    BindingReference {
        /// The export.
        export: ExportReference,
    }

    /// Reference to an [`ApiExport`].
    ExportReference {
        /// Path of the exporting workspace; empty for the own one.
        path: String,
        /// Name.
        name: String,
    }

    /// Permission claim of an export, or the decision of a binding on one.
    PermissionClaim {
        /// Group of the claimed resource.
        group: String,
        /// Plural name of the claimed resource.
        resource: String,
        /// Identity of the export that brings the claimed resource; empty for built-in ones.
        identity_hash: String,
        /// Decision, in bindings only: `Accepted` or `Rejected`.
        state: String,
    }

    /// Observed state of an [`ApiBinding`].
    ApiBindingStatus {
        /// Phase; `None` before the first.
        phase: Option<ApiBindingPhase>,
        /// Resources that the binding serves.
        bound_resources: Vec<BoundResource>,
        /// Identifier of the release that it stays behind, as `BindingUpToDate` says; empty if it
        /// stays behind none.
        release: String,
    }

    /// Resource that a binding serves.
    BoundResource {
        /// Group.
        group: String,
        /// Plural name.
        resource: String,
        /// Schema that serves it.
        schema: BoundSchema,
        /// Versions that objects may be stored in.
        storage_versions: Vec<String>,
    }

    /// Schema that serves a [`BoundResource`].
    BoundSchema {
        /// Name of the APIResourceSchema.
        name: String,
        /// UID of the APIResourceSchema.
        #[serde(rename = "UID")]
        uid: String,
        /// Identity of the export.
        identity_hash: String,
    }

    /// APIExport: APIs that a provider offers.
    ApiExport {
        /// Annotations.
        metadata: ObjectMetadata,
        /// Desired state.
        spec: ApiExportSpec,
        /// Observed state.
        status: ApiExportStatus,
    }

    /// Desired state of an [`ApiExport`].
    ApiExportSpec {
        /// Resources on offer.
        resources: Vec<ExportedResource>,
        /// Access to other resources of tenants that the provider asks for.
        permission_claims: Vec<PermissionClaim>,
        /// Source of its identity.
        identity: ApiExportIdentity,
        /// Protection of versions that tenants use.
        retirement: ApiExportRetirement,
        /// Way in which bindings take over new schemas and rules.
        rollout: ApiExportRollout,
    }

    /// Way in which the bindings of an [`ApiExport`] take over new schemas and rules.
    ApiExportRollout {
        /// `PerBinding` or `AllOrNothing`; empty means `PerBinding`.
        strategy: String,
        /// True if no binding takes over a release for now.
        paused: bool,
        /// Steps, each with some of the bindings; empty for all at once.
        steps: Vec<RolloutStep>,
        /// Bindings that may stay before a step stops the rollout. `None` means 0.
        max_held: Option<MaxHeld>,
        /// Release that goes on whatever number of bindings stays; empty for none.
        with_held: String,
        /// Release that all bindings take over at once, in spite of steps; empty for none.
        at_once: String,
    }

    /// Step of an [`ApiExportRollout`].
    RolloutStep {
        /// Label selector of its bindings, as `metav1.LabelSelector`.
        selector: Option<Json>,
        /// Share of all workspaces that have moved after the step, 0 to 100.
        percentage: Option<u64>,
        /// Seconds between the end of the step and the next one.
        pause_seconds: i64,
    }

    /// State of the rollout of the release on offer.
    RolloutState {
        /// Identifier of the release; empty before the first.
        release: String,
        /// Releases that were on offer before, the last one first.
        history: Vec<FormerRelease>,
        /// Step that is open, from 1; 0 before the first, and without steps.
        step: usize,
        /// Time at which all bindings of the step had moved or stayed, as RFC 3339 text; empty
        /// before.
        step_done_time: String,
    }

    /// Resource of a release.
    ReleasedResource {
        /// Group.
        group: String,
        /// Plural name.
        name: String,
        /// Name of the APIResourceSchema.
        schema: String,
        /// UID of the APIResourceSchema.
        #[serde(rename = "UID")]
        uid: String,
        /// Fingerprint of schema and rules, in hexadecimal.
        fingerprint: String,
    }

    /// Release that an export offered before.
    FormerRelease {
        /// Identifier.
        release: String,
        /// Time at which another one took its place, as RFC 3339 text.
        end_time: String,
        /// Schemas and rules that the release after it replaced, or no longer offered.
        resources: Vec<ReleasedResource>,
        /// Resources that the release after it added.
        added: Vec<AddedResource>,
    }

    /// Resource that a release offered first.
    AddedResource {
        /// Group.
        group: String,
        /// Plural name.
        name: String,
    }

    /// Resource that an export offers.
    ExportedResource {
        /// Group.
        group: String,
        /// Plural name.
        name: String,
        /// Name of the APIResourceSchema.
        schema: String,
        /// Storage of its objects.
        storage: ResourceStorage,
    }

    /// Storage of an [`ExportedResource`]; the server's own store unless it is virtual.
    ResourceStorage {
        /// Reference to the virtual workspace that answers for the objects.
        r#virtual: Option<serde_json::Map<String, Json>>,
    }

    /// Protection of versions that tenants use.
    ApiExportRetirement {
        /// Days after its last use in which a version is not removed without a confirmation;
        /// `None` for the default.
        days: Option<u32>,
    }

    /// Source of an export's identity.
    ApiExportIdentity {
        /// Secret with the key; `None` lets the server make one.
        secret_ref: Option<SecretReference>,
    }

    /// Reference to a Secret.
    SecretReference {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    }

    /// Observed state of an [`ApiExport`].
    ApiExportStatus {
        /// SHA-256 of the key, in hexadecimal; empty until the key is known.
        identity_hash: String,
        /// Use of each offered version by tenants.
        usage: Vec<VersionUsage>,
        /// Time since which uses are counted, as RFC 3339 text; empty before the first count.
        usage_since: String,
        /// State of the rollout of the present release.
        rollout: RolloutState,
    }

    /// Use of a version of an exported resource by tenants.
    VersionUsage {
        /// Group.
        group: String,
        /// Plural name.
        resource: String,
        /// Version.
        version: String,
        /// Number of tenants that used it in the last days; see [`ApiExportSpec::retirement_days`].
        tenants: usize,
        /// Time of the last use, to the hour, as RFC 3339 text; empty if there was none.
        last_used: String,
    }

    /// APIExportEndpointSlice: addresses under which a provider finds the objects of its export.
    ApiExportEndpointSlice {
        /// Desired state.
        spec: ApiExportEndpointSliceSpec,
        /// Observed state.
        status: ApiExportEndpointSliceStatus,
    }

    /// Desired state of an [`ApiExportEndpointSlice`].
    ApiExportEndpointSliceSpec {
        /// The export.
        export: ExportReference,
        /// Name of a Partition that restricts it to some shards; empty for all.
        partition: String,
    }

    /// Observed state of an [`ApiExportEndpointSlice`].
    ApiExportEndpointSliceStatus {
        /// Addresses.
        endpoints: Vec<ApiExportEndpoint>,
    }

    /// Address of an [`ApiExportEndpointSlice`].
    ApiExportEndpoint {
        /// URL of the virtual workspace.
        url: String,
    }

    /// APIResourceSchema: an immutable API definition that exports refer to. The OpenAPI schemas
    /// are not part of the view.
    ApiResourceSchema {
        /// Annotations.
        metadata: ObjectMetadata,
        /// Desired state.
        spec: ApiResourceSchemaSpec,
    }

    /// Desired state of an [`ApiResourceSchema`].
    ApiResourceSchemaSpec {
        /// Group.
        group: String,
        /// Names of the resource.
        names: ApiNames,
        /// `Cluster` or `Namespaced`.
        scope: String,
        /// Versions.
        versions: Vec<ApiVersion>,
    }

    /// Names of a resource, as definitions write them.
    ApiNames {
        /// Plural.
        plural: String,
        /// Singular.
        singular: String,
        /// Short names.
        short_names: Vec<String>,
        /// Kind.
        kind: String,
        /// Kind of lists.
        list_kind: String,
    }

    /// Version of a resource.
    ApiVersion {
        /// Name, e.g. `v1`.
        name: String,
        /// Clients may use it.
        served: bool,
        /// New objects are stored in it.
        storage: bool,
        /// Clients that use it get a warning.
        deprecated: bool,
    }

    /// APIConversion: rules between the versions of the schema or definition of its name. The
    /// rules themselves are not part of the view.
    ApiConversion {
        /// Desired state.
        spec: ApiConversionSpec,
        /// Observed state.
        status: ApiConversionStatus,
    }

    /// Desired state of an [`ApiConversion`].
    ApiConversionSpec {
        /// Directions, each with its rules.
        conversions: Vec<ConversionDirection>,
    }

    /// Direction of an [`ApiConversion`].
    ConversionDirection {
        /// Version that objects are converted from.
        from: String,
        /// Version that objects are converted to.
        to: String,
    }

    /// Observed state of an [`ApiConversion`].
    ApiConversionStatus {
        /// Fingerprint of the rules and the schema that the rest of the status is about.
        observed: String,
    }
}

impl ApiExportSpec {
    /// Returns the days after its last use in which a version is not removed without a
    /// confirmation; 0 for no protection.
    pub fn retirement_days(&self) -> u32 {
        self.retirement.days.unwrap_or(RETIREMENT_DAYS)
    }
}

impl ApiExportRollout {
    /// Returns true if one tenant whose objects do not fit holds all bindings back.
    pub fn is_all_or_nothing(&self) -> bool {
        self.strategy == "AllOrNothing"
    }
}

impl ApiBindingStatus {
    /// Returns the entry of a resource.
    pub fn bound(&self, group: &str, resource: &str) -> Option<&BoundResource> {
        let mut all = self.bound_resources.iter();
        all.find(|bound| bound.group == group && bound.resource == resource)
    }
}

impl BoundResource {
    /// Returns the prefix of its objects in the store.
    pub fn id(&self) -> crate::ResourceId {
        crate::ResourceId {
            group: self.group.as_str().into(),
            resource: self.resource.as_str().into(),
            identity: self.schema.identity_hash.as_str().into(),
        }
    }
}

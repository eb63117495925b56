//! Differences and findings of `ApiService`.

use super::{
    manifests::{Source, sources},
    objects::{self, required},
};
use insula_admission::publication::{Difference, Finding, Severity, differences};
use insula_api::{ClusterName, ClusterPath};
use insula_meter::Meter;
use insula_proto::admin::v1::{ApiChange, DiffApiRequest, LintFinding, LintSeverity};
use insula_store::Snapshot;
use tonic::Status;

/// Compares manifests with others, or with what an export offers.
pub(super) fn diff(
    snapshot: &Snapshot,
    (cluster, path): (&ClusterName, &ClusterPath),
    request: DiffApiRequest,
    meter: &Meter,
) -> Result<Vec<Difference>, Status> {
    let new = sources("manifests", request.manifests, meter)?;
    let old = match request.old_manifests.is_empty() {
        false => sources("old_manifests", request.old_manifests, meter)?,
        true => {
            required("export", &request.export)?;
            let export = objects::published(snapshot, cluster, "APIExport", &request.export);
            let export = export.ok_or_else(|| objects::not_found("apiexports", &request.export, path))?;
            let offered = objects::offered(&export).into_iter();
            let meant =
                offered.filter(|offered| new.iter().any(|source| source.is_of(&offered.group, &offered.resource)));
            let schemas =
                meant.filter_map(|offered| objects::published(snapshot, cluster, "APIResourceSchema", &offered.schema));
            schemas.map(|schema| Source::of_schema(schema, meter)).collect()
        }
    };
    let compiled = |sources: Vec<Source>| {
        let apis = sources.into_iter().map(Source::compiled_alone);
        apis.collect::<Result<Vec<_>, _>>()
    };
    Ok(differences(&compiled(old)?, &compiled(new)?))
}

pub(super) fn change(difference: Difference) -> ApiChange {
    ApiChange {
        api: difference.api,
        version: difference.version,
        path: difference.path,
        change: difference.change,
        breaking: difference.breaking,
        detail: difference.detail,
    }
}

pub(super) fn finding(finding: Finding) -> LintFinding {
    let severity = match finding.severity {
        Severity::Note => LintSeverity::Note,
        Severity::Warning => LintSeverity::Warning,
        Severity::Error => LintSeverity::Error,
    };
    LintFinding {
        api: finding.api,
        versions: finding.versions,
        severity: severity.into(),
        finding: finding.finding,
        path: finding.path,
        message: finding.message,
    }
}

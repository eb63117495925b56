//! Writes: create, update, patch, apply, delete. Each reads its options, and asks one verb of the
//! registry.

use super::ResourceRequest;
use crate::{
    apply, body,
    negotiate::{self, Negotiated, PatchType, Patches, Supported},
    reply,
    request::Answer,
    status, third_party,
};
use http::header;
use insula_api::Json;
use insula_apply::OnConflict;
use insula_apply::{ListMerge, MergeKeys};
use insula_catalog::{Error, Part};
use insula_meter::Meter;
use insula_pipeline::Refusal;
use insula_registry::{Deleted, Repeated, WriteOptions};
use insula_schema::{ListType, Node};

impl ResourceRequest<'_> {
    pub(crate) async fn create(&mut self) -> Answer {
        let form = self.negotiate(Supported::Object)?;
        let (mut new, keys) = self.body().await?;
        let mut options = self.write_options("CreateOptions")?;
        let visit = |meet: &dyn Fn(&str)| keys.visit(meet);
        options.keys = keys.sent(&visit);
        if self.names_creation && !self.name.is_empty() {
            third_party::name_by_path(&mut new, &self.name)?;
        }
        let written = self.objects().create(new, &options).await?;
        let warnings = self.with_own(written.warnings);
        self.renderer(form)?.object(201, &written.entry, &warnings).await
    }

    /// Returns the warnings of every answer, and those of a write.
    fn with_own(&self, warnings: Vec<String>) -> Vec<String> {
        [self.warnings.clone(), warnings].concat()
    }

    pub(crate) async fn update(&mut self, part: Part) -> Answer {
        let form = self.negotiate(Supported::Object)?;
        let (new, keys) = self.body().await?;
        let mut options = self.write_options("UpdateOptions")?;
        let visit = |meet: &dyn Fn(&str)| keys.visit(meet);
        options.keys = keys.sent(&visit);
        let replaced = self.objects().replace(new, part, &options).await?;
        let warnings = self.with_own(replaced.written.warnings);
        self.renderer(form)?
            .object(code_of(replaced.created), &replaced.written.entry, &warnings)
            .await
    }

    pub(crate) async fn patch(&mut self, part: Part) -> Answer {
        let form = self.negotiate(Supported::Object)?;
        let patches = self.patches();
        let kind = negotiate::patch_type(self.header(header::CONTENT_TYPE).as_deref(), patches)?;
        let bytes = self.read_body().await?;
        if kind == PatchType::Apply {
            return self.apply(part, &bytes, form).await;
        }
        let patch = self.decode_patch(&bytes)?;
        let mut options = self.write_options("PatchOptions")?;
        if kind != PatchType::Json {
            options.keys.repeated = Repeated::Fields(body::duplicates(&bytes));
        }
        let keys = match kind {
            PatchType::StrategicMerge => self.merge_keys(),
            PatchType::Json | PatchType::Merge | PatchType::Apply => MergeKeys::default(),
        };
        let meter = &self.target.served.meter;
        let change = |current: &Json| apply_patch(kind, &keys, current, &patch, meter);
        let written = self.objects().patch(&change, part, &options).await?;
        let warnings = self.with_own(written.warnings);
        self.renderer(form)?.written(200, &written.entry, &warnings).await
    }

    /// Server-side apply.
    async fn apply(&mut self, part: Part, bytes: &[u8], form: Negotiated) -> Answer {
        let (options, on_conflict) = self.apply_options()?;
        let config = apply::configuration(bytes, options.field_validation)?;
        self.request.parsed.record.sent(&config.value);
        let configured = self.objects().apply(&config.value, on_conflict, part, &options).await?;
        let warnings = [config.warnings, self.with_own(configured.written.warnings)].concat();
        self.renderer(form)?
            .object(code_of(configured.created), &configured.written.entry, &warnings)
            .await
    }

    /// Reads the options of an apply.
    pub fn apply_options(&self) -> Result<(WriteOptions<'_>, OnConflict), Refusal> {
        let (dry_run, field_validation, on_conflict) = self.request.parsed.query.apply()?;
        Ok((self.options(dry_run, field_validation), on_conflict))
    }

    fn patches(&self) -> Patches {
        Patches::for_api(&self.target.served)
    }

    /// Returns the lists that a strategic merge patch merges: those of a built-in kind, or the sets
    /// and keyed lists of a definition's schema.
    fn merge_keys(&self) -> MergeKeys {
        let lists = self
            .target
            .served
            .api
            .builtin
            .map_or(&[][..], |builtin| builtin.merge_keys);
        let keys = lists.iter().fold(MergeKeys::metadata(), |keys, (path, key)| {
            keys.with(path, ListMerge::Key((*key).to_owned()))
        });
        match (self.patches(), self.target.api_version()) {
            (Patches::KnownGroup, Ok(version)) => keys_of_schema(version.schema.root(), "", keys),
            _ => keys,
        }
    }

    /// Reads a patch.
    pub fn decode_patch(&self, bytes: &[u8]) -> Result<Json, Refusal> {
        let patch = insula_apply::decode(bytes).map_err(|error| patch_error(&error))?;
        self.request.parsed.record.sent(&patch);
        Ok(patch)
    }

    pub(crate) async fn delete(&mut self) -> Answer {
        let form = self.negotiate(Supported::Object)?;
        let body = self.optional_body().await?;
        let (how, dry_run) = self.request.parsed.query.delete(body.as_ref())?;
        let objects = self.objects();
        let renderer = self.renderer(form)?;
        let deletion = objects.delete(&how, &objects.deletion_options(dry_run)).await?;
        let warnings = self.with_own(deletion.warnings);
        match deletion.deleted {
            Deleted::Held(entry) => {
                // As in Kubernetes: only `orphanDependents: false` is answered with 202.
                let is_legacy = body.as_ref().is_some_and(|body| body["orphanDependents"] == false);
                renderer
                    .written(if is_legacy { 202 } else { 200 }, &entry, &warnings)
                    .await
            }
            Deleted::Gone(entry) if self.target.served.api.strategy.traits().deletes_to_object => {
                renderer.object(200, &entry, &warnings).await
            }
            Deleted::Gone(entry) => {
                let named = self.target.served.api.named();
                let gone = status::deleted(&named, &self.name, &entry.object.meta.uid.to_string());
                let mut response = reply::document(200, &gone.body, form);
                reply::add_warnings(&mut response, &warnings);
                Ok(response)
            }
        }
    }

    pub(crate) async fn delete_collection(&mut self) -> Answer {
        let form = self.negotiate(Supported::List)?;
        let body = self.optional_body().await?;
        let (how, dry_run) = self.request.parsed.query.delete(body.as_ref())?;
        let (list, _) = self.request.parsed.query.list()?;
        let objects = self.objects();
        let options = objects.deletion_options(dry_run);
        let (deleted, warnings) = objects.delete_collection(&list, &how, &options).await?;
        let warnings = self.with_own(warnings);
        self.renderer(form)?.deleted(&deleted, &warnings).await
    }
}

/// Returns the code of a write that may have created its object.
fn code_of(created: bool) -> u16 {
    if created { 201 } else { 200 }
}

/// Adds the sets and keyed lists below a node. A list with several keys merges by the first one, as
/// do the lists of Kubernetes' own kinds.
fn keys_of_schema(node: &Node, path: &str, mut keys: MergeKeys) -> MergeKeys {
    for (name, child) in node.properties() {
        if path.is_empty() && name == "metadata" {
            continue;
        }
        let at = match path {
            "" => name.to_owned(),
            _ => format!("{path}.{name}"),
        };
        keys = match child.list_type() {
            ListType::Atomic => keys,
            ListType::Set => keys.with(&at, ListMerge::Set),
            ListType::Map { keys: fields } => match fields.first() {
                Some(field) => keys.with(&at, ListMerge::Key(field.clone())),
                None => keys,
            },
        };
        keys = keys_of_schema(child.items().unwrap_or(child), &at, keys);
    }
    keys
}

/// Returns an object after a patch. A strategic merge patch merges the lists of `keys`.
pub(crate) fn apply_patch(
    kind: PatchType,
    keys: &MergeKeys,
    current: &Json,
    patch: &Json,
    meter: &Meter,
) -> insula_catalog::Result<Json> {
    let mut new = current.clone();
    let patched = match kind {
        PatchType::Json => insula_apply::json_patch(&mut new, patch, meter),
        PatchType::Merge => insula_apply::merge_patch(&mut new, patch),
        PatchType::StrategicMerge => insula_apply::strategic_merge(&mut new, patch, keys),
        // An apply needs the field managers as well: `verbs::apply` of the registry does it.
        PatchType::Apply => return Err(Error::BadPatch),
    };
    patched.map_err(|error| patch_error(&error))?;
    Ok(new)
}

fn patch_error(error: &insula_apply::PatchError) -> Error {
    use insula_apply::PatchError;
    match error {
        PatchError::Malformed(_) => Error::BadRequest(error.to_string()),
        PatchError::Failed { .. } | PatchError::TooDeep => Error::BadPatch,
        PatchError::TooMany { .. } => {
            let text = error.to_string();
            Error::TooLarge(text.trim_start_matches("Request entity too large: ").to_owned())
        }
    }
}

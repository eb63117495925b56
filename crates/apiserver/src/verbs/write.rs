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
use insula_pipeline::Refusal;
use insula_registry::{Change, Deleted, Deps, FieldValidation, IfAbsent, WriteOptions, Written, verbs};
use insula_schema::{ListType, Node};
use std::time::Duration;
use tokio::time::timeout;

/// Time that a write of a definition or of rules waits until it is in force. A trial of many stored
/// objects takes longer.
const IN_FORCE_TIME: Duration = Duration::from_secs(2);
/// The warning about a write that is not in force by then.
const NOT_IN_FORCE: &str = "not in force yet: what was served before is served on; see the condition RolledOut of the \
                            CustomResourceDefinition";

impl ResourceRequest<'_> {
    pub(crate) async fn create(&mut self) -> Answer {
        let form = self.negotiate(Supported::Object)?;
        let sent = self.body().await?;
        let mut options = self.write_options("CreateOptions")?;
        options.duplicates = sent.duplicates;
        let mut new = sent.value;
        if self.names_creation && !self.name.is_empty() {
            third_party::name_by_path(&mut new, &self.name)?;
        }
        self.check_namespace(&new)?;
        let written = verbs::create(&self.server.registry, &self.target, new, &options).await?;
        let own = self.warnings.clone();
        let warnings = warnings_in_force(&self.server.registry, own, &written, options.dry_run).await;
        self.renderer(form)?.object(201, &written.entry, &warnings).await
    }

    /// Refuses a body whose namespace is another than the path's.
    pub(crate) fn check_namespace(&self, new: &Json) -> Result<(), Refusal> {
        let given = new["metadata"]["namespace"].as_str().unwrap_or_default();
        match &self.target.namespace {
            Some(namespace) if !given.is_empty() && given != &**namespace => Err(Refusal::from(Error::BadRequest(
                "the namespace of the provided object does not match the namespace sent on the request".into(),
            ))),
            _ => Ok(()),
        }
    }

    pub(crate) async fn update(&mut self, part: Part) -> Answer {
        let form = self.negotiate(Supported::Object)?;
        let sent = self.body().await?;
        let mut options = self.write_options("UpdateOptions")?;
        options.duplicates = sent.duplicates;
        let registry = &self.server.registry;
        let (code, written) = match part == Part::Main && self.update_creates(&sent.value) {
            true => {
                let right = self
                    .request
                    .authorized
                    .right_to_create()?
                    .with_decision(&self.server.authenticator)
                    .await?;
                self.request.authorized.may_create(right, &self.request.parsed.record)?;
                (201, verbs::create(registry, &self.target, sent.value, &options).await?)
            }
            false => {
                let change = Change::Replace(sent.value);
                let written = verbs::update(registry, &self.target, &self.name, change, part, &options).await?;
                (200, written)
            }
        };
        let own = self.warnings.clone();
        let warnings = warnings_in_force(&self.server.registry, own, &written, options.dry_run).await;
        self.renderer(form)?.object(code, &written.entry, &warnings).await
    }

    /// Returns true for a PUT that creates its object: there is none, and its kind allows that.
    fn update_creates(&self, sent: &Json) -> bool {
        let (snapshot, registry) = (&self.request.authorized.scope().snapshot, &self.server.registry);
        self.target.served.api.strategy.traits().created_by_update
            && sent["metadata"]["name"] == *self.name
            && verbs::get(registry, snapshot, &self.target, &self.name).is_err()
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
            options.duplicates = body::duplicates(&bytes);
        }
        let keys = match kind {
            PatchType::StrategicMerge => self.merge_keys(),
            PatchType::Json | PatchType::Merge | PatchType::Apply => MergeKeys::default(),
        };
        let change = |current: &Json| -> insula_catalog::Result<Json> { apply_patch(kind, &keys, current, &patch) };
        let change = Change::Patch(&change);
        let written = verbs::update(&self.server.registry, &self.target, &self.name, change, part, &options).await?;
        let own = self.warnings.clone();
        let warnings = warnings_in_force(&self.server.registry, own, &written, options.dry_run).await;
        self.renderer(form)?.written(200, &written.entry, &warnings).await
    }

    /// Server-side apply.
    async fn apply(&mut self, part: Part, bytes: &[u8], form: Negotiated) -> Answer {
        let (options, on_conflict) = self.apply_options()?;
        let config = apply::configuration(bytes, options.field_validation)?;
        self.request.parsed.record.sent(&config.value);
        let registry = &self.server.registry;
        let exists = verbs::get(
            registry,
            &self.request.authorized.scope().snapshot,
            &self.target,
            &self.name,
        )
        .is_ok();
        let if_absent = match part == Part::Main && !exists {
            true => {
                let right = self
                    .request
                    .authorized
                    .right_to_create()?
                    .with_decision(&self.server.authenticator)
                    .await?;
                self.request.authorized.may_create(right, &self.request.parsed.record)?;
                IfAbsent::Create
            }
            false => IfAbsent::Refuse,
        };
        let wanted = (&config.value, on_conflict);
        let configured = verbs::apply(registry, &self.target, &self.name, wanted, (part, if_absent), &options).await?;
        let mut warnings = config.warnings;
        let own = self.warnings.clone();
        warnings.extend(warnings_in_force(registry, own, &configured.written, options.dry_run).await);
        let code = if configured.created { 201 } else { 200 };
        self.renderer(form)?
            .object(code, &configured.written.entry, &warnings)
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

    /// Options of a deletion, which validates no fields and has no field manager.
    fn deletion_options(&self, dry_run: bool) -> WriteOptions<'_> {
        WriteOptions {
            user: self.request.authorized.writer(),
            dry_run,
            field_validation: FieldValidation::Ignore,
            duplicates: Vec::new(),
            record: self.request.parsed.record.clone(),
            manager: String::new(),
        }
    }

    pub(crate) async fn delete(&mut self) -> Answer {
        let form = self.negotiate(Supported::Object)?;
        let body = self.optional_body().await?;
        let (how, dry_run) = self.request.parsed.query.delete(body.as_ref())?;
        let options = self.deletion_options(dry_run);
        let registry = &self.server.registry;
        let renderer = self.renderer(form)?;
        let deletion = verbs::delete(registry, &self.target, &self.name, &how, &options).await?;
        let warnings = [self.warnings.clone(), deletion.warnings].concat();
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
                let mut response = reply::document(200, &gone.body, form.format, form.format.content_type(), false);
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
        let options = self.deletion_options(dry_run);
        let (deleted, warnings) =
            verbs::delete_collection(&self.server.registry, &self.target, &list, &how, &options).await?;
        let warnings = [self.warnings.clone(), warnings].concat();
        self.renderer(form)?.deleted(&deleted, &warnings).await
    }
}

/// Returns the warnings of a write, once it is in force: the next request of anybody sees what it
/// changed of an API. What is not in force in time is told by another warning.
async fn warnings_in_force(registry: &Deps, own: Vec<String>, written: &Written, dry_run: bool) -> Vec<String> {
    let mut warnings = [own, written.warnings.clone()].concat();
    let in_force = insula_registry::until_in_force(registry, &written.entry.key);
    if let Some(in_force) = in_force.filter(|_| !dry_run)
        && timeout(IN_FORCE_TIME, in_force).await.is_err()
    {
        warnings.push(NOT_IN_FORCE.to_owned());
    }
    warnings
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
) -> insula_catalog::Result<Json> {
    let mut new = current.clone();
    let patched = match kind {
        PatchType::Json => insula_apply::json_patch(&mut new, patch),
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
        PatchError::Failed(_) => Error::BadPatch,
        PatchError::TooMany { .. } => {
            let text = error.to_string();
            Error::TooLarge(text.trim_start_matches("Request entity too large: ").to_owned())
        }
    }
}

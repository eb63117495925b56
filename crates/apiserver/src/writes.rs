//! What writes ask of the registry: options, who is the manager, and which of the verbs.

use crate::{
    apply, body,
    handle::{Answer, ResourceRequest},
    negotiate::{self, Negotiated, Offer, PatchType, Patches},
    reply::{self, Reply},
    status,
};
use http::header;
use insula_api::Json;
use insula_apply::OnConflict;
use insula_registry::{
    Change, Deleted, Error, FieldValidation, IfAbsent, Part, WriteOptions,
    accounts::{self, Asked},
    reviews::{self, Asker},
};

/// Longer names of programs are cut.
const MANAGER_BYTES_MAX: usize = 128;

impl ResourceRequest<'_> {
    /// `dryRun` and `fieldValidation`, for a kind of options.
    pub fn write_options(&self, kind: &str) -> Result<WriteOptions<'_>, Reply> {
        let (dry_run, field_validation) = self.request.parsed.query.write(kind)?;
        Ok(WriteOptions {
            user: &self.request.writer,
            dry_run,
            field_validation,
            duplicates: Vec::new(),
            record: self.request.parsed.record.clone(),
            manager: self.manager(),
        })
    }

    /// Whose the fields are that a write changes: as it says, or the program that sends it, up to
    /// its version.
    fn manager(&self) -> String {
        if let Some(given) = self
            .request
            .parsed
            .query
            .get("fieldManager")
            .filter(|given| !given.is_empty())
        {
            return given.to_owned();
        }
        let agent = self.header(header::USER_AGENT).unwrap_or_default();
        let program = agent.split('/').next().unwrap_or_default();
        let mut name = String::new();
        for c in program.chars().filter(|c| !c.is_control()) {
            if name.len() + c.len_utf8() > MANAGER_BYTES_MAX {
                break;
            }
            name.push(c);
        }
        name
    }

    pub(crate) async fn create(&mut self) -> Answer {
        let renderer_form = self.negotiate(Offer::Object)?;
        let sent = self.body().await?;
        let mut options = self.write_options("CreateOptions")?;
        options.duplicates = sent.duplicates;
        let mut new = sent.value;
        self.place_in_namespace(&mut new)?;
        let written = self.server.registry.create(&self.target, new, &options).await?;
        let warnings = [self.warnings.clone(), written.warnings].concat();
        self.renderer(renderer_form)?
            .object(201, &written.entry, &warnings)
            .await
    }

    /// A review is answered, and not stored.
    pub(crate) async fn review(&mut self, verb: &str) -> Answer {
        if verb != "create" {
            return Err(Reply::error(&Error::MethodNotAllowed));
        }
        // Neither a table nor metadata is an answer.
        let form = self.negotiate(Offer::Document)?;
        let mut sent = self.body().await?.value;
        self.place_in_namespace(&mut sent)?;
        let asker = Asker {
            snapshot: &self.request.place.snapshot,
            user: &self.request.user,
            manager: &self.manager(),
            now: self.server.registry.clock.now(),
        };
        let place = || Some((self.request.place.snapshot.clone(), self.target.cluster.clone()));
        let known = match reviews::asked_token(&self.target, &sent) {
            Some((token, audiences)) => Some(self.server.authenticator.by_token(token, &audiences, place).await),
            None => None,
        };
        let answer = reviews::answer(asker, &self.target, sent, known)?;
        let pretty = form.pretty;
        Ok(reply::document(
            201,
            &answer,
            form.format,
            form.format.content_type(),
            pretty,
        ))
    }

    /// A token for a service account: given out, and not stored.
    pub(crate) async fn token(&mut self, verb: &str) -> Answer {
        let authenticator = self.server.authenticator.clone();
        let (Some(accounts), "create") = (&authenticator.accounts, verb) else {
            return Err(Reply::error(&Error::MethodNotAllowed));
        };
        let form = self.negotiate(Offer::Document)?;
        let (version, kind) = accounts::TOKEN_REQUEST;
        let expected = body::Expected {
            kind,
            implied: Some(version),
        };
        let sent = self.body_of(expected).await?.value;
        let asked = Asked {
            snapshot: &self.request.place.snapshot,
            target: &self.target,
            name: &self.name,
            manager: &self.manager(),
        };
        let answer = accounts.token(&*self.server.registry.rng, &asked, sent)?;
        Ok(reply::document(
            201,
            &answer,
            form.format,
            form.format.content_type(),
            form.pretty,
        ))
    }

    /// A body without a namespace gets the URL's; another one is refused.
    fn place_in_namespace(&self, new: &mut Json) -> Result<(), Reply> {
        let given = new["metadata"]["namespace"].as_str().unwrap_or_default();
        match &self.target.namespace {
            Some(namespace) if !given.is_empty() && given != &**namespace => Err(Reply::error(&Error::BadRequest(
                "the namespace of the provided object does not match the namespace sent on the request".into(),
            ))),
            _ => Ok(()),
        }
    }

    pub(crate) async fn update(&mut self, part: Part) -> Answer {
        let form = self.negotiate(Offer::Object)?;
        let sent = self.body().await?;
        let mut options = self.write_options("UpdateOptions")?;
        options.duplicates = sent.duplicates;
        let registry = &self.server.registry;
        let (code, written) = match part == Part::Main && self.makes(&sent.value) {
            true => {
                self.request.may_create()?;
                (201, registry.create(&self.target, sent.value, &options).await?)
            }
            false => {
                let change = Change::Replace(sent.value);
                let written = registry
                    .update(&self.target, &self.name, change, part, &options)
                    .await?;
                (200, written)
            }
        };
        let warnings = [self.warnings.clone(), written.warnings].concat();
        self.renderer(form)?.object(code, &written.entry, &warnings).await
    }

    /// Whether a PUT of this object makes it: there is none, and its kind allows that.
    fn makes(&self, sent: &Json) -> bool {
        let (snapshot, registry) = (&self.request.place.snapshot, &self.server.registry);
        self.target.served.api.strategy.traits().created_by_update
            && sent["metadata"]["name"] == *self.name
            && registry.get(snapshot, &self.target, &self.name).is_err()
    }

    pub(crate) async fn patch(&mut self, part: Part) -> Answer {
        let form = self.negotiate(Offer::Object)?;
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
        let change = |current: &Json| -> insula_registry::Result<Json> { apply_patch(kind, current, &patch) };
        let change = Change::Patch(&change);
        let written = self
            .server
            .registry
            .update(&self.target, &self.name, change, part, &options)
            .await?;
        let warnings = [self.warnings.clone(), written.warnings].concat();
        self.renderer(form)?.written(200, &written.entry, &warnings).await
    }

    /// Server-side apply.
    async fn apply(&mut self, part: Part, bytes: &[u8], form: Negotiated) -> Answer {
        let (options, on_conflict) = self.apply_options()?;
        let config = apply::configuration(bytes, options.field_validation)?;
        self.request.parsed.record.sent(&config.value);
        let registry = &self.server.registry;
        let exists = registry
            .get(&self.request.place.snapshot, &self.target, &self.name)
            .is_ok();
        let if_absent = match part == Part::Main && !exists {
            true => {
                self.request.may_create()?;
                IfAbsent::Create
            }
            false => IfAbsent::Refuse,
        };
        let wanted = (&config.value, on_conflict);
        let configured = registry
            .apply_configuration(&self.target, &self.name, wanted, (part, if_absent), &options)
            .await?;
        let warnings = [self.warnings.clone(), config.warnings, configured.written.warnings].concat();
        let code = if configured.created { 201 } else { 200 };
        self.renderer(form)?
            .object(code, &configured.written.entry, &warnings)
            .await
    }

    /// The options of an apply, and what it does about fields of others.
    pub fn apply_options(&self) -> Result<(WriteOptions<'_>, OnConflict), Reply> {
        let (dry_run, field_validation, on_conflict) = self.request.parsed.query.apply()?;
        let options = WriteOptions {
            user: &self.request.writer,
            dry_run,
            field_validation,
            duplicates: Vec::new(),
            record: self.request.parsed.record.clone(),
            manager: self.manager(),
        };
        Ok((options, on_conflict))
    }

    fn patches(&self) -> Patches {
        let api = &self.target.served.api;
        match api.strategy.traits().built_in {
            true => Patches::BuiltIn,
            false => Patches::Custom,
        }
    }

    /// A patch body as JSON.
    pub fn decode_patch(&self, bytes: &[u8]) -> Result<Json, Reply> {
        let patch = insula_apply::decode(bytes).map_err(|error| patch_error(&error))?;
        self.request.parsed.record.sent(&patch);
        Ok(patch)
    }

    /// A deletion has no fields to validate and makes nobody own any.
    fn deletion_options(&self, dry_run: bool) -> WriteOptions<'_> {
        WriteOptions {
            user: &self.request.writer,
            dry_run,
            field_validation: FieldValidation::Ignore,
            duplicates: Vec::new(),
            record: self.request.parsed.record.clone(),
            manager: String::new(),
        }
    }

    pub(crate) async fn delete(&mut self) -> Answer {
        let form = self.negotiate(Offer::Object)?;
        let body = self.optional_body().await?;
        let (how, dry_run) = self.request.parsed.query.delete(body.as_ref())?;
        let options = self.deletion_options(dry_run);
        let registry = &self.server.registry;
        let renderer = self.renderer(form)?;
        let deletion = registry.delete(&self.target, &self.name, &how, &options).await?;
        let warnings = [self.warnings.clone(), deletion.warnings].concat();
        match deletion.deleted {
            Deleted::Held(entry) => {
                // Kubernetes: only who asked for it in the old way is told that dependents are
                // still to go.
                let old_way = body.as_ref().is_some_and(|body| body["orphanDependents"] == false);
                renderer
                    .written(if old_way { 202 } else { 200 }, &entry, &warnings)
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
        let form = self.negotiate(Offer::List)?;
        let body = self.optional_body().await?;
        let (how, dry_run) = self.request.parsed.query.delete(body.as_ref())?;
        let (list, _) = self.request.parsed.query.list()?;
        let options = self.deletion_options(dry_run);
        let (deleted, warnings) = self
            .server
            .registry
            .delete_collection(&self.target, &list, &how, &options)
            .await?;
        let warnings = [self.warnings.clone(), warnings].concat();
        self.renderer(form)?.deleted(&deleted, &warnings).await
    }
}

/// The object after a patch.
pub(crate) fn apply_patch(kind: PatchType, current: &Json, patch: &Json) -> insula_registry::Result<Json> {
    let mut new = current.clone();
    let patched = match kind {
        PatchType::Json => insula_apply::json_patch(&mut new, patch),
        PatchType::Merge => insula_apply::merge_patch(&mut new, patch),
        PatchType::StrategicMerge => {
            let group = current["apiVersion"]
                .as_str()
                .and_then(|version| version.split_once('/'));
            let kind = current["kind"].as_str().unwrap_or_default();
            let keys = insula_apply::MergeKeys::builtin(group.map_or("", |(group, _)| group), kind);
            insula_apply::strategic_merge(&mut new, patch, &keys)
        }
        // Whose which field is decides about it too: it does not come here.
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

//! Requests for objects that a call makes within the server, for its caller.
//!
//! They pass the stages of the pipeline from the cluster on, with admission, the limits of the
//! workspace and an audit record of their own, which names the call. The call itself was
//! authenticated, and counts against the limits of its caller. No text is made and read on the way.
//! What another server answers, an extension server or that of a mount, and what is no verb on
//! stored objects, is asked for over HTTP (`inner.rs`).

use super::{
    Caller,
    inner::{Recorded, Unserved, json},
    request::{Action, CallPath, ObjectRequest, PageRequest},
};
use crate::{
    audit, body, dispatch,
    negotiate::PatchType,
    render, reply,
    server::ApiServer,
    status,
    verbs::{BodyKind, apply_patch, manager_of},
};
use futures_util::future::BoxFuture;
use insula_api::{FieldSelector, Json, LabelSelector, Revision, Verb};
use insula_apply::MergeKeys;
use insula_auth::audit::Record;
use insula_catalog::{
    Error, Part, aggregation,
    locate::{self, NotLocated},
};
use insula_edge::guard::limits::Budget;
use insula_pipeline::{Call, Destination, Objects, ReadAt, Refusal, ScopePath};
use insula_registry::{
    Configured, DeleteOptions, Deleted, FieldValidation, ListOptions, WriteOptions, calls, representation::Show,
};
use insula_store::Entry;
use std::pin::pin;

/// Bytes in memory of a parsed value for each byte of its JSON.
const VALUE_BYTES: usize = 4;
/// Objects of a page after which the task yields.
const PAUSE_OBJECTS: usize = 64;

/// The answer to an [`ObjectRequest`].
#[derive(Debug)]
pub struct Done {
    /// The object; of one that is gone, its status.
    pub object: Json,
    /// True if the request has deleted the object for good.
    pub gone: bool,
    /// True if the request has created the object.
    created: bool,
}

impl Done {
    fn object(object: Json) -> Self {
        Done {
            object,
            gone: false,
            created: false,
        }
    }
}

/// A page of a collection.
#[derive(Debug)]
pub struct Page {
    /// The objects, with `apiVersion` and `kind`.
    pub items: Vec<Json>,
    /// Revision of the list.
    pub revision: Revision,
    /// Token of the next page.
    pub next: Option<String>,
}

/// A value that answers a request.
trait Answer {
    /// The value as the audit log has it.
    fn to_recorded(&self) -> Json;
    /// Bytes of its JSON.
    fn bytes(&self) -> usize;
    /// The code of the same answer over HTTP, for the audit log.
    fn code(&self) -> u16 {
        200
    }
}

impl Answer for Done {
    fn to_recorded(&self) -> Json {
        self.object.clone()
    }

    fn bytes(&self) -> usize {
        reply::json_bytes(&self.object)
    }

    fn code(&self) -> u16 {
        if self.created { 201 } else { 200 }
    }
}

impl Answer for Page {
    fn to_recorded(&self) -> Json {
        let metadata = serde_json::json!({"resourceVersion": self.revision.to_string()});
        serde_json::json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": self.items})
    }

    fn bytes(&self) -> usize {
        self.items.iter().map(reply::json_bytes).sum()
    }
}

/// The parts of a request that do not depend on its action.
struct Asked<'a> {
    verb: Verb,
    path: &'a CallPath,
    at: ReadAt,
    token: Option<&'a str>,
}

impl ApiServer {
    /// Serves a request for an object for the sender of an admitted call, who must not be within
    /// [`ApiServer::enter`] of the same workspace: the request enters it by itself.
    ///
    /// # Errors
    /// The refusal.
    pub fn run_for<'a>(
        &'a self,
        caller: &'a Caller,
        request: &'a ObjectRequest,
    ) -> BoxFuture<'a, Result<Done, Unserved>> {
        Box::pin(async move {
            if self.is_asked_over_http(caller, &request.path) {
                let request = request.to_http().map_err(Unserved::Refused)?;
                let object = json(&self.serve_for(caller, request).await?)?;
                let gone = object["kind"] == "Status" && object["apiVersion"] == "v1";
                return Ok(Done {
                    gone,
                    ..Done::object(object)
                });
            }
            let Recorded(record) = &caller.begin_record(self, || request.target());
            let asked = Asked {
                verb: verb_of(&request.action),
                path: &request.path,
                at: ReadAt::Latest,
                token: None,
            };
            let ran = pin!(self.run(caller, asked, record, async |objects, budget, warnings| {
                let bytes = request.action.body().map_or(0, reply::json_bytes);
                self.check_body(bytes)?;
                budget.hold(bytes)?;
                let manager = manager_of(None, &caller.inner.agent());
                act(objects, request, (&manager, bytes, budget), warnings).await
            }));
            finish(caller, record, ran.await)
        })
    }

    /// Serves a request for a page of a collection, as [`ApiServer::run_for`] serves one for an
    /// object.
    ///
    /// # Errors
    /// The refusal.
    pub fn list_for<'a>(
        &'a self,
        caller: &'a Caller,
        request: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Page, Unserved>> {
        Box::pin(async move {
            if self.is_asked_over_http(caller, &request.path) {
                let request = request.to_http().map_err(Unserved::Refused)?;
                return page_of(&json(&self.serve_for(caller, request).await?)?);
            }
            let Recorded(record) = &caller.begin_record(self, || request.target());
            let ran = pin!(async {
                let (options, at) = page_options(request)?;
                let asked = Asked {
                    verb: Verb::List,
                    path: &request.path,
                    at,
                    token: request.token.as_deref(),
                };
                let listed = self.run(caller, asked, record, async |objects, budget, _| {
                    page(objects, &options, budget).await
                });
                listed.await
            });
            finish(caller, record, ran.await)
        })
    }

    /// Refuses an object above the limit of a body over HTTP.
    fn check_body(&self, bytes: usize) -> Result<(), Refusal> {
        let max = self.limits.settings.body_bytes.min(body::BODY_BYTES_MAX);
        if bytes > max {
            return Err(Refusal::from(Error::TooLarge(format!("limit is {max}"))));
        }
        Ok(())
    }

    /// Returns true for what another server answers, and for what is no verb on stored objects.
    fn is_asked_over_http(&self, caller: &Caller, path: &CallPath) -> bool {
        let snapshot = self.registry.store.latest().charged_to(caller.work());
        let catalog = &self.registry.catalog;
        let located = locate::locate_view(&snapshot, &(&path.cluster).into());
        if matches!(located, Err(NotLocated::Mounted { .. })) || path.objects.subresource.is_some() {
            return true;
        }
        let (group, version) = (&*path.objects.group, &*path.objects.version);
        match catalog.resolve(&snapshot, &path.cluster, group, &path.objects.resource) {
            Some(served) if served.version(version).is_some() => served.api.strategy.traits().review,
            _ => aggregation::find(catalog, &snapshot, &path.cluster, (group, version)).is_some(),
        }
    }

    /// Runs a request through the stages of the pipeline, and meters it.
    async fn run<T: Answer>(
        &self,
        caller: &Caller,
        asked: Asked<'_>,
        record: &Record,
        act: impl AsyncFnOnce(Objects<'_>, &Budget, &mut Vec<String>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let objects = &asked.path.objects;
        let attributes = objects.attributes(Some(asked.verb), None);
        record.about(attributes.clone());
        caller.tell(record);
        let call = Call {
            scope: ScopePath::Cluster((&asked.path.cluster).into()),
            attributes,
            at: asked.at,
            token: asked.token.map(str::to_owned),
            meter: caller.work.clone(),
        };
        let registry = &self.registry;
        let located = match insula_pipeline::locate(registry, caller.sender.clone(), call, record).await? {
            Destination::Here(located) => *located,
            // It was mounted since the request began.
            Destination::Mounted(_) => return Err(Refusal::NotServed),
        };
        let authorized = located
            .authorize(self.authenticator.delegate.as_deref(), record)
            .await?;
        let entered = authorized
            .enter(self.tenants(), &caller.payer, caller.meter.as_deref())
            .await?;
        let mut warnings = Vec::new();
        let work = async {
            let resolved = authorized.resolve(registry, objects, self.third_party_resources, &|| false)?;
            let target = resolved.target(registry, objects, asked.verb == Verb::List)?;
            warnings = dispatch::deprecation(&target.served, &target.version);
            let found = Objects {
                registry,
                delegate: self.authenticator.delegate.as_deref(),
                request: &authorized,
                target: &target,
                name: objects.name.as_deref().unwrap_or_default(),
                record,
            };
            act(found, &entered.budget, &mut warnings).await
        };
        let ran = entered.slot.run(pin!(work)).await;
        let done = ran.map_err(|refusal| refusal.warn(std::mem::take(&mut warnings)))?;
        caller.warned(warnings.into_iter());
        if let Some(cluster) = &authorized.scope().cluster
            && let Some(counters) = registry.cache.metering.request(cluster, Some(asked.verb))
        {
            counters.sent(done.bytes() as u64);
        }
        Ok(done)
    }
}

fn verb_of(action: &Action) -> Verb {
    match action {
        Action::Get => Verb::Get,
        Action::Create(_) => Verb::Create,
        Action::Replace(_) => Verb::Update,
        Action::Merge(_) | Action::Apply { .. } => Verb::Patch,
        Action::Delete(_) => Verb::Delete,
    }
}

/// Records the end of a request, and returns its answer.
fn finish<T: Answer>(caller: &Caller, record: &Record, ran: Result<T, Refusal>) -> Result<T, Unserved> {
    match ran {
        Ok(done) => {
            audit::record_value(record, || done.bytes(), || done.to_recorded());
            record.answered(done.code());
            Ok(done)
        }
        Err(refusal) => {
            reply::record_refusal(&refusal, record);
            record.answered(status::code(&refusal));
            caller.warned(refusal.parts().1.iter().cloned());
            Err(Unserved::Refused(refusal))
        }
    }
}

/// Does what a request with a body of some bytes asks for. `manager` is the field manager of writes
/// that name none.
async fn act(
    objects: Objects<'_>,
    request: &ObjectRequest,
    (manager, body_bytes, budget): (&str, usize, &Budget),
    warnings: &mut Vec<String>,
) -> Result<Done, Refusal> {
    let options = |validation, manager: &str| WriteOptions {
        body_bytes,
        ..objects.options(request.dry_run, validation, manager.to_owned())
    };
    let plain = options(FieldValidation::Warn, manager);
    let (configured, is_patch) = match &request.action {
        Action::Get => {
            let entry = objects.get().await?;
            budget.hold(entry.object.body_len())?;
            return Ok(Done::object(shown(objects, &entry, false).await?));
        }
        Action::Delete(how) => return delete(objects, (how, request.dry_run), budget, warnings).await,
        Action::Create(new) => {
            let written = objects.create(sent(objects, new)?, &plain).await?;
            let created = true;
            (Configured { written, created }, false)
        }
        Action::Replace(new) => (objects.replace(sent(objects, new)?, Part::Main, &plain).await?, false),
        Action::Merge(patch) => {
            objects.record.sent(patch);
            let meter = &objects.target.served.meter;
            let change = |current: &Json| apply_patch(PatchType::Merge, &MergeKeys::default(), current, patch, meter);
            let written = objects.patch(&change, Part::Main, &plain).await?;
            let created = false;
            (Configured { written, created }, true)
        }
        Action::Apply {
            config,
            manager,
            on_conflict,
        } => {
            objects.record.sent(config);
            let strict = options(FieldValidation::Strict, manager);
            (objects.apply(config, *on_conflict, Part::Main, &strict).await?, false)
        }
    };
    let Configured { written, created } = configured;
    warnings.extend(written.warnings);
    budget.hold(written.entry.object.body_len())?;
    Ok(Done {
        created,
        ..Done::object(shown(objects, &written.entry, is_patch).await?)
    })
}

async fn delete(
    objects: Objects<'_>,
    (how, dry_run): (&DeleteOptions, bool),
    budget: &Budget,
    warnings: &mut Vec<String>,
) -> Result<Done, Refusal> {
    let deletion = objects.delete(how, &objects.deletion_options(dry_run)).await?;
    warnings.extend(deletion.warnings);
    let api = &objects.target.served.api;
    let (entry, is_held) = match deletion.deleted {
        Deleted::Held(entry) => (entry, true),
        Deleted::Gone(entry) if api.strategy.traits().deletes_to_object => (entry, false),
        Deleted::Gone(entry) => {
            let uid = entry.object.meta.uid.to_string();
            let gone = status::deleted(&api.named(), objects.name, &uid);
            return Ok(Done {
                gone: true,
                ..Done::object(gone.body)
            });
        }
    };
    budget.hold(entry.object.body_len())?;
    Ok(Done::object(shown(objects, &entry, is_held).await?))
}

/// Returns an object. That of a patch or a deletion has been changed: if it cannot be converted to
/// the requested version, the answer is its metadata, as over HTTP.
async fn shown(objects: Objects<'_>, entry: &Entry, is_changed: bool) -> Result<Json, Error> {
    match render::value(objects.registry, objects.target, entry).await {
        Err(Error::Conversion(_) | Error::Webhook(_)) if is_changed => {
            Ok(render::metadata_alone(objects.target, entry))
        }
        answer => answer,
    }
}

/// Returns the object of a creation or a replacement, as it is read from a body.
fn sent(objects: Objects<'_>, new: &Json) -> Result<Json, Refusal> {
    let mut new = new.clone();
    body::complete_object(&mut new, BodyKind::for_target(objects.target).expected())?;
    objects.record.sent(&new);
    Ok(new)
}

fn page_options(request: &PageRequest) -> Result<(ListOptions, ReadAt), Error> {
    let labels = LabelSelector::parse(&request.labels).map_err(|error| Error::BadRequest(error.to_string()))?;
    let fields = FieldSelector::parse(&request.fields).map_err(|error| Error::BadRequest(error.to_string()))?;
    let at = match &request.token {
        Some(token) => ReadAt::of_page(token)?,
        None => ReadAt::Latest,
    };
    let options = ListOptions {
        labels,
        fields,
        limit: request.limit,
        next: request.token.clone(),
    };
    Ok((options, at))
}

async fn page(objects: Objects<'_>, options: &ListOptions, budget: &Budget) -> Result<Page, Refusal> {
    let list = objects.list(options).await?;
    let bytes: usize = list.entries.iter().map(|entry| entry.object.body_len()).sum();
    budget.hold(bytes * VALUE_BYTES)?;
    let target = calls::attach(objects.registry, objects.target);
    let mut show = Show::new(&objects.registry.cache, &target, list.entries.iter());
    let mut items = Vec::with_capacity(list.entries.len());
    for number in 0..list.entries.len() {
        if number % PAUSE_OBJECTS == PAUSE_OBJECTS - 1 {
            tokio::task::yield_now().await;
        }
        items.push(show.value().await?);
    }
    Ok(Page {
        items,
        revision: list.revision,
        next: list.next,
    })
}

/// Returns the page in a list of another server. Items of built-in lists have neither `apiVersion`
/// nor `kind`.
fn page_of(list: &Json) -> Result<Page, Unserved> {
    let kind = list["kind"].as_str().and_then(|kind| kind.strip_suffix("List"));
    let named = |item: &Json| {
        let mut item = item.clone();
        for (key, value) in [("apiVersion", list["apiVersion"].as_str()), ("kind", kind)] {
            if item[key].is_null() {
                item[key] = value.into();
            }
        }
        item
    };
    let Some(items) = list["items"].as_array() else {
        let why = "an answer is no list".to_owned();
        return Err(Unserved::Refused(Refusal::from(Error::Internal(why))));
    };
    let metadata = &list["metadata"];
    let revision = metadata["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    Ok(Page {
        items: items.iter().map(named).collect(),
        revision: Revision(revision.unwrap_or_default()),
        next: metadata["continue"]
            .as_str()
            .filter(|next| !next.is_empty())
            .map(str::to_owned),
    })
}

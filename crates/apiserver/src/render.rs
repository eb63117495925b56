//! Rendering of objects in the negotiated form: whole objects, metadata only, or rows of a table.

mod chunks;

use crate::{
    negotiate::{Format, MetaVersion, Negotiated, Representation},
    reply::{self, Replied, Reply},
    request::{Answer, Parsed},
    table::{self, Columns, IncludeObject, Layout},
};
use axum::response::Response;
use chunks::Chunks;
use insula_access::Target;
use insula_api::{Json, Revision};
use insula_catalog::{Error, Result};
use insula_edge::guard::limits::Budget;
use insula_meter::Meter;
use insula_pipeline::Refusal;
use insula_registry::{
    Deps, List, calls,
    representation::{Show, is_stored, stored_value},
    verbs,
};
use insula_store::Entry;
use serde_json::json;
use std::sync::Arc;

/// Bytes of a list that are rendered before the task yields: some hundred microseconds of work.
const PAUSE_BYTES: usize = 512 << 10;
/// Cost of a table's row for each byte of its object, in bytes of a plain list.
const TABLE_EFFORT: usize = 20;
/// Cost of a visit of a printer column, in bytes of a plain list.
const VISIT_EFFORT: usize = 32;

/// Bytes in memory of a parsed value for each byte of its JSON.
const VALUE_BYTES: usize = 4;
/// Bytes in memory of a table's row with its object's metadata.
const ROW_BYTES: usize = 8 << 10;

/// A form of a list that can be rendered in chunks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Objects as they are stored.
    Shown,
    /// Metadata alone, read from the stored object in any version.
    Metadata(MetaVersion),
}

/// A renderer of objects of one target in one form.
pub struct Renderer {
    registry: Arc<Deps>,
    target: Target,
    form: Negotiated,
    include: IncludeObject,
    budget: Budget,
}

impl Renderer {
    /// Returns the renderer of a request's answer.
    ///
    /// # Errors
    /// 400 for an unknown `includeObject`.
    pub(crate) fn new(
        registry: &Arc<Deps>,
        target: &Target,
        parsed: &Parsed,
        form: Negotiated,
    ) -> std::result::Result<Self, Refusal> {
        let include = match form.representation {
            Representation::Table(_) => IncludeObject::parse(parsed.query.get("includeObject"))?,
            _ => IncludeObject::default(),
        };
        Ok(Renderer {
            registry: registry.clone(),
            target: calls::attach(registry, target).into_owned(),
            form,
            include,
            budget: parsed.budget.clone(),
        })
    }

    /// Answers with one object.
    pub async fn object(&self, code: u16, entry: &Entry, warnings: &[String]) -> Answer {
        self.budget.hold(entry.object.body_len())?;
        let mut response = self.one(code, entry).await?;
        reply::add_warnings(&mut response, warnings);
        Ok(response)
    }

    /// Answers a write with its object. The write has happened: if the object cannot be converted
    /// to the requested version, the answer is its metadata.
    pub async fn written(&self, code: u16, entry: &Entry, warnings: &[String]) -> Answer {
        let mut response = match self.one(code, entry).await {
            Err(Error::Conversion(_) | Error::Webhook(_)) => {
                self.document(code, &partial(&self.target, entry, MetaVersion::V1))
            }
            response => response?,
        };
        reply::add_warnings(&mut response, warnings);
        Ok(response)
    }

    async fn one(&self, code: u16, entry: &Entry) -> Result<Response> {
        let plain = self.form.representation == Representation::Object
            && self.form.format == Format::Json
            && !self.form.pretty
            && entry.revision != Revision(0);
        if plain {
            let mut out = Vec::new();
            self.show(std::slice::from_ref(entry)).append(&mut out).await?;
            out.push(b'\n');
            return Ok(reply::bytes(code, out, self.form.content_type()));
        }
        let body = match self.form.representation {
            Representation::Table(version) => {
                let metadata = metadata_at(entry.revision);
                self.table(std::slice::from_ref(entry), version, metadata, Columns::Defined)
                    .await?
            }
            Representation::PartialMetadata(version) => partial(&self.target, entry, version),
            _ => self.value(entry).await?,
        };
        Ok(self.document(code, &body))
    }

    /// Answers with a list.
    pub(crate) async fn list(&self, list: List, warnings: &[String]) -> Replied {
        let total = list
            .entries
            .iter()
            .map(|entry| entry.object.body_len() + 48)
            .sum::<usize>();
        let mut reply = match self.in_chunks(total) {
            Some(form) if form != Form::Shown || self.are_stored(&list) => {
                self.budget.hold(chunks::HELD_BYTES)?;
                self.chunks(form, list)
            }
            _ => {
                self.budget.hold(self.bytes_in_flight(&list, total))?;
                self.many(&list).await?.into()
            }
        };
        reply::add_warnings(&mut reply.response, warnings);
        Ok(reply)
    }

    /// Answers a deletion of a collection with the deleted objects, as [`Renderer::written`] does.
    pub async fn deleted(&self, list: &List, warnings: &[String]) -> Answer {
        let mut response = match self.many(list).await {
            Err(Error::Conversion(_) | Error::Webhook(_)) => {
                self.document(200, &partials(&self.target, list, MetaVersion::V1))
            }
            response => response?,
        };
        reply::add_warnings(&mut response, warnings);
        Ok(response)
    }

    /// Returns the form of a list that is large enough for chunks and can be rendered in them.
    fn in_chunks(&self, total: usize) -> Option<Form> {
        if total < reply::IN_CHUNKS_BYTES_MIN || self.form.format != Format::Json || self.form.pretty {
            return None;
        }
        match self.form.representation {
            Representation::Table(_) => None,
            Representation::PartialMetadata(version) | Representation::PartialMetadataList(version) => {
                Some(Form::Metadata(version))
            }
            Representation::Object | Representation::AggregatedDiscovery => Some(Form::Shown),
        }
    }

    /// Returns true if no object of a list has to be converted.
    fn are_stored(&self, list: &List) -> bool {
        list.entries.iter().all(|entry| is_stored(&self.target, entry))
    }

    /// Bytes in memory of a list that is rendered as a whole: those of its objects, or of parsed
    /// values where it cannot be rendered from stored bytes.
    fn bytes_in_flight(&self, list: &List, total: usize) -> usize {
        let copied = self.form.format == Format::Json && !self.form.pretty;
        match self.form.representation {
            Representation::Object | Representation::AggregatedDiscovery if copied => total,
            Representation::Table(_) if self.include != IncludeObject::Object => list.entries.len() * ROW_BYTES,
            _ => total * VALUE_BYTES,
        }
    }

    fn chunks(&self, form: Form, list: List) -> Reply {
        let metadata = list_metadata(&list);
        let entries = list.entries.into_iter();
        let content_type = self.form.content_type();
        let typed = self.target.served.api.strategy.traits().built_in;
        let target = self.target.clone();
        match form {
            Form::Metadata(version) => {
                let empty = table::partial_list(Vec::new(), version, metadata).to_string() + "\n";
                let (head, tail) = empty.split_once("\"items\":[]").unwrap_or((&empty, ""));
                let write = move |entry: &Entry, out: &mut Vec<u8>| {
                    write_json(&partial(&target, entry, version), out);
                };
                Chunks {
                    head: [head, "\"items\":["].concat().into(),
                    tail: ["]", tail].concat().into(),
                    entries,
                    write,
                }
                .respond(content_type)
            }
            Form::Shown => {
                let write = move |entry: &Entry, out: &mut Vec<u8>| match typed {
                    true => write_json(&without_kind(stored_value(&target, entry)), out),
                    false => target.write_stored(entry, out),
                };
                Chunks {
                    head: self.head(metadata),
                    tail: b"]}\n".to_vec(),
                    entries,
                    write,
                }
                .respond(content_type)
            }
        }
    }

    async fn many(&self, list: &List) -> Result<Response> {
        let metadata = list_metadata(list);
        match self.form.representation {
            Representation::Table(version) => {
                let body = self.table(&list.entries, version, metadata, Columns::Defined).await?;
                Ok(self.document(200, &body))
            }
            Representation::PartialMetadata(version) | Representation::PartialMetadataList(version) => {
                Ok(self.document(200, &partials(&self.target, list, version)))
            }
            _ => self.objects(&list.entries, metadata).await,
        }
    }

    fn document(&self, code: u16, body: &Json) -> Response {
        reply::document(code, body, self.form)
    }

    /// Concatenates stored bytes: nothing is parsed except for YAML and indentation.
    async fn objects(&self, entries: &[Entry], metadata: Json) -> Result<Response> {
        let api = &self.target.served.api;
        let total: usize = entries.iter().map(|entry| entry.object.body_len() + 48).sum();
        let mut out = Vec::with_capacity(total + 512);
        out.append(&mut self.head(metadata));
        let mut shown = self.show(entries);
        let mut pause = Pause::default();
        for (i, entry) in entries.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            pause.after(out.len()).await;
            if api.strategy.traits().built_in {
                let value = without_kind(self.value(entry).await?);
                serde_json::to_writer(&mut out, &value).map_err(|error| Error::Internal(error.to_string()))?;
            } else {
                shown.append(&mut out).await?;
            }
        }
        out.extend_from_slice(b"]}\n");
        if self.form.format == Format::Json && !self.form.pretty {
            return Ok(reply::bytes(200, out, self.form.content_type()));
        }
        let body: Json = serde_json::from_slice(&out).map_err(|error| Error::Internal(error.to_string()))?;
        Ok(self.document(200, &body))
    }

    /// Renders a list up to its first item.
    fn head(&self, mut metadata: Json) -> Vec<u8> {
        // Lists of built-in kinds leave out empty fields.
        let typed = self.target.served.api.strategy.traits().built_in;
        if !typed && metadata.get("continue").is_none() {
            metadata["continue"] = json!("");
        }
        let head = json!({
            "apiVersion": self.target.served.api_version(&self.target.version),
            "kind": &*self.target.served.names().list_kind,
            "metadata": metadata,
        });
        let head = head.to_string();
        // `trim_end_matches` takes the metadata's brace too.
        [head.trim_end_matches('}'), "},\"items\":["].concat().into()
    }

    /// Renders the object of a watch event, the next one of `shown`, as JSON.
    pub async fn event<'e, E>(&self, of: (&'e Entry, Columns), shown: &mut Show<'e, E>, out: &mut Vec<u8>) -> Result<()>
    where
        E: Iterator<Item = &'e Entry> + Clone,
    {
        match self.form.representation {
            Representation::Object | Representation::AggregatedDiscovery => shown.append(out).await,
            _ => {
                let body = self.event_value(of, shown).await?;
                serde_json::to_writer(out, &body).map_err(|error| Error::Internal(error.to_string()))
            }
        }
    }

    /// Returns the object of a watch event, the next one of `shown`.
    pub async fn event_value<'e, E>(
        &self,
        (entry, columns): (&'e Entry, Columns),
        shown: &mut Show<'e, E>,
    ) -> Result<Json>
    where
        E: Iterator<Item = &'e Entry> + Clone,
    {
        match self.form.representation {
            Representation::Table(version) => {
                let layout = self.layout()?;
                let budget = &mut table::budget_for_row(entry.object.body_len(), self.meter());
                let now = self.registry.clock.now();
                let row = layout.row(&shown.value().await?, self.include, version, now, budget);
                self.meter().check()?;
                Ok(layout.table(vec![row], version, metadata_at(entry.revision), columns))
            }
            Representation::PartialMetadata(version) | Representation::PartialMetadataList(version) => {
                Ok(partial(&self.target, entry, version))
            }
            Representation::Object | Representation::AggregatedDiscovery => shown.value().await,
        }
    }

    /// Returns the object of a bookmark. That of a table has a row, whose object holds the
    /// annotation for the end of the initial state.
    pub fn bookmark(&self, metadata: Json, columns: Columns) -> Result<Json> {
        let served = &self.target.served;
        let own = || {
            let api_version = served.api_version(&self.target.version);
            json!({"kind": &*served.names().kind, "apiVersion": api_version, "metadata": metadata})
        };
        Ok(match self.form.representation {
            Representation::PartialMetadata(version) | Representation::PartialMetadataList(version) => {
                table::partial(&metadata, version)
            }
            Representation::Table(version) => {
                let (layout, budget) = (self.layout()?, &mut table::budget_for_row(0, self.meter()));
                let row = layout.row(&own(), self.include, version, self.registry.clock.now(), budget);
                let metadata = json!({"resourceVersion": metadata["resourceVersion"]});
                layout.table(vec![row], version, metadata, columns)
            }
            _ => own(),
        })
    }

    /// Converts objects to the requested version, one after the other.
    fn show<'e>(&'e self, entries: &'e [Entry]) -> Show<'e, std::slice::Iter<'e, Entry>> {
        Show::new(&self.registry.cache, &self.target, entries.iter())
    }

    /// Returns an object as a value.
    async fn value(&self, entry: &Entry) -> Result<Json> {
        value(&self.registry, &self.target, entry).await
    }

    async fn table(&self, entries: &[Entry], version: MetaVersion, metadata: Json, columns: Columns) -> Result<Json> {
        let (now, layout) = (self.registry.clock.now(), self.layout()?);
        let (mut shown, mut pause) = (self.show(entries), Pause::default());
        let (mut rows, mut bytes) = (Vec::with_capacity(entries.len()), 0);
        for entry in entries {
            // An object of a dry run is not in the cache.
            let object = match entry.revision {
                Revision(0) => self.value(entry).await?,
                _ => shown.value().await?,
            };
            let budget = &mut table::budget_for_row(entry.object.body_len(), self.meter());
            rows.push(layout.row(&object, self.include, version, now, budget));
            self.meter().check()?;
            bytes += entry.object.body_len() * TABLE_EFFORT + budget.used() as usize * VISIT_EFFORT;
            pause.after(bytes).await;
        }
        Ok(layout.table(rows, version, metadata, columns))
    }

    fn meter(&self) -> &Meter {
        &self.target.served.meter
    }

    fn layout(&self) -> Result<Layout<'_>> {
        Ok(Layout::for_resource(&self.target.served, self.target.api_version()?))
    }
}

/// Returns an object as a value; one that a dry run created has no resourceVersion.
pub(crate) async fn value(registry: &Deps, target: &Target, entry: &Entry) -> Result<Json> {
    let mut value = verbs::show(registry, target, entry).await?;
    if entry.revision == Revision(0)
        && let Some(metadata) = value["metadata"].as_object_mut()
    {
        metadata.remove("resourceVersion");
    }
    Ok(value)
}

/// Returns the metadata of an object that cannot be converted.
pub(crate) fn metadata_alone(target: &Target, entry: &Entry) -> Json {
    partial(target, entry, MetaVersion::V1)
}

/// Removes the type of an item: lists of built-in kinds name it once.
fn without_kind(mut value: Json) -> Json {
    if let Some(map) = value.as_object_mut() {
        map.remove("kind");
        map.remove("apiVersion");
    }
    value
}

fn write_json(value: &Json, out: &mut Vec<u8>) {
    // A value is always valid JSON, and writing to a Vec does not fail.
    let _ = serde_json::to_writer(out, value);
}

/// A counter that yields to other tasks each [`PAUSE_BYTES`] bytes.
#[derive(Default)]
struct Pause {
    next: usize,
}

impl Pause {
    async fn after(&mut self, bytes: usize) {
        if bytes >= self.next {
            self.next = bytes + PAUSE_BYTES;
            tokio::task::yield_now().await;
        }
    }
}

/// Returns the metadata of a table of one object.
fn metadata_at(revision: Revision) -> Json {
    table::list_metadata(&revision.to_string(), None, None)
}

fn list_metadata(list: &List) -> Json {
    table::list_metadata(&list.revision.to_string(), list.next.as_deref(), list.remaining)
}

/// Returns the metadata of a stored object in any version; nothing is converted.
fn partial(target: &Target, entry: &Entry, version: MetaVersion) -> Json {
    table::partial(&stored_value(target, entry)["metadata"], version)
}

fn partials(target: &Target, list: &List, version: MetaVersion) -> Json {
    let items = list.entries.iter().map(|entry| partial(target, entry, version));
    table::partial_list(items.collect(), version, list_metadata(list))
}

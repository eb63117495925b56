//! Objects in the form that was negotiated: themselves, metadata only, or rows of a table; JSON or YAML.

use crate::{
    handle::{Answer, ResourceRequest, header_text},
    negotiate::{self, Format, MetaVersion, Negotiated, Representation},
    reply::{self, Reply},
    table::{self, Columns, IncludeObject, Layout},
};
use axum::response::Response;
use http::header;
use insula_api::{Json, Revision};
use insula_registry::{Error, List, Registry, Result, Target};
use insula_store::Entry;
use serde_json::json;
use std::sync::Arc;

/// Writes objects of one target in one form.
pub struct Renderer {
    registry: Arc<Registry>,
    target: Target,
    form: Negotiated,
    pretty: bool,
    include: IncludeObject,
    /// A watch as a table names its columns in the first event only.
    columns_sent: bool,
}

impl Renderer {
    /// The form of a request's answer.
    pub fn new(request: &ResourceRequest<'_>, form: Negotiated) -> std::result::Result<Self, Reply> {
        let query = &request.request.parsed.query;
        let agent = header_text(&request.request.parsed.headers, header::USER_AGENT);
        let include = match form.representation {
            Representation::Table(_) => IncludeObject::parse(query.get("includeObject"))?,
            _ => IncludeObject::default(),
        };
        Ok(Renderer {
            registry: request.server.registry.clone(),
            target: request.target.clone(),
            form,
            pretty: form.pretty || negotiate::pretty(query.get("pretty"), agent.as_deref()),
            include,
            columns_sent: false,
        })
    }

    /// One object.
    pub fn object(&self, code: u16, entry: &Entry, warnings: &[String]) -> Answer {
        let mut response = self.one(code, entry)?;
        reply::add_warnings(&mut response, warnings);
        Ok(response)
    }

    /// What a write left of an object. It has happened: of an object that the version cannot show, its metadata are the
    /// answer.
    pub fn written(&self, code: u16, entry: &Entry, warnings: &[String]) -> Answer {
        let mut response = match self.one(code, entry) {
            Err(Error::Conversion(_)) => self.document(code, &partial(entry, MetaVersion::V1)),
            response => response?,
        };
        reply::add_warnings(&mut response, warnings);
        Ok(response)
    }

    fn one(&self, code: u16, entry: &Entry) -> Result<Response> {
        let plain = self.form.representation == Representation::Object
            && self.form.format == Format::Json
            && !self.pretty
            && entry.revision != Revision(0);
        if plain {
            let mut out = Vec::new();
            self.write(entry, &mut out)?;
            out.push(b'\n');
            return Ok(reply::bytes(code, out, self.form.content_type()));
        }
        let body = match self.form.representation {
            Representation::Table(version) => self.table(
                std::slice::from_ref(entry),
                version,
                metadata_at(entry.revision),
                Columns::Defined,
            )?,
            Representation::PartialMetadata(version) => partial(entry, version),
            _ => self.value(entry)?,
        };
        Ok(self.document(code, &body))
    }

    /// A list.
    pub fn list(&self, list: &List, warnings: &[String]) -> Answer {
        let mut response = self.many(list)?;
        reply::add_warnings(&mut response, warnings);
        Ok(response)
    }

    /// What was deleted together, as [`Renderer::written`] shows it.
    pub fn deleted(&self, list: &List, warnings: &[String]) -> Answer {
        let mut response = match self.many(list) {
            Err(Error::Conversion(_)) => self.document(200, &partials(list, MetaVersion::V1)),
            response => response?,
        };
        reply::add_warnings(&mut response, warnings);
        Ok(response)
    }

    fn many(&self, list: &List) -> Result<Response> {
        let metadata = list_metadata(list);
        match self.form.representation {
            Representation::Table(version) => {
                let body = self.table(&list.entries, version, metadata, Columns::Defined)?;
                Ok(self.document(200, &body))
            }
            Representation::PartialMetadata(version) | Representation::PartialMetadataList(version) => {
                Ok(self.document(200, &partials(list, version)))
            }
            _ => self.objects(&list.entries, metadata),
        }
    }

    fn document(&self, code: u16, body: &Json) -> Response {
        reply::document(code, body, self.form.format, self.form.content_type(), self.pretty)
    }

    /// Stored bytes one behind the other: nothing is parsed unless somebody wants YAML or indentation.
    fn objects(&self, entries: &[Entry], mut metadata: Json) -> Result<Response> {
        let api = &self.target.served.api;
        // Lists of kinds that Kubernetes has types for leave out what is empty.
        let typed = api.strategy.traits().built_in || &*api.group == "apiextensions.k8s.io";
        if !typed && metadata.get("continue").is_none() {
            metadata["continue"] = json!("");
        }
        let total: usize = entries.iter().map(|entry| entry.object.body().len() + 48).sum();
        let mut out = Vec::with_capacity(total + 512);
        let head = json!({
            "apiVersion": self.target.served.api_version(&self.target.version),
            "kind": &*self.target.served.names().list_kind,
            "metadata": metadata,
        });
        let head = head.to_string();
        out.extend_from_slice(head.trim_end_matches('}').as_bytes());
        // `trim_end_matches` took the metadata's brace too.
        out.extend_from_slice(b"},\"items\":[");
        for (i, entry) in entries.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            if api.strategy.traits().built_in {
                let mut value = self.value(entry)?;
                if let Some(map) = value.as_object_mut() {
                    map.remove("kind");
                    map.remove("apiVersion");
                }
                serde_json::to_writer(&mut out, &value).map_err(|error| Error::Internal(error.to_string()))?;
            } else {
                self.write(entry, &mut out)?;
            }
        }
        out.extend_from_slice(b"]}\n");
        if self.form.format == Format::Json && !self.pretty {
            return Ok(reply::bytes(200, out, self.form.content_type()));
        }
        let body: Json = serde_json::from_slice(&out).map_err(|error| Error::Internal(error.to_string()))?;
        Ok(self.document(200, &body))
    }

    /// The object of a watch event, as JSON.
    pub fn event(&mut self, entry: &Entry, out: &mut Vec<u8>) -> Result<()> {
        match self.form.representation {
            Representation::Object | Representation::AggregatedDiscovery => self.write(entry, out),
            _ => {
                let body = self.event_value(entry)?;
                serde_json::to_writer(out, &body).map_err(|error| Error::Internal(error.to_string()))
            }
        }
    }

    /// The same as a value.
    pub fn event_value(&mut self, entry: &Entry) -> Result<Json> {
        match self.form.representation {
            Representation::Table(version) => {
                let columns = match std::mem::replace(&mut self.columns_sent, true) {
                    true => Columns::Known,
                    false => Columns::Defined,
                };
                let metadata = metadata_at(entry.revision);
                self.table(std::slice::from_ref(entry), version, metadata, columns)
            }
            Representation::PartialMetadata(version) | Representation::PartialMetadataList(version) => {
                Ok(partial(entry, version))
            }
            Representation::Object | Representation::AggregatedDiscovery => self.value(entry),
        }
    }

    /// The object of a bookmark.
    pub fn bookmark(&self, metadata: Json) -> Json {
        let (kind, api_version) = match self.form.representation {
            Representation::PartialMetadata(version) | Representation::PartialMetadataList(version) => {
                ("PartialObjectMetadata".to_owned(), version.api_version().to_owned())
            }
            Representation::Table(version) => ("Table".to_owned(), version.api_version().to_owned()),
            _ => {
                let served = &self.target.served;
                (
                    served.names().kind.to_string(),
                    served.api_version(&self.target.version),
                )
            }
        };
        json!({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    }

    fn write(&self, entry: &Entry, out: &mut Vec<u8>) -> Result<()> {
        self.registry
            .cache
            .write(&self.target.served, entry, &self.target.version, out)
    }

    /// The object as a value; a dry run's creation has no resourceVersion.
    fn value(&self, entry: &Entry) -> Result<Json> {
        let mut value = insula_registry::representation::value(&self.target.served, entry, &self.target.version)?;
        if entry.revision == Revision(0)
            && let Some(metadata) = value["metadata"].as_object_mut()
        {
            metadata.remove("resourceVersion");
        }
        Ok(value)
    }

    fn table(&self, entries: &[Entry], version: MetaVersion, metadata: Json, columns: Columns) -> Result<Json> {
        let now = self.registry.clock.now();
        let layout = Layout::of(&self.target.served, self.target.api_version()?);
        let row = |entry: &Entry| {
            self.value(entry)
                .map(|object| layout.row(&object, self.include, version, now))
        };
        let rows = entries.iter().map(row).collect::<Result<Vec<Json>>>()?;
        Ok(layout.table(rows, version, metadata, columns))
    }
}

/// Metadata of a table of one object.
fn metadata_at(revision: Revision) -> Json {
    table::list_metadata(&revision.to_string(), None, None)
}

fn list_metadata(list: &List) -> Json {
    table::list_metadata(&list.revision.to_string(), list.next.as_deref(), list.remaining)
}

/// Metadata alone: read from the stored bytes, whatever version they are in; nothing is converted.
fn partial(entry: &Entry, version: MetaVersion) -> Json {
    table::partial(&entry.object.value(entry.revision)["metadata"], version)
}

fn partials(list: &List, version: MetaVersion) -> Json {
    let items: Vec<Json> = list.entries.iter().map(|entry| partial(entry, version)).collect();
    table::partial_list(items, version, list_metadata(list))
}

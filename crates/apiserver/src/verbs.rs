//! Verbs of requests for objects, a file each, over a [`ResourceRequest`].
//!
//! A verb negotiates the form of its answer, reads its parameters and the body, calls one verb of
//! the registry, and renders the result.

pub(crate) mod get;
mod list;
pub(crate) mod own;
mod review;
pub(crate) mod scale;
pub(crate) mod watch;
mod write;

pub(crate) use write::apply_patch;

use crate::{
    body, discovery,
    negotiate::{self, Negotiated, Supported},
    protobuf,
    render::Renderer,
    reply::{self, header_text},
    request_stages::Permitted,
    server::ApiServer,
};
use axum::body::Body;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, Limited};
use insula_access::Target;
use insula_api::{Json, Verb};
use insula_catalog::Error;
use insula_edge::guard::limits::Budget;
use insula_pipeline::{Clusters, Objects, Refusal};
use insula_registry::{FieldValidation, WriteOptions};
use insula_schema::Structural;
use std::sync::Arc;

/// Bytes of names of programs as field managers; longer names are cut.
const MANAGER_BYTES_MAX: usize = 128;

/// A request for objects of one resource.
pub struct ResourceRequest<'a> {
    /// The server.
    pub server: &'a ApiServer,
    /// The request, its user and its scope.
    pub request: Permitted,
    /// The resource, version, cluster and namespace.
    pub target: Target,
    /// Object name; empty for collections.
    pub name: String,
    /// True if a create may name its object in the path, as below `/thirdparty`.
    pub names_creation: bool,
    /// Length of the body in bytes, once it is read.
    pub body_bytes: usize,
    /// Warnings of every answer, even of a refusal.
    pub warnings: Vec<String>,
}

impl ResourceRequest<'_> {
    /// The refusal of a verb that the resource does not have. Custom resources name the verb and
    /// the resource in a 405, built-ins do not.
    pub fn not_supported(&self, verb: impl Into<Option<Verb>>) -> Refusal {
        let api = &self.target.served.api;
        match api.strategy.traits().built_in {
            true => Refusal::from(Error::MethodNotAllowed),
            false => Refusal::NotSupported {
                resource: api.named(),
                verb: verb.into(),
                clusters: Clusters::One,
            },
        }
    }

    /// Chooses the form of an answer in the resource's own kind.
    pub fn negotiate(&self, supported: Supported) -> Result<Negotiated, Refusal> {
        let (served, version) = (&self.target.served, &self.target.version);
        let is_built_in = served.api.strategy.traits().built_in;
        let in_protobuf = is_built_in && protobuf::is_written(&served.api_version(version), &served.names().kind);
        self.negotiate_kind(supported, in_protobuf)
    }

    /// Chooses the form of an answer in a kind that has a form in protobuf or has none.
    pub(crate) fn negotiate_kind(&self, supported: Supported, in_protobuf: bool) -> Result<Negotiated, Refusal> {
        reply::form(&self.request.parsed, supported, in_protobuf)
    }

    /// Returns the renderer of a form.
    pub fn renderer(&self, negotiated: Negotiated) -> Result<Renderer, Refusal> {
        let registry = &self.server.registry;
        Renderer::new(registry, &self.target, &self.request.parsed, negotiated)
    }

    pub(crate) fn header(&self, name: header::HeaderName) -> Option<String> {
        header_text(&self.request.parsed.headers, name)
    }

    /// Returns the field manager of a write: the one that the query names, or the program of
    /// `User-Agent` up to its version.
    pub(crate) fn manager(&self) -> String {
        let named = self.request.parsed.query.get("fieldManager");
        let agent = self.header(header::USER_AGENT).unwrap_or_default();
        manager_of(named, &agent)
    }

    /// Reads `dryRun` and `fieldValidation`, for a kind of options.
    pub fn write_options(&self, kind: &str) -> Result<WriteOptions<'_>, Refusal> {
        let (dry_run, field_validation) = self.request.parsed.query.write(kind)?;
        Ok(self.options(dry_run, field_validation))
    }

    fn options(&self, dry_run: bool, field_validation: FieldValidation) -> WriteOptions<'_> {
        WriteOptions {
            body_bytes: self.body_bytes,
            ..self.objects().options(dry_run, field_validation, self.manager())
        }
    }

    /// Returns the verbs of the request's objects.
    pub(crate) fn objects(&self) -> Objects<'_> {
        Objects {
            registry: &self.server.registry,
            delegate: self.server.authenticator.delegate.as_deref(),
            request: &self.request.authorized,
            target: &self.target,
            name: &self.name,
            record: &self.request.parsed.record,
        }
    }

    /// Reads the body's bytes, up to the limit.
    pub async fn read_body(&mut self) -> Result<Vec<u8>, Refusal> {
        let body = std::mem::take(&mut self.request.parsed.body);
        let read = read_limited(
            body,
            &self.request.parsed.headers,
            self.server.limits.settings.body_bytes,
            &self.request.parsed.budget,
        )
        .await?;
        self.body_bytes = read.len();
        // Decoding it, and comparing what it names with what is known.
        let meter = &self.request.parsed.work;
        meter.spend_bytes(read.len().saturating_mul(2)).map_err(Error::from)?;
        Ok(read)
    }

    /// Reads the body as an object of the resource, with its keys.
    pub(crate) async fn body(&mut self) -> Result<(Json, body::BodyKeys), Refusal> {
        let kind = BodyKind::for_target(&self.target);
        self.body_of_kind(kind.expected()).await
    }

    /// Reads the body as an object of a kind, with its keys.
    pub async fn body_of_kind(&mut self, expected: body::Expected<'_>) -> Result<(Json, body::BodyKeys), Refusal> {
        let bytes = self.read_body().await?;
        let format = negotiate::body_format(self.header(header::CONTENT_TYPE).as_deref())?;
        let body::Decoded { value, duplicates } = body::decode_object(&bytes, format, expected)?;
        self.request.parsed.record.sent(&value);
        let built_in = expected.implied.is_some();
        Ok((value, body::BodyKeys::new(duplicates, bytes, format, built_in)))
    }

    /// Reads a body that may be empty.
    pub(crate) async fn optional_body(&mut self) -> Result<Option<Json>, Refusal> {
        let bytes = self.read_body().await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let format = negotiate::body_format(self.header(header::CONTENT_TYPE).as_deref())?;
        let sent = body::decode(&bytes, format)?.value;
        self.request.parsed.record.sent(&sent);
        Ok(Some(sent))
    }
}

/// Returns the field manager of a write: the one that it names, or the program of a `User-Agent` up
/// to its version.
pub(crate) fn manager_of(named: Option<&str>, agent: &str) -> String {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        return named.to_owned();
    }
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

/// The kind that the body of a write has.
pub(crate) struct BodyKind {
    kind: Arc<str>,
    implied: Option<String>,
    structure: Option<Arc<Structural>>,
}

impl BodyKind {
    /// Returns the kind of a target.
    pub(crate) fn for_target(target: &Target) -> Self {
        let served = &target.served;
        let traits = served.api.strategy.traits();
        let version = served.api.version(&target.version);
        BodyKind {
            kind: served.names().kind.clone(),
            implied: discovery::is_built_in(served).then(|| served.api_version(&target.version)),
            // Definitions decode their spec themselves.
            structure: match traits.is_struct {
                true => version.map(|version| version.schema.clone()),
                false => traits.built_in.then(Arc::default),
            },
        }
    }

    /// Returns what is expected of the body.
    pub(crate) fn expected(&self) -> body::Expected<'_> {
        body::Expected {
            kind: &self.kind,
            implied: self.implied.as_deref(),
            structure: self.structure.as_deref(),
        }
    }
}

/// Step in which the bytes of a body of unknown length are taken from the budget. Larger than
/// [`insula_edge::guard::limits`] leaves uncounted.
const BODY_STEP_BYTES: usize = 256 << 10;

/// Reads a body within a limit and a budget.
async fn read_limited(body: Body, headers: &HeaderMap, max: usize, budget: &Budget) -> Result<Vec<u8>, Refusal> {
    let max = max.min(body::BODY_BYTES_MAX);
    let too_large = || Refusal::from(Error::TooLarge(format!("limit is {max}")));
    let announced = header_text(headers, header::CONTENT_LENGTH).and_then(|text| text.parse::<usize>().ok());
    if announced.is_some_and(|length| length > max) {
        return Err(too_large());
    }
    if headers
        .get(header::CONTENT_ENCODING)
        .is_some_and(|encoding| encoding != "identity")
    {
        return Err(negotiate::unsupported_among("identity encoding"));
    }
    let mut body = Limited::new(body, max);
    let mut reserved = announced.unwrap_or_default();
    budget.hold(reserved)?;
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error.is::<http_body_util::LengthLimitError>() {
            true => too_large(),
            false => Refusal::from(Error::BadRequest(format!("the body could not be read: {error}"))),
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > reserved {
            budget.hold(BODY_STEP_BYTES)?;
            reserved += BODY_STEP_BYTES;
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

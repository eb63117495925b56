//! Content negotiation: the form of an answer (`Accept`), the format of a body (`Content-Type`),
//! and indentation of JSON.
//!
//! `application/json;as=Table;v=v1;g=meta.k8s.io,application/json` is a list of media ranges: the
//! first supported one of the highest quality is chosen. A range with an unknown `as`, `g` or `v`
//! is not supported; other parameters (`profile`, `stream`, `charset`) are ignored. Custom
//! resources have no protobuf, so that `application/vnd.kubernetes.protobuf,application/json` falls
//! through to JSON for them; their metadata has.

use crate::discovery::is_built_in;
use insula_catalog::Error;
use insula_catalog::Served;
use insula_pipeline::Refusal;

/// The serialization of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// JSON.
    #[default]
    Json,
    /// YAML, as kubectl prints it.
    Yaml,
    /// Kubernetes' protobuf, for kinds of Kubernetes, metadata alone and `Status`.
    Protobuf,
}

impl Format {
    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Yaml => "application/yaml",
            Format::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// Version of `meta.k8s.io` that a transformed answer is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaVersion {
    /// `v1`.
    V1,
    /// `v1beta1`.
    V1Beta1,
}

impl MetaVersion {
    /// `apiVersion` of the answer.
    pub fn api_version(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The representation of an object or a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Representation {
    /// The object or list itself.
    #[default]
    Object,
    /// Rows for people.
    Table(MetaVersion),
    /// Metadata of one object.
    PartialMetadata(MetaVersion),
    /// Metadata of a list of objects.
    PartialMetadataList(MetaVersion),
    /// Discovery of all groups in one document.
    AggregatedDiscovery,
}

/// The kind of answer, which decides about the supported representations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supported {
    /// One object, or the answer to a write.
    Object,
    /// A list.
    List,
    /// A watch: events with objects in any form.
    Watch,
    /// `/api` and `/apis`.
    Discovery,
    /// Any other document.
    Document,
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Negotiated {
    /// The serialization.
    pub format: Format,
    /// The representation of an object or a list.
    pub representation: Representation,
    /// True if JSON is indented.
    pub pretty: bool,
}

impl Negotiated {
    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match (self.representation, self.format) {
            (Representation::AggregatedDiscovery, _) => {
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            (_, format) => format.content_type(),
        }
    }
}

/// Chooses the form of an answer by the `Accept` header; JSON without one. Several headers are
/// joined by commas first. `in_protobuf` says whether the value itself has a form in protobuf.
///
/// # Errors
/// 406 where no range can be met.
pub fn accept(header: Option<&str>, supported: Supported, in_protobuf: bool) -> Result<Negotiated, Refusal> {
    if header.is_none_or(|header| header.trim().is_empty()) {
        return Ok(Negotiated::default());
    }
    let met = media_ranges(header)
        .iter()
        .find_map(|range| meet(range, supported, in_protobuf))
        .ok_or_else(not_acceptable)?;
    match (met.representation, supported) {
        (Representation::PartialMetadata(_), Supported::List) => Err(Refusal::NotAcceptable(
            "you requested PartialObjectMetadata, but the requested object is a list".into(),
        )),
        (Representation::PartialMetadataList(_), Supported::Object | Supported::Watch) => Err(Refusal::NotAcceptable(
            "you requested PartialObjectMetadataList, but the requested object is not a list".into(),
        )),
        _ => Ok(met),
    }
}

/// Chooses the format of an error: that of the first supported media type, whatever its
/// representation.
pub fn accept_error(header: Option<&str>) -> Format {
    media_ranges(header)
        .iter()
        .find_map(|range| format_of(&range.media))
        .unwrap_or_default()
}

/// Returns the value of the supported subtype of `application` that the `Accept` header prefers;
/// the first one without a header.
pub(crate) fn first_supported<T: Copy>(header: Option<&str>, supported: &[(&str, T)]) -> Option<T> {
    let meets = |media: &MediaType, subtype: &str| {
        ["application", "*"].contains(&media.kind.as_str()) && [subtype, "*"].contains(&media.subtype.as_str())
    };
    let header = header.filter(|header| !header.trim().is_empty());
    media_ranges(header.or(Some("*/*"))).iter().find_map(|range| {
        let mut supported = supported.iter();
        let met = supported.find(|(subtype, _)| meets(&range.media, subtype));
        met.map(|(_, supported)| *supported)
    })
}

/// Returns the first value that a function has for a media range of the `Accept` header, in the
/// client's order of preference. The function gets a range as `type/subtype`, and its version.
pub fn preferred<T>(header: Option<&str>, served: impl Fn(&str, Option<&str>) -> Option<T>) -> Option<T> {
    media_ranges(header).iter().find_map(|MediaRange { media, .. }| {
        let kind = format!("{}/{}", media.kind, media.subtype);
        served(&kind, media.param("version"))
    })
}

fn meet(range: &MediaRange, supported: Supported, in_protobuf: bool) -> Option<Negotiated> {
    let format = format_of(&range.media)?;
    if supported == Supported::Watch && format == Format::Yaml {
        return None;
    }
    let param = |name: &str| range.media.param(name).unwrap_or_default();
    let representation = match (param("as"), param("g"), param("v")) {
        ("", "", "") => Representation::Object,
        // Without `as` a group or version transforms nothing.
        ("", _, _) => return None,
        (kind, group, version) => transformed(kind, group, version, supported)?,
    };
    match (representation, format) {
        (Representation::AggregatedDiscovery, Format::Yaml | Format::Protobuf) => return None,
        (Representation::Table(_), Format::Protobuf) => return None,
        (Representation::Object, Format::Protobuf) if !in_protobuf => return None,
        _ => {}
    }
    let pretty = matches!(range.media.param("pretty"), Some("1" | "true"));
    Some(Negotiated {
        format,
        representation,
        pretty,
    })
}

fn transformed(kind: &str, group: &str, version: &str, supported: Supported) -> Option<Representation> {
    match supported {
        Supported::Discovery => (kind == "APIGroupDiscoveryList" && group == "apidiscovery.k8s.io" && version == "v2")
            .then_some(Representation::AggregatedDiscovery),
        Supported::Document => None,
        Supported::Object | Supported::List | Supported::Watch => {
            let version = match (group, version) {
                ("meta.k8s.io", "v1") => MetaVersion::V1,
                ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
                _ => return None,
            };
            match kind {
                "Table" => Some(Representation::Table(version)),
                "PartialObjectMetadata" => Some(Representation::PartialMetadata(version)),
                "PartialObjectMetadataList" => Some(Representation::PartialMetadataList(version)),
                _ => None,
            }
        }
    }
}

fn format_of(media: &MediaType) -> Option<Format> {
    match (media.kind.as_str(), media.subtype.as_str()) {
        ("*", "*") | ("application", "*" | "json") => Some(Format::Json),
        ("application", "yaml") => Some(Format::Yaml),
        ("application", "vnd.kubernetes.protobuf") => Some(Format::Protobuf),
        _ => None,
    }
}

/// Returns true if JSON is to be indented: by the `pretty` parameter, else for interactive clients
/// (curl, wget, browsers).
pub fn pretty(query: Option<&str>, user_agent: Option<&str>) -> bool {
    match query {
        Some(value) if !value.is_empty() => matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        _ => ["curl", "Wget", "Mozilla/5.0"]
            .iter()
            .any(|tool| user_agent.is_some_and(|agent| agent.starts_with(tool))),
    }
}

/// Media types that bodies and answers may have, as 406 and 415 list them.
const MEDIA_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// 406: the client accepts no form of the answer.
fn not_acceptable() -> Refusal {
    Refusal::NotAcceptable(format!("only the following media types are accepted: {MEDIA_TYPES}"))
}

/// 415: the body has a `Content-Type` that is not read.
fn unsupported_media_type() -> Refusal {
    unsupported_among(MEDIA_TYPES)
}

/// 415 that lists the media types that are read.
pub(crate) fn unsupported_among(accepted: &str) -> Refusal {
    Refusal::Verb(Error::UnsupportedMediaType(format!(
        "the body of the request was in an unknown format - accepted media types include: {accepted}"
    )))
}

/// Returns the format of a body by its `Content-Type`; JSON without one.
///
/// # Errors
/// 415 for what is not read.
pub fn body_format(content_type: Option<&str>) -> Result<Format, Refusal> {
    let Some(header) = content_type.filter(|header| !header.is_empty()) else {
        return Ok(Format::Json);
    };
    let media = MediaType::parse(header).ok_or_else(unsupported_media_type)?;
    match (media.kind.as_str(), media.subtype.as_str()) {
        ("application", "json") => Ok(Format::Json),
        ("application", "yaml") => Ok(Format::Yaml),
        ("application", "vnd.kubernetes.protobuf") => Ok(Format::Protobuf),
        _ => Err(unsupported_media_type()),
    }
}

/// The type of a PATCH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7396.
    Merge,
    /// Kubernetes' strategic merge, for built-in kinds only.
    StrategicMerge,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            PatchType::Json => "application/json-patch+json",
            PatchType::Merge => "application/merge-patch+json",
            PatchType::StrategicMerge => "application/strategic-merge-patch+json",
            PatchType::Apply => "application/apply-patch+yaml",
        }
    }
}

/// The patch types of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patches {
    /// Custom resources: no strategic merge.
    Custom,
    /// Custom resources in groups of Kubernetes: kubectl sends strategic merges for kinds that it
    /// knows, and kcp accepts them.
    KnownGroup,
    /// Built-in kinds: all four.
    BuiltIn,
}

/// Groups whose kinds kubectl and client-go know.
const KNOWN_GROUPS: [&str; 22] = [
    "",
    "admissionregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "extensions",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

impl Patches {
    /// Returns the patch types of an API.
    pub fn for_api(served: &Served) -> Patches {
        if is_built_in(served) {
            Patches::BuiltIn
        } else if KNOWN_GROUPS.contains(&&**served.group()) {
            Patches::KnownGroup
        } else {
            Patches::Custom
        }
    }

    /// The patch types, in the order in which refusals list them.
    pub fn types(self) -> &'static [PatchType] {
        match self {
            Patches::Custom => &[PatchType::Json, PatchType::Merge, PatchType::Apply],
            Patches::KnownGroup => &[
                PatchType::Json,
                PatchType::Merge,
                PatchType::Apply,
                PatchType::StrategicMerge,
            ],
            Patches::BuiltIn => &[
                PatchType::Json,
                PatchType::Merge,
                PatchType::StrategicMerge,
                PatchType::Apply,
            ],
        }
    }
}

/// Returns the type of a PATCH by its `Content-Type`.
///
/// # Errors
/// 415 for what the resource does not take.
pub fn patch_type(content_type: Option<&str>, patches: Patches) -> Result<PatchType, Refusal> {
    let given = content_type
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    let found = patches
        .types()
        .iter()
        .copied()
        .find(|patch| patch.media_type() == given);
    found.ok_or_else(|| match patches {
        Patches::BuiltIn => Refusal::UnsupportedPatch,
        Patches::Custom | Patches::KnownGroup => {
            let types: Vec<&str> = patches.types().iter().map(|patch| patch.media_type()).collect();
            unsupported_among(&types.join(", "))
        }
    })
}

/// A media range of an `Accept` header.
struct MediaRange {
    media: MediaType,
    /// Thousandths.
    quality: u16,
}

/// Parses an `Accept` header into media ranges by quality; among equals exact types come before
/// wildcards, then the order of the header holds. Clauses that are no media type, and those of
/// quality zero, are ignored.
fn media_ranges(header: Option<&str>) -> Vec<MediaRange> {
    let mut media_ranges: Vec<MediaRange> = split_outside_quotes(header.unwrap_or_default(), ',')
        .filter_map(MediaType::parse)
        .map(|media| MediaRange {
            quality: quality(media.param("q")),
            media,
        })
        .filter(|range| range.quality > 0)
        .collect();
    let range = |range: &MediaRange| (range.media.kind == "*", range.media.subtype == "*");
    media_ranges.sort_by(|a, b| b.quality.cmp(&a.quality).then_with(|| range(a).cmp(&range(b))));
    media_ranges
}

fn quality(text: Option<&str>) -> u16 {
    let value = text
        .and_then(|text| text.parse::<f32>().ok())
        .filter(|q| (0.0..=1.0).contains(q))
        .unwrap_or(1.0);
    (value * 1000.0) as u16
}

/// A media type `type/subtype;name=value;…`, in lower case except for the values.
#[derive(Debug, PartialEq, Eq)]
struct MediaType {
    kind: String,
    subtype: String,
    params: Vec<(String, String)>,
}

impl MediaType {
    fn parse(text: &str) -> Option<MediaType> {
        let mut parts = split_outside_quotes(text, ';');
        let (kind, subtype) = parts.next()?.trim().split_once('/')?;
        // `…spec.v2@v1.0+protobuf` is no media type by the letter, and clients request OpenAPI with
        // it.
        if !is_token(kind) || !subtype.split('@').all(is_token) {
            return None;
        }
        let mut params = Vec::new();
        for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=')?;
            let (name, value) = (name.trim(), value.trim());
            let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            if !is_token(name) || (quoted.is_none() && !is_token(value)) {
                return None;
            }
            let value = quoted.map_or_else(|| value.to_owned(), |inner| inner.replace("\\\"", "\""));
            params.push((name.to_ascii_lowercase(), value));
        }
        Some(MediaType {
            kind: kind.to_ascii_lowercase(),
            subtype: subtype.to_ascii_lowercase(),
            params,
        })
    }

    fn param(&self, name: &str) -> Option<&str> {
        self.params
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Returns true for a token of RFC 9110: names and unquoted values.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn split_outside_quotes(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |c: char| {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => return c == separator && !quoted,
        }
        false
    })
}

#[cfg(test)]
mod tests;

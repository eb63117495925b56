//! The watch encoder: events of a watch as bytes, one line each in JSON, one message each in
//! protobuf.

use crate::{
    negotiate::{Format, Negotiated},
    protobuf,
    render::Renderer,
    status::{self, StatusReply},
    table::Columns,
};
use bytes::{BufMut, Bytes, BytesMut};
use insula_access::{EventKind, Target};
use insula_api::{Json, Revision};
use insula_catalog::{Error, Result};
use insula_registry::{
    Event,
    representation::{Cache, Show},
};
use insula_store::Entry;
use serde_json::json;
use std::sync::Arc;

/// Encoded events, one behind the other.
#[derive(Default)]
pub(crate) struct EncodedEvents {
    bytes: Vec<u8>,
    /// End of each event in `bytes`.
    ends: Vec<usize>,
}

impl EncodedEvents {
    /// Returns true if there is nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Splits the bytes into events.
    pub(crate) fn split(self) -> impl Iterator<Item = Bytes> {
        let mut rest = Bytes::from(self.bytes);
        let mut begin = 0;
        self.ends.into_iter().map(move |end| {
            let length = end - std::mem::replace(&mut begin, end);
            rest.split_to(length)
        })
    }

    /// Returns the bytes of an HTTP stream: JSON lines as they are, protobuf messages with their
    /// length before each.
    pub(crate) fn into_stream_bytes(self, format: Format) -> Bytes {
        if format != Format::Protobuf {
            return self.bytes.into();
        }
        let mut out = BytesMut::with_capacity(self.bytes.len() + 4 * self.ends.len());
        for event in self.split() {
            out.put_u32(u32::try_from(event.len()).unwrap_or(u32::MAX));
            out.put_slice(&event);
        }
        out.freeze()
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
    }
}

/// Writes events in the form that was negotiated.
pub(crate) struct Encoder {
    renderer: Renderer,
    format: Format,
    /// A watch as a table names its columns in the first event only.
    columns: Columns,
}

impl Encoder {
    /// Returns an encoder that writes objects as a renderer does.
    pub(crate) fn new(renderer: Renderer, form: Negotiated) -> Self {
        let format = form.format;
        Encoder {
            renderer,
            format,
            columns: Columns::Defined,
        }
    }

    /// The format of the events.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Encodes changes of objects, up to one that cannot be rendered. Cancellation changes nothing
    /// but `out`.
    pub(crate) async fn events(
        &mut self,
        target: &Target,
        cache: &Arc<Cache>,
        events: &[Event],
        out: &mut EncodedEvents,
    ) -> Result<()> {
        let mut shown = Show::new(cache, target, events.iter().map(|event| &event.entry));
        let mut done = Ok(());
        for event in events {
            done = self.event(event, &mut shown, out).await;
            if done.is_err() {
                break;
            }
        }
        self.columns = Columns::Known;
        done
    }

    async fn event<'e, E>(&self, event: &'e Event, shown: &mut Show<'e, E>, out: &mut EncodedEvents) -> Result<()>
    where
        E: Iterator<Item = &'e Entry> + Clone,
    {
        let of = (&event.entry, if out.is_empty() { self.columns } else { Columns::Known });
        let kind = match event.kind {
            EventKind::Added => "ADDED",
            EventKind::Modified => "MODIFIED",
            EventKind::Deleted => "DELETED",
        };
        if self.format == Format::Protobuf {
            let object = self.renderer.event_value(of, shown).await?;
            return self.encode(kind, &object, out);
        }
        let begin = out.bytes.len();
        out.bytes.extend_from_slice(b"{\"type\":\"");
        out.bytes.extend_from_slice(kind.as_bytes());
        out.bytes.extend_from_slice(b"\",\"object\":");
        match self.renderer.event(of, shown, &mut out.bytes).await {
            Ok(()) => {
                out.push(b"}\n");
                Ok(())
            }
            Err(error) => {
                out.bytes.truncate(begin);
                Err(error)
            }
        }
    }

    /// Encodes a bookmark at a revision.
    pub(crate) fn bookmark(&self, revision: Revision, initial_end: bool, out: &mut EncodedEvents) -> Result<()> {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let columns = if out.is_empty() { self.columns } else { Columns::Known };
        self.encode("BOOKMARK", &self.renderer.bookmark(metadata, columns)?, out)
    }

    /// Encodes the error that ends the watch.
    pub(crate) fn error(&self, error: &Error, out: &mut EncodedEvents) {
        self.refusal(&status::status(error), out);
    }

    /// Encodes the Status that ends the watch.
    pub(crate) fn refusal(&self, status: &StatusReply, out: &mut EncodedEvents) {
        if let Err(error) = self.encode("ERROR", &status.body, out) {
            tracing::error!(%error, "the end of a watch cannot be encoded");
        }
    }

    /// Encodes one event.
    fn encode(&self, kind: &str, object: &Json, out: &mut EncodedEvents) -> Result<()> {
        match self.format {
            Format::Protobuf => {
                let event = protobuf::event(kind, object).map_err(Error::Internal)?;
                out.push(&event);
            }
            Format::Json | Format::Yaml => {
                out.push(format!("{}\n", json!({"type": kind, "object": object})).as_bytes());
            }
        }
        Ok(())
    }
}

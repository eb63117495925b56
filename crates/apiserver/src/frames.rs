//! Events of a watch as bytes: in JSON one a line, in protobuf one a message.

use crate::{
    negotiate::{Format, Negotiated},
    protobuf,
    render::Renderer,
    status::{self, StatusReply},
    table::Columns,
};
use bytes::{BufMut, Bytes, BytesMut};
use insula_api::{Json, Revision};
use insula_registry::{
    Error, Event, EventKind, Result, Target,
    representation::{Cache, Show},
};
use insula_store::Entry;
use serde_json::json;
use std::sync::Arc;

/// Encoded events, one behind the other.
#[derive(Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    /// Where each event ends.
    ends: Vec<usize>,
}

impl Frames {
    /// Whether there is nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Each event by itself.
    pub(crate) fn each(self) -> impl Iterator<Item = Bytes> {
        let mut rest = Bytes::from(self.bytes);
        let mut begin = 0;
        self.ends.into_iter().map(move |end| {
            let length = end - std::mem::replace(&mut begin, end);
            rest.split_to(length)
        })
    }

    /// What a stream carries: lines of JSON tell by themselves where they end, messages are told
    /// their length.
    pub(crate) fn streamed(self, format: Format) -> Bytes {
        if format != Format::Protobuf {
            return self.bytes.into();
        }
        let mut out = BytesMut::with_capacity(self.bytes.len() + 4 * self.ends.len());
        for event in self.each() {
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
    /// Events as this writes objects.
    pub(crate) fn new(renderer: Renderer, form: Negotiated) -> Self {
        let format = form.format;
        Encoder {
            renderer,
            format,
            columns: Columns::Defined,
        }
    }

    /// How events are written.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Changes of objects, up to one that cannot be shown. Cancelled, it has done nothing but to
    /// `out`.
    pub(crate) async fn events(
        &mut self,
        target: &Target,
        cache: &Arc<Cache>,
        events: &[Event],
        out: &mut Frames,
    ) -> Result<()> {
        let mut shown = cache.show(target, events.iter().map(|event| &event.entry));
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

    async fn event<'e, E>(&self, event: &'e Event, shown: &mut Show<'e, E>, out: &mut Frames) -> Result<()>
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
            self.said(kind, &object, out);
            return Ok(());
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

    /// Where the watch stands.
    pub(crate) fn bookmark(&self, revision: Revision, initial_end: bool, out: &mut Frames) {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        self.said("BOOKMARK", &self.renderer.bookmark(metadata), out);
    }

    /// Why the watch ends.
    pub(crate) fn error(&self, error: &Error, out: &mut Frames) {
        self.refusal(&status::status(error), out);
    }

    /// The same, where it is known how a client is told.
    pub(crate) fn refusal(&self, status: &StatusReply, out: &mut Frames) {
        self.said("ERROR", &status.body, out);
    }

    fn said(&self, kind: &str, object: &Json, out: &mut Frames) {
        match self.format {
            // What is asked for in protobuf is metadata, and Status: both are written in it.
            Format::Protobuf => out.push(&protobuf::event(kind, object).unwrap_or_default()),
            Format::Json | Format::Yaml => {
                out.push(format!("{}\n", json!({"type": kind, "object": object})).as_bytes())
            }
        }
    }
}

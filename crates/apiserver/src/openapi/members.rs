//! Members of a map in a document, written one by one: what is written of an API is dropped before
//! the next one is made.

use super::{
    V2, gnostic,
    packed::{Piece, PieceWriter},
};
use insula_api::Json;
use serde_json::{Map, json};
use std::{collections::BTreeSet, io::Write};

/// The members of one map, which makes a piece of a document.
pub(super) struct Members {
    writer: PieceWriter,
    names: BTreeSet<String>,
    form: V2,
    /// Field of the document that has the map.
    field: &'static str,
}

impl Members {
    /// Returns no members of a field of a version 2 document. In JSON each begins with a comma.
    pub(super) fn new(field: &'static str, form: V2) -> Self {
        Members {
            writer: PieceWriter::default(),
            names: BTreeSet::new(),
            form,
            field,
        }
    }

    /// Writes a member. Of several with one name the first counts.
    pub(super) fn add(&mut self, name: String, value: Json) {
        if self.names.contains(&name) {
            return;
        }
        match self.form {
            V2::Json => {
                add_json(&mut self.writer, ",", &name, &value);
            }
            // A message in several pieces is merged by decoders.
            V2::Protobuf => {
                let member = Map::from_iter([(name.clone(), value)]);
                let message = gnostic::encoded(&json!({self.field: member}));
                write_all(&mut self.writer, &message);
            }
        }
        self.names.insert(name);
    }

    /// Writes all members of a map.
    pub(super) fn extend(&mut self, members: impl IntoIterator<Item = (String, Json)>) {
        members.into_iter().for_each(|(name, value)| self.add(name, value));
    }

    /// Returns the piece.
    pub(super) fn finish(self) -> Piece {
        self.writer.finish()
    }
}

/// Writes a member of a map in JSON.
pub(super) fn add_json(writer: &mut PieceWriter, before: &str, name: &str, value: &Json) {
    write_all(writer, before.as_bytes());
    writer.json(&json!(name));
    write_all(writer, b":");
    writer.json(value);
}

/// Writes bytes.
pub(super) fn write_all(writer: &mut PieceWriter, bytes: &[u8]) {
    writer.write_all(bytes).expect("memory takes all bytes");
}

//! Views of answers: lines and tables for people, JSON of the messages for programs.

use std::process::ExitCode;

use insula_proto::{Message, Name, json};
use serde_json::Value;

use crate::print::{Cell, Format, Output, Printer, Table, Tone};

/// An answer to show.
pub(crate) struct Answer {
    document: Value,
    parts: Vec<Part>,
}

enum Part {
    Table(Table),
    Lines(Vec<(&'static str, String)>),
    Text(String),
}

/// Returns a message as JSON, without the header of an answer.
pub(crate) fn object<M: Message + Name>(message: &M) -> Value {
    let mut value = json::from_message(message);
    if let Value::Object(fields) = &mut value {
        fields.remove("header");
    }
    value
}

/// Returns messages as a JSON list.
pub(crate) fn of_list<M: Message + Name>(messages: &[M]) -> Value {
    messages.iter().map(object).collect()
}

/// Returns a time as RFC 3339; `-` without one.
pub(crate) fn time<T: Into<Stamp>>(time: Option<T>) -> String {
    let Some(Stamp { seconds }) = time.map(Into::into) else {
        return "-".to_owned();
    };
    insula_api::Timestamp(seconds).to_string()
}

/// Seconds since 1970.
pub(crate) struct Stamp {
    seconds: i64,
}

impl From<insula_proto::Timestamp> for Stamp {
    fn from(time: insula_proto::Timestamp) -> Self {
        Stamp { seconds: time.seconds }
    }
}

impl Answer {
    pub(crate) fn new(document: Value) -> Self {
        Answer {
            document,
            parts: Vec::new(),
        }
    }

    /// Adds a table.
    pub(crate) fn table(mut self, table: Table) -> Self {
        self.parts.push(Part::Table(table));
        self
    }

    /// Adds a line for each field that is not empty.
    pub(crate) fn lines(mut self, lines: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let lines = lines.into_iter().filter(|(_, value)| !value.is_empty());
        self.parts.push(Part::Lines(lines.collect()));
        self
    }

    /// Adds a line.
    pub(crate) fn text(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Text(text.into()));
        self
    }

    /// Prints the answer. A table shows its first columns, and all of them in the wide format.
    pub(crate) fn print(self, output: Output, narrow: usize) -> anyhow::Result<ExitCode> {
        let mut printer = Printer::stdout();
        if !printer.document(output.format, &self.document)? {
            for part in self.parts {
                match part {
                    Part::Table(mut table) => {
                        if output.format != Format::Wide {
                            table.keep_columns(narrow);
                        }
                        printer.table(&table)?;
                    }
                    Part::Lines(lines) => {
                        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default() + 2;
                        for (name, value) in lines {
                            printer.line(&[Cell::new(Tone::Title, format!("{name:<width$}")), value.into()])?;
                        }
                    }
                    Part::Text(text) => printer.text(&text)?,
                }
            }
        }
        printer.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

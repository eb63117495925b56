//! Output of tools: aligned tables with colours for people, JSON and YAML for programs.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use anyhow::bail;
use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;
use tabwriter::TabWriter;

/// Format of the output: `-o` of every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[value(alias = "human")]
    Table,
    /// For people, with more columns.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// Names, one a line.
    Name,
}

/// The flag `-o`, for commands that need nothing else of their own.
#[derive(clap::Args, Debug, Clone, Copy)]
pub(crate) struct Output {
    /// Format of the output.
    #[arg(long = "output", short = 'o', value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    #[arg(id = "output")]
    pub(crate) format: Format,
}

impl Output {
    /// Prints a line about what is done, for people only.
    pub(crate) fn note(self, text: &str) -> anyhow::Result<()> {
        match self.format {
            Format::Table | Format::Wide => line(text),
            Format::Json | Format::Yaml | Format::Name => Ok(()),
        }
    }

    /// Prints objects as they are stored, or their names, for programs. People read the notes.
    pub(crate) fn stored(self, objects: &impl Serialize) -> anyhow::Result<()> {
        let mut printer = Printer::stdout();
        printer.document(self.format, objects)?;
        Ok(printer.flush()?)
    }
}

/// Prints a line on standard output.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    raw(&format!("{text}\n"))
}

/// Prints a text on standard output.
pub(crate) fn raw(text: &str) -> anyhow::Result<()> {
    let mut out = Stdout::new();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?)
}

/// Standard output, whose errors tell a reader that has closed it, as `head` does, from a broken
/// connection to a server: both are the same error of the system.
pub(crate) struct Stdout(io::Stdout);

/// Cause of an error of [`Stdout`].
#[derive(Debug)]
struct ReaderGone;

impl std::fmt::Display for ReaderGone {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("nobody reads the output any more")
    }
}

impl std::error::Error for ReaderGone {}

impl Stdout {
    pub(crate) fn new() -> Self {
        Self(io::stdout())
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(tagged)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(tagged)
    }
}

fn tagged(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, ReaderGone),
        _ => error,
    }
}

/// Returns true for an error of [`Stdout`] after its reader has closed it.
pub(crate) fn is_reader_gone(error: &anyhow::Error) -> bool {
    let io = |cause: &(dyn std::error::Error + 'static)| {
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.is_some_and(|inner| inner.is::<ReaderGone>())
    };
    error.chain().any(io)
}

/// Meaning of a text, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Title,
    Good,
    Bad,
    Warn,
    Dim,
}

/// A piece of text with its tone.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(crate) fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            tone,
        }
    }

    /// Returns a cell of a list; `-` when it is empty.
    pub(crate) fn list(tone: Tone, items: &[String]) -> Self {
        if items.is_empty() {
            Self::new(Tone::Dim, "-")
        } else {
            Self::new(tone, items.join(", "))
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(Tone::Plain, text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(Tone::Plain, text)
    }
}

/// Rows under a header.
#[derive(Debug)]
pub(crate) struct Table {
    header: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(header: &[&str]) -> Self {
        let title = |name: &&str| Cell::new(Tone::Title, *name);
        Self {
            header: header.iter().map(title).collect(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Removes the columns after the first `count`.
    pub(crate) fn keep_columns(&mut self, count: usize) {
        self.header.truncate(count);
        self.rows.iter_mut().for_each(|row| row.truncate(count));
    }
}

/// Progress of long work on standard error: a line that is rewritten in place and removed at the
/// end, or, without a terminal, a line every few seconds.
pub(crate) struct Progress {
    terminal: bool,
    shown: bool,
    printed: Instant,
}

/// Time between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Time between two changes at a terminal.
const CHANGE_INTERVAL: Duration = Duration::from_millis(100);
/// Characters of a whole bar.
const BAR_CHARS: u64 = 20;

impl Progress {
    pub(crate) fn stderr() -> Self {
        Self {
            terminal: io::stderr().is_terminal(),
            shown: false,
            printed: Instant::now(),
        }
    }

    /// Shows a text; not every one, if they come quickly.
    pub(crate) fn show(&mut self, text: &str) {
        let interval = if self.terminal { CHANGE_INTERVAL } else { LINE_INTERVAL };
        let is_due = (self.terminal && !self.shown) || self.printed.elapsed() >= interval;
        if !is_due {
            return;
        }
        self.printed = Instant::now();
        // Progress that cannot be shown is no reason to end.
        let _ = if self.terminal {
            self.shown = true;
            write!(io::stderr(), "\r\x1b[K{text} …")
        } else {
            writeln!(io::stderr(), "{text} …")
        };
    }

    /// Shows how much of a total is done: as a bar at a terminal, in numbers elsewhere.
    pub(crate) fn share(&mut self, done: u64, total: u64, what: &str) {
        let numbers = format!("{done} of {total} {what}");
        match self.terminal {
            true => self.show(&format!("{} {numbers}", bar(done, total))),
            false => self.show(&numbers),
        }
    }
}

/// Draws a share: `[█████░░░░░░░░░░░░░░░]  25 %`.
fn bar(done: u64, total: u64) -> String {
    let of = |whole: u64| done.min(total).saturating_mul(whole) / total.max(1);
    let full = of(BAR_CHARS);
    let signs = (0..BAR_CHARS).map(|at| if at < full { '█' } else { '░' });
    format!("[{}] {:3} %", signs.collect::<String>(), of(100))
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Standard output, with colours on a terminal.
pub(crate) struct Printer<W> {
    out: W,
    colours: bool,
}

impl Printer<io::BufWriter<Stdout>> {
    /// Creates a printer. It uses colours on a terminal, unless NO_COLOR is set.
    pub(crate) fn stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            colours: io::stdout().is_terminal() && !refused,
            out: io::BufWriter::new(Stdout::new()),
        }
    }
}

impl<W: Write> Printer<W> {
    #[cfg(test)]
    pub(crate) fn to(out: W) -> Self {
        Self { out, colours: false }
    }

    pub(crate) fn line(&mut self, cells: &[Cell]) -> io::Result<()> {
        for cell in cells {
            let text = self.painted(cell);
            self.out.write_all(text.as_bytes())?;
        }
        writeln!(self.out)
    }

    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    pub(crate) fn table(&mut self, table: &Table) -> io::Result<()> {
        let rows = std::iter::once(&table.header).chain(&table.rows);
        let painted = rows.map(|row| row.iter().map(|cell| self.painted(cell)).collect());
        let text = columns(painted)?;
        self.out.write_all(text.as_bytes())
    }

    /// Prints a value as JSON or YAML, or the names in it. Returns false for tables.
    ///
    /// # Errors
    /// Nothing in the value has a name.
    pub(crate) fn document(&mut self, format: Format, value: &impl Serialize) -> anyhow::Result<bool> {
        match format {
            Format::Table | Format::Wide => return Ok(false),
            Format::Json => writeln!(self.out, "{}", serde_json::to_string_pretty(value)?)?,
            Format::Yaml => write!(self.out, "{}", yaml(value)?)?,
            Format::Name => {
                for name in names(&serde_json::to_value(value)?)? {
                    writeln!(self.out, "{name}")?;
                }
            }
        }
        Ok(true)
    }

    /// Prints a value as [`Printer::document`] does, with names that it does not have itself.
    pub(crate) fn named<N: AsRef<str>>(
        &mut self,
        format: Format,
        value: &impl Serialize,
        names: impl IntoIterator<Item = N>,
    ) -> anyhow::Result<bool> {
        if format != Format::Name {
            return self.document(format, value);
        }
        for name in names {
            writeln!(self.out, "{}", name.as_ref())?;
        }
        Ok(true)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn painted(&self, cell: &Cell) -> String {
        let code = match cell.tone {
            _ if !self.colours || cell.text.is_empty() => "",
            Tone::Plain => "",
            Tone::Title => "1",
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Warn => "33",
            Tone::Dim => "2",
        };
        if code.is_empty() {
            cell.text.clone()
        } else {
            format!("\x1b[{code}m{}\x1b[0m", cell.text)
        }
    }
}

/// Aligns the cells of rows, in columns of at least six characters that are three spaces apart, as
/// kubectl and kcp's plugins do.
pub(crate) fn columns(rows: impl Iterator<Item = Vec<String>>) -> io::Result<String> {
    let mut writer = TabWriter::new(Vec::new()).minwidth(3).padding(3).ansi(true);
    for row in rows {
        writeln!(writer, "{}", row.join("\t"))?;
    }
    writer.flush()?;
    let bytes = writer
        .into_inner()
        .map_err(|error| io::Error::other(error.to_string()))?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// Fields that name a thing, the first one that it has.
const NAMES: [&str; 5] = ["/name", "/metadata/name", "/path", "/resource", "/version"];

/// Returns the name of a thing, or those of the things in a list.
fn names(value: &Value) -> anyhow::Result<Vec<String>> {
    if let Value::Array(items) = value {
        let names: anyhow::Result<Vec<Vec<String>>> = items.iter().map(names).collect();
        return Ok(names?.concat());
    }
    let mut found = NAMES.iter().filter_map(|field| value.pointer(field)?.as_str());
    match found.next() {
        Some(name) => Ok(vec![name.to_owned()]),
        None => bail!("this output has no names: choose -o table, wide, json or yaml"),
    }
}

/// One YAML document.
pub(crate) fn yaml(value: &impl Serialize) -> anyhow::Result<String> {
    let mut text = serde_saphyr::to_string(value)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["FIELD", "OUTCOME"]);
        table.row(vec![".spec.häute".into(), Cell::new(Tone::Good, "carried")]);
        table.row(vec![".a".into(), Cell::list(Tone::Bad, &[])]);
        let mut printer = Printer::to(Vec::new());
        printer.table(&table).unwrap();
        let text = String::from_utf8(printer.out).unwrap();
        expect![[r#"
            FIELD         OUTCOME
            .spec.häute   carried
            .a            -
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn a_broken_pipe_of_the_network_is_no_reader_that_is_gone() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let of_output = anyhow::Error::from(tagged(broken())).context("cannot write");
        assert!(is_reader_gone(&of_output));
        assert!(!is_reader_gone(&anyhow::Error::from(broken()).context("GET https://a")));
        assert!(!is_reader_gone(&tagged(io::Error::other("full")).into()));
    }

    #[test]
    fn bars_are_as_long_as_the_share() {
        assert_eq!(bar(1, 4), "[█████░░░░░░░░░░░░░░░]  25 %");
        assert_eq!(bar(9, 4), "[████████████████████] 100 %");
        assert_eq!(bar(0, 0), "[░░░░░░░░░░░░░░░░░░░░]   0 %");
    }

    #[test]
    fn strings_that_look_like_other_types_stay_strings() {
        let value = serde_json::json!({"a": ["yes", "5", "", "null", "1e3", "~", "0x1f", "a: b", "- c",
            "two\nlines", "2024-01-01"]});
        let again: serde_json::Value = serde_saphyr::from_str(&yaml(&value).unwrap()).unwrap();
        assert_eq!(again, value);
    }
}

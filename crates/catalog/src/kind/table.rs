//! Tables of a built-in kind: their columns, as kubectl prints them.

use insula_api::Json;

const NAME_TEXT: &str = "Name must be unique within a namespace. Is required when creating resources, although some \
    resources may allow a client to request the generation of an appropriate name automatically. Name is primarily \
    intended for creation idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const CREATED_TEXT: &str = "CreationTimestamp is a timestamp representing the server time when this object was \
    created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set \
    this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for \
    lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The table of a built-in kind.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// All columns.
    pub columns: &'static [TableColumn],
    /// True if `rows` of an empty table is null, as for resources without a printer of their own.
    pub null_when_empty: bool,
}

/// A column of the table of a built-in kind.
#[derive(Debug, Clone, Copy)]
pub struct TableColumn {
    /// Header.
    pub name: &'static str,
    /// `string`, `integer` or `date`.
    pub kind: &'static str,
    /// `name` for the object's name, else empty.
    pub format: &'static str,
    /// Description.
    pub text: &'static str,
    /// Priority: 0 always shows the column, higher values only in wide output.
    pub priority: i64,
    /// Source of the cells.
    pub value: CellValue,
}

/// The source of a cell.
#[derive(Debug, Clone, Copy)]
pub enum CellValue {
    /// The object's name.
    Name,
    /// The time since the object's creation.
    Age,
    /// The time of the object's creation.
    Created,
    /// A text at a JSON pointer; empty if it is absent.
    Text(&'static str),
    /// A number at a JSON pointer; zero if it is absent, since objects omit a zero.
    Number(&'static str),
    /// A duration in seconds at a JSON pointer.
    Duration(&'static str),
    /// The number of items of a list.
    Items(&'static str),
    /// The number of entries of some maps.
    Entries(&'static [&'static str]),
    /// The time since the timestamp that the function returns.
    Since(fn(&Json) -> Option<&str>),
    /// The cell that the function returns.
    Computed(fn(&Json) -> Json),
}

impl Table {
    /// Returns a table whose `rows` is an empty list if it has none.
    pub(crate) const fn new(columns: &'static [TableColumn]) -> Self {
        Table {
            columns,
            null_when_empty: false,
        }
    }
}

impl TableColumn {
    /// The object's name.
    pub const NAME: TableColumn = TableColumn {
        name: "Name",
        kind: "string",
        format: "name",
        text: NAME_TEXT,
        priority: 0,
        value: CellValue::Name,
    };

    /// The time since creation, of the type that built-in kinds give it.
    pub const AGE: TableColumn = TableColumn::text("Age", CREATED_TEXT, CellValue::Age);

    /// The time since creation, of the type that custom resources give it.
    pub const AGE_OF_CUSTOM: TableColumn = TableColumn {
        kind: "date",
        ..TableColumn::AGE
    };

    /// The time of creation.
    pub(crate) const CREATED: TableColumn = TableColumn {
        name: "Created At",
        kind: "date",
        value: CellValue::Created,
        ..TableColumn::AGE
    };

    /// Returns a column of texts.
    pub(crate) const fn text(name: &'static str, text: &'static str, value: CellValue) -> Self {
        TableColumn {
            name,
            kind: "string",
            format: "",
            text,
            priority: 0,
            value,
        }
    }

    /// Returns a column of integers.
    pub const fn integer(name: &'static str, text: &'static str, value: CellValue) -> Self {
        TableColumn {
            kind: "integer",
            ..TableColumn::text(name, text, value)
        }
    }

    /// Returns the column for wide output only.
    pub(crate) const fn wide(self) -> Self {
        TableColumn { priority: 1, ..self }
    }
}

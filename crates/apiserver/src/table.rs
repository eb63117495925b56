//! Tables (`Table`) and metadata-only objects (`PartialObjectMetadata`).
//!
//! A [`Layout`] has the columns of a resource; a row is made of one object, so that a list and each
//! event of a watch take the same path. Metadata-only forms read `metadata` alone and never need a
//! conversion.

mod cell;
mod format;

use crate::negotiate::MetaVersion;
use cell::Cell;
use insula_api::{Json, Timestamp};
use insula_catalog::{ApiVersion, CellValue, Served, TableColumn};
use insula_meter::Meter;
use insula_pipeline::Refusal;
use insula_schema::PathBudget;
use serde_json::{Map, json};

pub use format::{age, human_duration};

/// Visits that the printer columns of any row may make.
const ROW_VISITS_MIN: usize = 2_000;

/// Returns the visits that the printer columns of a row may make, of an object of some bytes of
/// JSON: about four of each value. So a page costs no more than some readings of its objects.
pub fn budget_for_row(object_bytes: usize, meter: &Meter) -> PathBudget {
    PathBudget::new(ROW_VISITS_MIN.saturating_add(object_bytes), meter)
}

/// The `object` of each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The object's metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Reads the `includeObject` parameter.
    ///
    /// # Errors
    /// 400 for unknown values.
    pub fn parse(query: Option<&str>) -> Result<Self, Refusal> {
        match query.unwrap_or_default() {
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            "Object" => Ok(IncludeObject::Object),
            "None" => Ok(IncludeObject::None),
            other => Err(Refusal::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            ))),
        }
    }
}

/// The columns of a resource in a version.
#[derive(Debug)]
pub struct Layout<'a> {
    cells: Vec<Cell<'a>>,
    /// True if `rows` of an empty table is null, as for resources without a printer of their own.
    null_when_empty: bool,
}

impl<'a> Layout<'a> {
    /// Returns the layout of a resource: that of a built-in, else the version's columns.
    pub fn for_resource(served: &Served, version: &'a ApiVersion) -> Self {
        if let Some(table) = served.api.builtin.and_then(|builtin| builtin.table) {
            return Layout {
                cells: table.columns.iter().map(Cell::Fixed).collect(),
                null_when_empty: table.null_when_empty,
            };
        }
        let name = std::iter::once(Cell::Fixed(&TableColumn::NAME));
        Layout {
            cells: name.chain(version.columns.iter().map(Cell::Printer)).collect(),
            null_when_empty: false,
        }
    }

    /// Returns the layout of a Scale.
    pub fn of_scale() -> Self {
        static COLUMNS: [TableColumn; 4] = [
            TableColumn::NAME,
            TableColumn::integer(
                "Desired",
                "Number of desired replicas",
                CellValue::Number("/spec/replicas"),
            ),
            TableColumn::integer(
                "Available",
                "Number of actual replicas",
                CellValue::Number("/status/replicas"),
            ),
            TableColumn::AGE_OF_CUSTOM,
        ];
        Layout {
            cells: COLUMNS.iter().map(Cell::Fixed).collect(),
            null_when_empty: false,
        }
    }

    /// Returns `columnDefinitions`.
    pub fn definitions(&self) -> Json {
        self.cells.iter().map(Cell::definition).collect()
    }

    /// Returns the row of an object. All of its cells spend the same visits: see
    /// [`budget_for_row`].
    pub fn row(
        &self,
        object: &Json,
        include: IncludeObject,
        version: MetaVersion,
        now: Timestamp,
        budget: &mut PathBudget,
    ) -> Json {
        let cells: Json = self.cells.iter().map(|cell| cell.value(object, now, budget)).collect();
        let object = match include {
            IncludeObject::None => Json::Null,
            IncludeObject::Metadata => partial(&object["metadata"], version),
            IncludeObject::Object => object.clone(),
        };
        json!({"cells": cells, "object": object})
    }

    /// Returns a table. Of the tables of a watch only the first one has column definitions.
    pub fn table(&self, rows: Vec<Json>, version: MetaVersion, metadata: Json, columns: Columns) -> Json {
        let rows = if rows.is_empty() && self.null_when_empty {
            Json::Null
        } else {
            Json::Array(rows)
        };
        let definitions = match columns {
            Columns::Defined => self.definitions(),
            Columns::Known => Json::Null,
        };
        json!({
            "kind": "Table", "apiVersion": version.api_version(), "metadata": metadata,
            "columnDefinitions": definitions, "rows": rows,
        })
    }

    /// Returns the table of one object.
    pub fn single(
        &self,
        object: &Json,
        include: IncludeObject,
        version: MetaVersion,
        now: Timestamp,
        columns: Columns,
    ) -> Json {
        let revision = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let row = self.row(
            object,
            include,
            version,
            now,
            &mut budget_for_row(0, &Meter::unbounded()),
        );
        self.table(vec![row], version, list_metadata(revision, None, None), columns)
    }
}

/// Column definitions of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// The table has them.
    Defined,
    /// An earlier table of the same stream has them.
    Known,
}

/// Returns `metadata` of a list, table or metadata list, without empty fields.
pub fn list_metadata(revision: &str, next: Option<&str>, remaining: Option<usize>) -> Json {
    let mut metadata = Map::new();
    if !revision.is_empty() && revision != "0" {
        metadata.insert("resourceVersion".into(), json!(revision));
    }
    if let Some(next) = next.filter(|next| !next.is_empty()) {
        metadata.insert("continue".into(), json!(next));
    }
    if let Some(remaining) = remaining {
        metadata.insert("remainingItemCount".into(), json!(remaining));
    }
    Json::Object(metadata)
}

/// Returns `PartialObjectMetadata` of an object's metadata.
pub fn partial(metadata: &Json, version: MetaVersion) -> Json {
    json!({"kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": metadata})
}

/// Returns `PartialObjectMetadataList` of items of [`partial`].
pub fn partial_list(items: Vec<Json>, version: MetaVersion, metadata: Json) -> Json {
    json!({"kind": "PartialObjectMetadataList", "apiVersion": version.api_version(), "metadata": metadata, "items": items})
}

#[cfg(test)]
mod tests;

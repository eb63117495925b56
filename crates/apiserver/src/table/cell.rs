//! Columns of tables, and their cells.

use super::format::{age, definition, human_duration};
use insula_api::{Json, Timestamp, go_shown};
use insula_catalog::{CellValue, Column, TableColumn};
use insula_schema::{PathBudget, PathTooCostly};
use serde_json::{Map, json};

/// Bytes of a cell for the price of one visit.
const BYTES_PER_VISIT: usize = 4;

/// A column.
#[derive(Debug)]
pub(super) enum Cell<'a> {
    /// A column that is not part of a definition.
    Fixed(&'static TableColumn),
    /// A printer column of a definition.
    Printer(&'a Column),
}

impl Cell<'_> {
    /// Returns the column's entry of `columnDefinitions`.
    pub(super) fn definition(&self) -> Json {
        match self {
            Cell::Fixed(column) => definition(column.name, column.kind, column.format, column.text, column.priority),
            Cell::Printer(column) => {
                let given = column.description.as_str();
                let path = format!(
                    "Custom resource definition column (in JSONPath format): {}",
                    column.json_path
                );
                let text = if given.is_empty() { &path } else { given };
                definition(&column.name, &column.kind, &column.format, text, column.priority)
            }
        }
    }

    /// Returns the cell of an object.
    pub(super) fn value(&self, object: &Json, now: Timestamp, budget: &mut PathBudget) -> Json {
        match self {
            Cell::Fixed(column) => fixed_value(column.value, object, now),
            // An error of the evaluation leaves the cell empty, as in Kubernetes.
            Cell::Printer(column) => printer_value(column, object, now, budget).unwrap_or_default(),
        }
    }
}

fn fixed_value(value: CellValue, object: &Json, now: Timestamp) -> Json {
    let created = object["metadata"]["creationTimestamp"].as_str();
    let since = |moment: Option<&str>| json!(moment.map_or_else(|| "<unknown>".to_owned(), |text| age(text, now)));
    let at = |pointer: &str| object.pointer(pointer);
    match value {
        CellValue::Name => object["metadata"]["name"].clone(),
        CellValue::Age => since(created),
        CellValue::Created => json!(created),
        CellValue::Text(pointer) => json!(at(pointer).and_then(Json::as_str).unwrap_or_default()),
        CellValue::Number(pointer) => json!(at(pointer).and_then(Json::as_i64).unwrap_or_default()),
        CellValue::Duration(pointer) => {
            let seconds = at(pointer).and_then(Json::as_i64);
            json!(seconds.map_or_else(|| "<none>".to_owned(), human_duration))
        }
        CellValue::Items(field) => json!(object[field].as_array().map_or(0, Vec::len)),
        CellValue::Entries(fields) => {
            let maps = fields.iter().filter_map(|field| object[field].as_object());
            json!(maps.map(Map::len).sum::<usize>())
        }
        CellValue::Since(moment) => since(moment(object)),
        CellValue::Computed(cell) => cell(object),
    }
}

/// Returns the cell of a definition's column; null for a value that is absent or of another type.
fn printer_value(
    column: &Column,
    object: &Json,
    now: Timestamp,
    budget: &mut PathBudget,
) -> Result<Json, PathTooCostly> {
    let Some(value) = column.path.first(object, budget)? else {
        return Ok(Json::Null);
    };
    Ok(match (column.kind.as_str(), value) {
        ("string", Json::String(text)) => {
            pay_for_text(value, budget)?;
            json!(text)
        }
        ("string", Json::Null) => json!("<no value>"),
        ("string", other) => {
            pay_for_text(other, budget)?;
            json!(go_shown(other))
        }
        ("integer", Json::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => json!(whole),
            (None, float) => json!(float.map(|float| float as i64)),
        },
        ("number", Json::Number(_)) | ("boolean", Json::Bool(_)) => value.clone(),
        ("date", Json::String(text)) => json!(age(text, now)),
        _ => Json::Null,
    })
}

/// Pays for the text of a value.
fn pay_for_text(value: &Json, budget: &mut PathBudget) -> Result<(), PathTooCostly> {
    budget.pay(1)?;
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => Ok(()),
        Json::String(text) => budget.pay(text.len() / BYTES_PER_VISIT),
        Json::Array(list) => list.iter().try_for_each(|item| pay_for_text(item, budget)),
        Json::Object(map) => map.iter().try_for_each(|(key, item)| {
            budget.pay(key.len() / BYTES_PER_VISIT)?;
            pay_for_text(item, budget)
        }),
    }
}

//! JSONPath of printer columns: kubectl's dialect, evaluated on one object.
//!
//! `.a.b`, `.a\.b`, `['a']`, `[0]`, `[-1]`, `[0:2]`, `[0,2]`, `[*]`, `.*`, `..a`,
//! `[?(@.type=="Ready")].status`. A missing value gives no result, never an error.
//!
//! A tenant chooses the path, and each filter within a filter and each `..` multiplies its price:
//! both may nest [`JSON_PATH_DEPTH_MAX`] deep, and an evaluation spends a [`PathBudget`].

mod parse;

use insula_api::Json;
use insula_meter::{Empty, Fuel, Meter};
use std::cmp::Ordering;

/// Bytes of a path. Longer paths are refused.
pub const JSON_PATH_BYTES_MAX: usize = 4096;
/// Levels of filters and recursive descents in a path. Published definitions have one.
pub const JSON_PATH_DEPTH_MAX: usize = 4;

/// Bytes of two texts that are compared for the price of one visit.
const BYTES_PER_VISIT: usize = 32;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// The refusal of a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The part that could not be parsed.
    #[error("{0}")]
    Syntax(String),
    /// Filters and recursive descents nest too deep.
    #[error(
        "nests filters and recursive descents {depth} deep, and may nest them at most {JSON_PATH_DEPTH_MAX} deep: \
         name the fields on the way"
    )]
    Depth {
        /// Levels of the path, as far as it was read.
        depth: usize,
    },
}

/// Nanoseconds of a visit.
const VISIT_NANOSECONDS: u64 = 20;

/// Values that evaluations may still visit. One budget is for all columns of a row, so that the
/// price of a row does not grow with their number.
#[derive(Debug)]
pub struct PathBudget(Fuel);

/// An evaluation that needs more visits than it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the path visits too many values")]
pub struct PathTooCostly;

impl PathBudget {
    /// Returns a budget of some visits, which a meter pays for.
    pub fn new(visits: usize, meter: &Meter) -> Self {
        PathBudget(Fuel::new(visits as u64, VISIT_NANOSECONDS, meter))
    }

    /// Returns the visits so far.
    pub fn used(&self) -> u64 {
        self.0.used()
    }

    /// Pays for visits.
    ///
    /// # Errors
    /// There are too few left. Later visits fail as well.
    pub fn pay(&mut self, visits: usize) -> Result<(), PathTooCostly> {
        self.0.spend(visits as u64).map_err(|Empty| PathTooCostly)
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Fields(Vec<String>),
    Each,
    Indices(Vec<i64>),
    Slice {
        from: Option<i64>,
        to: Option<i64>,
        by: i64,
    },
    Descendants,
    Filter(Filter),
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Operand,
    test: Option<(Operator, Operand)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(JsonPath),
    Value(Json),
}

impl JsonPath {
    /// Parses a path such as `.spec.replicas`; surrounding braces are allowed.
    ///
    /// # Errors
    ///
    /// Returns the part that could not be parsed, or the depth of a path that nests too deep.
    pub fn parse(text: &str) -> Result<JsonPath, PathError> {
        if text.len() > JSON_PATH_BYTES_MAX {
            let why = format!("paths may have at most {JSON_PATH_BYTES_MAX} bytes");
            return Err(PathError::Syntax(why));
        }
        parse::parse(text)
    }

    /// Returns every value at the path, in order.
    ///
    /// # Errors
    /// The path visits too many values.
    pub fn eval<'a>(&self, root: &'a Json, budget: &mut PathBudget) -> Result<Vec<&'a Json>, PathTooCostly> {
        let mut found = vec![root];
        for step in &self.steps {
            let mut next = Vec::new();
            for value in found {
                step.apply(value, &mut next, budget)?;
            }
            found = next;
        }
        Ok(found)
    }

    /// Returns the first value at the path.
    ///
    /// # Errors
    /// The path visits too many values.
    pub fn first<'a>(&self, root: &'a Json, budget: &mut PathBudget) -> Result<Option<&'a Json>, PathTooCostly> {
        Ok(self.eval(root, budget)?.into_iter().next())
    }
}

impl Step {
    /// Pays before it looks, so that a step of many values is refused before it begins.
    fn apply<'a>(
        &self,
        value: &'a Json,
        out: &mut Vec<&'a Json>,
        budget: &mut PathBudget,
    ) -> Result<(), PathTooCostly> {
        budget.pay(1)?;
        match self {
            Step::Field(name) => out.extend(value.get(name)),
            Step::Fields(names) => {
                budget.pay(names.len())?;
                out.extend(names.iter().filter_map(|n| value.get(n)));
            }
            Step::Each => {
                budget.pay(length(value))?;
                match value {
                    Json::Array(list) => out.extend(list),
                    Json::Object(map) => out.extend(map.values()),
                    _ => {}
                }
            }
            Step::Indices(indices) => {
                let Json::Array(list) = value else { return Ok(()) };
                budget.pay(indices.len())?;
                out.extend(indices.iter().filter_map(|i| list.get(position(*i, list.len())?)));
            }
            Step::Slice { from, to, by } => {
                let Json::Array(list) = value else { return Ok(()) };
                budget.pay(list.len())?;
                let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
                let clamp = |i: i64| (if i < 0 { i + length } else { i }).clamp(0, length);
                let (from, to) = (clamp(from.unwrap_or(0)), clamp(to.unwrap_or(length)));
                let span = usize::try_from(from).unwrap_or(0)
                    ..usize::try_from(to).unwrap_or(0).max(usize::try_from(from).unwrap_or(0));
                let by = usize::try_from(*by).unwrap_or(1).max(1);
                out.extend(list.get(span).unwrap_or_default().iter().step_by(by));
            }
            Step::Descendants => descendants(value, out, budget)?,
            Step::Filter(filter) => {
                let items: Box<dyn Iterator<Item = &Json>> = match value {
                    Json::Array(list) => Box::new(list.iter()),
                    Json::Object(map) => Box::new(map.values()),
                    _ => return Ok(()),
                };
                for item in items {
                    if filter.holds(item, budget)? {
                        out.push(item);
                    }
                }
            }
        }
        Ok(())
    }
}

fn length(value: &Json) -> usize {
    match value {
        Json::Array(list) => list.len(),
        Json::Object(map) => map.len(),
        _ => 0,
    }
}

fn position(index: i64, length: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

/// Collects a value and everything below it.
fn descendants<'a>(value: &'a Json, out: &mut Vec<&'a Json>, budget: &mut PathBudget) -> Result<(), PathTooCostly> {
    budget.pay(1)?;
    out.push(value);
    match value {
        Json::Array(list) => list.iter().try_for_each(|item| descendants(item, out, budget)),
        Json::Object(map) => map.values().try_for_each(|item| descendants(item, out, budget)),
        _ => Ok(()),
    }
}

impl Filter {
    fn holds(&self, item: &Json, budget: &mut PathBudget) -> Result<bool, PathTooCostly> {
        budget.pay(1)?;
        let left = self.left.value(item, budget)?;
        let Some((operator, right)) = &self.test else {
            return Ok(left.is_some());
        };
        let (Some(left), Some(right)) = (left, right.value(item, budget)?) else {
            return Ok(false);
        };
        let order = match (left, right) {
            (Json::Number(a), Json::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
            (Json::String(a), Json::String(b)) => {
                budget.pay(a.len().min(b.len()) / BYTES_PER_VISIT)?;
                Some(a.cmp(b))
            }
            // Kubernetes compares scalars alone.
            (Json::Array(_) | Json::Object(_), _) | (_, Json::Array(_) | Json::Object(_)) => return Ok(false),
            (a, b) => (a == b).then_some(Ordering::Equal),
        };
        Ok(match (operator, order) {
            (Operator::Equal, order) => order == Some(Ordering::Equal),
            (Operator::NotEqual, order) => order != Some(Ordering::Equal),
            (_, None) => false,
            (Operator::Less, Some(order)) => order.is_lt(),
            (Operator::LessOrEqual, Some(order)) => order.is_le(),
            (Operator::Greater, Some(order)) => order.is_gt(),
            (Operator::GreaterOrEqual, Some(order)) => order.is_ge(),
        })
    }
}

impl Operand {
    fn value<'a>(&'a self, item: &'a Json, budget: &mut PathBudget) -> Result<Option<&'a Json>, PathTooCostly> {
        match self {
            Operand::Path(path) => path.first(item, budget),
            Operand::Value(value) => Ok(Some(value)),
        }
    }
}

#[cfg(test)]
mod tests;

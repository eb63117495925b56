//! State of lowering an expression, which all of its steps share.

use crate::check::Checked;
use crate::env::Env;
use crate::parse::Parsed;
use crate::program::Reference;
use crate::regex::Pattern;

/// State of lowering one expression.
pub(crate) struct Lowering<'s> {
    pub(crate) parsed: &'s Parsed,
    pub(crate) checked: &'s Checked,
    pub(crate) env: &'s Env,
    pub(crate) used: Vec<String>,
    /// Variables of the enclosing comprehensions, outermost first.
    pub(crate) locals: Vec<String>,
    pub(crate) references: Vec<Reference>,
    /// Constant patterns of `find` and `findAll`.
    pub(crate) patterns: Vec<Pattern>,
}

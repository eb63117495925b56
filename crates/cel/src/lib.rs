//! CEL with static and metered costs. Expressions are compiled once and evaluated directly over
//! borrowed JSON.
//!
//! The text is parsed by the `cel` crate; its tree is lowered to our own ([`Program`]), in which
//! names are slots and chains are flat. Evaluation borrows the `serde_json::Value`s of its
//! [`Activation`], spends a [`Budget`] in Kubernetes' cost units, and bounds the memory of all
//! values it makes. An absent field is either an error (validation rules) or a result of its own
//! (version conversion): see [`AbsenceMode`].
//!
//! ```
//! use insula_cel::{Activation, Budget, Outcome, Program};
//! use insula_meter::Meter;
//! let program = Program::compile("self.first + ' ' + self.last", &["self"])?;
//! let object = serde_json::json!({"first": "Ada", "last": "Lovelace"});
//! let budget = &mut Budget::new(1_000, &Meter::unbounded());
//! let outcome = program.eval(&Activation::new().with("self", &object), budget)?;
//! assert_eq!(outcome, Outcome::Value("Ada Lovelace".into()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Types are checked and the cost is estimated before anything runs: see [`Env`] and
//! [`Program::estimate`].
//!
//! Pure: no clock, no randomness, no IO. Not here: rules on schemas (`schema`).
#![warn(missing_docs)]

mod activation;
mod amount;
mod arithmetic;
mod authorizer;
mod chain;
mod check;
mod collection;
mod compare;
mod compile;
mod constant;
mod cost;
mod decl;
mod env;
mod error;
mod estimate;
mod eval;
mod expand;
mod field;
mod fold;
mod functions;
mod ir;
mod items;
mod json;
mod lookups;
mod lower;
mod lowering;
mod macros;
mod mistakes;
mod natural;
mod nodes;
mod opaque;
mod operator;
mod operators;
mod optional;
mod parse;
mod path;
mod price;
mod print;
mod program;
mod regex;
mod scan;
mod select;
mod tokens;
mod typed;
mod types;
mod value;

pub use crate::activation::Activation;
pub use crate::amount::Quantity;
pub use crate::authorizer::{Authorize, AuthorizerCheck, AuthorizerDecision, CheckTarget, ResourceCheck};
pub use crate::cost::{Budget, CALL_COST_MAX, COST_PER_BYTE, MAX_VALUE_BYTES, OBJECT_COST_MAX};
pub use crate::decl::{Decl, Field, ListKind, Shape};
pub use crate::env::Env;
pub use crate::error::{CompileError, EvalError, Issue, Message, Overflowing, Readable};
pub use crate::field::is_keyword;
pub use crate::functions::is_type_name;
pub use crate::lookups::{Lookup, LookupStep};
pub use crate::print::print;
pub use crate::program::{AbsenceMode, Estimate, Program, Reference};
pub use crate::scan::{CHAIN_MAX, NESTING_MAX, SOURCE_BYTES_MAX, TOKENS_MAX};
pub use crate::types::Type;
pub use crate::value::Outcome;

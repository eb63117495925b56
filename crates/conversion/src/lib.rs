//! Conversion between the versions of one API, by rules, without loss.
//!
//! A [`RuleSet`] describes how objects of one version become objects of another. A [`Bundle`] holds
//! the compiled rules and schemas of one API. It reads a stored object in any version
//! ([`Bundle::get`]) and writes one through any version ([`Bundle::put`]); only fields that the
//! author drops are lost. Pure: no clock, no randomness, no IO; usable without a server.
//!
//! # The algebra
//!
//! One version is stored; rules are written around a hub, by default the stored version. The
//! *union* is a version that no client sees: the hub's fields, and beside them those that the hub
//! lacks and other versions have. Fields of equal path and kind have one place in it, and so have
//! fields that a rule moves to each other. Where the hub lacks nothing, it is the union.
//!
//! The versions form a tree. Its root is the stored version; its children are the union and the
//! versions that have direct rules with a stored version that is not the hub; all others are
//! children of the union. Between a version and its parent there are two conversions, *down* (to
//! the version) and *up* (to the parent). Rules may define any function: it may compute, drop
//! fields, and need not be the inverse of the other one.
//!
//! ```text
//! convert     passthrough (same path, compatible schema), then rules;
//!             pruned and defaulted by the target's schema
//! residual_v  = view_v − down(view_parent)        fields of v that its parent cannot show;
//!                                                 stored beside the object
//! view_root   = the stored object
//! view_v      = down(view_parent) + residual_v    get
//!
//! put(x, v):  view_v       ← x
//!             view_parent  ← merge(up(old view_v) → up(x), onto the old view_parent)
//!                            …up to the root
//!             view_w       ← merge(down(old view_parent) → down(new view_parent),
//!                                  onto the old view_w)   for every other w
//!             residuals    ← recomputed from the new views
//! ```
//!
//! `merge(old → new, onto)` applies the edit from `old` to `new` to `onto`: what did not change
//! stays as it is in `onto`, what changed is taken from `new`. That one function gives the laws:
//!
//! 1. **PutGet** `get_v(put_v(x)) = x`: the residual is the difference to the conversion of the new
//!    parent.
//! 2. **GetPut** `put_v(get_v(S)) = S`, byte for byte: without an edit nothing changes, and
//!    residuals have one canonical form.
//! 3. **Non-interference**: values of `up(x)` that the edit does not change stay as they are in the
//!    parent, and so in every other view.
//! 4. **The later edit wins**: values that it does change replace the parent's, preserved or not.
//!    That holds for computed values whose *inputs* changed, too, even if the results are equal:
//!    conversions trace the hashes of each rule's inputs. A residual's entry for a computed value
//!    carries that hash as a guard, and is ignored without it.
//! 5. **Readable**: `put` makes every served view that a rule can fail to make, and returns the
//!    rule's error if one does.
//! 6. **Shared**: a field that both of two versions have, and that no rule between them moves or
//!    writes, reads the same in both, also where the hub lacks it: the union has one place for it,
//!    and passthrough excludes only what rules use up.
//! 7. **Identity**: an item that a rule names (`list[0]`, `map['main']`) is there as long as
//!    anything in it is, and a value that is written into it goes there, whatever of it a version
//!    shows.
//!
//! Other items of lists are identified by the part of their list-map key that both sides show, else
//! by a longest common subsequence; then gaps of equal length pair in order. Items and entries of
//! maps are added and removed as a whole; hidden fields of an object survive edits around them.
//!
//! # An example
//!
//! Version v1 is stored, with `{firstName: Bob}`; v2 is `{name: {first}, mood}`. One client writes
//! through v2, another through v1:
//!
//! ```text
//! put(v2, {name: {first: Bob}, mood: ok})   stored {firstName: Bob}   residual v2: set mood = ok
//! put(v1, {firstName: Rob})                 stored {firstName: Rob}   residual v2: set mood = ok
//! get(v2)                                   {name: {first: Rob}, mood: ok}
//! ```
//!
//! ```
//! use insula_conversion::{Bundle, LossPolicy, VersionSchema, unmetered_budget, parse_rules};
//! use insula_api::FieldPath;
//! use insula_schema::Structural;
//! use serde_json::json;
//! # type Errors = Vec<insula_api::FieldError>;
//! # fn version(name: &str, spec: serde_json::Value) -> Result<VersionSchema, Errors> {
//! #     let spec = json!({"type": "object", "properties": spec});
//! #     let schema = json!({"type": "object", "properties": {"spec": spec}});
//! #     let schema = Structural::parse_trusted(&schema)?.into();
//! #     Ok(VersionSchema { name: name.into(), served: true, schema })
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let text = json!({"type": "string"});
//! # let v1 = version("v1", json!({"firstName": text})).map_err(|e| e[0].to_string())?;
//! # let name = json!({"type": "object", "properties": {"first": text}});
//! # let v2 = version("v2", json!({"name": name, "mood": text})).map_err(|e| e[0].to_string())?;
//! let spec = FieldPath::new("spec");
//! let rules = parse_rules(&json!({"conversions": [
//!     {"from": "v1", "to": "v2",
//!         "rules": [{"field": ".spec.firstName", "destination": ".spec.name.first"}]},
//!     {"from": "v2", "to": "v1",
//!         "rules": [{"field": ".spec.name.first", "destination": ".spec.firstName"}]},
//! ]}), &spec).map_err(|malformed| malformed.errors[0].to_string())?;
//! let (versions, policy) = (vec![v1, v2], LossPolicy::Lossless);
//! let bundle = Bundle::compile("example.io", versions, "v1", Some(&rules), policy, &spec)
//!     .map_err(|errors| errors[0].to_string())?;
//! let budget = &mut unmetered_budget();
//! let spec = json!({"name": {"first": "Bob"}, "mood": "ok"});
//! let x = json!({"apiVersion": "example.io/v2", "spec": spec});
//! let stored = bundle.put(&x, "v2", None, budget)?;
//! let x = json!({"apiVersion": "example.io/v1", "spec": {"firstName": "Rob"}});
//! let stored = bundle.put(&x, "v1", Some(stored.stored("v1")), budget)?;
//! let shown = bundle.get(stored.stored("v1"), "v2", budget)?;
//! assert_eq!(shown["spec"], json!({"name": {"first": "Rob"}, "mood": "ok"}));
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! `rules`: one model for every notation. `plan`: from rules to operations (`passthrough`: fields
//! that need no rule; `scope`: names and paths against schemas; `fit`: results against schemas).
//! `union`: the fields of all versions in one tree. `convert`: execution of a plan. `merge`,
//! `align`, `fixed`: three-way merge of edits, identity of items. `residual`, `trace`:
//! data stored beside an object (`residual/retained`: values that no version has a field for).
//! `bundle`: the tree of versions, get and put. `field_coverage`: the outcome of every field;
//! `code`: functions in place of rules; `origin`: the field behind an error of another version;
//! `carried`: fields that no rule may change. `portable`: objects that carry their residual.
//! `suggest`: rules guessed from two schemas. `laws`: the laws as functions. `proof`: the search
//! for counterexamples. `compatible`: fields that break without rules. The
//! registry decides when to convert.
#![warn(missing_docs)]

mod align;
mod bundle;
mod by_path;
mod carried;
mod code;
mod compatible;
mod convert;
mod error;
mod field_coverage;
mod fit;
mod fixed;
pub mod laws;
mod merge;
mod origin;
mod passthrough;
mod path;
mod plan;
mod portable;
pub mod proof;
mod residual;
mod rules;
mod scope;
mod suggest;
mod trace;
mod union;

pub use crate::bundle::{
    Bundle, Difference, LossPolicy, MayFail, Outlook, Owns, RULES_UNKNOWN, Recomputed, Step, Stored, ToStore,
    VERSIONS_MAX, VersionSchema, Writer, Written, written,
};
pub use crate::code::{Code, ConvertFn};
pub use crate::compatible::Break;
pub use crate::error::{Cause, ConvertError, FailedRule};
pub use crate::field_coverage::{Computed, CoveredField, FieldCoverage, FieldOutcome, Made, Maker, field_coverage};
pub use crate::merge::apply_edit;
pub use crate::path::{PATH_BYTES_MAX, PATH_SEGMENTS_MAX, Path, Segment};
pub use crate::portable::{Converted, Portable, RESIDUAL_ANNOTATION};
pub use crate::residual::SchemaPath;
pub use crate::rules::{
    DIRECTIONS_MAX, Direction, ITEM_RULES_DEPTH_MAX, Malformed, RULES_MAX, Rule, RuleAt, RuleSet, Source, Template,
    Validation, parse_rules, rules_in_schema,
};
pub use crate::suggest::{Guess, SURE, Source as GuessSource, Suggestion, Suggestions, suggest};
pub use insula_cel::Budget;

use insula_meter::Meter;

/// Returns the cost budget for all conversions of one object. It grows with the object's size,
/// and a meter pays for it.
pub fn object_budget(meter: &Meter) -> Budget {
    Budget::new(insula_cel::OBJECT_COST_MAX, meter).growing()
}

/// Returns the cost budget of one object where nobody waits for others: in tools and in tests.
pub fn unmetered_budget() -> Budget {
    object_budget(&Meter::unbounded())
}

//! Expressions of rules: compiled in their scope, checked against their destination, and priced.

use super::size::{self, SizedCost};
use super::{SchemaNode, Value, VersionScope};
use crate::fit::{self, Fit};
use crate::path::{Path, Segment, is_identifier};
use crate::rules::Template;
use crate::scope::{descend_decl, reads_named_fields};
use insula_api::{FieldError, FieldPath, Json};
use insula_cel::{AbsenceMode, CALL_COST_MAX, Decl, Env, LookupStep, Program, Type};
use insula_schema::Node;

pub(crate) use super::size::LARGEST_OBJECT_COST;

/// Cost of one expression, summed over its runs for one object, in CEL cost units, up to which the
/// declared bounds alone decide: Kubernetes' limit for a rule of a schema.
const EXPRESSION_COST_MAX: u64 = 10_000_000;
/// Maximum number of missing bounds that a message names.
const BOUNDS_SHOWN: usize = 4;

/// The names that an expression may use, with their types.
pub(super) struct Names<'s> {
    pub(super) from: VersionScope<'s>,
    /// The value of `self`.
    pub(super) this: This<'s>,
    /// Variables of the loops around: indices and keys.
    pub(super) variables: Vec<(String, Type)>,
    pub(super) loops: Loops,
}

/// The value of `self`: its declaration, and its path for messages.
#[derive(Debug, Clone)]
pub(super) struct This<'s> {
    pub(super) decl: Decl,
    pub(super) place: SchemaNode<'s>,
    pub(super) path: Path,
}

/// The loops around an expression: the most runs for one object, and the loops that no bound
/// limits.
#[derive(Debug, Clone)]
pub(super) struct Loops {
    pub(super) times: u64,
    /// Each loop's depth, the number of lists and maps around it, and its most rounds.
    pub(super) rounds: Vec<(usize, u64)>,
    pub(super) unbounded: Vec<String>,
}

/// Destination of a result.
#[derive(Debug, Clone)]
pub(super) struct Target<'s> {
    pub(super) place: SchemaNode<'s>,
    pub(super) path: Path,
    pub(super) version: &'s str,
}

/// A compiled expression with static knowledge about its results.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) program: Program,
    /// True if a timestamp is written as a date.
    pub(crate) day: bool,
    /// Upper estimate of its cost for one object, over all its runs, in CEL cost units.
    pub(crate) cost: u64,
    /// The error, if the cost is over the limit.
    pub(crate) over_budget: Option<Box<FieldError>>,
    sure: bool,
}

impl Expression {
    /// Returns true if it can fail for an object that is valid by its schema.
    pub(crate) fn can_fail(&self) -> bool {
        !self.sure
    }
}

impl Loops {
    pub(super) fn none() -> Loops {
        Loops {
            times: 1,
            rounds: Vec::new(),
            unbounded: Vec::new(),
        }
    }

    /// Returns the loops inside of one over `container`, a list or map at `path`.
    pub(super) fn over(&self, decl: &Decl, container: SchemaNode<'_>, path: &Path) -> Loops {
        let mut inner = self.clone();
        let rounds = decl.max_elements().unwrap_or(u64::MAX);
        inner.times = inner.times.saturating_mul(rounds);
        inner.rounds.push((size::depth(path), rounds));
        inner
            .unbounded
            .extend(container.and_then(|node| missing_bound(node, path)));
        inner
    }
}

impl<'s> This<'s> {
    /// Makes `self` the whole object.
    pub(super) fn object(from: VersionScope<'s>) -> This<'s> {
        This {
            decl: from.declaration(),
            place: from.root(),
            path: Path::default(),
        }
    }

    /// Makes `self` the value at a path below this one, whose schema is known.
    pub(super) fn below(&self, path: &[Segment], place: SchemaNode<'s>) -> This<'s> {
        This {
            decl: descend_decl(&self.decl, path),
            place,
            path: Path::from_segments(self.path.segments().iter().chain(path).cloned().collect()),
        }
    }
}

impl Names<'_> {
    /// Compiles an expression whose result goes to `target`, or is a key if there is none.
    pub(super) fn expression(
        &self,
        text: &str,
        target: Option<&Target<'_>>,
        at: &FieldPath,
        errors: &mut Vec<FieldError>,
    ) -> Option<Expression> {
        let invalid = |why: String| FieldError::invalid(at, &Json::from(text), why);
        match self.compile(text, target) {
            Ok(mut expression) => {
                if expression.cost > LARGEST_OBJECT_COST {
                    expression.over_budget = Some(Box::new(invalid(self.over_budget(&expression))));
                }
                Some(expression)
            }
            Err(why) => {
                errors.push(invalid(why));
                None
            }
        }
    }

    fn compile(&self, text: &str, target: Option<&Target<'_>>) -> Result<Expression, String> {
        let program = Program::compile_in(text, &self.env()).map_err(|error| error.to_string())?;
        reads_named_fields(&program, &self.from, self.this.path.segments().is_empty())?;
        self.has_all_entries(&program)?;
        let place = target.and_then(|target| target.place);
        let result = program.result();
        let fits = match target {
            Some(target) => fit::fit(result, place).ok_or_else(|| target.misfit(result))?,
            None => match result {
                Type::String => Fit::Sure,
                Type::Dyn => Fit::AtRun,
                other => return Err(format!("gives {other}, but keys are strings")),
            },
        };
        let most = program.estimate().max;
        let cost = most.saturating_mul(self.loops.times);
        let sized = if cost > EXPRESSION_COST_MAX || most > CALL_COST_MAX {
            self.sized_cost(text, &program)
        } else {
            SizedCost { cost, sure: true }
        };
        Ok(Expression {
            day: fit::leaves_as_day(result, place),
            cost: sized.cost.min(cost),
            over_budget: None,
            sure: fits == Fit::Sure && !program.can_fail() && (most <= CALL_COST_MAX || sized.sure),
            program,
        })
    }

    /// Checks that maps in which a rule looks up an enumeration have an entry for each of its
    /// values: without one, the value would be absent, and nothing would tell.
    fn has_all_entries(&self, program: &Program) -> Result<(), String> {
        for lookup in program.lookups() {
            let (path, place) = match lookup.variable.as_str() {
                "self" => (self.this.path.segments(), self.this.place),
                name if name == self.from.name => (&[][..], self.from.root()),
                _ => continue,
            };
            let Some(node) = lookup.path.iter().fold(place, below) else {
                continue;
            };
            let values = node.choices().iter().filter_map(Json::as_str);
            let missing: Vec<&str> = values
                .filter(|value| !lookup.keys.iter().any(|key| key == value))
                .collect();
            if missing.is_empty() {
                continue;
            }
            let fields = lookup.path.iter().map(|step| match step {
                LookupStep::Field(name) => Segment::Field(name.clone()),
                LookupStep::Item { .. } => Segment::Each(String::new()),
            });
            let path = Path::from_segments(path.iter().cloned().chain(fields).collect());
            return Err(format!(
                "{path}: no entry for {}: add one, or write {{…}}[?key] if such a value has none",
                missing.join(", ")
            ));
        }
        Ok(())
    }

    /// Returns true if the version's name is a variable.
    pub(super) fn has_object(&self) -> bool {
        is_identifier(self.from.name)
    }

    pub(super) fn env(&self) -> Env {
        let mut env = Env::new(AbsenceMode::Absent).conversion();
        if self.has_object() {
            env = env.with(self.from.name, self.from.declaration());
        }
        env = env.with("self", self.this.decl.clone());
        for (name, ty) in &self.variables {
            env = env.with(name, Decl::scalar(ty.clone()));
        }
        env
    }

    /// Compiles a template, each of its expressions on its own.
    pub(super) fn value(
        &self,
        template: &Template,
        target: &Target<'_>,
        at: &FieldPath,
        errors: &mut Vec<FieldError>,
    ) -> Option<Value> {
        Some(match template {
            Template::Expression(text) => {
                Value::Expression(Box::new(self.expression(text, Some(target), at, errors)?))
            }
            Template::Constant(json) => {
                let ty = if json.is_boolean() { Type::Bool } else { number(json) };
                if fit::fit(&ty, target.place).is_none() {
                    errors.push(FieldError::invalid(at, json, target.misfit(&ty)));
                    return None;
                }
                Value::Constant(json.clone())
            }
            Template::Fields(fields) => {
                let mut made = Vec::new();
                for (name, template) in fields {
                    let at = at.child(name);
                    let inner = target.below(Segment::Field(name.clone()), &at, errors);
                    let inner = inner.and_then(|inner| self.value(template, &inner, &at, errors));
                    made.extend(inner.map(|value| (name.clone(), value)));
                }
                Value::Fields(made)
            }
            Template::Items(items) => {
                let inner = target.below(Segment::Each(String::new()), at, errors)?;
                let item = |(i, template)| self.value(template, &inner, &at.index(i), errors);
                Value::Items(items.iter().enumerate().filter_map(item).collect())
            }
        })
    }

    /// Describes an estimate over the limit, with the missing bounds that would lower it.
    fn over_budget(&self, expression: &Expression) -> String {
        let mut bounds = self.loops.unbounded.clone();
        for reference in expression.program.references() {
            let whole = reference.variable == self.from.name;
            if !whole && reference.variable != "self" {
                continue;
            }
            let (mut path, mut place) = if whole {
                (Vec::new(), self.from.root())
            } else {
                (self.this.path.segments().to_vec(), self.this.place)
            };
            for name in &reference.path {
                place = place.and_then(|node| node.child(name).or_else(|| node.items()));
                path.push(Segment::Field(name.clone()));
            }
            missing_bounds(place, &mut path, &mut bounds);
        }
        let mut seen = std::collections::BTreeSet::new();
        bounds.retain(|bound| seen.insert(bound.clone()));
        let help = match bounds.len() {
            0 => "simplify it".to_owned(),
            n if n <= BOUNDS_SHOWN => format!("{} in {}", bounds.join(", "), self.from.name),
            n => format!(
                "{} and {} more in {}",
                bounds[..BOUNDS_SHOWN].join(", "),
                n - BOUNDS_SHOWN,
                self.from.name
            ),
        };
        let factor = factor(expression.cost, LARGEST_OBJECT_COST);
        format!(
            "estimated cost for an object of {} bytes grows faster than its size and exceeds budget by factor of \
             {factor}: {help}",
            size::OBJECT_BYTES_MAX
        )
    }
}

/// Describes how far a limit is exceeded, in Kubernetes' words.
pub(crate) fn factor(cost: u64, most: u64) -> String {
    if cost / most >= 100 {
        return "more than 100x".to_owned();
    }
    #[expect(clippy::cast_precision_loss, reason = "one digit of the quotient is shown")]
    let factor = cost as f64 / most as f64;
    format!("{factor:.1}x")
}

/// Returns the node of a step on the way to a key.
fn below<'s>(node: SchemaNode<'s>, step: &LookupStep) -> SchemaNode<'s> {
    match step {
        LookupStep::Field(name) => node?.child(name),
        LookupStep::Item { or_value: false } => node?.items(),
        LookupStep::Item { or_value: true } => node.and_then(|node| node.items().or(node.additional())),
    }
}

fn number(json: &Json) -> Type {
    if json.is_i64() || json.is_u64() {
        Type::Int
    } else {
        Type::Double
    }
}

impl<'s> Target<'s> {
    /// Describes why values of this type do not fit here.
    fn misfit(&self, ty: &Type) -> String {
        fit::misfit(ty, self.place, &self.path.to_string(), self.version)
    }

    /// Returns the destination of a field or of the items below this one.
    fn below(&self, segment: Segment, at: &FieldPath, errors: &mut Vec<FieldError>) -> Option<Target<'s>> {
        let path: Vec<Segment> = self.path.segments().iter().cloned().chain([segment.clone()]).collect();
        match crate::scope::descend(self.place, &[segment], self.version) {
            Ok(place) => Some(Target {
                place,
                path: Path::from_segments(path),
                version: self.version,
            }),
            Err(_) => {
                let why = match path.last() {
                    Some(Segment::Each(_)) => format!("{} is no list in {}", self.path, self.version),
                    _ => format!("there is no field {} in {}", Path::from_segments(path), self.version),
                };
                errors.push(FieldError::invalid_text(at, "", why));
                None
            }
        }
    }
}

/// Describes a missing bound: `.spec.names has no maxItems`.
fn missing_bound(node: &Node, path: &Path) -> Option<String> {
    use insula_schema::Type;
    let (bound, name) = match node.kind()? {
        Type::Array => (node.max_items(), "maxItems"),
        Type::Object if node.additional().is_some() => (node.max_properties(), "maxProperties"),
        Type::String if node.choices().is_empty() && node.format().is_none() => (node.max_length(), "maxLength"),
        _ => return None,
    };
    bound.is_none().then(|| format!("{path} has no {name}"))
}

fn missing_bounds(place: SchemaNode<'_>, path: &mut Vec<Segment>, out: &mut Vec<String>) {
    let Some(node) = place else { return };
    out.extend(missing_bound(node, &Path::from_segments(path.clone())));
    if out.len() > BOUNDS_SHOWN * 4 {
        return;
    }
    let below = node
        .properties()
        .map(|(name, child)| (Segment::Field(name.to_owned()), child));
    let items = node.items().or_else(|| node.additional());
    for (segment, child) in below.chain(items.map(|items| (Segment::Each(String::new()), items))) {
        path.push(segment);
        missing_bounds(Some(child), path, out);
        path.pop();
    }
}

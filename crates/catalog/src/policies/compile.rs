//! Compiled CEL programs of a policy. Each distinct policy is compiled once and shared by all
//! clusters that have it.

use crate::policies::{
    environment::{Scope, declare, field},
    spec::PolicySpec,
};
use insula_cel::{Program, Type};

/// The result type that an expression must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    Anything,
    Bool,
    Text,
    TextOrNull,
    /// `list(JSONPatch)`.
    Patch,
    /// `Object`.
    ApplyConfiguration,
}

/// An expression and its compiled program.
#[derive(Debug)]
pub struct Expression {
    /// The expression as written.
    pub source: String,
    /// The program, or the compile error that follows `Invalid value` in messages.
    pub program: Result<Program, String>,
}

impl Expression {
    /// Compiles a source text. Compile errors are kept in `program`, so that a policy with a broken
    /// expression fails where that expression is evaluated.
    pub fn compile(source: &str, scope: &Scope, want: Want) -> Expression {
        let program = Program::compile_in(source, &scope.environment())
            .map_err(|error| error.refusal())
            .and_then(|program| match want.refusal(program.result()) {
                Some(why) => Err(why),
                None => Ok(program),
            });
        Expression {
            source: source.to_owned(),
            program,
        }
    }
}

impl Want {
    fn refusal(self, got: &Type) -> Option<String> {
        let (fits, want) = match self {
            Want::Anything => return None,
            Want::Bool => (*got == Type::Bool, "bool"),
            Want::Text => (*got == Type::String, "string"),
            Want::TextOrNull => (matches!(got, Type::String | Type::Null), "one of [string null_type]"),
            Want::Patch => (runtime_name(got) == "list(JSONPatch)", "list(JSONPatch)"),
            Want::ApplyConfiguration => (runtime_name(got) == "Object", "Object"),
        };
        (!fits).then(|| format!("must evaluate to {want} but got {}", runtime_name(got)))
    }
}

/// Returns the name of a type in messages about results. Some names are longer than those of the
/// checker.
fn runtime_name(ty: &Type) -> String {
    match ty {
        Type::Null => "null_type".to_owned(),
        Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        Type::List(item) => format!("list({})", runtime_name(item)),
        Type::Map(pair) => format!("map({}, {})", runtime_name(&pair.0), runtime_name(&pair.1)),
        other => other.to_string(),
    }
}

/// A named expression: a match condition, a variable or an audit annotation.
#[derive(Debug)]
pub struct NamedExpression {
    /// Name of the condition, variable or annotation.
    pub name: String,
    /// Its expression.
    pub expression: Expression,
}

/// A validation: an expression that must be true.
#[derive(Debug)]
pub struct CompiledValidation {
    /// Expression that must be true.
    pub expression: Expression,
    /// Expression of the message.
    pub message_expression: Option<Expression>,
    /// Message without an expression; may be empty.
    pub message: String,
    /// Reason of the refusal's Status.
    pub reason: Option<String>,
}

/// A mutation.
#[derive(Debug)]
pub enum CompiledMutation {
    /// Expression of a JSON patch.
    JsonPatch(Expression),
    /// Expression of a configuration to apply.
    ApplyConfiguration(Expression),
}

/// All programs of a policy.
#[derive(Debug)]
pub struct CompiledPolicy {
    /// The policy as written.
    pub spec: PolicySpec,
    /// Match conditions.
    pub conditions: Vec<NamedExpression>,
    /// Variables in order; each may use those before it.
    pub variables: Vec<NamedExpression>,
    /// Validations in order.
    pub validations: Vec<CompiledValidation>,
    /// Audit annotations.
    pub audit_annotations: Vec<NamedExpression>,
    /// Mutations in order.
    pub mutations: Vec<CompiledMutation>,
}

impl CompiledPolicy {
    /// Compiles all expressions of a policy.
    pub fn compile(spec: PolicySpec) -> CompiledPolicy {
        let base = Scope::dynamic(spec.param_kind.is_some());
        let conditions = spec.match_conditions.iter().map(|condition| NamedExpression {
            name: condition.name.clone(),
            expression: Expression::compile(&condition.expression, &base, Want::Bool),
        });
        let conditions = conditions.collect();
        let (variables, scope) = compile_variables(&spec, base);
        let silent = Scope {
            authorizer: false,
            ..scope.clone()
        };
        let validations = spec.validations.iter().map(|validation| CompiledValidation {
            expression: Expression::compile(&validation.expression, &scope, Want::Bool),
            message_expression: (!validation.message_expression.trim().is_empty())
                .then(|| Expression::compile(&validation.message_expression, &silent, Want::Text)),
            message: validation.message.trim().to_owned(),
            reason: validation.reason.clone(),
        });
        let validations = validations.collect();
        let audit_annotations = spec.audit_annotations.iter().map(|annotation| NamedExpression {
            name: annotation.key.clone(),
            expression: Expression::compile(annotation.value_expression.trim(), &scope, Want::TextOrNull),
        });
        let audit_annotations = audit_annotations.collect();
        let patching = Scope { patches: true, ..scope };
        let mutations = spec.mutations.iter().filter_map(|mutation| {
            let patch = mutation
                .json_patch
                .as_ref()
                .filter(|_| mutation.patch_type == "JSONPatch");
            let apply = mutation
                .apply_configuration
                .as_ref()
                .filter(|_| mutation.patch_type == "ApplyConfiguration");
            let compile = |source: &str, want| Expression::compile(source, &patching, want);
            match (patch, apply) {
                (Some(patch), _) => Some(CompiledMutation::JsonPatch(compile(&patch.expression, Want::Patch))),
                (_, Some(apply)) => Some(CompiledMutation::ApplyConfiguration(compile(
                    &apply.expression,
                    Want::ApplyConfiguration,
                ))),
                (None, None) => None,
            }
        });
        let mutations = mutations.collect();
        CompiledPolicy {
            conditions,
            variables,
            validations,
            audit_annotations,
            mutations,
            spec,
        }
    }
}

/// Compiles the variables, each in the scope of those before it. Returns them and the scope that
/// contains all of them.
pub fn compile_variables(spec: &PolicySpec, mut scope: Scope) -> (Vec<NamedExpression>, Scope) {
    if spec.variables.is_empty() {
        return (Vec::new(), scope);
    }
    let mut compiled: Vec<NamedExpression> = Vec::new();
    scope.variables = Some(Vec::new());
    for variable in &spec.variables {
        let expression = Expression::compile(&variable.expression, &scope, Want::Anything);
        // A variable that does not compile has the type `dyn` for others, so that each error is
        // reported once.
        let ty = expression.program.as_ref().map_or(&Type::Dyn, Program::result);
        let declared = field(&variable.name, declare(ty));
        let fields = scope.variables.get_or_insert_default();
        fields.retain(|known| known.name != declared.name);
        fields.push(declared);
        compiled.retain(|known| known.name != variable.name);
        compiled.push(NamedExpression {
            name: variable.name.clone(),
            expression,
        });
    }
    (compiled, scope)
}

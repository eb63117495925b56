//! CEL expressions over the claims of a token, or over the mapped user.

use insula_api::{FieldError, FieldPath, Json};
use insula_cel::{AbsenceMode, Activation, Budget, Decl, Env, Field, ListKind, Outcome, Program, Type};
use std::sync::LazyLock;

/// The variable that an expression reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    Claims,
    User,
}

/// Required type of the result. Mappings return claims, whose type is known only at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Truth,
    Anything,
}

impl Over {
    pub(super) fn name(self) -> &'static str {
        match self {
            Over::Claims => "claims",
            Over::User => "user",
        }
    }
}

pub(super) fn compile(source: &str, over: Over, want: Want, at: &FieldPath) -> Result<Program, FieldError> {
    let env = match over {
        Over::Claims => &*CLAIMS,
        Over::User => &*USER,
    };
    let wrong = |why: String| FieldError::invalid(at, &Json::from(source), why);
    let program = Program::compile_in(source, env).map_err(|error| wrong(error.refusal()))?;
    match want {
        Want::Truth if *program.result() != Type::Bool => Err(wrong("must evaluate to bool".to_owned())),
        _ => Ok(program),
    }
}

/// Evaluates an expression; errors are for the log.
pub(super) fn evaluate(program: &Program, over: Over, value: &Json, budget: &mut Budget) -> Result<Json, String> {
    match program.eval(&Activation::new().with(over.name(), value), budget) {
        Ok(Outcome::Value(value)) => Ok(value),
        Ok(Outcome::Absent) => Ok(Json::Null),
        Err(error) => Err(error.to_string()),
    }
}

static CLAIMS: LazyLock<Env> =
    LazyLock::new(|| Env::new(AbsenceMode::Error).with("claims", Decl::map(Decl::dynamic())));

static USER: LazyLock<Env> = LazyLock::new(|| {
    let text = || Decl::scalar(Type::String);
    let texts = || Decl::list(text(), ListKind::Atomic);
    let fields = [
        ("username", text()),
        ("uid", text()),
        ("groups", texts()),
        ("extra", Decl::map(texts())),
    ];
    let field = |(name, decl): (&str, Decl)| Field {
        name: name.into(),
        written: name.into(),
        decl,
    };
    let user = Decl::object("kubernetes.UserInfo", fields.into_iter().map(field).collect());
    Env::new(AbsenceMode::Error).with("user", user)
});

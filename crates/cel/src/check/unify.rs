//! Unification of types with variables. The rules are cel-go's: `dyn` fits everything in both
//! directions, and a variable takes the more general of the types it meets.

use crate::types::Type;

/// Steps of comparing and replacing types for one expression. Nested map literals (`.map(x, {x:
/// x})`) double their type at each level; the limit ends that.
const STEPS_MAX: u32 = 400_000;

/// Bindings of the type variables of an expression.
#[derive(Debug, Default)]
pub(super) struct Substitution {
    bound: Vec<Option<Type>>,
    /// Bindings made since the attempt began, for undoing them.
    trail: Vec<(u32, Option<Type>)>,
    steps: u32,
}

impl Substitution {
    /// Returns a new unbound variable.
    pub(super) fn fresh(&mut self) -> Type {
        let index = u32::try_from(self.bound.len()).unwrap_or(u32::MAX);
        self.bound.push(None);
        Type::Var(index)
    }

    /// Returns true if the types grew beyond the step limit. All other results mean nothing then.
    pub(super) fn exhausted(&self) -> bool {
        self.steps >= STEPS_MAX
    }

    /// Returns true if values of the one type can be used as values of the other, and binds
    /// variables accordingly.
    pub(super) fn assign(&mut self, one: &Type, other: &Type) -> bool {
        self.attempt(|s| s.fits(one, other))
    }

    /// Does the same for lists of arguments.
    pub(super) fn assign_all(&mut self, ones: &[Type], others: &[Type]) -> bool {
        ones.len() == others.len() && self.attempt(|s| ones.iter().zip(others).all(|(one, other)| s.fits(one, other)))
    }

    fn attempt(&mut self, try_it: impl FnOnce(&mut Self) -> bool) -> bool {
        self.trail.clear();
        let fits = try_it(self);
        if !fits {
            for (index, before) in std::mem::take(&mut self.trail).into_iter().rev() {
                if let Some(slot) = self.bound.get_mut(index as usize) {
                    *slot = before;
                }
            }
        }
        fits
    }

    /// Returns the type with bound variables replaced.
    pub(super) fn resolve(&mut self, ty: &Type) -> Type {
        self.replace(ty, None)
    }

    /// Returns the type with bound variables replaced and unbound ones as `dyn`.
    pub(super) fn settle(&mut self, ty: &Type) -> Type {
        self.replace(ty, Some(&Type::Dyn))
    }

    fn replace(&mut self, ty: &Type, unknown: Option<&Type>) -> Type {
        if self.spent() {
            return Type::Dyn;
        }
        match ty {
            Type::Var(index) => match self.known(*index) {
                Some(known) => self.replace(&known, unknown),
                None => unknown.unwrap_or(ty).clone(),
            },
            Type::Param(_) => unknown.unwrap_or(ty).clone(),
            _ => rebuild(ty, |part| self.replace(part, unknown)),
        }
    }

    fn spent(&mut self) -> bool {
        self.steps = self.steps.saturating_add(1);
        self.exhausted()
    }

    fn known(&self, index: u32) -> Option<Type> {
        self.bound.get(index as usize)?.clone()
    }

    fn bind(&mut self, index: u32, ty: Type) {
        if let Some(slot) = self.bound.get_mut(index as usize) {
            self.trail.push((index, slot.replace(ty)));
        }
    }

    fn fits(&mut self, one: &Type, other: &Type) -> bool {
        if self.spent() {
            return true;
        }
        if let Type::Var(index) = other {
            match self.binds(one, *index) {
                Bound::Fits => return true,
                Bound::Conflicts => return false,
                Bound::Circular => {}
            }
        }
        if let Type::Var(index) = one {
            return matches!(self.binds(other, *index), Bound::Fits);
        }
        match (one, other) {
            (Type::Dyn | Type::Error | Type::Param(_), _) | (_, Type::Dyn | Type::Error | Type::Param(_)) => true,
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            // All types of types fit each other.
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(one), Type::List(other)) | (Type::Optional(one), Type::Optional(other)) => {
                self.fits(one, other)
            }
            (Type::Map(one), Type::Map(other)) => self.fits(&one.0, &other.0) && self.fits(&one.1, &other.1),
            _ => one == other,
        }
    }

    /// Binds a variable to a type that also fits its present binding.
    fn binds(&mut self, ty: &Type, index: u32) -> Bound {
        if *ty == Type::Var(index) {
            return Bound::Fits;
        }
        let Some(known) = self.known(index) else {
            if self.occurs(index, ty) {
                return Bound::Circular;
            }
            self.bind(index, ty.clone());
            return Bound::Fits;
        };
        if *ty == known {
            return Bound::Fits;
        }
        if !self.fits(ty, &known) {
            return Bound::Conflicts;
        }
        let general = most_general(ty, &known);
        if !self.occurs(index, general) {
            let general = general.clone();
            self.bind(index, general);
        }
        Bound::Fits
    }

    /// Returns true if the variable is part of the type, which would make the type infinite.
    fn occurs(&mut self, index: u32, ty: &Type) -> bool {
        if self.spent() {
            return true;
        }
        match ty {
            Type::Var(other) if *other == index => true,
            Type::Var(other) => self.known(*other).is_some_and(|known| self.occurs(index, &known)),
            Type::List(part) | Type::Optional(part) | Type::Type(part) => self.occurs(index, part),
            Type::Map(parts) => self.occurs(index, &parts.0) || self.occurs(index, &parts.1),
            _ => false,
        }
    }
}

enum Bound {
    Fits,
    Conflicts,
    Circular,
}

/// Returns the type with each of its parts replaced.
pub(super) fn rebuild(ty: &Type, mut part: impl FnMut(&Type) -> Type) -> Type {
    match ty {
        Type::List(item) => Type::list(part(item)),
        Type::Optional(value) => Type::optional(part(value)),
        Type::Type(of) => Type::Type(part(of).into()),
        Type::Map(pair) => Type::map(part(&pair.0), part(&pair.1)),
        other => other.clone(),
    }
}

/// Returns true for types that accept `null`: all but those of plain data.
fn is_nullable(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Null | Type::Object(_) | Type::Opaque(_) | Type::Optional(_) | Type::Timestamp | Type::Duration
    )
}

/// Returns the more general of two types that fit each other.
pub(super) fn most_general<'t>(one: &'t Type, other: &'t Type) -> &'t Type {
    if is_no_more_specific(one, other) { one } else { other }
}

fn is_no_more_specific(one: &Type, other: &Type) -> bool {
    match (one, other) {
        (Type::Dyn | Type::Param(_) | Type::Var(_), _) => true,
        (_, Type::Dyn | Type::Param(_) | Type::Var(_)) => false,
        (Type::List(one), Type::List(other)) | (Type::Optional(one), Type::Optional(other)) => {
            is_no_more_specific(one, other)
        }
        (Type::Map(one), Type::Map(other)) => {
            is_no_more_specific(&one.0, &other.0) && is_no_more_specific(&one.1, &other.1)
        }
        (Type::Type(_), Type::Type(_)) => true,
        _ => one == other,
    }
}

//! Values of the libraries' own types. Operators other than `==` do not apply; only their functions
//! read them.

use super::address::Cidr;
use super::amount::Quantity;
use super::authorizer::{Decision, ResourceCheck, Subject};
use super::format::Format;
use super::url::Url;
use super::version::Semver;
use super::{Context, Function, member};
use crate::cost;
use crate::error::{EvalError, no_overload};
use crate::eval::Result;
use crate::value::Val;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::rc::Rc;

/// A value of a library's type.
#[derive(Debug)]
pub(crate) enum Opaque<'v> {
    Quantity(Quantity),
    Semver(Semver),
    Ip(IpAddr),
    Cidr(Cidr),
    Url(Url),
    Format(Format),
    Authorizer(Subject<'v>),
    PathCheck(Subject<'v>, Box<str>),
    GroupCheck(Subject<'v>, Box<str>),
    ResourceCheck(Subject<'v>, ResourceCheck),
    Decision(Decision),
}

impl Opaque<'_> {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::PathCheck(..) => "kubernetes.authorization.PathCheck",
            Self::GroupCheck(..) => "kubernetes.authorization.GroupCheck",
            Self::ResourceCheck(..) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    /// Evaluates `==` by value. Values that only have functions equal nothing.
    pub(crate) fn equal(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a), Self::Cidr(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Format(a), Self::Format(b)) => a == b,
            _ => self.order(other).is_some_and(Ordering::is_eq),
        }
    }

    /// Returns the text for JSON and messages, if the type has one.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Quantity(quantity) => Some(quantity.text()),
            Self::Ip(address) => Some(address.to_string()),
            Self::Cidr(network) => Some(network.to_string()),
            Self::Semver(_)
            | Self::Url(_)
            | Self::Format(_)
            | Self::Authorizer(_)
            | Self::PathCheck(..)
            | Self::GroupCheck(..)
            | Self::ResourceCheck(..)
            | Self::Decision(_) => None,
        }
    }

    fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Quantity(a), Self::Quantity(b)) => Some(a.compare(b)),
            (Self::Semver(a), Self::Semver(b)) => Some(a.compare(b)),
            _ => None,
        }
    }
}

/// Functions that several of the types share.
pub(super) static FUNCTIONS: &[Function] = &[
    member(
        "isGreaterThan",
        &[
            "quantity_is_greater_than: kubernetes.Quantity.(kubernetes.Quantity) -> bool",
            "semver_is_greater_than: kubernetes.Semver.(kubernetes.Semver) -> bool",
        ],
        |_, a| Ok(Val::Bool(pair(a, "isGreaterThan")?.is_gt())),
    ),
    member(
        "isLessThan",
        &[
            "quantity_is_less_than: kubernetes.Quantity.(kubernetes.Quantity) -> bool",
            "semver_is_less_than: kubernetes.Semver.(kubernetes.Semver) -> bool",
        ],
        |_, a| Ok(Val::Bool(pair(a, "isLessThan")?.is_lt())),
    ),
    member(
        "compareTo",
        &[
            "quantity_compare_to: kubernetes.Quantity.(kubernetes.Quantity) -> int",
            "semver_compare_to: kubernetes.Semver.(kubernetes.Semver) -> int",
        ],
        |_, a| Ok(Val::Int(pair(a, "compareTo")? as i64)),
    ),
];

fn pair(args: &[Val<'_>], name: &'static str) -> std::result::Result<Ordering, EvalError> {
    match args {
        [Val::Opaque(a), Val::Opaque(b)] => a.order(b).ok_or_else(|| no_overload(name)),
        _ => Err(no_overload(name)),
    }
}

/// Returns a library value and charges its memory.
pub(super) fn opaque<'v>(cx: &mut Context<'_>, value: Opaque<'v>) -> Result<'v> {
    cx.budget.allocation(size_of::<Opaque<'_>>())?;
    Ok(Val::Opaque(Rc::new(value)))
}

/// Returns the only argument, a text to be parsed, and charges for reading it.
pub(super) fn text_argument<'s>(
    cx: &mut Context<'_>,
    args: &'s [Val<'_>],
    name: &'static str,
) -> std::result::Result<&'s str, EvalError> {
    let [value] = args else { return Err(no_overload(name)) };
    let text = value.as_str().ok_or_else(|| no_overload(name))?;
    cx.budget.charge(cost::SYNTAX)?;
    cx.budget.traverse(text.len())?;
    Ok(text)
}

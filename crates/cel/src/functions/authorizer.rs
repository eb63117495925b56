//! Authorization checks of admission policies:
//! `authorizer.group('apps').resource('deployments').check('get')`.
//!
//! The library only builds the check. The caller decides it through [`Authorize`].

use super::opaque::opaque;
use super::{Context, Function, member};
use crate::authorizer::{Authorize, AuthorizerCheck, CheckTarget, Decision, ResourceCheck, Subject};
use crate::error::{EvalError, invalid, no_overload};
use crate::opaque::Opaque;
use crate::value::{Result, Val};
use std::rc::Rc;

/// Returns the value of the variable `authorizer`.
pub(crate) fn authorizer_value(authorizer: &dyn Authorize) -> Val<'_> {
    Val::Opaque(Rc::new(Opaque::Authorizer(Subject {
        authorizer,
        service_account: None,
    })))
}

/// Returns the value of a check with its resource set: `authorizer.requestResource`.
pub(crate) fn check_value<'v>(authorizer: &'v dyn Authorize, check: &ResourceCheck) -> Val<'v> {
    let subject = Subject {
        authorizer,
        service_account: None,
    };
    Val::Opaque(Rc::new(Opaque::ResourceCheck(subject, check.clone())))
}

/// Functions that begin, refine and run a check.
pub(super) static FUNCTIONS: &[Function] = &[
    member(
        "path",
        &["authorizer_path: kubernetes.authorization.Authorizer.(string) -> kubernetes.authorization.PathCheck"],
        path,
    ),
    member(
        "group",
        &["authorizer_group: kubernetes.authorization.Authorizer.(string) -> kubernetes.authorization.GroupCheck"],
        group,
    ),
    member(
        "serviceAccount",
        &[
            "authorizer_serviceaccount: kubernetes.authorization.Authorizer.(string, string) -> \
            kubernetes.authorization.Authorizer",
        ],
        service_account,
    ),
    member(
        "resource",
        &["groupcheck_resource: kubernetes.authorization.GroupCheck.(string) -> \
            kubernetes.authorization.ResourceCheck"],
        resource,
    ),
    member(
        "subresource",
        &[
            "resourcecheck_subresource: kubernetes.authorization.ResourceCheck.(string) -> \
            kubernetes.authorization.ResourceCheck",
        ],
        |cx, a| refine(cx, a, "subresource", |check| &mut check.subresource),
    ),
    member(
        "namespace",
        &[
            "resourcecheck_namespace: kubernetes.authorization.ResourceCheck.(string) -> \
            kubernetes.authorization.ResourceCheck",
        ],
        |cx, a| refine(cx, a, "namespace", |check| &mut check.namespace),
    ),
    member(
        "name",
        &[
            "resourcecheck_name: kubernetes.authorization.ResourceCheck.(string) -> \
            kubernetes.authorization.ResourceCheck",
        ],
        |cx, a| refine(cx, a, "name", |check| &mut check.name),
    ),
    member(
        "fieldSelector",
        &[
            "authorizer_fieldselector: kubernetes.authorization.ResourceCheck.(string) -> \
            kubernetes.authorization.ResourceCheck",
        ],
        |cx, a| refine(cx, a, "fieldSelector", |check| &mut check.field_selector),
    ),
    member(
        "labelSelector",
        &[
            "authorizer_labelselector: kubernetes.authorization.ResourceCheck.(string) -> \
            kubernetes.authorization.ResourceCheck",
        ],
        |cx, a| refine(cx, a, "labelSelector", |check| &mut check.label_selector),
    ),
    member(
        "check",
        &[
            "pathcheck_check: kubernetes.authorization.PathCheck.(string) -> kubernetes.authorization.Decision",
            "resourcecheck_check: kubernetes.authorization.ResourceCheck.(string) -> kubernetes.authorization.Decision",
        ],
        check,
    ),
    member(
        "allowed",
        &["decision_allowed: kubernetes.authorization.Decision.() -> bool"],
        |_, a| Ok(Val::Bool(decision(a, "allowed")?.allowed)),
    ),
    member(
        "errored",
        &["decision_errored: kubernetes.authorization.Decision.() -> bool"],
        |_, a| Ok(Val::Bool(decision(a, "errored")?.error.is_some())),
    ),
    member(
        "error",
        &["decision_error: kubernetes.authorization.Decision.() -> string"],
        |_, a| Ok(Val::string(decision(a, "error")?.error.as_deref().unwrap_or_default())),
    ),
    member(
        "reason",
        &["decision_reason: kubernetes.authorization.Decision.() -> string"],
        |_, a| Ok(Val::string(decision(a, "reason")?.reason.as_str())),
    ),
];

/// Returns the receiver and the text argument of a function.
fn receiver<'s, 'v>(
    cx: &mut Context<'_>,
    args: &'s [Val<'v>],
    name: &'static str,
) -> std::result::Result<(&'s Opaque<'v>, &'s str), EvalError> {
    let [Val::Opaque(value), text] = args else {
        return Err(no_overload(name));
    };
    let text = text.as_str().ok_or_else(|| no_overload(name))?;
    // A check keeps its own copy of each text.
    cx.budget.memory(size_of::<ResourceCheck>() + 2 * text.len())?;
    Ok((value, text))
}

fn path<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    match receiver(cx, args, "path")? {
        (Opaque::Authorizer(_), text) if text.trim().is_empty() => Err(invalid("path must not be empty")),
        (Opaque::Authorizer(subject), text) => opaque(cx, Opaque::PathCheck(subject.clone(), text.into())),
        _ => Err(no_overload("path")),
    }
}

fn group<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    match receiver(cx, args, "group")? {
        (Opaque::Authorizer(subject), text) => opaque(cx, Opaque::GroupCheck(subject.clone(), text.into())),
        _ => Err(no_overload("group")),
    }
}

fn resource<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    match receiver(cx, args, "resource")? {
        (Opaque::GroupCheck(..), text) if text.trim().is_empty() => Err(invalid("resource must not be empty")),
        (Opaque::GroupCheck(subject, group), text) => {
            let check = ResourceCheck {
                group: group.to_string(),
                resource: text.to_owned(),
                ..ResourceCheck::default()
            };
            opaque(cx, Opaque::ResourceCheck(subject.clone(), check))
        }
        _ => Err(no_overload("resource")),
    }
}

fn service_account<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [authorizer, namespace, name] = args else {
        return Err(no_overload("serviceAccount"));
    };
    let Val::Opaque(value) = authorizer else {
        return Err(no_overload("serviceAccount"));
    };
    let (Opaque::Authorizer(subject), Some(namespace), Some(name)) = (&**value, namespace.as_str(), name.as_str())
    else {
        return Err(no_overload("serviceAccount"));
    };
    cx.budget.traverse(namespace.len() + name.len())?;
    if !super::format::is_dns_subdomain(name) {
        return Err(invalid("Invalid service account name"));
    }
    if !super::format::is_dns_label(namespace) {
        return Err(invalid("Invalid service account namespace"));
    }
    let subject = Subject {
        service_account: Some((namespace.into(), name.into())),
        ..subject.clone()
    };
    opaque(cx, Opaque::Authorizer(subject))
}

fn refine<'v>(
    cx: &mut Context<'_>,
    args: &[Val<'v>],
    name: &'static str,
    field: impl Fn(&mut ResourceCheck) -> &mut String,
) -> Result<'v> {
    match receiver(cx, args, name)? {
        (Opaque::ResourceCheck(subject, check), text) => {
            let mut check = check.clone();
            text.clone_into(field(&mut check));
            opaque(cx, Opaque::ResourceCheck(subject.clone(), check))
        }
        _ => Err(no_overload(name)),
    }
}

fn check<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let (value, verb) = receiver(cx, args, "check")?;
    let (subject, target) = match value {
        Opaque::PathCheck(subject, path) => (subject, CheckTarget::Path(path)),
        Opaque::ResourceCheck(subject, check) => (subject, CheckTarget::Resource(check)),
        _ => return Err(no_overload("check")),
    };
    let service_account = subject.service_account.as_ref();
    let decision = subject.authorizer.check(&AuthorizerCheck {
        service_account: service_account.map(|(namespace, name)| (&**namespace, &**name)),
        verb,
        target,
    });
    opaque(cx, Opaque::Decision(decision))
}

fn decision<'s>(args: &'s [Val<'_>], name: &'static str) -> std::result::Result<&'s Decision, EvalError> {
    match args {
        [Val::Opaque(value)] => match &**value {
            Opaque::Decision(decision) => Ok(decision),
            _ => Err(no_overload(name)),
        },
        _ => Err(no_overload(name)),
    }
}

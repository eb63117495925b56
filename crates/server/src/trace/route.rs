//! Templates of URL paths, for traces: `/clusters/{cluster}/api/{version}/{resource}`. Their number
//! is small, whatever clients request, and they contain no name.

/// Returns the template of a path.
pub(super) fn template(path: &str) -> String {
    let mut parts = path.split('/').skip(1).filter(|part| !part.is_empty()).peekable();
    let mut out = String::new();
    if parts.next_if_eq(&"services").is_some() {
        let names: &[&str] = match parts.next() {
            Some("apiexport") => &["/services/apiexport", "/{cluster}", "/{export}"],
            Some("initializingworkspaces") => &["/services/initializingworkspaces", "/{initializer}"],
            Some("terminatingworkspaces") => &["/services/terminatingworkspaces", "/{terminator}"],
            Some("apiresourceschema") => &["/services/apiresourceschema", "/{cluster}"],
            _ => return "/services/{service}".to_owned(),
        };
        out += names[0];
        for name in &names[1..] {
            if parts.next().is_some() {
                out += name;
            }
        }
    }
    if parts.next_if_eq(&"clusters").is_some() {
        out += "/clusters";
        if parts.next().is_some() {
            out += "/{cluster}";
        }
    }
    match parts.next() {
        None => {}
        Some("api") => {
            out += "/api";
            versioned(&mut out, &["/{version}"], parts);
        }
        Some("apis") => {
            out += "/apis";
            versioned(&mut out, &["/{group}", "/{version}"], parts);
        }
        Some("openapi") => {
            out += match parts.next() {
                Some("v2") => "/openapi/v2",
                Some("v3") => "/openapi/v3",
                _ => "/openapi",
            };
            if parts.next().is_some() {
                out += "/{path}";
            }
        }
        Some(known @ ("healthz" | "livez" | "readyz" | "version" | "metrics")) => {
            out.push('/');
            out += known;
        }
        Some(_) => out += "/{path}",
    }
    match out.is_empty() {
        true => "/".to_owned(),
        false => out,
    }
}

/// Appends the part of a path behind `/api` or `/apis`.
fn versioned<'a>(out: &mut String, names: &[&str], mut parts: std::iter::Peekable<impl Iterator<Item = &'a str>>) {
    for name in names {
        match parts.next() {
            Some(_) => *out += name,
            None => return,
        }
    }
    if parts.next_if_eq(&"watch").is_some() {
        *out += "/watch";
    }
    let rest: Vec<&str> = parts.collect();
    let (namespace, rest) = match rest.as_slice() {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => ("/namespaces/{namespace}", rest),
        rest => ("", rest),
    };
    *out += namespace;
    for (at, _) in rest.iter().enumerate().take(4) {
        *out += ["/{resource}", "/{name}", "/{subresource}", "/{path}"][at];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_have_no_names() {
        for (path, want) in [
            ("/", "/"),
            ("", "/"),
            ("/clusters/root:a/api", "/clusters/{cluster}/api"),
            (
                "/clusters/root:a/api/v1/secrets",
                "/clusters/{cluster}/api/{version}/{resource}",
            ),
            (
                "/clusters/a/apis/g.io/v1/namespaces/n/things/x/status",
                "/clusters/{cluster}/apis/{group}/{version}/namespaces/{namespace}/{resource}/{name}/{subresource}",
            ),
            ("/api/v1/namespaces/n", "/api/{version}/{resource}/{name}"),
            ("/api/v1/watch/pods", "/api/{version}/watch/{resource}"),
            (
                "/api/v1/a/b/c/d/e/f",
                "/api/{version}/{resource}/{name}/{subresource}/{path}",
            ),
            (
                "/services/apiexport/root/widgets/clusters/*/apis",
                "/services/apiexport/{cluster}/{export}/clusters/{cluster}/apis",
            ),
            ("/services/secret/x", "/services/{service}"),
            (
                "/clusters/x/openapi/v3/apis/g/v1",
                "/clusters/{cluster}/openapi/v3/{path}",
            ),
            ("/clusters/x/secret", "/clusters/{cluster}/{path}"),
            ("/readyz/etcd", "/readyz"),
        ] {
            assert_eq!(template(path), want, "{path}");
        }
    }
}

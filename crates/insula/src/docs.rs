//! `insula docs`: the documents of this version, for a browser on this machine.
//!
//! `cargo xtask docs` makes the pages from `docs`; the program holds them.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use axum::{
    Router,
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, Method, StatusCode, header::CONTENT_TYPE};
use insula_console::guard_page;
use tokio::net::TcpListener;

use crate::print;

/// All files of the site by their paths, in order.
static FILES: &[(&str, &[u8])] = include!("../packed/files.in");

/// Serves the documents of this version to browsers on this machine, with a search.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Port at 127.0.0.1; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Write the pages into this folder, for a web server of yours, and serve nothing.
    #[arg(long, value_name = "FOLDER", conflicts_with = "port")]
    dir: Option<PathBuf>,
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let done = match &arguments.dir {
        Some(dir) => write(dir),
        None => serve(arguments.port),
    };
    crate::ended(done.map(|()| ExitCode::SUCCESS))
}

fn write(dir: &Path) -> anyhow::Result<()> {
    for (name, bytes) in FILES {
        let path = dir.join(name);
        let folder = path.parent().unwrap_or(dir);
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Serves until the process ends. The documents are public, so nobody is asked for a name.
fn serve(port: u16) -> anyhow::Result<()> {
    crate::runtime()?.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.with_context(|| format!("cannot listen on 127.0.0.1:{port}"))?;
        print::line(&format!("http://{}/", listener.local_addr()?))?;
        eprintln!("Serving the documents until Ctrl+C.");
        let answers = Router::new().fallback(async |request: Request| answer(&request));
        axum::serve(listener, answers).await.context("the server ended")
    })
}

fn answer(request: &Request) -> Response {
    let mut response = match (request.method(), file(request.uri().path())) {
        (&Method::GET | &Method::HEAD, Some((name, bytes))) => {
            let mut response = Response::new(Body::from(bytes));
            let content_type = HeaderValue::from_static(content_type(name));
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            response
        }
        (&Method::GET | &Method::HEAD, None) => {
            (StatusCode::NOT_FOUND, "There is no such page: begin at /\n").into_response()
        }
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    };
    guard_page(response.headers_mut());
    response
}

/// Returns the file at a path, with its name. A folder has a first page.
fn file(path: &str) -> Option<(&'static str, &'static [u8])> {
    let path = path.strip_prefix('/')?;
    let name = match path.is_empty() || path.ends_with('/') {
        true => format!("{path}index.html"),
        false => path.to_owned(),
    };
    let place = FILES.binary_search_by_key(&name.as_str(), |(name, _)| name).ok()?;
    Some(FILES[place])
}

/// Returns the media type of a file. Sources of the repository are for reading.
fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("webp") => "image/webp",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_SECURITY_POLICY;

    use super::*;

    fn get(method: Method, path: &str) -> Response {
        let request = Request::builder().method(method).uri(path).body(Body::empty());
        answer(&request.expect("a request"))
    }

    #[test]
    fn every_file_is_found() {
        for (name, bytes) in FILES {
            assert_eq!(file(&format!("/{name}")), Some((*name, *bytes)));
        }
        assert_eq!(file("/").map(|(name, _)| name), Some("index.html"));
        assert_eq!(file("/adr/").map(|(name, _)| name), Some("adr/index.html"));
    }

    #[test]
    fn pages_have_a_policy_and_nothing_else_is_answered() {
        for (method, path, code) in [
            (Method::GET, "/", 200),
            (Method::HEAD, "/quickstart.html", 200),
            (Method::GET, "/nothing", 404),
            (Method::GET, "/../Cargo.toml", 404),
            (Method::POST, "/", 405),
        ] {
            let response = get(method, path);
            assert_eq!(response.status(), code, "{path}");
            let policy = response.headers()[CONTENT_SECURITY_POLICY].to_str().expect("text");
            assert!(policy.starts_with("default-src 'none'"), "{policy}");
        }
    }
}

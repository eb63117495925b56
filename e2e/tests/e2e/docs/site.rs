//! `insula docs`: the documents in a browser.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use insula_e2e::{check_docs, insula, run_bounded, shots};

/// `insula docs` while a test looks at it.
struct Docs {
    process: Child,
    url: String,
}

impl Docs {
    fn start() -> Self {
        let mut process = insula(&["docs"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut url = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut url).unwrap();
        let url = url.trim().to_owned();
        Docs { process, url }
    }
}

impl Drop for Docs {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_documents_work_in_a_browser() {
    let docs = Docs::start();
    assert!(docs.url.starts_with("http://127.0.0.1:"), "{}", docs.url);
    let shots = shots();
    match check_docs(&docs.url, &shots) {
        Ok(output) => eprintln!("{output}screenshots: {}", shots.display()),
        Err(missing) => eprintln!("\n*** skipped: the documents in a browser: {missing}\n"),
    }
}

#[test]
fn the_documents_are_written_for_a_web_server() {
    let dir = tempfile::tempdir().unwrap();
    let site = dir.path().join("site");
    let run = |command: &mut Command| run_bounded(command, "", Duration::from_secs(60));
    let output = run(&mut insula(&["docs", "--dir", site.to_str().unwrap()]));
    assert!(output.status.success(), "{output:?}");
    let first = fs::read_to_string(site.join("index.html")).unwrap();
    assert!(first.contains("A bound API in three commands"), "{first}");
    for file in [
        "assets/docs.js",
        "pictures/bindings.svg",
        "console/workspaces.webp",
        "search.json",
    ] {
        assert!(site.join(file).is_file(), "{file}");
    }
    // A file in the place of the folder is an error, and no panic.
    let output = run(&mut insula(&[
        "docs",
        "--dir",
        site.join("index.html").to_str().unwrap(),
    ]));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    // Only this machine is served, so there is no address to choose.
    let output = run(&mut insula(&["docs", "--listen", "0.0.0.0:0"]));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

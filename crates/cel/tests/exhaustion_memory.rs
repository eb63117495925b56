//! Memory of hostile expressions, compilation included: at most 16 MiB.
//!
//! A counting allocator would need unsafe code, so a process asks the system for its peak size. It
//! runs nothing else: this file has one test.
#![allow(clippy::expect_used)]
// Passes a case to a process of the test; it configures nothing.
#![allow(clippy::disallowed_methods)]

#[path = "exhaustion/cases.rs"]
mod cases;

use insula_cel::{Activation, Budget, CALL_COST_MAX, Program};
use insula_meter::Meter;

const BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Returns a figure of `/proc/self/status` in bytes.
fn status(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim_start_matches(':').split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Environment variable with the name of a process's case.
const CASE: &str = "INSULA_CEL_CASE";

/// One process for each case: the allocator may keep memory that an earlier case has freed.
#[test]
fn hostile_expressions_stay_within_16_mebibytes() {
    let cases = cases::cases();
    if let Ok(name) = std::env::var(CASE) {
        return measure(cases.iter().find(|case| case.name == name).expect("a case"));
    }
    if status("VmHWM").is_none() {
        eprintln!("skipped: the system does not say how large a process is");
        return;
    }
    let this = std::env::current_exe().expect("a path");
    for case in &cases {
        let run = std::process::Command::new(&this)
            .env(CASE, case.name)
            .arg("--nocapture")
            .output();
        let run = run.expect("a process");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    }
}

fn measure(case: &cases::Case) {
    let cases::Case {
        name,
        source,
        input,
        says,
    } = case;
    let before = status("VmHWM").expect("a figure");
    let program = Program::compile(source, &["self"]).expect("an expression");
    let activation = Activation::new().with("self", input);
    let text = match program.eval(&activation, &mut Budget::new(CALL_COST_MAX, &Meter::unbounded())) {
        Ok(_) => "value".to_owned(),
        Err(error) => error.to_string(),
    };
    let took = status("VmHWM").expect("a figure") - before;
    assert!(says.iter().any(|s| text.contains(s)), "{name}: {text}");
    assert!(took <= BYTES_MAX, "{name} took {took} bytes");
}

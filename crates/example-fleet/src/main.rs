//! The program `example-fleet`. It takes the flags of `insula start`.

use std::process::ExitCode;

fn main() -> ExitCode {
    insula_example_fleet::server().run()
}

//! `insula version`.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use crate::{Output, failed};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The form of the answer.
    #[arg(long, short, value_enum, default_value = "human")]
    output: Output,
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let version = insula_server::VERSION;
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let line = match arguments.output {
        Output::Human => format!("insula {version} ({platform})"),
        Output::Json => serde_json::json!({"version": version, "platform": platform}).to_string(),
    };
    match writeln!(io::stdout(), "{line}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(error, 1),
    }
}

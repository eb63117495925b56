//! `insula start`: merges flags into the settings, and runs a server.

use std::process::ExitCode;

pub(crate) use insula_server::Arguments;
use insula_server::{Config, Env, StartError, config::load};

use crate::{failed, runtime};

pub(crate) fn main(arguments: Arguments) -> ExitCode {
    let private = insula_server::keep_private()
        .map_err(|error| StartError::Build(format!("core dumps cannot be switched off: {error}")));
    match private.and_then(|()| settings(arguments)).and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error, error.exit_code()),
    }
}

fn settings(arguments: Arguments) -> Result<Config, StartError> {
    Ok(load(arguments.sources())?)
}

fn serve(config: Config) -> Result<(), StartError> {
    let runtime = runtime().map_err(|error| StartError::Build(format!("no threads: {error}")))?;
    runtime.block_on(insula_server::run(config, Env::real()))
}

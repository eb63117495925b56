//! `insula completion`: scripts that let shells complete command lines.

use std::process::ExitCode;

use clap::ValueEnum;

/// Prints a script that completes commands, flags, contexts and names of workspaces.
#[derive(clap::Args)]
#[command(after_help = "\
bash:        source <(insula completion bash)
zsh:         source <(insula completion zsh)
fish:        insula completion fish | source
powershell:  insula completion powershell | Out-String | Invoke-Expression
kubectl's completions need no script: `insula plugin install` links kubectl_complete-ws and others.")]
pub(crate) struct Arguments {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Powershell,
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let script = match arguments.shell {
        Shell::Bash => include_str!("completion/bash.sh"),
        Shell::Zsh => include_str!("completion/zsh.sh"),
        Shell::Fish => include_str!("completion/fish.fish"),
        Shell::Powershell => include_str!("completion/powershell.ps1"),
    };
    crate::ended(crate::print::raw(script).map(|()| ExitCode::SUCCESS))
}

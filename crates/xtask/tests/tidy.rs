//! The rules for text hold in this repository. A failure prints the rule, the fix and the lines.

use xtask::{
    tidy::{self, Mode},
    workspace::Workspace,
};

#[test]
fn every_file_and_commit_subject_follows_the_rules() {
    let workspace = Workspace::load().expect("cargo describes the workspace");
    // An archive of the sources has no list of files and no commits.
    if !workspace.root.join(".git").exists() {
        eprintln!("skipped: no git repository");
        return;
    }
    if let Err(problems) = tidy::run(&workspace.root, Mode::Check) {
        panic!("`cargo xtask tidy` finds:\n{problems}");
    }
}

//! Checks of directories, keys, and limits of the process.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use insula_server::Config;

use super::Finding;

/// Open files that a server with a thousand watches needs.
const FILES_MIN: u64 = 4096;

pub(super) fn check(config: &Config) -> Vec<Finding> {
    vec![directory(&config.data_dir), keys(config), open_files()]
}

fn directory(path: &Path) -> Finding {
    const CHECK: &str = "data directory";
    let shown = path.display();
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Finding::skipped(CHECK, format!("{shown} is not there yet; the first start creates it"));
        }
        Err(error) => {
            let fix = "run as the user of the server";
            return Finding::problem(CHECK, format!("{shown} cannot be read: {error}"), fix);
        }
    };
    if !found.is_dir() {
        return Finding::problem(CHECK, format!("{shown} is no directory"), "set dataDir to a directory");
    }
    let own = fs::metadata("/proc/self").map(|own| own.uid());
    if own.is_ok_and(|own| own != found.uid()) {
        let detail = format!(
            "{shown} belongs to user {}, and this command runs as another",
            found.uid()
        );
        return Finding::warning(CHECK, detail, "run it as the user of the server");
    }
    match found.permissions().mode() & 0o777 {
        mode if mode & 0o077 != 0 => Finding::problem(
            CHECK,
            format!("{shown} is open to others (mode {mode:04o})"),
            format!("chmod 0700 {shown}"),
        ),
        mode => Finding::ok(CHECK, format!("{shown}, mode {mode:04o}")),
    }
}

/// Checks that nobody else reads keys, tokens and the administrator's kubeconfig.
fn keys(config: &Config) -> Finding {
    const CHECK: &str = "keys";
    let mut files: Vec<_> = fs::read_dir(config.data_dir.join("pki"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "key"))
        .collect();
    let kubeconfig = config.kubeconfig.clone();
    files.push(kubeconfig.unwrap_or_else(|| config.data_dir.join("admin.kubeconfig")));
    files.extend(
        [&config.token_file, &config.etcd.key, &config.etcd.password_file]
            .into_iter()
            .flatten()
            .cloned(),
    );
    let (mut count, mut open) = (0, Vec::new());
    for file in &files {
        let Ok(found) = fs::metadata(file) else { continue };
        count += 1;
        if found.permissions().mode() & 0o077 != 0 {
            open.push(file.display().to_string());
        }
    }
    match (count, open.as_slice()) {
        (0, _) => Finding::skipped(CHECK, "there are none yet; the first start creates them"),
        (_, []) => Finding::ok(CHECK, format!("{count} files, readable by their owner only")),
        (_, open) => Finding::problem(
            CHECK,
            format!("readable by others: {}", open.join(", ")),
            format!("chmod 0600 {}", open.join(" ")),
        ),
    }
}

fn open_files() -> Finding {
    const CHECK: &str = "open files";
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    match soft_limit(&limits) {
        None => Finding::skipped(CHECK, "the limit of this process is not known"),
        Some(limit) if limit < FILES_MIN => Finding::warning(
            CHECK,
            format!("this shell allows {limit}; connections need one each"),
            format!("ulimit -n {FILES_MIN}, or LimitNOFILE= in the unit of systemd"),
        ),
        Some(limit) => Finding::ok(CHECK, format!("{limit} in this shell")),
    }
}

fn soft_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find(|line| line.starts_with("Max open files"))?;
    match line.split_whitespace().nth(3)? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let limits =
            "Limit    Soft Limit   Hard Limit   Units\nMax open files            1024      524288      files\n";
        assert_eq!(soft_limit(limits), Some(1024));
        assert_eq!(soft_limit(""), None);
    }

    #[test]
    fn a_directory_that_others_read_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        mode(0o755);
        let finding = directory(folder.path());
        assert!(finding.fix.starts_with("chmod 0700 "), "{finding:?}");
        mode(0o700);
        assert_eq!(directory(folder.path()).fix, "");
    }
}

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt};

use super::*;

const NOW: Timestamp = Timestamp(1_795_254_000);

fn contents(dir: &Path) -> BTreeMap<String, String> {
    fs::read_dir(dir.join(IDENTITY_DIR))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read_to_string(entry.path()).unwrap(),
            )
        })
        .collect()
}

/// The files that differ, without the half of the pair: `server` for `server.crt` and `server.key`.
fn changed(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let certificates = after
        .iter()
        .filter(|(name, text)| name.ends_with(".crt") && before.get(*name) != Some(text));
    certificates
        .map(|(name, _)| name.trim_end_matches(".crt").to_owned())
        .collect()
}

fn days(count: i64) -> Timestamp {
    Timestamp(NOW.0 + count * DAY_SECONDS)
}

#[test]
fn certificates_are_renewed_when_due_and_only_then() {
    let dir = tempfile::tempdir().unwrap();
    let host = ["box.example".to_owned(), "0.0.0.0".to_owned()];
    ensure(dir.path(), &host, NOW).unwrap();
    let mut before = contents(dir.path());
    assert_eq!(before.len(), 10);

    let leaves = ["front", "kcp-admin", "server", "shard-admin"];
    for (names, now, want) in [
        (&host[..], NOW, &[][..]),
        (&host[..], days(334), &[]),
        (&host[..1], days(334), &[]),
        (&["other.example".to_owned()], days(334), &["server"]),
        (&host[..], days(336), &leaves),
        (&host[..], days(336 + 334), &[]),
        (&host[..], days(3600), &leaves),
        (&host[..], days(3640), &[]),
    ] {
        ensure(dir.path(), names, now).unwrap();
        let after = contents(dir.path());
        assert_eq!(
            changed(&before, &after),
            want,
            "{names:?} day {}",
            (now.0 - NOW.0) / DAY_SECONDS
        );
        before = after;
    }
    let message = ensure(dir.path(), &host, days(3651)).unwrap_err().to_string();
    assert!(message.contains("ca.crt: ran out at 2036-"), "{message}");
}

#[test]
fn files_are_for_their_owner() {
    let dir = tempfile::tempdir().unwrap();
    let identity = ensure(dir.path(), &[], NOW).unwrap();
    for entry in fs::read_dir(dir.path().join(IDENTITY_DIR)).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(
            entry.metadata().unwrap().permissions().mode() & 0o777,
            0o600,
            "{:?}",
            entry.path()
        );
    }
    fs::set_permissions(&identity.server.key, fs::Permissions::from_mode(0o644)).unwrap();
    let error = ensure(dir.path(), &[], NOW).unwrap_err();
    assert!(
        matches!(&error, StartError::LooseKey { path, mode: 0o644 } if *path == identity.server.key),
        "{error}"
    );
}

#[test]
fn a_crash_between_two_files_heals() {
    let dir = tempfile::tempdir().unwrap();
    let identity = ensure(dir.path(), &[], NOW).unwrap();
    let before = contents(dir.path());

    // A new key under the old certificate.
    fs::copy(&identity.kcp_admin.key, &identity.server.key).unwrap();
    ensure(dir.path(), &[], NOW).unwrap();
    assert_eq!(changed(&before, &contents(dir.path())), ["server"]);

    // A first start that wrote the CA's key only: everything is new.
    let before = contents(dir.path());
    fs::remove_file(&identity.ca).unwrap();
    ensure(dir.path(), &[], NOW).unwrap();
    assert_eq!(
        changed(&before, &contents(dir.path())),
        ["ca", "front", "kcp-admin", "server", "shard-admin"]
    );

    // The CA's key does not come back by itself.
    fs::remove_file(dir.path().join(IDENTITY_DIR).join("ca.key")).unwrap();
    let message = ensure(dir.path(), &[], NOW).unwrap_err().to_string();
    assert!(message.contains("ca.key: missing"), "{message}");
}

#[test]
fn certificates_say_who_their_bearer_is() {
    let dir = tempfile::tempdir().unwrap();
    let identity = ensure(dir.path(), &["::".to_owned(), "10.1.2.3".to_owned()], NOW).unwrap();
    let describe = |path: &Path| {
        let der = der(&fs::read_to_string(path).unwrap()).unwrap();
        let (_, parsed) = X509Certificate::from_der(&der).unwrap();
        let usage = parsed.extended_key_usage().unwrap().unwrap().value.clone();
        let days = (parsed.validity().not_after.timestamp() - NOW.0) / DAY_SECONDS;
        (parsed.subject().to_string(), usage.client_auth, usage.server_auth, days)
    };
    assert_eq!(
        describe(&identity.server.certificate),
        ("CN=insula".to_owned(), false, true, 365)
    );
    let admin = "O=system:kcp:admin, CN=kcp-admin".to_owned();
    assert_eq!(describe(&identity.kcp_admin.certificate), (admin, true, false, 365));
    let admin = "O=system:masters, CN=shard-admin".to_owned();
    assert_eq!(describe(&identity.shard_admin.certificate), (admin, true, false, 365));
}

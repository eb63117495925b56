use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};

use super::*;

const NOW: Timestamp = Timestamp(1_795_254_000);
const DAY: i64 = 24 * 3600;

/// A CA, with its certificate.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn ca() -> Ca {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    // A leaf with the name of its CA would look as if it had signed itself.
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "a CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    Ca {
        issuer: Issuer::new(params, key),
        pem,
    }
}

impl Ca {
    /// Returns a certificate for a name, valid between two moments, and its key.
    fn signs(&self, name: &str, from: i64, to: i64) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        let at = |seconds: i64| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(u64::try_from(seconds).unwrap());
        (params.not_before, params.not_after) = (at(from), at(to));
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Returns a certificate that is valid for the clock of this machine as well, which the
    /// verification of the chain asks.
    fn signs_now(&self, name: &str) -> (String, String) {
        self.signs(name, 0, NOW.0 + 20_000 * DAY)
    }
}

/// Files of a server in a folder.
struct Scene {
    folder: tempfile::TempDir,
    files: Files,
}

fn scene(own: &Ca) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let files = Files {
        default: PairFiles {
            certificate: path("tls.crt"),
            key: path("tls.key"),
            names: Vec::new(),
        },
        others: Vec::new(),
        ca: None,
        users: vec![path("own.crt")],
        proxies: None,
        own_ca: path("own.crt"),
        host: "api.example.com".to_owned(),
        hosts: None,
    };
    fs::write(&files.own_ca, &own.pem).unwrap();
    Scene { folder, files }
}

impl Scene {
    fn has(&self, (certificate, key): &(String, String)) {
        fs::write(&self.files.default.certificate, certificate).unwrap();
        fs::write(&self.files.default.key, key).unwrap();
        fs::set_permissions(&self.files.default.key, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn refusal(&self) -> String {
        match self.files.read(NOW) {
            Ok(_) => panic!("accepted"),
            Err(error) => error.to_string(),
        }
    }

    fn trust(&self) -> Option<String> {
        self.files.read(NOW).unwrap_or_else(|error| panic!("{error}")).0.trust
    }
}

#[test]
fn a_certificate_that_cannot_be_used_is_refused_with_the_fix() {
    let own = ca();
    let scene = scene(&own);
    let (good, other) = (own.signs_now("api.example.com"), own.signs_now("api.example.com"));
    let name = "API.example.com";
    let rows = [
        (own.signs(name, 0, NOW.0 - 1), "tls.crt: expired at 2026-"),
        (
            own.signs(name, NOW.0 + DAY, NOW.0 + 2 * DAY),
            "tls.crt: is not valid before 2026-",
        ),
        (
            own.signs_now("other.example.com"),
            "tls.crt: does not name api.example.com, which the URL of this server has. It names other.example.com: set \
             externalUrl to",
        ),
        ((good.0.clone(), other.1), "tls.key: is not the key of "),
        ((String::new(), good.1.clone()), "tls.crt: holds no certificate in PEM"),
        ((good.0.clone(), good.0.clone()), "tls.key: is not a private key in PEM"),
    ];
    for (pair, want) in rows {
        scene.has(&pair);
        let refusal = scene.refusal();
        assert!(refusal.contains(want), "{want} in {refusal}");
    }
    scene.has(&good);
    assert_eq!(scene.trust(), Some(own.pem));
    fs::set_permissions(&scene.files.default.key, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(scene.trust().is_some(), "a group may read it");
    fs::set_permissions(&scene.files.default.key, fs::Permissions::from_mode(0o644)).unwrap();
    let refusal = scene.refusal();
    assert!(refusal.contains("chmod 600"), "{refusal}");
}

#[test]
fn clients_trust_the_ca_that_signed_the_certificate() {
    let (own, other) = (ca(), ca());
    let mut scene = scene(&own);
    let (leaf, key) = other.signs_now("*.example.com");
    scene.has(&(leaf.clone(), key.clone()));
    assert_eq!(scene.trust(), None, "the machines of clients know it");
    scene.has(&(format!("{leaf}{}", other.pem), key.clone()));
    let same = |text: &str| text.replace("\r\n", "\n");
    assert_eq!(scene.trust(), Some(same(&other.pem)));

    scene.files.ca = Some(scene.folder.path().join("ca.crt"));
    fs::write(scene.files.ca.as_ref().unwrap(), &own.pem).unwrap();
    let refusal = scene.refusal();
    assert!(refusal.contains("ca.crt: did not sign "), "{refusal}");
    fs::write(scene.files.ca.as_ref().unwrap(), &other.pem).unwrap();
    scene.has(&(leaf, key));
    assert_eq!(scene.trust(), Some(other.pem));
}

#[test]
fn certificates_for_other_names_have_them() {
    let own = ca();
    let mut scene = scene(&own);
    scene.has(&own.signs_now("api.example.com"));
    let (certificate, key) = (scene.folder.path().join("b.crt"), scene.folder.path().join("b.key"));
    let mut with = |pair: (String, String), names: &[&str]| {
        for (path, text) in [(&certificate, pair.0), (&key, pair.1)] {
            fs::write(path, text).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        scene.files.others = vec![PairFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        }];
        scene
            .files
            .read(NOW)
            .map(|(read, _)| (read.not_after, read.trust))
            .map_err(|error| error.to_string())
    };
    let wide = || own.signs_now("*.b.test");
    for names in [&[][..], &["*.b.test"], &["A.b.test", "c.b.test"]] {
        assert!(with(wide(), names).is_ok(), "{names:?}");
    }
    for (pair, names, want) in [
        (
            wide(),
            &["b.test"][..],
            "b.crt: does not name b.test, which `tls.sni` lists. It names *.b.test",
        ),
        (own.signs_now("10.0.0.1"), &[], "b.crt: names no host"),
        (own.signs("b.test", 0, NOW.0 - 1), &[], "b.crt: expired at"),
    ] {
        let refusal = with(pair, names).unwrap_err();
        assert!(refusal.contains(want), "{want} in {refusal}");
    }
    // The first of all certificates that ends, and the CA of the one for the host of the URL.
    let soon = NOW.0 + DAY;
    assert_eq!(with(own.signs("b.test", 0, soon), &[]).unwrap().0, Timestamp(soon));
    let other = ca();
    let (leaf, key) = other.signs_now("api.example.com");
    let trust = with((format!("{leaf}{}", other.pem), key), &[]).unwrap().1.unwrap();
    assert_eq!(trust, other.pem.replace("\r\n", "\n"));
}

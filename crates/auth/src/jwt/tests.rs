//! Invalid tokens: tables of changes to valid ones.

mod configurations;

use super::*;
use crate::user::UserInfo;
use insula_api::{FieldPath, Json, Timestamp, aggregate};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, jwk::Jwk};
use serde_json::json;

const NOW: i64 = 1_800_000_000;
const URL: &str = "https://login.example.com/realm";

fn config() -> Json {
    json!({
        "issuer": {"url": URL, "audiences": ["insula"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": "corp:"}, "groups": {"claim": "groups",
            "prefix": "corp:"}},
    })
}

fn compiled(config: &Json, giver: Giver) -> Result<Issuer, String> {
    let config: JwtAuthenticator = serde_json::from_value(config.clone()).map_err(|error| error.to_string())?;
    compile(&config, giver, &FieldPath::new("jwt").index(0)).map_err(|errors| aggregate(&errors))
}

/// Returns `config` with some fields changed.
fn with(mut value: Json, changes: &[(&str, Json)]) -> Json {
    for (pointer, change) in changes {
        let mut at = &mut value;
        for part in pointer.split('/') {
            at = &mut at[part];
        }
        *at = change.clone();
    }
    value
}

/// A signer of tokens, like an issuer.
struct Signer {
    algorithm: Algorithm,
    key: EncodingKey,
    id: Option<&'static str>,
}

impl Signer {
    fn elliptic(id: Option<&'static str>) -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
        Signer {
            algorithm: Algorithm::ES256,
            key: EncodingKey::from_ec_der(key.serialized_der()),
            id,
        }
    }

    fn rsa(algorithm: Algorithm) -> Self {
        let key = EncodingKey::from_rsa_der(include_bytes!("../../tests/data/rsa.der"));
        let id = Some("rsa");
        Signer { algorithm, key, id }
    }

    fn published(&self, algorithm: Option<&str>) -> Json {
        let jwk = Jwk::from_encoding_key(&self.key, self.algorithm).expect("a public key");
        let mut jwk = serde_json::to_value(jwk).expect("JSON");
        jwk["alg"] = json!(algorithm);
        jwk["kid"] = json!(self.id);
        jwk
    }

    fn sign(&self, claims: &Json) -> String {
        let mut header = Header::new(self.algorithm);
        header.kid = self.id.map(str::to_owned);
        encode(&header, claims, &self.key).expect("it signs")
    }
}

fn set(keys: &[Json]) -> Keys {
    Keys::read(json!({"keys": keys}).to_string().as_bytes()).expect("a key set")
}

fn claims() -> Json {
    json!({"iss": URL, "aud": "insula", "exp": NOW + 60, "sub": "ada", "groups": ["devs", "system:masters"]})
}

fn user(issuer: &Issuer, token: &str, keys: &Keys) -> Result<UserInfo, JwtError> {
    issuer.user(token, keys, Timestamp(NOW), &insula_meter::Meter::unbounded())
}

#[test]
fn tokens_count_for_whom_when_and_from_whom_they_should() {
    let (signer, issuer) = (
        Signer::elliptic(Some("one")),
        compiled(&config(), Giver::Operator).expect("it is good"),
    );
    let keys = set(&[signer.published(None)]);
    let good = user(&issuer, &signer.sign(&claims()), &keys).expect("it is good");
    assert_eq!(good.name, "corp:ada");
    assert_eq!(
        good.groups,
        ["corp:devs", "corp:system:masters", "system:authenticated"]
    );
    for (claim, value, want) in [
        ("exp", json!(NOW), Err(JwtError::Expired)),
        ("exp", Json::Null, Err(JwtError::Expired)),
        ("exp", json!("never"), Err(JwtError::Expired)),
        ("nbf", json!(NOW + 11), Err(JwtError::Early)),
        ("nbf", json!("soon"), Err(JwtError::Early)),
        ("nbf", json!(NOW + 9), Ok(())),
        ("nbf", json!(f64::from(1_799_999_999) + 0.5), Ok(())),
        ("aud", json!("other"), Err(JwtError::Audience)),
        ("aud", json!([]), Err(JwtError::Audience)),
        ("aud", Json::Null, Err(JwtError::Audience)),
        ("aud", json!(["other", "insula"]), Ok(())),
        ("iss", json!("https://login.example.com/realm/"), Err(JwtError::Issuer)),
        ("iss", Json::Null, Err(JwtError::Issuer)),
        ("groups", Json::Null, Ok(())),
        ("groups", json!("devs"), Ok(())),
        (
            "groups",
            json!([1]),
            Err(JwtError::Claims("claim groups is no list of groups".into())),
        ),
        (
            "sub",
            Json::Null,
            Err(JwtError::Claims("claim sub is not a text that names the user".into())),
        ),
        (
            "sub",
            json!(""),
            Err(JwtError::Claims("claim sub is not a text that names the user".into())),
        ),
    ] {
        let token = signer.sign(&with(claims(), &[(claim, value.clone())]));
        assert_eq!(user(&issuer, &token, &keys).map(drop), want, "{claim} {value}");
    }
}

/// A name of a token, the token, and the result of its check.
type Row = (&'static str, String, Result<(), JwtError>);

fn check_tokens(keys: &Keys, rows: &[Row]) {
    let issuer = compiled(&config(), Giver::Operator).expect("it is good");
    for (what, token, want) in rows {
        assert_eq!(&user(&issuer, token, keys).map(drop), want, "{what}");
    }
}

#[test]
fn keys_choose_algorithms_and_tokens_do_not() {
    let issuer = compiled(&config(), Giver::Operator).expect("it is good");
    let (one, two, nameless) = (
        Signer::elliptic(Some("one")),
        Signer::elliptic(Some("two")),
        Signer::elliptic(None),
    );
    let (rs, ps) = (Signer::rsa(Algorithm::RS256), Signer::rsa(Algorithm::PS512));
    // An attack: a public key used as a symmetric secret.
    let public = serde_json::to_string(&one.published(None)).expect("JSON");
    let secret = |id| Signer {
        algorithm: Algorithm::HS256,
        key: EncodingKey::from_secret(public.as_bytes()),
        id,
    };
    let forged = Signer {
        id: Some("one"),
        ..Signer::elliptic(None)
    };
    let symmetric = json!({"kty": "oct", "kid": "oct", "k": "c2VjcmV0"});
    let encryption = with(two.published(None), &[("use", json!("enc"))]);
    let keys = set(&[
        one.published(None),
        rs.published(Some("RS256")),
        symmetric,
        encryption,
        json!({"kty": "odd"}),
    ]);
    let rows = [
        ("good", one.sign(&claims()), Ok(())),
        ("RSA", rs.sign(&claims()), Ok(())),
        (
            "another algorithm of the key",
            ps.sign(&claims()),
            Err(JwtError::Signature),
        ),
        ("a key for encryption", two.sign(&claims()), Err(JwtError::UnknownKey)),
        ("nobody's name", nameless.sign(&claims()), Err(JwtError::UnknownKey)),
        (
            "somebody else's signature",
            forged.sign(&claims()),
            Err(JwtError::Signature),
        ),
        (
            "the public key as a secret",
            secret(Some("one")).sign(&claims()),
            Err(JwtError::Signature),
        ),
        (
            "a symmetric key",
            secret(Some("oct")).sign(&claims()),
            Err(JwtError::UnknownKey),
        ),
    ];
    check_tokens(&keys, &rows);
    let any = set(&[rs.published(None), nameless.published(None)]);
    assert!(
        user(&issuer, &ps.sign(&claims()), &any).is_ok(),
        "a key that names no algorithm has those of its kind"
    );
    assert!(user(&issuer, &nameless.sign(&claims()), &any).is_ok());
}

#[test]
fn tokens_of_another_form_are_refused() {
    let one = Signer::elliptic(Some("one"));
    let good = one.sign(&claims());
    let (head, rest) = good.split_once('.').expect("three parts");
    let (body, signature) = rest.split_once('.').expect("three parts");
    let unsigned = format!("eyJhbGciOiJub25lIn0.{body}.");
    let named = |part: &str| format!("{part}.{body}.{signature}");
    let huge = Signer {
        id: Some(Box::leak("k".repeat(5000).into_boxed_str())),
        ..Signer::elliptic(None)
    };
    let rows = [
        ("no signature", unsigned, Err(JwtError::Malformed)),
        ("a huge name", huge.sign(&claims()), Err(JwtError::Malformed)),
        ("another head", named("e30"), Err(JwtError::Malformed)),
        ("no head", named(""), Err(JwtError::Malformed)),
        ("two parts", format!("{head}.{body}"), Err(JwtError::Malformed)),
        ("four parts", format!("{good}.a"), Err(JwtError::Malformed)),
        ("long", "a".repeat(20_000), Err(JwtError::Malformed)),
    ];
    check_tokens(&set(&[one.published(None)]), &rows);
}

#[test]
fn key_sets_have_bounds() {
    let key = Signer::elliptic(Some("one")).published(None);
    for (text, want) in [
        ("<html>".to_owned(), "not JSON"),
        (json!({"keys": {}}).to_string(), "no list"),
        (json!({"keys": []}).to_string(), "no key that signs"),
        (json!({"keys": vec![key; 33]}).to_string(), "more than 32"),
    ] {
        let refused = Keys::read(text.as_bytes()).expect_err(want);
        assert!(refused.contains(want), "{refused}");
    }
}

#[test]
fn expressions_map_claims_and_rules_are_kept() {
    let mapped = with(
        config(),
        &[
            (
                "claimMappings/username",
                json!({"expression": "claims.name.lowerAscii()"}),
            ),
            (
                "claimMappings/groups",
                json!({"expression": "claims.?roles.orValue([]).filter(r, r != 'guest')"}),
            ),
            ("claimMappings/uid", json!({"expression": "string(claims.number)"})),
            (
                "claimMappings/extra",
                json!([{"key": "example.com/tier", "valueExpression": "claims.?tier.orValue('')"}]),
            ),
            (
                "claimValidationRules",
                json!([{"claim": "hd", "requiredValue": "example.com"},
                    {"expression": "claims.exp - claims.iat <= 86400", "message": "a day at most"}]),
            ),
            (
                "userValidationRules",
                json!([{"expression": "!user.username.startsWith('system:') && user.groups.all(g, !g.startsWith('system:'))"}]),
            ),
        ],
    );
    let (signer, issuer) = (
        Signer::elliptic(Some("one")),
        compiled(&mapped, Giver::Operator).expect("it is good"),
    );
    let keys = set(&[signer.published(Some("ES256"))]);
    let claims = json!({
        "iss": URL, "aud": "insula", "exp": NOW + 60, "iat": NOW, "name": "Ada", "roles": ["guest", "dev"],
            "number": 7, "hd": "example.com",
    });
    let seen = user(&issuer, &signer.sign(&claims), &keys).expect("it is good");
    assert_eq!((seen.name.as_str(), seen.uid.as_str()), ("ada", "7"));
    assert_eq!(seen.groups, ["dev", "system:authenticated"]);
    assert!(seen.extra.is_empty());
    let tiered = with(claims.clone(), &[("tier", json!(["gold", "x"]))]);
    let tiered = user(&issuer, &signer.sign(&tiered), &keys).expect("it is good");
    assert_eq!(tiered.extra["example.com/tier"], ["gold", "x"]);
    for (claim, value, want) in [
        ("name", json!(7), "no such overload"),
        ("name", json!(""), "gives no text"),
        (
            "name",
            json!("System:serviceaccount:a:b"),
            "names that begin with system: are the system's own",
        ),
        ("roles", json!(["system:masters"]), "it fails the rule"),
        ("roles", json!([{}]), "neither a text nor a list"),
        ("hd", json!("example.org"), "not the required \"example.com\""),
        ("hd", Json::Null, "not the required"),
        ("iat", json!(NOW - 86_400), "a day at most"),
        ("iat", Json::Null, ""),
    ] {
        let token = signer.sign(&with(claims.clone(), &[(claim, value.clone())]));
        let refused = user(&issuer, &token, &keys).expect_err(claim).to_string();
        assert!(refused.contains(want), "{claim} {value}: {refused}");
    }
}

/// Issuers of the operator may make administrators, but no identities for which only clusters
/// vouch.
#[test]
fn issuers_of_the_operator_make_no_service_accounts() {
    let own = with(
        config(),
        &[
            ("claimMappings/username/prefix", json!("")),
            ("claimMappings/groups/prefix", json!("")),
        ],
    );
    let signer = Signer::elliptic(Some("one"));
    let issuer = compiled(&own, Giver::Operator).expect("it is good");
    let keys = set(&[signer.published(None)]);
    let groups = json!([
        "system:kcp:admin",
        "system:serviceaccounts",
        "system:serviceaccounts:ns",
        "system:cluster:a"
    ]);
    let token = signer.sign(&with(claims(), &[("groups", groups)]));
    let seen = user(&issuer, &token, &keys).expect("it is good");
    assert_eq!(seen.groups, ["system:kcp:admin", "system:authenticated"]);
    let token = signer.sign(&with(claims(), &[("sub", json!("system:serviceaccount:ns:robot"))]));
    assert!(user(&issuer, &token, &keys).is_err());
}

/// Issuers of workspaces make no users that the system knows.
#[test]
fn issuers_of_workspaces_make_no_system_users() {
    let own = with(
        config(),
        &[
            ("claimMappings/username/prefix", json!("")),
            ("claimMappings/groups/prefix", json!("")),
        ],
    );
    let (signer, issuer) = (
        Signer::elliptic(Some("one")),
        compiled(&own, Giver::Workspace).expect("it is good"),
    );
    let keys = set(&[signer.published(None)]);
    let seen = user(&issuer, &signer.sign(&claims()), &keys).expect("it is good");
    assert_eq!(seen.groups, ["devs", "system:authenticated"]);
    for name in [
        "system:admin",
        "system:serviceaccount:default:default",
        "system:kcp:serviceaccount:a:b:c",
    ] {
        let token = signer.sign(&with(claims(), &[("sub", json!(name))]));
        assert!(user(&issuer, &token, &keys).is_err(), "{name}");
    }
}

#[test]
fn an_unconfirmed_address_is_nobodys() {
    let config = with(
        config(),
        &[("claimMappings/username", json!({"claim": "email", "prefix": ""}))],
    );
    let (signer, issuer) = (
        Signer::elliptic(Some("one")),
        compiled(&config, Giver::Operator).expect("it is good"),
    );
    let keys = set(&[signer.published(None)]);
    for (verified, want) in [
        (Json::Null, true),
        (json!(true), true),
        (json!(false), false),
        (json!("true"), false),
    ] {
        let token = with(
            claims(),
            &[("email", json!("a@example.com")), ("email_verified", verified.clone())],
        );
        assert_eq!(user(&issuer, &signer.sign(&token), &keys).is_ok(), want, "{verified}");
    }
}

#[test]
fn a_token_names_its_issuer_before_it_is_believed() {
    let token = Signer::elliptic(None).sign(&claims());
    assert_eq!(issuer_of(&token).as_deref(), Some(URL));
    for bad in ["", "a", "a.b", "a.b.c", "e30.e30.", "..", &"a.".repeat(10_000)] {
        assert_eq!(issuer_of(bad), None, "{bad:.20}");
    }
}

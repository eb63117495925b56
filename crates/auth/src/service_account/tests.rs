use super::*;
use jsonwebtoken::{EncodingKey, Header, encode};
use rcgen::KeyPair;

const NOW: Timestamp = Timestamp(1_795_255_200);

fn claims() -> Claims {
    let account = ServiceAccount {
        cluster: "abc".into(),
        namespace: "default".into(),
        secret: None,
        account: Reference {
            name: "robot".into(),
            uid: "u".into(),
        },
    };
    Claims::new(account, vec![ISSUER.into()], "j".into(), NOW, 600)
}

fn header(algorithm: Algorithm, key: &KeyPair) -> Header {
    Header {
        kid: Some(key_name(key.public_key_raw())),
        ..Header::new(algorithm)
    }
}

fn signed(claims: &Claims, key: &KeyPair) -> String {
    let private = EncodingKey::from_ec_der(key.serialized_der());
    encode(&header(ALGORITHM, key), claims, &private).expect("it can be signed")
}

#[test]
fn a_token_counts_for_its_audience_in_its_time() {
    let key = KeyPair::generate().expect("a key");
    let verifier = Verifier::new([key.public_key_raw()]);
    let audiences = [ISSUER.to_owned()];
    let read = |claims: &Claims| verifier.verify(&signed(claims, &key), &audiences, NOW);
    assert_eq!(read(&claims()), Ok(claims()));
    type Change = fn(&mut Claims);
    let rows: [(Change, TokenError); 6] = [
        (|c| c.exp = NOW.0, TokenError::Expired),
        (|c| c.nbf = NOW.0 + 11, TokenError::Early),
        (|c| c.iat = NOW.0 + 11, TokenError::Early),
        (|c| c.iss = "https://elsewhere".into(), TokenError::Foreign),
        (
            |c| c.sub = "system:serviceaccount:default:other".into(),
            TokenError::Foreign,
        ),
        (
            |c| c.aud = vec!["golden".into()],
            TokenError::Audience {
                token: vec!["golden".into()],
                wanted: audiences.to_vec(),
            },
        ),
    ];
    for (change, want) in rows {
        let mut claims = claims();
        change(&mut claims);
        assert_eq!(read(&claims), Err(want));
    }
}

#[test]
fn what_another_key_or_algorithm_signed_is_not_ours() {
    let (key, other) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
    let verifier = Verifier::new([key.public_key_raw()]);
    let good = signed(&claims(), &key);
    let parts: Vec<&str> = good.split('.').collect();
    let public = EncodingKey::from_secret(key.public_key_raw());
    let hmac = encode(&header(Algorithm::HS256, &key), &claims(), &public).expect("it can be signed");
    let impostor = encode(
        &header(ALGORITHM, &key),
        &claims(),
        &EncodingKey::from_ec_der(other.serialized_der()),
    )
    .expect("it can be signed");
    let nameless = encode(
        &Header::new(ALGORITHM),
        &claims(),
        &EncodingKey::from_ec_der(key.serialized_der()),
    )
    .expect("it can be signed");
    // {"alg":"none","typ":"JWT"}
    let none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0";
    for bad in [
        hmac,
        impostor,
        nameless,
        signed(&claims(), &other),
        format!("{none}.{}.", parts[1]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.{}", parts[0], parts[1]),
        format!("{}.{}.{}", parts[0], parts[1], parts[0]),
        "nonsense".into(),
        "..".into(),
        String::new(),
        "a".repeat(TOKEN_BYTES_MAX + 1),
    ] {
        assert_eq!(
            verifier.verify(&bad, &[ISSUER.to_owned()], NOW),
            Err(TokenError::Foreign),
            "{bad}"
        );
    }
}

#[test]
fn an_account_is_a_user_of_its_cluster_alone() {
    let cluster = ClusterName::parse("abc").expect("a name");
    let user = claims().user(&cluster);
    assert_eq!(user.name, "system:serviceaccount:default:robot");
    assert_eq!(user.uid, "u");
    assert_eq!(
        user.groups,
        [
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ]
    );
    assert_eq!(user.within(Some(&cluster)), user);
    let other = ClusterName::parse("other").expect("a name");
    assert_eq!(user.within(Some(&other)).name, crate::USER_ANONYMOUS);
    assert_eq!(user.within(None).name, crate::USER_ANONYMOUS);
}

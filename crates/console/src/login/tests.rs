use std::sync::Mutex;

use futures_util::FutureExt;
use http::header::COOKIE;

use super::*;

const NOW: Timestamp = Timestamp(1_000_000);
const ISSUER: &str = "https://login.example.com";

/// A provider that answers every form with the same document.
#[derive(Default)]
struct Fixed {
    answer: Mutex<Option<Json>>,
    forms: Mutex<Vec<String>>,
    names_itself: bool,
}

impl Provider for Fixed {
    fn endpoints(&self) -> BoxFuture<'_, Option<Arc<Endpoints>>> {
        let endpoints = Endpoints {
            authorization: format!("{ISSUER}/auth"),
            token: format!("{ISSUER}/token"),
            revocation: Some(format!("{ISSUER}/revoke")),
            names_itself: self.names_itself,
        };
        Box::pin(async { Some(Arc::new(endpoints)) })
    }

    fn post<'a>(&'a self, url: &'a str, form: Form) -> BoxFuture<'a, Option<Json>> {
        let pairs: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.forms
            .lock()
            .expect("one thread")
            .push(format!("{url} {}", encoded(&pairs)));
        let answer = self.answer.lock().expect("one thread").clone();
        Box::pin(async { answer })
    }
}

struct Script {
    key: SessionKey,
    login: Login,
    provider: Arc<Fixed>,
}

impl Script {
    fn new(names_itself: bool) -> Self {
        let provider = Arc::new(Fixed {
            names_itself,
            ..Fixed::default()
        });
        Script {
            key: SessionKey::derive(b"secret"),
            login: Login {
                issuer: ISSUER.to_owned(),
                client_id: "console".to_owned(),
                scopes: "openid a b".to_owned(),
                url: "https://insula:1".to_owned(),
                provider: provider.clone(),
            },
            provider,
        }
    }

    /// Begins a sign-in. Returns the browser's cookies, and the address at the provider.
    fn begin(&self) -> (HeaderMap, String) {
        let begun = self
            .login
            .begin(&self.key, NOW, "Insula:1")
            .now_or_never()
            .expect("no wait");
        let (response, cookie) = begun.expect("it begins");
        let body = axum::body::to_bytes(response.into_body(), 10_000)
            .now_or_never()
            .expect("no wait");
        let document: Json = serde_json::from_slice(&body.expect("bytes")).expect("JSON");
        (
            cookies(&cookie),
            document["location"].as_str().expect("an address").to_owned(),
        )
    }

    fn exchange(&self, headers: &HeaderMap, query: &str) -> Result<Vouched, Refusal> {
        let returned = Returned::read(query);
        let exchanged = self.login.exchange(&self.key, NOW, headers, returned);
        exchanged.now_or_never().expect("no wait")
    }

    fn renew(&self, text: &str) -> Result<Vouched, Refusal> {
        let cookie = self.key.begin(&RENEWAL, text, NOW, Timestamp(NOW.0 + 60));
        let renewed = self.login.renew(&self.key, NOW, &cookies(&cookie)).now_or_never();
        renewed.expect("no wait")
    }

    /// Has the provider answer with a token of these claims.
    fn vouch(&self, claims: &Json, more: &[(&str, &str)]) {
        let part = BASE64URL_NOPAD.encode(claims.to_string().as_bytes());
        let mut answer = json!({"id_token": format!("e30.{part}.c2ln")});
        for (name, value) in more {
            answer[*name] = json!(value);
        }
        *self.provider.answer.lock().expect("one thread") = Some(answer);
    }
}

fn cookies(set_cookie: &str) -> HeaderMap {
    let pair = set_cookie.split(';').next().expect("a pair");
    HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(pair).expect("text"))])
}

fn parameter(address: &str, name: &str) -> String {
    let pairs = address.split(['?', '&']);
    let value = pairs
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name);
    value.expect(name).1.to_owned()
}

#[test]
fn a_sign_in_goes_to_the_provider_with_a_challenge() {
    let script = Script::new(false);
    let (_, address) = script.begin();
    let fixed = format!(
        "{ISSUER}/auth?response_type=code&client_id=console&redirect_uri=https%3A%2F%2Finsula%3A1%2Fconsole%2Flogin\
         &scope=openid%20a%20b&state="
    );
    assert!(address.starts_with(&fixed), "{address}");
    assert!(address.ends_with("&code_challenge_method=S256"), "{address}");
    let (_, other) = script.begin();
    for name in ["state", "nonce", "code_challenge"] {
        assert_eq!(parameter(&address, name).len(), 43);
        assert_ne!(parameter(&address, name), parameter(&other, name), "{name}");
    }
    let elsewhere = script.login.begin(&script.key, NOW, "evil:1").now_or_never();
    assert_eq!(elsewhere.expect("no wait").err(), Some(Refusal::OtherAddress));
}

#[test]
fn a_code_becomes_the_token_of_this_sign_in() {
    let script = Script::new(false);
    let (cookies, address) = script.begin();
    let (state, nonce) = (parameter(&address, "state"), parameter(&address, "nonce"));
    let claims = json!({"iss": ISSUER, "aud": "console", "sub": "ada", "nonce": nonce});
    script.vouch(&claims, &[("refresh_token", "r1")]);
    let vouched = script
        .exchange(&cookies, &format!("code=a%2Fb&state={state}"))
        .expect("a token");
    assert_eq!(vouched.expires, Timestamp(NOW.0 + LIFETIME_SECONDS));
    assert_eq!(vouched.renewal.as_deref(), Some(r#"{"refresh":"r1","subject":"ada"}"#));
    let forms = script.provider.forms.lock().expect("one thread");
    let verifier = parameter(&forms[0], "code_verifier");
    let challenge = BASE64URL_NOPAD.encode(digest(&SHA256, verifier.as_bytes()).as_ref());
    assert_eq!(challenge, parameter(&address, "code_challenge"));
    assert!(forms[0].contains("grant_type=authorization_code&code=a%2Fb&redirect_uri=https%3A%2F%2Finsula"));
}

/// The provider, or somebody who gives its answers, sends a token that is for somebody else.
#[test]
fn a_token_for_others_is_refused() {
    let script = Script::new(false);
    let (cookies, address) = script.begin();
    let query = format!("code=c&state={}", parameter(&address, "state"));
    let good = json!({"iss": ISSUER, "aud": "console", "sub": "ada", "nonce": parameter(&address, "nonce")});
    for (name, value, is_taken) in [
        ("nonce", json!("other"), false),
        ("nonce", Json::Null, false),
        ("aud", json!("other"), false),
        ("aud", json!(["other"]), false),
        ("aud", json!([]), false),
        ("aud", json!(["console"]), true),
        ("aud", json!(["console", "other"]), false),
        ("azp", json!("other"), false),
        ("azp", json!("console"), true),
        ("iss", json!("https://evil.example.com"), false),
        ("sub", json!(""), false),
        ("sub", Json::Null, false),
    ] {
        let mut claims = good.clone();
        claims[name] = value.clone();
        script.vouch(&claims, &[]);
        let want = if is_taken { None } else { Some(Refusal::WrongToken) };
        assert_eq!(script.exchange(&cookies, &query).err(), want, "{name} {value}");
    }
    for answer in [
        json!({}),
        json!([]),
        json!({"id_token": "a.b.c"}),
        json!({"id_token": 1}),
    ] {
        *script.provider.answer.lock().expect("one thread") = Some(answer);
        assert_eq!(script.exchange(&cookies, &query), Err(Refusal::WrongToken));
    }
    let both =
        json!({"iss": ISSUER, "aud": ["other", "console"], "azp": "console", "sub": "ada", "nonce": good["nonce"]});
    script.vouch(&both, &[]);
    assert!(script.exchange(&cookies, &query).is_ok());
    *script.provider.answer.lock().expect("one thread") = None;
    assert_eq!(script.exchange(&cookies, &query), Err(Refusal::NotVouched));
}

/// Nothing reaches the provider, for the answer is not that of a sign-in that this browser began.
#[test]
fn an_answer_to_another_sign_in_is_refused() {
    let script = Script::new(true);
    let (own, address) = script.begin();
    let (_, others) = script.begin();
    let state = parameter(&address, "state");
    let good = format!("code=c&state={state}&iss=https%3A%2F%2Flogin.example.com");
    for (headers, query, want) in [
        (&HeaderMap::new(), good.clone(), Refusal::NoLogin),
        (
            &cookies("__Host-insula-console-login=forged"),
            good.clone(),
            Refusal::NoLogin,
        ),
        (
            &own,
            good.replace(&state, &parameter(&others, "state")),
            Refusal::OtherLogin,
        ),
        (&own, good.replace(&state, ""), Refusal::OtherLogin),
        (&own, "code=c".to_owned(), Refusal::OtherLogin),
        (&own, format!("{good}&state=x"), Refusal::OtherLogin),
        (&own, good.replace("login.", "evil."), Refusal::OtherProvider),
        (&own, format!("code=c&state={state}"), Refusal::OtherProvider),
        (&own, good.replace("code=c", "error=access_denied"), Refusal::NotVouched),
    ] {
        assert_eq!(script.exchange(headers, &query), Err(want), "{query}");
    }
    // Another provider since the sign-in began.
    let mut later = Script::new(true);
    later.login.issuer = "https://evil.example.com".to_owned();
    let there = good.replace("login.", "evil.");
    assert_eq!(later.exchange(&own, &there), Err(Refusal::OtherProvider));
    assert_eq!(*script.provider.forms.lock().expect("one thread"), [""; 0]);
    let late = Timestamp(NOW.0 + LOGIN_SECONDS);
    let exchanged = script
        .login
        .exchange(&script.key, late, &own, Returned::read(&good))
        .now_or_never();
    assert_eq!(exchanged.expect("no wait"), Err(Refusal::NoLogin));
}

#[test]
fn a_renewal_is_for_the_same_viewer() {
    let script = Script::new(false);
    let kept = r#"{"refresh":"r1","subject":"ada"}"#;
    let claims = |subject: &str| json!({"iss": ISSUER, "aud": "console", "sub": subject});
    script.vouch(&claims("ada"), &[("refresh_token", "r2")]);
    let renewed = script.renew(kept).expect("a token");
    // The session ends when it would have.
    assert_eq!(renewed.expires, Timestamp(NOW.0 + 60));
    assert_eq!(renewed.renewal.as_deref(), Some(r#"{"refresh":"r2","subject":"ada"}"#));
    script.vouch(&claims("ada"), &[]);
    assert_eq!(script.renew(kept).expect("a token").renewal.as_deref(), Some(kept));
    script.vouch(&claims("eve"), &[]);
    assert_eq!(script.renew(kept), Err(Refusal::WrongToken));
    *script.provider.answer.lock().expect("one thread") = None;
    assert_eq!(script.renew(kept), Err(Refusal::NotRenewed));
    let without = script.login.renew(&script.key, NOW, &HeaderMap::new()).now_or_never();
    assert_eq!(without.expect("no wait"), Err(Refusal::NotRenewed));
    // What does not fit into a cookie is not kept.
    assert_eq!(renewal(&"r".repeat(TOKEN_BYTES_MAX), "ada"), None);
}

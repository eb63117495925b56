//! Verification of tokens, and mapping of their claims to users.

use super::compile::{Giver, Issuer, Rule, Source};
use super::error::JwtError;
use super::expression::{self, Over};
use super::keys::Keys;
use crate::bearer::TOKEN_BYTES_MAX;
use crate::user::UserInfo;
use insula_api::{Json, Timestamp};
use insula_cel::{Budget, OBJECT_COST_MAX};
use insula_meter::Meter;
use serde::Deserialize;
use serde_json::{Map, json};

/// Allowed clock difference between the issuer and this server, in seconds.
const LEEWAY: f64 = 10.0;
/// Prefix of the system's own users and groups.
const SYSTEM: &str = "system:";

/// Prefixes of groups for which only clusters vouch.
const OF_CLUSTERS: [&str; 2] = ["system:serviceaccounts", "system:cluster:"];

/// Returns the issuer that a token claims. Nothing is verified: the claim only selects the keys.
pub fn issuer_of(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        iss: String,
    }
    if token.len() > TOKEN_BYTES_MAX || token.split('.').count() != 3 {
        return None;
    }
    let named: Named = jsonwebtoken::dangerous::insecure_decode_claims(token).ok()?;
    Some(named.iss)
}

impl Issuer {
    /// Returns true if tokens with this audience are accepted.
    pub fn has_audience(&self, audience: &str) -> bool {
        self.audiences.iter().any(|own| own == audience)
    }

    /// Verifies a token at the time `now` and returns its user. The meter pays for the issuer's
    /// expressions.
    ///
    /// # Errors
    /// Fails if the token is not valid; after [`JwtError::UnknownKey`], it may be with newer keys.
    pub fn user(&self, token: &str, keys: &Keys, now: Timestamp, meter: &Meter) -> Result<UserInfo, JwtError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(JwtError::Malformed);
        }
        let claims = keys.signed(token)?;
        self.check_standing(&claims, now)?;
        let claims = Json::Object(claims);
        let budget = &mut Budget::new(OBJECT_COST_MAX, meter);
        let user = self.mapped(&claims, budget)?;
        for (claim, value) in &self.required {
            if claims[claim] != value.as_str() {
                return Err(claim_error(format!("claim {claim} is not the required {value:?}")));
            }
        }
        check(&self.rules, Over::Claims, &claims, budget)?;
        let shown = json!({
            "username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra,
        });
        check(&self.user_rules, Over::User, &shown, budget)?;
        // Authentication adds `system:authenticated` after the rules, which cover the issuer's own
        // groups only.
        let UserInfo {
            name,
            uid,
            groups,
            extra,
        } = user;
        let user = UserInfo::authenticated(name, uid, groups);
        Ok(UserInfo { extra, ..user })
    }

    fn check_standing(&self, claims: &Map<String, Json>, now: Timestamp) -> Result<(), JwtError> {
        let seconds = |claim: &str| claims.get(claim).and_then(Json::as_f64);
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^52")]
        let now = now.0 as f64;
        if claims.get("iss").and_then(Json::as_str) != Some(&*self.url) {
            return Err(JwtError::Issuer);
        }
        if seconds("exp").is_none_or(|end| end <= now) {
            return Err(JwtError::Expired);
        }
        if claims.contains_key("nbf") && seconds("nbf").is_none_or(|begin| begin > now + LEEWAY) {
            return Err(JwtError::Early);
        }
        let is_ours = |audience: &Json| {
            audience
                .as_str()
                .is_some_and(|one| self.audiences.iter().any(|own| own == one))
        };
        let meant = match claims.get("aud") {
            Some(Json::Array(audiences)) => audiences.iter().any(is_ours),
            Some(audience) => is_ours(audience),
            None => false,
        };
        if meant { Ok(()) } else { Err(JwtError::Audience) }
    }

    fn mapped(&self, claims: &Json, budget: &mut Budget) -> Result<UserInfo, JwtError> {
        let name = match &self.username {
            Source::Claim { name, prefix } => {
                // An unconfirmed address may belong to anybody.
                let verified = &claims["email_verified"];
                if name == "email" && !verified.is_null() && *verified != true {
                    return Err(claim_error("the email address is not verified"));
                }
                let value = claims[name].as_str().filter(|value| !value.is_empty());
                let value =
                    value.ok_or_else(|| claim_error(format!("claim {name} is not a text that names the user")))?;
                format!("{prefix}{value}")
            }
            Source::Expression(program) => match evaluated(program, claims, budget)? {
                Json::String(name) if !name.is_empty() => name,
                _ => return Err(claim_error("the expression of the user's name gives no text")),
            },
        };
        let mut groups = match &self.groups {
            None => Vec::new(),
            Some(Source::Claim { name, prefix }) => {
                let groups =
                    texts(&claims[name]).ok_or_else(|| claim_error(format!("claim {name} is no list of groups")))?;
                groups.iter().map(|group| format!("{prefix}{group}")).collect()
            }
            Some(Source::Expression(program)) => listed(program, claims, budget)?,
        };
        let uid = match &self.uid {
            None => String::new(),
            Some(Source::Claim { name, .. }) => match &claims[name] {
                Json::String(uid) => uid.clone(),
                _ => {
                    return Err(claim_error(format!(
                        "claim {name} is not a text that tells users apart"
                    )));
                }
            },
            Some(Source::Expression(program)) => match evaluated(program, claims, budget)? {
                Json::String(uid) => uid,
                _ => return Err(claim_error("the expression of the user's UID gives no text")),
            },
        };
        // A service account's name without a cluster would count in every cluster.
        if name.starts_with(SYSTEM) {
            return Err(claim_error("names that begin with system: are the system's own"));
        }
        groups.retain(|group| match self.giver {
            Giver::Operator => !OF_CLUSTERS.iter().any(|own| group.starts_with(own)),
            Giver::Workspace => !group.starts_with(SYSTEM),
        });
        let mut user = UserInfo {
            name,
            uid,
            groups,
            ..UserInfo::default()
        };
        for (key, program) in &self.extra {
            let values = listed(program, claims, budget)?;
            if !values.is_empty() {
                user.extra.insert(key.clone(), values);
            }
        }
        Ok(user)
    }
}

fn claim_error(why: impl Into<String>) -> JwtError {
    JwtError::Claims(why.into())
}

fn evaluated(program: &insula_cel::Program, claims: &Json, budget: &mut Budget) -> Result<Json, JwtError> {
    expression::evaluate(program, Over::Claims, claims, budget).map_err(claim_error)
}

fn listed(program: &insula_cel::Program, claims: &Json, budget: &mut Budget) -> Result<Vec<String>, JwtError> {
    let value = evaluated(program, claims, budget)?;
    texts(&value).ok_or_else(|| claim_error("an expression gives neither a text nor a list of texts"))
}

/// Reads a text or a list of texts. Null is an empty list; empty texts are left out.
fn texts(value: &Json) -> Option<Vec<String>> {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    match value {
        Json::Null => Some(Vec::new()),
        Json::String(text) => Some(some(text).into_iter().collect()),
        Json::Array(list) => {
            let texts: Option<Vec<&str>> = list.iter().map(Json::as_str).collect();
            texts.map(|texts| texts.into_iter().filter_map(some).collect())
        }
        _ => None,
    }
}

fn check(rules: &[Rule], over: Over, value: &Json, budget: &mut Budget) -> Result<(), JwtError> {
    for Rule { program, message } in rules {
        match expression::evaluate(program, over, value, budget) {
            Ok(Json::Bool(true)) => {}
            Ok(_) if message.is_empty() => return Err(claim_error(format!("it fails the rule {}", program.source()))),
            Ok(_) => return Err(claim_error(message.clone())),
            Err(why) => return Err(claim_error(why)),
        }
    }
    Ok(())
}

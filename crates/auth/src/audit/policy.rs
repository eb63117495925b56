//! Audit policies: `audit.k8s.io/v1` Policy, as kube-apiserver reads it.

use super::stage::{Stage, Stages};
use crate::{attributes::Attributes, user::UserInfo};
use insula_api::{FieldError, FieldPath, Json};
use serde::{Deserialize, de::IgnoredAny};

/// Level of detail of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// No event.
    #[default]
    None,
    /// User, request, time and status code.
    Metadata,
    /// The object in the request, too.
    Request,
    /// The object in the answer, too.
    RequestResponse,
}

impl Level {
    /// Returns Kubernetes' name of the level.
    pub fn word(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// A list of rules. The first rule that matches a request decides; requests without a matching rule
/// are not recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
}

/// The policy's verdict on one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Level of its events.
    pub level: Level,
    /// Stages without an event.
    pub omit_stages: Stages,
    /// True if objects are recorded without `metadata.managedFields`.
    pub omit_managed_fields: bool,
}

/// Error of an invalid policy. Names the field, the problem and the correct form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPolicy(String);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: Option<IgnoredAny>,
    #[serde(default)]
    rules: Vec<Json>,
    #[serde(default)]
    omit_stages: Vec<String>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenRule {
    #[serde(default)]
    level: String,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    level: Level,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    non_resource_urls: Vec<String>,
    /// Stages of the rule and of the policy.
    omit_stages: Stages,
    omit_managed_fields: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

impl Policy {
    /// Parses a policy; refuses unknown fields.
    ///
    /// # Errors
    /// Returns all errors of its rules, or the reason why it is not a policy.
    pub fn parse(document: &Json) -> Result<Policy, InvalidPolicy> {
        let document = Document::deserialize(document).map_err(|error| InvalidPolicy(error.to_string()))?;
        if (document.api_version.as_str(), document.kind.as_str()) != ("audit.k8s.io/v1", "Policy") {
            let Document { api_version, kind, .. } = document;
            let why = format!("it is a {kind:?} of {api_version:?}; write apiVersion: audit.k8s.io/v1, kind: Policy");
            return Err(InvalidPolicy(why));
        }
        if document.rules.is_empty() {
            let why = "rules: Required value: a policy without rules records nothing; `rules: [{level: None}]` says so";
            return Err(InvalidPolicy(why.to_owned()));
        }
        let mut errors = Vec::new();
        let everywhere = stages(
            &document.omit_stages,
            &FieldPath::root().child("omitStages"),
            &mut errors,
        );
        let mut rules = Vec::with_capacity(document.rules.len());
        for (index, rule) in document.rules.iter().enumerate() {
            let at = FieldPath::root().child("rules").index(index);
            match WrittenRule::deserialize(rule) {
                Ok(rule) => rules.push(rule.checked(everywhere, document.omit_managed_fields, &at, &mut errors)),
                Err(error) => errors.push(FieldError::invalid(&at, rule, error.to_string())),
            }
        }
        match errors.is_empty() {
            true => Ok(Policy { rules }),
            false => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                Err(InvalidPolicy(errors.join("; ")))
            }
        }
    }

    /// Returns the verdict of the first rule that matches.
    pub fn verdict(&self, user: &UserInfo, attributes: &Attributes) -> Verdict {
        let rule = self.rules.iter().find(|rule| rule.fits(user, attributes));
        rule.map_or_else(Verdict::default, |rule| Verdict {
            // Secrets are worth more than any record of them.
            level: match holds_secrets(attributes) {
                true => rule.level.min(Level::Metadata),
                false => rule.level,
            },
            omit_stages: rule.omit_stages,
            omit_managed_fields: rule.omit_managed_fields,
        })
    }
}

fn holds_secrets(attributes: &Attributes) -> bool {
    let Attributes {
        group,
        resource,
        subresource,
        ..
    } = attributes;
    matches!(
        (group.as_str(), resource.as_str(), subresource.as_str()),
        ("", "secrets", _) | ("", "serviceaccounts", "token") | ("authentication.k8s.io", "tokenreviews", _)
    )
}

fn stages(written: &[String], at: &FieldPath, errors: &mut Vec<FieldError>) -> Stages {
    let mut known = Stages::default();
    for (index, stage) in written.iter().enumerate() {
        match Stage::ALL.into_iter().find(|known| known.word() == stage) {
            Some(stage) => known.add(stage),
            None => {
                let supported = Stage::ALL.map(Stage::word);
                errors.push(FieldError::not_supported(
                    &at.index(index),
                    &Json::from(stage.as_str()),
                    &supported,
                ));
            }
        }
    }
    known
}

impl WrittenRule {
    fn checked(
        self,
        everywhere: Stages,
        omit_managed_fields: bool,
        at: &FieldPath,
        errors: &mut Vec<FieldError>,
    ) -> Rule {
        const LEVELS: [Level; 4] = [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];
        let level = LEVELS.into_iter().find(|level| level.word() == self.level);
        if level.is_none() {
            let at = at.child("level");
            errors.push(match self.level.is_empty() {
                true => FieldError::required(&at, ""),
                false => FieldError::not_supported(&at, &Json::from(self.level), &LEVELS.map(Level::word)),
            });
        }
        let about_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if about_resources && !self.non_resource_urls.is_empty() {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            let value = Json::from(self.non_resource_urls.clone());
            errors.push(FieldError::invalid(&at.child("nonResourceURLs"), &value, why));
        }
        for (index, url) in self.non_resource_urls.iter().enumerate() {
            if let Some(why) = wrong_url(url) {
                let at = at.child("nonResourceURLs").index(index);
                errors.push(FieldError::invalid(&at, &Json::from(url.as_str()), why));
            }
        }
        for (index, named) in self.resources.iter().enumerate() {
            if !named.resource_names.is_empty() && named.resources.is_empty() {
                let at = at.child("resources").index(index).child("resourceNames");
                let value = Json::from(named.resource_names.clone());
                let why = "using resourceNames requires at least one resource";
                errors.push(FieldError::invalid(&at, &value, why));
            }
        }
        let mut omit_stages = stages(&self.omit_stages, &at.child("omitStages"), errors);
        omit_stages.extend(everywhere);
        Rule {
            level: level.unwrap_or_default(),
            users: self.users,
            user_groups: self.user_groups,
            verbs: self.verbs,
            resources: self.resources,
            namespaces: self.namespaces,
            non_resource_urls: self.non_resource_urls,
            omit_stages,
            omit_managed_fields: self.omit_managed_fields.unwrap_or(omit_managed_fields),
        }
    }
}

fn wrong_url(url: &str) -> Option<&'static str> {
    if url == "*" {
        return None;
    }
    if !url.starts_with('/') {
        return Some("non-resource URL rules must begin with a '/' character");
    }
    let star_inside = url.trim_end_matches('*').contains('*') || url.ends_with("**");
    star_inside.then_some("non-resource URL wildcards '*' must be the final character of the rule")
}

impl Rule {
    fn fits(&self, user: &UserInfo, attributes: &Attributes) -> bool {
        let among = |list: &[String], text: &str| list.is_empty() || list.iter().any(|entry| entry == text);
        let about_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        let about_urls = !self.non_resource_urls.is_empty();
        among(&self.users, &user.name)
            && (self.user_groups.is_empty() || self.user_groups.iter().any(|group| user.is_in(group)))
            && among(&self.verbs, attributes.verb.name())
            && match attributes.is_resource_request {
                true if about_resources => {
                    let named = |named: &GroupResources| named.fits(attributes);
                    among(&self.namespaces, &attributes.namespace)
                        && (self.resources.is_empty() || self.resources.iter().any(named))
                }
                false if about_resources => false,
                false if about_urls => self.non_resource_urls.iter().any(|url| is_path(url, &attributes.path)),
                true => !about_urls,
                false => true,
            }
    }
}

fn is_path(url: &str, path: &str) -> bool {
    url == path || url.strip_suffix('*').is_some_and(|start| path.starts_with(start))
}

impl GroupResources {
    fn fits(&self, attributes: &Attributes) -> bool {
        let Attributes {
            group,
            resource,
            subresource,
            name,
            ..
        } = attributes;
        let whole = match subresource.is_empty() {
            true => resource.clone(),
            false => format!("{resource}/{subresource}"),
        };
        let is = |entry: &String| {
            *entry == whole
                || entry == "*"
                || (!subresource.is_empty() && entry.strip_prefix("*/") == Some(subresource))
                || entry.strip_suffix("/*") == Some(resource)
        };
        self.group == *group
            && (self.resources.is_empty() || self.resources.iter().any(is))
            && (self.resource_names.is_empty() || self.resource_names.contains(name))
    }
}

#[cfg(test)]
mod tests;

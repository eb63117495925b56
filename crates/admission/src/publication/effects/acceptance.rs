//! Words by which somebody accepts effects of a release.

use super::Effect;
use insula_api::{
    Json,
    names::effects::{self as names, Consent},
};

/// Somebody's word for effects: `field-removed:widgets.example.io/v2:.spec.backup=31`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acceptance {
    /// The name of an effect, or its kind.
    name: String,
    /// Objects up to which it counts.
    most: u64,
}

impl Acceptance {
    /// Reads one; the error names what is wrong.
    ///
    /// # Errors
    /// The text behind `=` is no number, or the name begins with no kind of effect.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, most) = match text.rsplit_once('=') {
            // A quoted name in the path may have the mark, too.
            Some((name, most)) if !most.contains(']') => {
                let most = most.parse();
                (
                    name,
                    most.map_err(|_| format!("{text:?}: what follows = is no number of objects"))?,
                )
            }
            _ => (text, u64::MAX),
        };
        let name = name.trim().to_owned();
        let kind = kind_of(&name);
        if !names::ALL.contains(&kind) {
            let known = names::ALL.join(", ");
            return Err(format!("{kind:?} is no kind of effect: {known}"));
        }
        if names::consent(kind) == Consent::Impossible {
            return Err(format!(
                "{kind} cannot be accepted: keep the version in spec.versions, not served"
            ));
        }
        Ok(Acceptance { name, most })
    }

    /// Reads those of an object's annotations, separated by commas. A word that cannot be read
    /// accepts nothing, and `wrong` gets the reason.
    pub fn all(object: &Json, annotations: &[&str], mut wrong: impl FnMut(String)) -> Vec<Acceptance> {
        let mut accepted = Vec::new();
        for name in annotations {
            let text = object["metadata"]["annotations"][*name].as_str().unwrap_or_default();
            for word in split_outside_quotes(text)
                .map(str::trim)
                .filter(|word| !word.is_empty())
            {
                match Acceptance::parse(word) {
                    Ok(word) => accepted.push(word),
                    Err(why) => wrong(format!("annotation {name} accepts nothing: {why}")),
                }
            }
        }
        accepted
    }

    /// Returns the text that was read.
    pub fn text(&self) -> String {
        match self.most {
            u64::MAX => self.name.clone(),
            most => format!("{}={most}", self.name),
        }
    }

    /// Returns true if it is about an effect of this name that reaches so many objects.
    pub fn covers(&self, id: &str, objects: u64) -> bool {
        (self.name == kind_of(id) || self.name == id) && objects <= self.most
    }
}

/// Splits words at commas outside of the quoted names of paths.
fn split_outside_quotes(text: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |character| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match character {
            '\\' => is_escaped = is_quoted && !was_escaped,
            '\'' if !was_escaped => is_quoted = !is_quoted,
            _ => {}
        }
        character == ',' && !is_quoted
    })
}

/// Returns the kind of an effect of this name.
fn kind_of(id: &str) -> &str {
    id.split_once(':').map_or(id, |(kind, _)| kind)
}

/// Returns true if an effect of this name on so many objects needs somebody's word, and has none.
pub fn is_open(id: &str, consent: Consent, objects: u64, accepted: &[Acceptance]) -> bool {
    consent != Consent::Unneeded && is_unanswered(id, objects, accepted)
}

/// Returns true if an effect of this name reaches objects, and no word is about it.
fn is_unanswered(id: &str, objects: u64, accepted: &[Acceptance]) -> bool {
    objects > 0 && !accepted.iter().any(|one| one.covers(id, objects))
}

/// Returns the effects that reach objects, need somebody's word and that nobody has accepted.
pub fn unaccepted<'e>(effects: &'e [Effect], accepted: &[Acceptance]) -> Vec<&'e Effect> {
    let open = |effect: &&Effect| is_open(&effect.id(), effect.consent(), effect.objects as u64, accepted);
    effects.iter().filter(open).collect()
}

/// Returns the effects to warn of: those that are unaccepted, and a version that a definition of a
/// workspace stops to serve, which nobody is asked to confirm.
pub fn unanswered<'e>(effects: &'e [Effect], accepted: &[Acceptance]) -> Vec<&'e Effect> {
    let is_told = |effect: &&Effect| {
        (effect.consent() != Consent::Unneeded || effect.ends_local_version())
            && is_unanswered(&effect.id(), effect.objects as u64, accepted)
    };
    effects.iter().filter(is_told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Names in paths may have the marks of words.
    #[test]
    fn words_end_outside_of_quoted_names() {
        let text =
            r"field-removed:x/v1:.spec['a,b'],value-hidden:x/v1:.spec['a=b'], value-hidden:x/v1:.spec['it\'s, a']=3";
        let object = json!({"metadata": {"annotations": {"words": text}}});
        let words = Acceptance::all(&object, &["words"], |why| panic!("{why}"));
        let texts: Vec<String> = words.iter().map(Acceptance::text).collect();
        assert_eq!(
            texts,
            [
                "field-removed:x/v1:.spec['a,b']",
                "value-hidden:x/v1:.spec['a=b']",
                r"value-hidden:x/v1:.spec['it\'s, a']=3"
            ]
        );
        assert!(words[2].covers(r"value-hidden:x/v1:.spec['it\'s, a']", 3));
    }
}

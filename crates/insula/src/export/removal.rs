//! Versions that a publication removes: the tool asks before it removes them, and tells the server
//! that it was said twice.

use anyhow::bail;
use insula_admission::publication::{Removal, confirm as set_confirmation};
use serde_json::Value;

use crate::ask;

/// The caller's consent to removals.
pub(super) struct Consent<'a> {
    /// Versions that flags name, as `widgets.example.io/v1` or `widgets/v1`.
    pub(super) named: &'a [String],
    /// True if versions that nobody uses may go.
    pub(super) unused: bool,
}

impl Consent<'_> {
    /// Refuses flags that name no removed version.
    fn refuse_strangers(&self, removals: &[Removal]) -> anyhow::Result<()> {
        let is_stranger = |name: &&String| !removals.iter().any(|removal| removal.is_named(name));
        match self.named.iter().find(is_stranger) {
            Some(name) => bail!("--remove {name}: this publication removes no such version"),
            None => Ok(()),
        }
    }

    /// Returns true for a removal that a flag confirms.
    fn covers(&self, removal: &Removal) -> bool {
        self.unused && removal.tenants == 0 || self.named.iter().any(|flag| removal.is_named(flag))
    }
}

fn refuse(removal: &Removal) {
    let (name, usage) = (removal.name(), removal.usage());
    let or_yes = if removal.tenants == 0 { " or --yes" } else { "" };
    eprintln!("error: this would remove {name} ({usage}): confirm it by --remove {name}{or_yes}");
}

/// Returns true if flags confirm all removals; the others are printed as errors.
///
/// # Errors
/// A flag names a version that is not removed.
pub(super) fn is_confirmed(removals: &[Removal], consent: &Consent<'_>) -> anyhow::Result<bool> {
    consent.refuse_strangers(removals)?;
    let open: Vec<&Removal> = removals.iter().filter(|removal| !consent.covers(removal)).collect();
    open.iter().for_each(|removal| refuse(removal));
    Ok(open.is_empty())
}

/// Asks for consent to removals that no flag names: at a terminal by a question, else by an error
/// that names the flag. Sets the annotation of the export that confirms them. Returns false if one
/// is not confirmed.
///
/// # Errors
/// A flag names a version that is not removed, or the terminal cannot be read.
pub(super) fn confirm(removals: &[Removal], consent: &Consent<'_>, export: &mut Value) -> anyhow::Result<bool> {
    consent.refuse_strangers(removals)?;
    let mut confirmed = Vec::new();
    let mut refused = false;
    for removal in removals {
        let (name, usage) = (removal.name(), removal.usage());
        if !removal.deprecated {
            eprintln!(
                "warning: {name} was never deprecated: its users got no warning; publish it with deprecated: true first"
            );
        }
        if consent.named.iter().any(|flag| removal.is_named(flag)) {
            confirmed.push(removal);
        } else if consent.unused && removal.tenants == 0 {
            // The server refuses it if that has changed.
        } else if ask::is_interactive() {
            match ask::confirm(&format!("Remove {name} ({usage})?"))? {
                true => confirmed.push(removal),
                false => refused = true,
            }
        } else {
            refuse(removal);
            refused = true;
        }
    }
    set_confirmation(confirmed, export);
    Ok(!refused)
}

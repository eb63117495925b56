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

/// Asks for consent to removals that no flag names: at a terminal by a question, else by an error
/// that names the flag. Sets the annotation of the export that confirms them. Returns false if one
/// is not confirmed.
///
/// # Errors
/// A flag names a version that is not removed, or the terminal cannot be read.
pub(super) fn confirm(removals: &[Removal], consent: &Consent<'_>, export: &mut Value) -> anyhow::Result<bool> {
    let is_removed = |name: &&String| !removals.iter().any(|removal| removal.is_named(name));
    if let Some(name) = consent.named.iter().find(is_removed) {
        bail!("--remove {name}: this publication removes no such version");
    }
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
            let or_yes = if removal.tenants == 0 { " or --yes" } else { "" };
            eprintln!("error: this would remove {name} ({usage}): confirm it by --remove {name}{or_yes}");
            refused = true;
        }
    }
    set_confirmation(confirmed, export);
    Ok(!refused)
}

//! Conflicts: applied fields that others own with other values. Messages are Kubernetes'.

use super::managers::{Manager, Operation};
use crate::fields::{FieldSet, Path};
use std::{collections::BTreeMap, fmt};

/// One field that another manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Its manager.
    pub manager: Manager,
    /// Path of the field.
    pub field: Path,
}

impl Conflict {
    /// Returns the message for one field: `conflict with "kubectl" using v1`.
    pub fn message(&self) -> String {
        format!("conflict with {}", shown(&self.manager))
    }
}

/// All conflicts of an apply, by manager; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    pub(super) fn from_sets(sets: BTreeMap<Manager, FieldSet>) -> Option<Conflicts> {
        let conflicts = sets.into_iter().flat_map(|(manager, set)| {
            set.paths().into_iter().map(move |field| Conflict {
                manager: manager.clone(),
                field,
            })
        });
        Some(Conflicts(conflicts.collect())).filter(|found| !found.0.is_empty())
    }
}

fn shown(manager: &Manager) -> String {
    let mut text = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        text += &format!(" with subresource {:?}", manager.subresource);
    }
    if manager.operation == Operation::Update {
        text += &format!(" using {}", manager.api_version);
    }
    text
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = self.0.as_slice() {
            return write!(f, "Apply failed with 1 conflict: {}: {}", one.message(), one.field);
        }
        write!(f, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut last: Option<&Manager> = None;
        for conflict in &self.0 {
            if last != Some(&conflict.manager) {
                let line = if last.is_some() { "\n" } else { "" };
                write!(f, "{line}conflicts with {}:", shown(&conflict.manager))?;
                last = Some(&conflict.manager);
            }
            write!(f, "\n- {}", conflict.field)?;
        }
        Ok(())
    }
}

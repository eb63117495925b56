//! Versions of etcd, by what is known of their watches. The store follows one watch for ever, so an
//! event that etcd loses would be missing until the next start.

use std::fmt;

/// Version of an etcd, as `3.5.13`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

/// The first versions of each line whose watches lose no events that is known of, as Kubernetes
/// requires them for reads that trust a watch. Later lines began with the corrections.
const SOUND: [Version; 3] = [Version::new(3, 4, 31), Version::new(3, 5, 13), Version::new(3, 6, 0)];
/// The oldest version that is used without a setting: that of Debian 12.
const USED_FROM: Version = Version::new(3, 4, 23);

/// Judgement of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Nothing is known against it.
    Sound,
    /// Its watches may lose events; it is used with a warning.
    Doubtful,
    /// It is not used, unless the settings say so.
    Refused,
}

impl Version {
    const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Version { major, minor, patch }
    }

    /// Reads a version as etcd reports it, with or without a suffix: `3.6.0-rc.3`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.split(['-', '+']).next()?;
        let mut parts = text.split('.').map(|part| part.parse().ok());
        let version = Version::new(parts.next()??, parts.next()??, parts.next()??);
        parts.next().is_none().then_some(version)
    }

    /// Returns the judgement of this version.
    fn trust(self) -> Trust {
        let is_of_line = |sound: &&Version| (sound.major, sound.minor) == (self.major, self.minor);
        let [first, .., last] = SOUND;
        match SOUND.iter().find(is_of_line).unwrap_or(&last) {
            sound if self >= *sound => Trust::Sound,
            _ if (USED_FROM..first).contains(&self) => Trust::Doubtful,
            _ => Trust::Refused,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Returns the judgement of a version as etcd reports it. One that cannot be read is refused; those
/// that are refused are doubtful where the settings accept them.
pub fn trust(version: &str, accept_old: bool) -> Trust {
    match Version::parse(version).map_or(Trust::Refused, Version::trust) {
        Trust::Refused if accept_old => Trust::Doubtful,
        judged => judged,
    }
}

/// Describes which versions lose no events.
pub fn sound_versions() -> String {
    let [a, b, c] = SOUND;
    format!("{a}, {b} or {c} and later")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_its_first_sound_version() {
        let rows = [
            ("3.3.27", Trust::Refused),
            ("3.4.22", Trust::Refused),
            ("3.4.23", Trust::Doubtful),
            ("3.4.30", Trust::Doubtful),
            ("3.4.31", Trust::Sound),
            ("3.5.0", Trust::Refused),
            ("3.5.12", Trust::Refused),
            ("3.5.13", Trust::Sound),
            ("3.6.0-rc.3", Trust::Sound),
            ("3.6.5", Trust::Sound),
            ("3.10.1", Trust::Sound),
            ("4.0.0", Trust::Sound),
            ("2.3.8", Trust::Refused),
            ("3.4", Trust::Refused),
            ("", Trust::Refused),
            ("3.5.13.1", Trust::Refused),
        ];
        for (version, judged) in rows {
            assert_eq!(trust(version, false), judged, "{version}");
            let is_sound = trust(version, true) == Trust::Sound;
            assert_eq!(
                (is_sound, trust(version, true) == Trust::Refused),
                (judged == Trust::Sound, false)
            );
        }
    }
}

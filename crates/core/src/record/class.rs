//! [`FailureClass`]: the kinds of failures of a run: those that a log tells, and those that only its supervisor sees.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::failure::{CLASSES, Class};

/// Why an attempt failed. Records hold its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// A cause that a message names.
    Known(Class),
    /// It was ended because it neither wrote nor worked.
    Stalled,
    /// It failed by itself, for a reason that no signature knows.
    ProgramError,
    /// It could not be started.
    NotStarted,
    /// A class of another version, by its name.
    Other(String),
}

/// The classes that only a supervisor sees, with names and titles.
const OWN: [(FailureClass, &str, &str); 3] = [
    (FailureClass::Stalled, "stalled", "it hung: no output and no work"),
    (FailureClass::ProgramError, "program_error", "the program failed"),
    (FailureClass::NotStarted, "not_started", "the command could not be started"),
];

impl FailureClass {
    /// Its name for programs: `gpu_memory`, `stalled`.
    pub fn name(&self) -> &str {
        match self {
            Self::Known(class) => class.name(),
            Self::Other(name) => name,
            own => OWN.iter().find(|row| row.0 == *own).map_or("", |row| row.1),
        }
    }

    /// The class called `name`.
    pub fn of_name(name: &str) -> Self {
        let known = CLASSES.iter().find(|row| row.1 == name).map(|row| Self::Known(row.0));
        let own = || OWN.iter().find(|row| row.1 == name).map(|row| row.0.clone());
        known.or_else(own).unwrap_or_else(|| Self::Other(name.to_owned()))
    }

    /// What happened, in words.
    pub fn title(&self) -> String {
        match self {
            Self::Known(class) => class.title().to_owned(),
            Self::Other(name) if name.is_empty() => "it failed".to_owned(),
            Self::Other(name) => format!("it failed ({})", name.replace('_', " ")),
            own => OWN.iter().find(|row| row.0 == *own).map_or("", |row| row.2).to_owned(),
        }
    }
}

impl Default for FailureClass {
    fn default() -> Self {
        Self::Other(String::new())
    }
}

impl From<Class> for FailureClass {
    fn from(class: Class) -> Self {
        Self::Known(class)
    }
}

impl Serialize for FailureClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for FailureClass {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| Self::of_name(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_again_and_told_apart() {
        let known = CLASSES.iter().map(|row| FailureClass::Known(row.0));
        let own = OWN.iter().map(|row| row.0.clone());
        let all: Vec<_> = known.chain(own).chain([FailureClass::Other("of_tomorrow".to_owned())]).collect();
        for (at, class) in all.iter().enumerate() {
            let text = serde_json::to_string(class).unwrap();
            assert_eq!(serde_json::from_str::<FailureClass>(&text).unwrap(), *class);
            assert!(!class.title().is_empty() && !class.title().contains('_'), "{class:?}");
            assert!(all[..at].iter().all(|other| other.name() != class.name()), "{class:?}");
        }
    }
}

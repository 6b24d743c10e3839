//! Tokens without a file: bytes, or the characters of what is trained on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// How text becomes tokens. It is kept with the weights, whose rows it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "vocabulary", rename_all = "snake_case")]
pub enum Vocabulary {
    /// A token is a byte of UTF-8.
    Bytes,
    /// A token is a character that the training's texts hold.
    Characters {
        /// In the order of their tokens: by code point.
        characters: Vec<char>,
    },
}

impl Vocabulary {
    /// The characters of `texts`.
    pub fn of_characters<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let found: std::collections::BTreeSet<char> = texts.into_iter().flat_map(str::chars).collect();
        Self::Characters { characters: found.into_iter().collect() }
    }

    /// How many tokens there are.
    pub fn size(&self) -> u64 {
        match self {
            Self::Bytes => 256,
            Self::Characters { characters } => characters.len() as u64,
        }
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// When the text has a character that the vocabulary has not.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TrainError> {
        match self {
            Self::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Self::Characters { characters } => {
                let numbers: BTreeMap<char, u32> = characters.iter().copied().zip(0..).collect();
                let token = |c: char| {
                    let unknown = || {
                        TrainError::Vocabulary(format!(
                            "the vocabulary has no character {c:?}: it was not in the texts that were trained on"
                        ))
                    };
                    numbers.get(&c).copied().ok_or_else(unknown)
                };
                text.chars().map(token).collect()
            }
        }
    }

    /// The text of tokens. Bytes that are no UTF-8, as a model may write them, become U+FFFD.
    ///
    /// # Errors
    /// When a token is none of the vocabulary's: the weights are of another one.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TrainError> {
        let unknown =
            |token: u32| TrainError::Vocabulary(format!("token {token} is beyond the vocabulary's {}", self.size()));
        match self {
            Self::Bytes => {
                let bytes: Result<Vec<u8>, _> =
                    tokens.iter().map(|token| u8::try_from(*token).map_err(|_| unknown(*token))).collect();
                Ok(String::from_utf8_lossy(&bytes?).into_owned())
            }
            Self::Characters { characters } => tokens
                .iter()
                .map(|token| characters.get(*token as usize).copied().ok_or_else(|| unknown(*token)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_survive_their_tokens() {
        for text in ["", "Once upon a time", "naïve 🙂\n\0"] {
            for vocabulary in [Vocabulary::Bytes, Vocabulary::of_characters([text])] {
                let tokens = vocabulary.encode(text).unwrap();
                assert!(tokens.iter().all(|token| u64::from(*token) < vocabulary.size()));
                assert_eq!(vocabulary.decode(&tokens).unwrap(), text);
                let kept = serde_json::to_string(&vocabulary).unwrap();
                assert_eq!(serde_json::from_str::<Vocabulary>(&kept).unwrap(), vocabulary);
            }
        }
    }

    #[test]
    fn what_is_unknown_is_named() {
        let vocabulary = Vocabulary::of_characters(["ab"]);
        assert!(vocabulary.encode("abc").unwrap_err().to_string().contains("'c'"));
        assert!(vocabulary.decode(&[2]).unwrap_err().to_string().contains("token 2"));
        assert!(Vocabulary::Bytes.decode(&[256]).is_err());
        assert_eq!(Vocabulary::Bytes.decode(&[0xff]).unwrap(), "\u{fffd}");
    }
}

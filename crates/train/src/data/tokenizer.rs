//! How text becomes tokens: a model's tokenizer.json, or a vocabulary without a file.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tokenizers::Tokenizer as FileTokenizer;

use super::vocabulary::Vocabulary;
use crate::error::TrainError;

/// The file of a model's own tokenizer, as transformers names it.
const FILE: &str = "tokenizer.json";
/// What lies beside it and tells transformers the rest, the chat template too.
const SETTINGS: [&str; 3] = ["tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"];
/// The file of a vocabulary that has none of transformers'.
const OWN_FILE: &str = "tonnage_vocabulary.json";

/// A tokenizer that texts and generated tokens go through.
#[derive(Clone, Debug)]
pub enum Tokenizer {
    /// Bytes or characters.
    Vocabulary(Vocabulary),
    /// Of a tokenizer.json.
    File {
        /// What it holds.
        tokenizer: Box<FileTokenizer>,
        /// Where it lies, for copies of it and for errors.
        path: PathBuf,
    },
}

impl Tokenizer {
    /// The tokenizer.json at `path`, or in the folder `path`.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn of_file(path: &Path) -> Result<Self, TrainError> {
        let path = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
        let bytes = fs::read(&path).map_err(|error| TrainError::about_file(&path, error))?;
        let tokenizer = FileTokenizer::from_bytes(&bytes).map_err(|error| TrainError::Text {
            path: path.clone(),
            problem: format!("is no tokenizer.json: {error}"),
            hint: "`save_pretrained` of a fast tokenizer of transformers writes one",
        })?;
        Ok(Self::File { tokenizer: Box::new(tokenizer), path })
    }

    /// The one that lies beside a model's weights, where there is one.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn beside(folder: &Path) -> Result<Option<Self>, TrainError> {
        if folder.join(FILE).is_file() {
            return Self::of_file(&folder.join(FILE)).map(Some);
        }
        let own = folder.join(OWN_FILE);
        if !own.is_file() {
            return Ok(None);
        }
        let text = fs::read(&own).map_err(|error| TrainError::about_file(&own, error))?;
        let vocabulary = serde_json::from_slice(&text)
            .map_err(|error| TrainError::about_weights(&own, format!("is no vocabulary: {error}")))?;
        Ok(Some(Self::Vocabulary(vocabulary)))
    }

    /// Puts it beside a model's weights.
    ///
    /// # Errors
    /// When the disk has no room.
    pub fn save(&self, folder: &Path) -> Result<(), TrainError> {
        let (path, text) = match self {
            Self::Vocabulary(vocabulary) => {
                (folder.join(OWN_FILE), serde_json::to_string(vocabulary).unwrap_or_default())
            }
            Self::File { tokenizer, path } => (
                folder.join(FILE),
                tokenizer.to_string(true).map_err(|error| TrainError::about_weights(path, error.to_string()))?,
            ),
        };
        fs::write(&path, text).map_err(|error| TrainError::about_file(&path, error))?;
        for name in SETTINGS {
            let Some(from) = self.folder().map(|folder| folder.join(name)).filter(|from| from.is_file()) else {
                continue;
            };
            fs::copy(&from, folder.join(name)).map_err(|error| TrainError::about_file(&from, error))?;
        }
        Ok(())
    }

    /// Tokens, numbered from 0 without a gap.
    pub fn size(&self) -> u64 {
        match self {
            Self::Vocabulary(vocabulary) => vocabulary.size(),
            // Numbers may have gaps, and added tokens stand behind: what counts is the largest.
            Self::File { tokenizer, .. } => {
                tokenizer.get_vocab(true).values().max().map_or(0, |largest| u64::from(*largest) + 1)
            }
        }
    }

    /// The tokens of a text; `with_special` those that a model expects around it too, as BERT's `[CLS]`.
    ///
    /// # Errors
    /// When the text has what the vocabulary has not.
    pub fn encode(&self, text: &str, with_special: bool) -> Result<Vec<u32>, TrainError> {
        match self {
            Self::Vocabulary(vocabulary) => vocabulary.encode(text),
            Self::File { tokenizer, path } => {
                let encoded = tokenizer.encode_fast(text, with_special);
                encoded.map(|encoded| encoded.get_ids().to_vec()).map_err(|error| failed_read(path, &error.to_string()))
            }
        }
    }

    /// The tokens of a text that has all special ones already, each with the bytes it stands for.
    ///
    /// # Errors
    /// When the text has what the vocabulary has not.
    pub fn encode_with_places(&self, text: &str) -> Result<(Vec<u32>, Vec<Range<usize>>), TrainError> {
        match self {
            Self::Vocabulary(vocabulary) => {
                let tokens = vocabulary.encode(text)?;
                let places = match vocabulary {
                    Vocabulary::Bytes => (0..text.len()).map(|at| at..at + 1).collect(),
                    Vocabulary::Characters { .. } => {
                        text.char_indices().map(|(at, character)| at..at + character.len_utf8()).collect()
                    }
                };
                Ok((tokens, places))
            }
            Self::File { tokenizer, path } => {
                let encoded = tokenizer.encode(text, false).map_err(|error| failed_read(path, &error.to_string()))?;
                let places = encoded.get_offsets().iter().map(|(begin, end)| *begin..*end).collect();
                Ok((encoded.get_ids().to_vec(), places))
            }
        }
    }

    /// The folder of its file, where it has one.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Vocabulary(_) => None,
            Self::File { path, .. } => path.parent(),
        }
    }

    /// The text of tokens, without special ones.
    ///
    /// # Errors
    /// When a token is none of the vocabulary's.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TrainError> {
        match self {
            Self::Vocabulary(vocabulary) => vocabulary.decode(tokens),
            Self::File { tokenizer, path } => {
                let size = self.size();
                if let Some(token) = tokens.iter().find(|token| u64::from(**token) >= size) {
                    return Err(failed_read(
                        path,
                        &format!("token {token} is beyond its {size}: the model is of another tokenizer"),
                    ));
                }
                tokenizer.decode(tokens, true).map_err(|error| failed_read(path, &error.to_string()))
            }
        }
    }

    /// The number of a special token by its text.
    pub fn token(&self, text: &str) -> Option<u32> {
        match self {
            Self::Vocabulary(_) => None,
            Self::File { tokenizer, .. } => tokenizer.token_to_id(text),
        }
    }

    /// What to call it.
    pub fn name(&self) -> String {
        match self {
            Self::Vocabulary(Vocabulary::Bytes) => "bytes".to_owned(),
            Self::Vocabulary(Vocabulary::Characters { characters }) => format!("{} characters", characters.len()),
            Self::File { path, .. } => path.display().to_string(),
        }
    }
}

fn failed_read(path: &Path, problem: &str) -> TrainError {
    TrainError::Vocabulary(format!("{}: {problem}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word-level tokenizer of four words.
    const WORDS: &str = r#"{"version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [{"id": 4, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true}],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"once": 0, "upon": 1, "a": 2, "time": 3}, "unk_token": "once"}}"#;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tonnage-tokenizer-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_tokenizer_file_is_read_saved_and_found_again() {
        let (from, to) = (folder("from"), folder("to"));
        fs::write(from.join(FILE), WORDS).unwrap();
        let tokenizer = Tokenizer::of_file(&from).unwrap();
        assert_eq!(tokenizer.encode("once upon a time", true).unwrap(), [0, 1, 2, 3]);
        assert_eq!((tokenizer.size(), tokenizer.token("<end>")), (5, Some(4)));
        assert_eq!(tokenizer.decode(&[0, 1, 4]).unwrap(), "once upon");
        assert!(tokenizer.decode(&[9]).unwrap_err().to_string().contains("token 9 is beyond its 5"));
        tokenizer.save(&to).unwrap();
        assert_eq!(Tokenizer::beside(&to).unwrap().unwrap().encode("time", true).unwrap(), [3]);
        fs::remove_dir_all(from).unwrap();
        fs::remove_dir_all(to).unwrap();
    }

    #[test]
    fn a_vocabulary_is_saved_and_found_again() {
        let folder = folder("vocabulary");
        assert!(Tokenizer::beside(&folder).unwrap().is_none());
        Tokenizer::Vocabulary(Vocabulary::of_characters(["abc"])).save(&folder).unwrap();
        let found = Tokenizer::beside(&folder).unwrap().unwrap();
        assert_eq!((found.name().as_str(), found.encode("cab", true).unwrap()), ("3 characters", vec![2, 0, 1]));
        fs::write(folder.join(OWN_FILE), "{").unwrap();
        assert!(Tokenizer::beside(&folder).unwrap_err().to_string().contains("is no vocabulary"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_no_tokenizer_is_said() {
        let folder = folder("broken");
        fs::write(folder.join(FILE), r#"{"model": 3}"#).unwrap();
        let error = Tokenizer::of_file(&folder).unwrap_err().to_string();
        assert!(error.contains("is no tokenizer.json") && error.contains("hint: "), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }
}

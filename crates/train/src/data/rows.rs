//! Rows of a fine-tuning: tokens with the labels that are learnt, of prompts and completions or of conversations.

use std::ops::Range;

use serde_json::Value;

use super::chat::{ChatTemplate, is_assistants};
use super::corpus::Pair;
use super::tokenizer::Tokenizer;
use crate::error::TrainError;

/// The label that `cross_entropy` leaves out.
pub const IGNORED: i64 = -100;
/// What begins and ends a turn in ChatML, which most chat models' templates are.
const TURN: (&str, &str) = ("<|im_start|>", "<|im_end|>");

/// Tokens of a row, and for each the label that it is trained on, [`IGNORED`] where it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Token ids without padding.
    pub tokens: Vec<u32>,
    /// One for each token; -100 where no loss is taken.
    pub labels: Vec<i64>,
}

impl Row {
    fn empty() -> Self {
        Self { tokens: Vec::new(), labels: Vec::new() }
    }

    fn extend(&mut self, tokens: Vec<u32>, is_learnt: bool) {
        self.labels.extend(tokens.iter().map(|token| if is_learnt { i64::from(*token) } else { IGNORED }));
        self.tokens.extend(tokens);
    }

    /// The completion is learnt, and that the text ends there.
    pub(crate) fn of_pair(tokenizer: &Tokenizer, pair: &Pair, end: Option<u32>) -> Result<Self, TrainError> {
        let mut row = Self::empty();
        row.extend(tokenizer.encode(&pair.prompt, true)?, false);
        row.extend(tokenizer.encode(&pair.completion, false)?, true);
        row.extend(end.into_iter().collect(), true);
        Ok(row)
    }

    /// What the assistant says is learnt, or all of it.
    pub(crate) fn of_conversation(
        tokenizer: &Tokenizer,
        template: Option<&ChatTemplate>,
        conversation: &[Value],
        assistant_only: bool,
    ) -> Result<Self, TrainError> {
        let Some(template) = template else { return Self::of_turns(tokenizer, conversation, assistant_only) };
        let rendered = match assistant_only {
            true => template.conversation(conversation)?,
            false => template.render(conversation, false)?,
        };
        // As the template has special tokens already, none are added (`apply_chat_template(tokenize=True)`).
        let (tokens, places) = tokenizer.encode_with_places(&rendered.text)?;
        let is_learnt =
            |place: &Range<usize>| rendered.learnt.iter().any(|said| place.start < said.end && said.start < place.end);
        let labels = tokens
            .iter()
            .zip(&places)
            .map(|(token, place)| if !assistant_only || is_learnt(place) { i64::from(*token) } else { IGNORED });
        Ok(Self { labels: labels.collect(), tokens })
    }

    /// A conversation as ChatML, for tokenizers without a template.
    fn of_turns(tokenizer: &Tokenizer, conversation: &[Value], assistant_only: bool) -> Result<Self, TrainError> {
        let turn = (tokenizer.token(TURN.0), tokenizer.token(TURN.1));
        let (Some(begin), Some(end)) = turn else {
            return Err(TrainError::refused_with(
                format!(
                    "`messages` need a chat template: beside the tokenizer {} lies none, and it has not the tokens {} and {} of ChatML",
                    tokenizer.name(),
                    TURN.0,
                    TURN.1,
                ),
                "take the tokenizer of a chat model (its chat_template.jinja or tokenizer_config.json lies beside it), or write \
                 `prompt` and `completion`",
            ));
        };
        let mut row = Self::empty();
        for (at, message) in conversation.iter().enumerate() {
            let text = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
            let is_learnt = !assistant_only || is_assistants(message);
            let head = if at == 0 { Vec::new() } else { tokenizer.encode("\n", false)? };
            let role = tokenizer.encode(&format!("{}\n", text("role")), false)?;
            row.extend([head, vec![begin], role].concat(), !assistant_only);
            row.extend([tokenizer.encode(text("content"), false)?, vec![end]].concat(), is_learnt);
        }
        Ok(row)
    }

    /// At most `tokens` of it; `None` where nothing is left to be learnt.
    pub(crate) fn cut_to(mut self, tokens: usize) -> Option<Self> {
        self.tokens.truncate(tokens);
        self.labels.truncate(tokens);
        // The first token of a row is never predicted.
        self.labels.iter().skip(1).any(|label| *label != IGNORED).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::data::vocabulary::Vocabulary;

    #[test]
    fn completions_are_learnt_and_prompts_are_not() {
        let bytes = Tokenizer::Vocabulary(Vocabulary::Bytes);
        let pair = Pair { prompt: "a".to_owned(), completion: "b".to_owned() };
        let row = Row::of_pair(&bytes, &pair, Some(0)).unwrap();
        assert_eq!(
            (row.tokens.as_slice(), row.labels.as_slice()),
            ([97, 98, 0].as_slice(), [IGNORED, 98, 0].as_slice())
        );
        assert_eq!(row.clone().cut_to(2).unwrap().tokens, [97, 98]);
        assert!(row.cut_to(1).is_none(), "nothing is left to be learnt");
    }

    #[test]
    fn conversations_need_a_tokenizer_with_turns() {
        let bytes = Tokenizer::Vocabulary(Vocabulary::Bytes);
        let error = Row::of_conversation(&bytes, None, &[], true).unwrap_err().to_string();
        assert!(error.contains("ChatML") && error.contains("chat_template.jinja"), "{error}");
    }

    #[test]
    fn a_template_decides_what_is_seen_and_what_of_it_is_learnt() {
        let bytes = Tokenizer::Vocabulary(Vocabulary::Bytes);
        let text = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}";
        let template = ChatTemplate::new(text, BTreeMap::new(), Path::new("here")).unwrap();
        let talk = [json!({"role": "user", "content": "ü"}), json!({"role": "assistant", "content": "b"})];
        let row = |only| Row::of_conversation(&bytes, Some(&template), &talk, only).unwrap();
        assert_eq!(row(true).tokens, "u:ü;a:b;".bytes().map(u32::from).collect::<Vec<_>>());
        let learnt = |row: Row| row.labels.iter().filter(|label| **label != IGNORED).count();
        assert_eq!((learnt(row(true)), row(true).labels[7..].to_vec(), learnt(row(false))), (2, vec![98, 59], 9));
    }
}

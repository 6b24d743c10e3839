//! Rows of a fine-tuning: tokens with the labels that are learnt, of prompts and completions or of conversations.

use super::corpus::{Conversation, Pair};
use super::tokenizer::Tokenizer;
use crate::error::TrainError;

/// The label that `cross_entropy` leaves out.
pub const IGNORED: i64 = -100;
/// What begins and ends a turn in ChatML, which most chat models' templates are.
const TURN: (&str, &str) = ("<|im_start|>", "<|im_end|>");

/// Tokens of a row, and for each the label that it is trained on, [`IGNORED`] where it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Without padding.
    pub tokens: Vec<u32>,
    /// As many.
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

    /// What the assistant says is learnt, and where it ends.
    pub(crate) fn of_conversation(tokenizer: &Tokenizer, conversation: &Conversation) -> Result<Self, TrainError> {
        let turn = (tokenizer.token(TURN.0), tokenizer.token(TURN.1));
        let (Some(begin), Some(end)) = turn else {
            return Err(TrainError::Vocabulary(format!(
                "`messages` are written as ChatML, whose tokens {} and {} the tokenizer {} has not: write `prompt` and `completion` \
                 with your model's own template",
                TURN.0,
                TURN.1,
                tokenizer.name()
            )));
        };
        let mut row = Self::empty();
        for (at, message) in conversation.iter().enumerate() {
            let is_learnt = message.role == "assistant";
            let head = if at == 0 { Vec::new() } else { tokenizer.encode("\n", false)? };
            row.extend([head, vec![begin], tokenizer.encode(&format!("{}\n", message.role), false)?].concat(), false);
            row.extend([tokenizer.encode(&message.content, false)?, vec![end]].concat(), is_learnt);
        }
        Ok(row)
    }

    /// At most `tokens` of it; `None` where nothing is left to be learnt.
    pub(crate) fn cut(mut self, tokens: usize) -> Option<Self> {
        self.tokens.truncate(tokens);
        self.labels.truncate(tokens);
        // The first token of a row is never predicted.
        self.labels.iter().skip(1).any(|label| *label != IGNORED).then_some(self)
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(row.clone().cut(2).unwrap().tokens, [97, 98]);
        assert!(row.cut(1).is_none(), "nothing is left to be learnt");
    }

    #[test]
    fn conversations_need_a_tokenizer_with_turns() {
        let bytes = Tokenizer::Vocabulary(Vocabulary::Bytes);
        let error = Row::of_conversation(&bytes, &Vec::new()).unwrap_err().to_string();
        assert!(error.contains("ChatML") && error.contains("prompt"), "{error}");
    }
}

//! Which part of a completion is its answer. Strict and bounded: what is longer than any answer is none.

/// Bytes of an answer, at most.
pub const MOST_ANSWER_BYTES: usize = 4096;
/// Bytes of a completion that are looked at; a longer one has no answer.
pub const MOST_COMPLETION_BYTES: usize = 1 << 20;

const OPEN: &str = "<answer>";
const CLOSE: &str = "</answer>";

/// How a completion gives its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerForm {
    /// What stands in the last `<answer>...</answer>`, after any thoughts.
    #[default]
    Tag,
    /// The whole completion.
    Whole,
}

impl AnswerForm {
    /// The answer without blanks around it; `None` where there is none.
    pub fn answer(self, completion: &str) -> Option<&str> {
        if completion.len() > MOST_COMPLETION_BYTES {
            return None;
        }
        let answer = match self {
            Self::Whole => completion,
            Self::Tag => {
                let before = &completion[..completion.rfind(CLOSE)?];
                &before[before.rfind(OPEN)? + OPEN.len()..]
            }
        };
        // A second end within is an answer that was closed before: `<answer>1</answer> 2</answer>`.
        if self == Self::Tag && answer.contains(CLOSE) {
            return None;
        }
        Some(answer.trim()).filter(|answer| !answer.is_empty() && answer.len() <= MOST_ANSWER_BYTES)
    }

    /// The completion that gives `answer` and nothing else.
    pub fn completion(self, answer: &str) -> String {
        match self {
            Self::Tag => format!("{OPEN}{answer}{CLOSE}"),
            Self::Whole => answer.to_owned(),
        }
    }

    /// What is said to the model of the form, before a question; nothing where the completion is the answer.
    pub const fn instruction(self) -> &'static str {
        match self {
            Self::Tag => "Think step by step, then give the final answer once, as <answer>...</answer>.\n\n",
            Self::Whole => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tag_is_the_answer() {
        let tag = AnswerForm::Tag;
        assert_eq!(tag.answer("so <answer>1</answer> or rather <answer> 2 </answer>, I think"), Some("2"));
        assert_eq!(tag.answer("<answer>a <answer>b</answer>"), Some("b"));
        for none in ["", "2", "<answer>2", "</answer>2<answer>", "<answer> </answer>", "<ANSWER>2</ANSWER>"] {
            assert_eq!(tag.answer(none), None, "{none}");
        }
        assert_eq!(tag.answer("<answer>1</answer> 2</answer>"), None, "closed twice");
    }

    #[test]
    fn what_is_too_long_is_no_answer() {
        let long = "1".repeat(MOST_ANSWER_BYTES + 1);
        for form in [AnswerForm::Tag, AnswerForm::Whole] {
            assert_eq!(form.answer(&form.completion(&long)), None);
            assert_eq!(form.answer(&form.completion(&long[1..])), Some(&long[1..]));
        }
        let thoughts = "x".repeat(MOST_COMPLETION_BYTES);
        assert_eq!(AnswerForm::Tag.answer(&format!("{thoughts}<answer>1</answer>")), None);
    }
}

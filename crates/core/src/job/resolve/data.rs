//! What the data of a training changes of its step: labels beside the tokens, and rows that grow.

use serde_json::Value;

use super::chooser::Chooser;
use crate::host::HostKind;
use crate::job::keys::{self, Default, Key};
use crate::job::rows::is_json_lines;
use crate::job::{ActivationOffload, Framework, JobError, JobSource, OffloadHooks, RowGrowth, RowKind, TaskName};
use crate::model_type::AGI2;

/// Whether labels are a tensor of their own: as was said, else as the rows of the data have them. A Trainer's always are.
pub(super) fn own_labels(
    choose: &mut Chooser<'_>,
    task: TaskName,
    framework: Framework,
    source: &JobSource,
) -> Result<bool, JobError> {
    let is_plain = matches!(task, TaskName::CausalLm | TaskName::MaskedLm)
        && !matches!(framework, Framework::Trainer | Framework::Trl);
    if choose.is_said(keys::OWN_LABELS) {
        let said = choose.take_switch(keys::OWN_LABELS);
        if !is_plain {
            let problem =
                format!("`{}` is of plain loops: what trains here decides its labels itself", keys::OWN_LABELS);
            return Err(JobError::new(problem)
                .about(&[keys::OWN_LABELS])
                .hint("leave it out, or set framework = \"loop\""));
        }
        return Ok(said);
    }
    Ok(match by_data(choose, source).filter(|_| is_plain) {
        Some(why) => choose.switch_or(keys::OWN_LABELS, true, &why),
        None => false,
    })
}

/// Whether rows are padded, where somebody said so.
pub(super) fn padded(choose: &mut Chooser<'_>, task: TaskName) -> Result<Option<bool>, JobError> {
    if !choose.is_said(keys::PADDED) {
        return Ok(None);
    }
    let (problem, hint) = match task {
        TaskName::Grpo | TaskName::Rloo => ("GRPO and RLOO have a key of their own for it", "set grpo.padded"),
        TaskName::Swarm => ("rows of a swarm's nodes are always padded", "leave it out"),
        TaskName::Hrm => ("HRM's puzzles are all of one length", "leave it out"),
        TaskName::ImageClassification => ("images are all of one size", "leave it out"),
        _ => return Ok(Some(choose.take_switch(keys::PADDED))),
    };
    Err(JobError::new(format!("`{}`: {problem}", keys::PADDED)).about(&[keys::PADDED]).hint(hint))
}

/// What moves activations to the host, if anything does.
pub(super) fn activation_offload(
    choose: &mut Chooser<'_>,
    trains: bool,
) -> Result<Option<ActivationOffload>, JobError> {
    let hooks = match choose.word_if_said(keys::ACTIVATION_OFFLOADING)? {
        None | Some(OffloadHooks::None) => return Ok(None),
        Some(hooks) => hooks,
    };
    if !trains {
        let problem = format!("`{}`: nothing is trained", keys::ACTIVATION_OFFLOADING);
        return Err(JobError::new(problem).about(&[keys::ACTIVATION_OFFLOADING]).hint("leave it out"));
    }
    let is_pinned = hooks == OffloadHooks::Streams;
    let pins = choose.switch_or(keys::ACTIVATION_OFFLOADING_PIN_MEMORY, is_pinned, "the default of what moves them");
    Ok(Some(ActivationOffload { hooks, held: HostKind::pinned(pins) }))
}

/// Whether SFTTrainer lays rows end to end.
pub(super) fn padding_free(choose: &mut Chooser<'_>, task: TaskName, framework: Framework) -> Result<bool, JobError> {
    if !choose.is_said(keys::PADDING_FREE) {
        return Ok(false);
    }
    let said = choose.take_switch(keys::PADDING_FREE);
    if said && (framework, task) != (Framework::Trl, TaskName::CausalLm) {
        let problem = format!("`{}` is SFTTrainer's", keys::PADDING_FREE);
        return Err(JobError::new(problem)
            .about(&[keys::PADDING_FREE])
            .hint("leave it out, or set framework = \"trl\" and task = \"causal_lm\""));
    }
    Ok(said)
}

/// Why the rows of the data have labels of their own, if they have.
fn by_data(choose: &Chooser<'_>, source: &JobSource) -> Option<String> {
    let text = |name: &str| choose.settings.get(name).and_then(|setting| setting.value.as_str());
    let field = text(keys::DATA_TEXT_FIELD).map_or_else(default_field, str::to_owned);
    let files = choose.settings.get(keys::DATA_TRAIN_FILES)?.value.as_array()?;
    let first = files.first().and_then(Value::as_str)?;
    match source.first_lines.get(first) {
        Some(line) => match RowKind::of(first, line, &field)? {
            RowKind::Text => None,
            RowKind::Pair => Some(format!("{first} holds prompts with completions")),
            RowKind::Conversation => Some(format!("{first} holds messages")),
        },
        None => is_json_lines(first).then(|| format!("{first} was not read: its rows may be prompts or messages")),
    }
}

fn default_field() -> String {
    match Key::find(keys::DATA_TEXT_FIELD).map(|key| key.default) {
        Some(Default::Fixed(json, _)) => serde_json::from_str(json).unwrap_or_default(),
        _ => String::new(),
    }
}

/// How rows grow to `seq_len`, where somebody said what they begin with.
pub(super) fn row_growth(
    choose: &mut Chooser<'_>,
    model_type: &str,
    seq_len: u64,
) -> Result<Option<RowGrowth>, JobError> {
    if !choose.is_said(keys::SEQ_LEN_START) {
        return Ok(None);
    }
    let refused = |problem: String, hint: &str| Err(JobError::new(problem).about(&[keys::SEQ_LEN_START]).hint(hint));
    let first = choose.take_size(keys::SEQ_LEN_START);
    if model_type != AGI2 {
        let problem = format!("`{}`: only the guide's small GPT has rows that grow", keys::SEQ_LEN_START);
        return refused(problem, "leave it out, or train once at each length");
    }
    if first > seq_len {
        return refused(
            format!("`{}` = {first}: rows would shrink to the {seq_len} of the last epoch", keys::SEQ_LEN_START),
            "set it to at most seq_len (`seq_len_end`)",
        );
    }
    let default = Key::find(keys::NUM_TRAIN_EPOCHS).map(|key| key.default);
    let epochs = choose.settings.get(keys::NUM_TRAIN_EPOCHS).and_then(|setting| setting.value.as_f64());
    let epochs = epochs.or(match default {
        Some(Default::Fixed(json, _)) => json.parse().ok(),
        _ => None,
    });
    let epochs = epochs.unwrap_or(1.0).ceil().max(1.0) as u64;
    Ok((first < seq_len).then_some(RowGrowth { first, last: seq_len, epochs }))
}

#[cfg(test)]
mod tests {
    use crate::job::{JobSource, Lookup, Origin};

    const ROWS: &str = "model = \"gpt2\"\nframework = \"loop\"\n[data]\ntrain_files = [\"sums.jsonl\"]\n";

    #[test]
    fn labels_are_beside_the_tokens_where_the_data_says_so() {
        let source = JobSource::from_file("a.toml", ROWS);
        assert_eq!(source.lookups(&[]), [Lookup::Model("gpt2".to_owned()), Lookup::Data("sums.jsonl".to_owned())]);
        let own = |source: &JobSource| source.resolve(&[]).unwrap().job.own_labels;
        assert!(own(&source), "a file that nobody read is taken for the larger");
        let pairs = source.clone().first_line("sums.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}");
        let resolved = pairs.resolve(&[]).unwrap();
        assert!(resolved.job.own_labels);
        let why = resolved.origin("own_labels").cloned();
        assert_eq!(why, Some(Origin::Default("sums.jsonl holds prompts with completions".to_owned())));
        assert!(!own(&source.clone().first_line("sums.jsonl", "{\"text\": \"a\"}")));
        assert!(!own(&pairs.clone().set("own_labels", "false")));
        assert!(!own(&pairs.clone().set("framework", "trainer")), "the Trainer's are its own");
        let refused = pairs.set("framework", "trl").set("own_labels", "true").resolve(&[]).unwrap_err();
        assert!(refused.to_string().contains("`own_labels` is of plain loops"), "{refused}");
    }

    #[test]
    fn rows_of_other_models_do_not_grow() {
        let refused = JobSource::model("gpt2").set("seq_len_start", 8).resolve(&[]).unwrap_err();
        assert!(refused.to_string().contains("only the guide's small GPT"), "{refused}");
        let shrinks =
            JobSource::from_file("a.toml", "model_embd = 8\nmodel_head = 2\nseq_len_start = 900\nseq_len_end = 64\n");
        assert!(shrinks.resolve(&[]).unwrap_err().to_string().contains("would shrink to the 64"));
    }
}

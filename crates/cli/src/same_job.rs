//! The command that plans the job of another command: what is printed under an answer that does not fit.

use tonnage_core::job::Override;
use tonnage_core::job::keys;
use tonnage_report::words::shell_words;

use crate::job_args::JobArgs;

/// `tonnage plan` with the job of `job` and `changes`, on `gpus` where several were asked; `None` where flags of a small GPT
/// stand for the model.
pub fn plan_command(job: &JobArgs, changes: &[Override], gpus: Option<&str>) -> Option<String> {
    let from = job.from.iter().flat_map(|(kind, file)| {
        let kind = kind.map(|kind| kind.name().to_owned());
        ["--from".to_owned()].into_iter().chain(kind).chain([file.clone()])
    });
    let mut words = vec!["tonnage".to_owned(), "plan".to_owned()];
    match (&job.model, job.from.is_empty()) {
        (Some(model), _) => words.push(model.clone()),
        (None, true) => return None,
        (None, false) => {}
    }
    words.extend(from);
    for given in job.overrides.iter().chain(changes).filter(|given| gpus.is_none() || given.key != keys::GPU) {
        let flag = given.origin.said();
        match flag.strip_prefix("--").filter(|name| !name.contains([' ', '='])) {
            Some("models") if job.model.is_some() => words[2].clone_from(&given.value),
            Some("models") => words.insert(2, given.value.clone()),
            // `=`, so that a switch takes its value.
            Some(name) => words.push(format!("--{name}={}", given.value)),
            None => words.extend(["--set".to_owned(), format!("{}={}", given.key, given.value)]),
        }
    }
    words.extend(gpus.into_iter().flat_map(|gpus| ["--gpus".to_owned(), gpus.to_owned()]));
    Some(shell_words(&words))
}

#[cfg(test)]
mod tests {
    use tonnage_core::job::Origin;

    use super::*;

    #[test]
    fn flags_assignments_and_lists_are_said_again() {
        let overrides = vec![
            Override::flag("seq_len", "256"),
            Override::assignment("model.n_layer=2").unwrap(),
            Override::flag("gradient_checkpointing", "true"),
            Override::flag("gpu", "l4"),
        ];
        let job = JobArgs { model: Some("gpt2".to_owned()), overrides, ..JobArgs::default() };
        let said = "tonnage plan gpt2 --seq-len=256 --set model.n_layer=2 --gradient-checkpointing=true";
        assert_eq!(plan_command(&job, &[], None).unwrap(), format!("{said} --gpu=l4"));
        assert_eq!(plan_command(&job, &[], Some("l4,t4")).unwrap(), format!("{said} --gpus l4,t4"));
        let other = Override::new("model", "gpt2-xl", Origin::Flag("--models".to_owned()));
        assert!(plan_command(&job, &[other], None).unwrap().starts_with("tonnage plan gpt2-xl "));
    }
}

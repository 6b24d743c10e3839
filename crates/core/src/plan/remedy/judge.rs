//! The second model.

use super::{Applied, Declined, Remedy, Results, already_done, change_one, not_for};
use crate::job::keys;
use crate::job::{JobSpec, JudgePlace, JudgeSpec, JudgeWeights, Preset};

const NO_JUDGE: &str = "there is no judge";

/// The judge, if it is on a GPU.
fn judge_of(job: &JobSpec) -> Result<&JudgeSpec, Declined> {
    match job.task.facts().judge() {
        None => Err(Declined::NotApplicable(NO_JUDGE)),
        Some(judge) if judge.place != JudgePlace::Cpu => Ok(judge),
        Some(_) => Err(Declined::Done("the judge is on no GPU")),
    }
}

fn resident_judge(job: &JobSpec) -> Result<&JudgeSpec, Declined> {
    match judge_of(job)? {
        judge if judge.place == JudgePlace::SameGpu => Ok(judge),
        _ => Err(Declined::Done("the judge leaves the GPU already")),
    }
}

pub(super) const EIGHT_BIT: Remedy = Remedy {
    name: "judge_int8",
    text: "hold the judge's weights in 8 bits (bitsandbytes LLM.int8())",
    results: Results::Changed,
    caution: "columns of outliers, multiplied in fp16, are left out",
    apply: |job| match judge_of(job)?.weights {
        JudgeWeights::Fp32 | JudgeWeights::Bf16 => change_one(keys::JUDGE_WEIGHTS, "int8"),
        _ => already_done("the judge's weights are quantized already"),
    },
};

pub(super) const FOUR_BIT: Remedy = Remedy {
    name: "judge_nf4",
    text: "hold the judge's weights in 4 bits (bitsandbytes NF4)",
    results: Results::Changed,
    caution: "",
    apply: |job| match judge_of(job)?.weights {
        JudgeWeights::Nf4 => already_done("the judge's weights are in 4 bits already"),
        _ => change_one(keys::JUDGE_WEIGHTS, "nf4"),
    },
};

pub(super) const SMALLER: Remedy = Remedy {
    name: "smaller_judge",
    text: "judge with the next smaller model of the same family",
    results: Results::Changed,
    caution: "",
    apply: smaller_judge,
};

/// Of the built-in models of the judge's family the largest that has at most two thirds of its parameters.
fn smaller_judge(job: &JobSpec) -> Applied {
    const UNKNOWN: &str = "no smaller model of the judge's family is known";
    let judge = judge_of(job)?;
    let Some(own) = Preset::find(&judge.model.name) else { return not_for(UNKNOWN) };
    let is_smaller = |preset: &&Preset| preset.parameters <= own.parameters / 3 * 2;
    let fewer = Preset::all().iter().filter(|preset| preset_family(preset) == preset_family(own)).filter(is_smaller);
    match fewer.max_by_key(|preset| preset.parameters) {
        Some(preset) => change_one(keys::JUDGE_MODEL, preset.name),
        None => not_for(UNKNOWN),
    }
}

/// Who published it, and of which kind it is.
fn preset_family(preset: &Preset) -> (Option<&str>, Option<String>) {
    let config: Option<serde_json::Value> = serde_json::from_str(preset.config).ok();
    let model_type = config.and_then(|config| Some(config.get("model_type")?.as_str()?.to_owned()));
    (preset.name.split('/').next(), model_type)
}

pub(super) const FEWER_ROWS: Remedy = Remedy {
    name: "judge_fewer_rows",
    text: "let the judge read half as many completions at once",
    results: Results::Same,
    caution: "",
    apply: |job| {
        let judge = judge_of(job)?;
        let Some(grpo) = job.task.grpo() else { return not_for(NO_JUDGE) };
        let rows = judge.rows.unwrap_or(job.micro_batch_size.saturating_mul(grpo.steps_per_generation));
        if rows < 2 {
            already_done("the judge reads one completion at a time")
        } else {
            change_one(keys::JUDGE_ROWS, (rows / 2).to_string())
        }
    },
};

pub(super) const OFFLOAD: Remedy = Remedy {
    name: "judge_offload",
    text: "keep the judge in the host's memory while the policy trains",
    results: Results::Same,
    caution: "",
    apply: |job| resident_judge(job).and_then(|_| change_one(keys::JUDGE_PLACE, "offload")),
};

pub(super) const OTHER_GPU: Remedy = Remedy {
    name: "judge_other_gpu",
    text: "put the judge on a GPU of its own",
    results: Results::Same,
    caution: "one GPU more is paid for",
    apply: |job| match judge_of(job)?.place {
        JudgePlace::OtherGpu => already_done("the judge has a GPU of its own already"),
        _ => change_one(keys::JUDGE_PLACE, "other_gpu"),
    },
};

//! [`Reading`]: configs that were read, every key with what became of it, and the job that they come to.

use serde_json::{Value, json};
use tonnage_core::job::{
    Allowance, JobError, JobErrorKind, JobSource, LeftOpen, Origin, Override, Precision, Preset, REHEARSE, keys,
};

use crate::expert_adapters::without_experts;
use crate::facts::{Dtype, Facts, Weights};
use crate::flat_shards::with_flat_shards;
use crate::kind::Kind;
use crate::other_adapters::with_known_adapters;
use crate::quantized_names::{is_packed, name_quantized};
use crate::rule::{Became, KeyRead};
use crate::text::brief_text;

const FLASH: &str = "flash_attention_2";
const SDPA: &str = "sdpa";
const EAGER: &str = "eager";
const ONLY_EAGER: &str =
    "this model's attention is simulated in eager form alone, which holds all scores: a flash kernel takes less";
const OTHER_KERNEL: &str = "what the flash-attn package makes of this model's calls is not simulated: estimated is PyTorch's own kernel \
                            (sdpa); the range allows a fifth of the peak";

/// More keys than these are counted.
const MOST_NAMED: usize = 12;

const FROZEN_HALF: &str = "weights of fp16 that are frozen below adapters of fp32 are simulated as weights of fp32 under autocast, which \
                           take more";
const SHARDED_8BIT: &str =
    "states of 8 bits or fewer on sharded parameters are simulated as AdamW's of fp32, which take more";
const SHARDED_OTHER: &str = "this optimizer on sharded parameters is simulated as SGD, whose states are no larger: what its \
                             step gathers and keeps is not, so that the range goes from weights and states alone and has no upper bound";

/// What weights and autocast come to, and what of it no key says.
type Precise = (Option<Override>, Option<LeftOpen>);

/// A file that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct FileRead {
    /// What it was read as.
    pub kind: Kind,
    /// As it was typed, a path or the program of a command.
    pub name: String,
    /// Its keys, in their order.
    pub keys: Vec<KeyRead>,
}

/// Configs that were read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// In the order in which they were given.
    pub files: Vec<FileRead>,
    pub(crate) facts: Facts,
}

impl Reading {
    /// The files that a config names and that were not given.
    pub fn wanted(&self) -> &[String] {
        &self.facts.wanted
    }

    /// Every key of every file.
    pub fn keys(&self) -> impl Iterator<Item = &KeyRead> {
        self.files.iter().flat_map(|file| &file.keys)
    }

    /// The model that the files name.
    pub fn model(&self) -> Option<&str> {
        self.facts.value_of(keys::MODEL)
    }

    /// What the files set, each with where it stands; the precision, which depends on the model, is not among it.
    pub fn changes(&self) -> &[Override] {
        &self.facts.sets
    }

    /// The job of `base` with what the files say below all that was set beside them. The configs of the models must have
    /// been gathered.
    ///
    /// # Errors
    /// When the files contradict each other, say what no estimate can have, or a value that its key does not take.
    pub fn as_source(&self, base: JobSource) -> Result<JobSource, JobError> {
        self.check_keys()?;
        if model_of(&self.facts.sets).is_some_and(|given| is_packed(&given.value)) {
            let packed = self.compose(base.clone(), |_, _| Vec::new())?;
            if packed.resolve(&[]).is_ok() {
                return Ok(packed);
            }
        }
        self.compose(base, name_quantized)
    }

    /// The job of `base` and the files, where `quantized` tells of a name of quantized weights.
    fn compose(
        &self,
        base: JobSource,
        quantized: impl Fn(&mut Vec<Override>, &JobSource) -> Vec<LeftOpen>,
    ) -> Result<JobSource, JobError> {
        let mut sets = self.facts.sets.clone();
        let mut left_open = self.left_open();
        left_open.extend(name_folder(&mut sets, &base));
        left_open.extend(quantized(&mut sets, &base));
        let is_set = |key: &str| base.overrides.iter().chain(&base.pinned).any(|given| given.key == key);
        if !is_set(keys::PRECISION) {
            let (said, open) = self.precision_said(&sets, &base)?;
            sets.extend(said);
            left_open.extend(open);
        }
        for given in &sets {
            if let (Origin::JobFile(place), Err(error)) = (&given.origin, given.check()) {
                return Err(error.at_place(Some(place.clone())));
            }
        }
        let mut source = base;
        source.overrides = [sets, source.overrides].concat();
        let source = without_experts(with_known_attention(source.left_open(left_open)));
        let source = with_known_adapters(source);
        let source = if self.facts.is_flat { with_flat_shards(source, &self.facts.flat) } else { source };
        Ok(with_known_optimizer(source, self.facts.takes_shards))
    }

    fn check_keys(&self) -> Result<(), JobError> {
        if let Some((problem, place)) = self.facts.conflicts.first() {
            let hint = "the trainer refuses what differs, or takes one of them: say it once";
            return Err(JobError::new(problem).at_place(place.clone()).hint(hint));
        }
        let refused = |read: &&KeyRead| matches!(read.became, Became::Refused(_));
        let mut refused = self.keys().filter(refused);
        let Some((first, Became::Refused(why))) = refused.next().map(|read| (read, &read.became)) else {
            return Ok(());
        };
        let others: Vec<String> = refused.map(|read| format!("`{}`", read.key)).collect();
        let others = match others.as_slice() {
            [] => String::new(),
            others => format!("; so are {}", others.join(", ")),
        };
        let problem = format!("`{}`: {why}{others}", first.key);
        let error = JobError::of_kind(JobErrorKind::Unsimulated, problem).at_place(first.place.clone());
        Err(error.hint(REHEARSE))
    }

    /// The precision that weights and autocast come to, where a file says anything of either.
    fn precision_said(&self, sets: &[Override], base: &JobSource) -> Result<Precise, JobError> {
        let (weights, autocast) = (&self.facts.weights, &self.facts.autocast);
        let place =
            autocast.as_ref().filter(|(dtype, _)| dtype.is_some()).or(autocast.as_ref()).and_then(|(_, at)| at.clone());
        let place = place.or_else(|| weights.as_ref().and_then(|(_, at)| at.clone()));
        let autocast = match autocast {
            None if weights.is_none() => return Ok((None, None)),
            autocast => autocast.as_ref().and_then(|(dtype, _)| *dtype),
        };
        // Under DeepSpeed the weights themselves are of the dtype, beside masters in fp32.
        let under_deepspeed = self.facts.value_of(keys::PARALLEL) == Some("deepspeed");
        let dtype = match weights {
            _ if under_deepspeed => autocast.unwrap_or(Dtype::Fp32),
            Some((Weights::As(dtype), _)) => *dtype,
            _ => published_dtype(model_of(sets).map(|given| given.value.as_str()), base)?,
        };
        let autocast = autocast.filter(|_| !under_deepspeed);
        let has_adapters = sets.iter().any(|given| given.key == keys::LORA_R);
        let mut open = None;
        let precision = match (dtype, autocast) {
            (Dtype::Fp32, None | Some(Dtype::Fp32)) => "fp32",
            (Dtype::Bf16, None | Some(Dtype::Fp32)) => "bf16",
            (Dtype::Fp16, None | Some(Dtype::Fp32)) => "fp16",
            (Dtype::Fp32, Some(Dtype::Bf16)) => "amp-bf16",
            (Dtype::Fp32, Some(Dtype::Fp16)) => "amp-fp16",
            (Dtype::Bf16, Some(Dtype::Bf16)) => "bf16-amp",
            (Dtype::Fp16, Some(Dtype::Fp16)) if has_adapters => {
                open = Some(LeftOpen { text: FROZEN_HALF.to_owned(), allowance: Allowance::Less });
                "amp-fp16"
            }
            (Dtype::Fp16 | Dtype::Bf16, Some(Dtype::Fp16)) | (Dtype::Fp16, Some(Dtype::Bf16)) => {
                let problem = "autocast to fp16 over weights of 16 bits, or to bf16 over weights of fp16: gradients of 16 bits \
                               cannot be scaled, PyTorch refuses such a step";
                let error = JobError::new(problem).about(&[keys::PRECISION]).at_place(place);
                return Err(error.hint("say what is meant: --precision amp-fp16 (fp32 weights), bf16-amp or bf16"));
            }
        };
        let origin =
            place.map_or_else(|| Origin::Default("what the trainer's configs come to".to_owned()), Origin::JobFile);
        Ok((Some(Override::new(keys::PRECISION, precision, origin)), open))
    }

    fn left_open(&self) -> Vec<LeftOpen> {
        let noted = self.keys().filter_map(|read| {
            let at = read.place.as_ref().map_or_else(String::new, |place| format!("{}:{}: ", place.file, place.line));
            match &read.became {
                Became::Noted(text, allowance) => {
                    Some(LeftOpen { text: format!("{at}`{}`: {text}", read.key), allowance: *allowance })
                }
                _ => None,
            }
        });
        self.facts.left_open.iter().cloned().chain(noted).chain(self.not_understood()).collect()
    }

    /// The keys that nobody knows, in one sentence.
    fn not_understood(&self) -> Option<LeftOpen> {
        let unknown: Vec<&KeyRead> = self.keys().filter(|read| read.became == Became::NotUnderstood).collect();
        let named = |read: &&KeyRead| match &read.place {
            Some(place) => format!("`{}` ({}:{})", brief_text(&read.key), place.file, place.line),
            None => format!("`{}`", brief_text(&read.key)),
        };
        let mut names = unknown.iter().take(MOST_NAMED).map(named).collect::<Vec<_>>().join(", ");
        if unknown.len() > MOST_NAMED {
            names.push_str(&format!(" and {} more", unknown.len() - MOST_NAMED));
        }
        let verb = match unknown.len() {
            0 => return None,
            1 => "is not understood: if it changes",
            _ => "are not understood: if they change",
        };
        let text = format!("{names} {verb} memory, the figures do not have it");
        Some(LeftOpen { text, allowance: Allowance::Unknown })
    }

    /// Every key and what became of it, for programs.
    pub fn to_json(&self) -> Value {
        let files: Vec<Value> = self.files.iter().map(file_json).collect();
        json!({ "files": files })
    }
}

fn file_json(file: &FileRead) -> Value {
    let keys: Vec<Value> = file.keys.iter().map(key_json).collect();
    let tally = file.tally();
    json!({
        "file": file.name, "kind": file.kind.name(), "used": tally.used, "no_memory": tally.no_memory,
        "noted": tally.noted, "refused": tally.refused, "not_understood": tally.not_understood, "keys": keys,
    })
}

fn key_json(read: &KeyRead) -> Value {
    let (became, says) = match &read.became {
        Became::Used(key) => ("used", (*key).to_owned()),
        Became::NoMemory(why) => ("no_memory", (*why).to_owned()),
        Became::Noted(text, _) => ("noted", text.clone()),
        Became::Refused(why) => ("refused", why.clone()),
        Became::NotUnderstood => ("not_understood", String::new()),
    };
    let line = read.place.as_ref().map(|place| place.line);
    json!({ "key": read.key, "value": read.value, "line": line, "became": became, "says": says })
}

/// How many keys of a file became what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// That decide keys of the job.
    pub used: usize,
    /// That cost no memory.
    pub no_memory: usize,
    /// That no key says, allowed for.
    pub noted: usize,
    /// With which there is no estimate.
    pub refused: usize,
    /// That nobody knows.
    pub not_understood: usize,
}

impl FileRead {
    /// How many of its keys became what.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for read in &self.keys {
            let count = match read.became {
                Became::Used(_) => &mut tally.used,
                Became::NoMemory(_) => &mut tally.no_memory,
                Became::Noted(..) => &mut tally.noted,
                Became::Refused(_) => &mut tally.refused,
                Became::NotUnderstood => &mut tally.not_understood,
            };
            *count += 1;
        }
        tally
    }
}

/// The job with an optimizer that is simulated on sharded parameters, where the one that a file names is not. What FSDP2 itself
/// refuses stays refused, unless these shards take it.
fn with_known_optimizer(source: JobSource, takes_shards: bool) -> JobSource {
    let said = |given: &&mut Override| given.key == keys::OPTIMIZER && matches!(given.origin, Origin::JobFile(_));
    let is_unknown = |error: &JobError| {
        error.key() == Some(keys::OPTIMIZER) && (error.kind == JobErrorKind::Unsimulated || takes_shards)
    };
    let mut other = source.clone();
    let Some(optimizer) = other.overrides.iter_mut().rev().find(said) else { return source };
    if !source.resolve(&[]).is_err_and(|error| is_unknown(&error)) {
        return source;
    }
    let (word, text, allowance) = match optimizer.value.as_str() {
        "adamw8bit" | "paged_adamw_8bit" | "adamw_torch_8bit" | "adamw_torch_4bit" | "ao_adamw_4bit" => {
            ("adamw", SHARDED_8BIT, Allowance::Less)
        }
        "muon" | "lion" => ("sgd_momentum", SHARDED_OTHER, Allowance::AllButStates),
        _ => ("sgd", SHARDED_OTHER, Allowance::AllButStates),
    };
    word.clone_into(&mut optimizer.value);
    other.left_open([LeftOpen { text: text.to_owned(), allowance }])
}

fn model_of(sets: &[Override]) -> Option<&Override> {
    sets.iter().find(|given| given.key == keys::MODEL)
}

/// A folder that is not on this machine and is called as a published model is taken for that; what to say of it.
fn name_folder(sets: &mut [Override], base: &JobSource) -> Option<LeftOpen> {
    let given = sets.iter_mut().find(|given| given.key == keys::MODEL)?;
    let is_here = base.configs.iter().any(|(name, config)| *name == given.value && config.text.is_ok());
    let preset = Preset::of_folder(&given.value).filter(|_| !is_here)?;
    let folder = given.value.trim_end_matches('/');
    let name = preset.full_name(folder.rsplit('/').next().unwrap_or(folder)).to_owned();
    let text = format!(
        "`{}` is not on this machine: by its name it is taken for {name}, which nobody can know; --model {name} says so",
        brief_text(&given.value)
    );
    given.value = name;
    Some(LeftOpen { text, allowance: Allowance::Unknown })
}

/// The job with SDPA's kernel in place of the flash-attn package's, where that one is simulated for other models or steps
/// alone. What the package itself refuses stays refused.
fn with_known_attention(source: JobSource) -> JobSource {
    let said = |given: &&mut Override| given.key == keys::ATTENTION && matches!(given.origin, Origin::JobFile(_));
    let about_attention = |error: &JobError| error.key() == Some(keys::ATTENTION);
    let with = |kernel: &str| {
        let mut other = source.clone();
        let attention = other.overrides.iter_mut().rev().find(said).filter(|given| given.value == FLASH)?;
        kernel.clone_into(&mut attention.value);
        Some(other)
    };
    let Some(other) = with(SDPA) else { return source };
    let Some(error) = source.resolve(&[]).err().filter(about_attention) else { return source };
    // A model whose attention transformers has in eager form alone.
    if other.resolve(&[]).is_err_and(|error| about_attention(&error)) {
        let text = LeftOpen { text: ONLY_EAGER.to_owned(), allowance: Allowance::Less };
        return with(EAGER).map_or(other, |eager| eager.left_open([text]));
    }
    if error.kind != JobErrorKind::Unsimulated {
        return source;
    }
    other.left_open([LeftOpen { text: OTHER_KERNEL.to_owned(), allowance: Allowance::Fifth }])
}

/// The dtype in which `from_pretrained` loads the job's model.
fn published_dtype(named: Option<&str>, base: &JobSource) -> Result<Dtype, JobError> {
    let of_model = |given: &&Override| given.key == keys::MODEL || given.key.starts_with("model.");
    let mut probe = base.clone();
    probe.overrides = base.overrides.iter().filter(of_model).cloned().collect();
    probe.pinned.clear();
    probe.left_open.clear();
    if let Some(named) = named {
        probe.overrides.insert(0, Override::caller(keys::MODEL, named));
    }
    let probe = probe.set(keys::FRAMEWORK, "trainer");
    Ok(match probe.resolve(&[])?.job.precision {
        Precision::Bf16 | Precision::Bf16Amp => Dtype::Bf16,
        Precision::Fp16 | Precision::Fp16Amp => Dtype::Fp16,
        Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16 => Dtype::Fp32,
    })
}

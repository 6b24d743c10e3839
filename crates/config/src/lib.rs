//! Reads what trainers are told, TRL's YAML, `TrainingArguments`, accelerate's and DeepSpeed's configs, Axolotl, LLaMA-Factory
//! and others, as jobs of `tonnage-core`. No key is dropped: each is used, known to cost no memory, noted with what the answer
//! allows for it, refused, or named as not understood.
//!
//! ```
//! use tonnage_config::{ConfigText, Kind, read_files};
//! use tonnage_core::job::JobSource;
//!
//! let text = "model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_length: 512\nlearning_rate: 1.0e-5\n";
//! let reading = read_files(&[(Some(Kind::TrlSft), ConfigText { name: "sft.yaml", text })])?;
//! let job = reading.as_source(JobSource::new())?.resolve(&[])?.job;
//! assert_eq!((job.seq_len, job.micro_batch_size), (512, 8));
//! assert_eq!(reading.files[0].tally().no_memory, 1);
//! # Ok::<(), tonnage_core::job::JobError>(())
//! ```

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::print_stdout,
        clippy::print_stderr,
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types
    )
)]

mod expert_adapters;
mod facts;
mod flat_shards;
mod kind;
mod kinds;
mod other_adapters;
mod quantized_names;
mod reading;
mod rule;
mod text;
mod tree;

use serde_json::{Map, Value};
use tonnage_core::job::JobError;

pub use facts::{Dtype, Facts, Live, Weights};
pub use kind::{ConfigText, KINDS, Kind};
pub use reading::{FileRead, Reading, Tally};
pub use rule::{Became, Free, KeyRead, Row, Rule, Said, Table};
pub use tree::{Entry, Node};

/// An object of Python by its attributes.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    /// The name of its type, then of those that this is made of, with spaces between: `MyConfig SFTConfig TrainingArguments`. The
    /// first that is known decides. A model is `model`.
    pub class: &'a str,
    /// Its attributes as JSON.
    pub attributes: &'a Map<String, Value>,
}

/// Reads configs that belong to one job, each as a kind or as what it looks like.
///
/// # Errors
/// When a text cannot be read, or whose config it is cannot be told.
pub fn read_files(files: &[(Option<Kind>, ConfigText<'_>)]) -> Result<Reading, JobError> {
    let parsed: Result<Vec<_>, JobError> = files.iter().map(|(kind, text)| kind::parse(*kind, *text)).collect();
    let given = files.iter().map(|(_, text)| text.name.to_owned()).collect();
    let mut facts = Facts { given, ..Facts::default() };
    let read = kind::read_all(&mut facts, &parsed?);
    let files = read.into_iter().map(|(kind, name, keys)| FileRead { kind, name, keys }).collect();
    Ok(Reading { files, facts })
}

/// Reads objects that belong to one job.
///
/// # Errors
/// Never yet: what is not understood is named.
pub fn read_objects(objects: &[Object<'_>]) -> Result<Reading, JobError> {
    let has_model = objects.iter().any(|object| object.class == kinds::python::MODEL_CLASS);
    let live = Some(if has_model { Live::Model } else { Live::Name });
    let mut facts = Facts { live, ..Facts::default() };
    let mut files = Vec::new();
    for object in objects {
        let mut keys = Vec::new();
        let class = kinds::python::known_class(object.class);
        kinds::python::live_object(&mut facts, class, &tree::entries_of(object.attributes, None), &mut keys);
        files.push(FileRead { kind: Kind::Python, name: class.to_owned(), keys });
    }
    Ok(Reading { files, facts })
}

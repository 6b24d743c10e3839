//! A job written in Rust, by typed keys and by `JobSpec::default`: `cargo run -p tonnage-core --example builder`.

use std::error::Error;

use tonnage_core::estimate::estimate;
use tonnage_core::job::{Framework, JobSource, JobSpec, Precision, keys};
use tonnage_core::units::Bytes;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // Keys of most jobs have a method; `set` takes every other by its constant.
    let source = JobSource::model("Qwen/Qwen2.5-0.5B")
        .framework(Framework::Trainer)
        .precision(Precision::AmpBf16)
        .micro_batch_size(2)
        .seq_len(512)
        .set(keys::LORA_R, 16)
        .on_gpu("l4");
    let answer = estimate(&source.job()?)?;
    println!("LoRA of Qwen2.5 0.5B  {} of {}", Bytes(answer.total_bytes), Bytes(answer.usable_bytes));
    // A spec without a source: GPT-2 in a plain loop, but for what is said.
    for rows in [1, 8] {
        let job = JobSpec { micro_batch_size: rows, seq_len: 512, ..JobSpec::default() };
        println!("GPT-2, {rows} rows         {}", Bytes(estimate(&job)?.total_bytes));
    }
    Ok(())
}

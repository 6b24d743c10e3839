//! How much memory a job takes: `cargo run -p tonnage-core --example estimate`.

use std::error::Error;

use tonnage_core::estimate::estimate;
use tonnage_core::job::JobSource;
use tonnage_core::units::Bytes;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let source = JobSource::model("gpt2").set("micro_batch_size", 8).set("precision", "amp-bf16").set("gpu", "l4");
    let resolved = source.resolve(&[])?;
    let answer = estimate(&resolved.job)?;
    println!("reserved by PyTorch  {}", Bytes(answer.peak_reserved_bytes));
    println!("with CUDA's context  {}, of {}", Bytes(answer.total_bytes), Bytes(answer.usable_bytes));
    println!("the peak is in       {}", answer.peak_phase.label());
    // Every value says where it came from: here the caller, or the default of what trains.
    for value in resolved.provenance.iter().take(6) {
        println!("{value}");
    }
    Ok(())
}

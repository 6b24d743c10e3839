//! A table of batches by GPUs: `cargo run -p tonnage-core --example sweep`.

use std::error::Error;

use tonnage_core::gpu::Gpu;
use tonnage_core::job::{JobSource, Override, keys};
use tonnage_core::plan::fit::verdicts_on;
use tonnage_core::units::Bytes;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let source = JobSource::model("gpt2").set("framework", "loop").set(keys::SEQ_LEN, 512);
    let gpus = ["t4", "l4", "a100-40"].map(Gpu::parse).into_iter().collect::<Result<Vec<_>, _>>()?;
    for rows in [4, 16, 64] {
        let job = source.resolve(&[Override::caller(keys::MICRO_BATCH_SIZE, rows)])?.job;
        // GPUs whose kernels ask for the same memory share one simulation.
        for (gpu, answer) in gpus.iter().zip(verdicts_on(&job, &gpus)) {
            let verdict = answer?;
            let fits = if verdict.fits() { "fits" } else { "does not fit" };
            println!("{rows:>3} rows on {:<8} {:>10}  {fits}", gpu.id, Bytes(verdict.total_bytes).to_string());
        }
    }
    Ok(())
}

//! Reads a verdict: whether a job fits, how sure that is, and what would make it fit.
//! `cargo run -p tonnage-core --example verdict`

use std::error::Error;

use tonnage_core::estimate::{Fit, estimate};
use tonnage_core::job::JobSource;
use tonnage_core::plan::fit::verdict_on;
use tonnage_core::plan::proposal::consider_remedies;
use tonnage_core::units::Bytes;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let source = JobSource::model("gpt2-medium").set("framework", "loop").set("micro_batch_size", 16).set("gpu", "t4");
    let job = source.resolve(&[])?.job;
    let answer = estimate(&job)?;
    // The range is what the total may be by what is not known; each caveat says why.
    let (low, high) = answer.range;
    println!("{} to {}, of {}", Bytes(low), Bytes(high), Bytes(answer.usable_bytes));
    for caveat in &answer.caveats {
        println!("  {}", caveat.text);
    }
    match verdict_on(&job, &job.gpu)?.fit {
        Fit::Fits => println!("fits"),
        Fit::Tight => println!("fits, but with less room than is not known"),
        Fit::NotKnown => println!("not known: what is left out has no bound"),
        Fit::DoesNotFit => {
            // Each remedy is a change to the job, estimated anew.
            for proposal in consider_remedies(&job, &source)?.alone.iter().take(3) {
                println!("{} saves {}", proposal.remedy.text, Bytes(proposal.saves_bytes));
            }
        }
    }
    Ok(())
}

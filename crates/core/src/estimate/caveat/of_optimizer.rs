//! What is measured of an optimizer and not equal, or was not measured.

use super::Caveat;
use crate::dtype::DType;
use crate::job::{JobSpec, OptimizerKind};
use crate::op::{EIGH, SVD, largest_of_svd};
use crate::trace::Trace;

/// transformers' own Adafactor on bf16 weights: measured up to 0.1 % above what is simulated (docs/accuracy.md), of which the
/// range allows twice as much.
pub(super) fn adafactor_of_bf16(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    let is_it = job.optimizer == OptimizerKind::TransformersAdafactor && job.task.trains();
    (is_it && job.lora.is_none() && job.precision.weight_dtype() == DType::Bfloat16).then(|| {
        let text = "transformers' Adafactor on bf16 weights was measured up to 0.1 % above what is simulated: the range allows a \
                    five-hundredth of the peak";
        Caveat::adding("adafactor_of_bf16", text, reserved / 500)
    })
}

/// What matrices' decompositions may need beyond what is simulated.
pub(super) fn decompositions(job: &JobSpec, trace: &Trace) -> [Option<Caveat>; 3] {
    [singular_values(trace), eigenvectors(trace), beyond_svd(job, trace)]
}

/// What a step of GaLore's or Shampoo's may need beyond what is simulated: its workspace is what cuSOLVER answers without a GPU, and another method follows
/// where the first does not come to its end, with a copy of the vectors more (BatchLinearAlgebraLib.cpp, torch 2.11).
fn singular_values(trace: &Trace) -> Option<Caveat> {
    let of_svd = trace.allocations.iter().filter(|allocation| trace.origin(allocation).op == SVD);
    let largest = of_svd.map(|allocation| allocation.bytes).max()?;
    let text = "GaLore's or Shampoo's singular values take a workspace of cuSOLVER, which is as the library answers without a GPU; where its method does \
                not come to its end PyTorch takes one that needs more: the range allows as much again";
    Some(Caveat::adding("singular_values", text, largest))
}

/// What SOAP's steps may need beyond what is simulated: cuSOLVER says its workspaces of eigenvectors and orthogonal factors where there is a
/// GPU alone, and the simulation has LAPACK's of the same decompositions.
fn eigenvectors(trace: &Trace) -> Option<Caveat> {
    let of_eigh = trace.allocations.iter().filter(|allocation| trace.origin(allocation).op == EIGH);
    let largest = of_eigh.map(|allocation| allocation.bytes).max()?;
    let text = "cuSOLVER's workspaces of SOAP's eigenvectors and orthogonal factors were not measured on a GPU: LAPACK's stand in their place, \
                and the range allows as much again as the largest";
    Some(Caveat::adding("eigenvectors", text, largest))
}

/// A side of a matrix of which Shampoo's step has no singular values: no GPU takes it.
fn beyond_svd(job: &JobSpec, trace: &Trace) -> Option<Caveat> {
    if job.optimizer != OptimizerKind::Shampoo || !job.task.trains() {
        return None;
    }
    let most = largest_of_svd();
    let largest = trace.allocations.iter().filter(|allocation| trace.origin(allocation).op == "eye.default");
    largest.map(|allocation| allocation.bytes).max().filter(|bytes| *bytes > most * most * DType::Float32.size()).map(|bytes| {
        let text = format!("cuSOLVER takes no singular values of a square matrix of more than {most} rows, as Shampoo has one: its step fails");
        Caveat::adding("beyond_svd", text, bytes).open()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobSource;

    #[test]
    fn only_bf16_weights_have_a_range() {
        let widens = |precision: &str, optimizer: &str| {
            let source = JobSource::model("gpt2").set("precision", precision).set("optimizer", optimizer);
            adafactor_of_bf16(&source.resolve(&[]).unwrap().job, 1000).map(|caveat| caveat.widens_bytes)
        };
        assert_eq!(widens("bf16", "transformers_adafactor"), Some(2));
        assert_eq!(widens("bf16-amp", "transformers_adafactor"), Some(2));
        assert_eq!(widens("fp32", "transformers_adafactor"), None);
        assert_eq!(widens("bf16", "adamw"), None);
    }
    #[test]
    fn as_much_as_the_largest_workspace_is_allowed_for_eigenvectors() {
        let estimated = |optimizer: &str| {
            let source = JobSource::model("gpt2").set("framework", "loop").set("seq_len", 64);
            let job = source.set("optimizer", optimizer).resolve(&[]).unwrap().job;
            crate::estimate::estimate(&job).unwrap()
        };
        // 3,072 columns: 1 + 6 n + 2 n^2 numbers of fp32.
        let of_soap = estimated("soap").caveats.into_iter().find(|caveat| caveat.code == "eigenvectors");
        assert_eq!(of_soap.unwrap().widens_bytes, 4 * (1 + 6 * 3072 + 2 * 3072 * 3072));
        assert!(estimated("adamw").caveats.iter().all(|caveat| caveat.code != "eigenvectors"));
    }
    #[test]
    fn a_side_beyond_cusolvers_count_is_said() {
        let is_said = |columns: u64| {
            let model = format!(
                "model = {{ model_type = \"gpt2\", n_layer = 1, n_embd = 48, vocab_size = 500, n_inner = {columns} }}"
            );
            let text = format!("{model}\nframework = \"loop\"\nseq_len = 8\noptimizer = \"shampoo\"\ngpu = \"h100\"\n");
            let job = JobSource::from_file("job.toml", text).resolve(&[]).unwrap().job;
            crate::estimate::estimate(&job).unwrap().caveats.iter().any(|caveat| caveat.code == "beyond_svd")
        };
        assert!(is_said(40_000) && !is_said(400));
    }
}

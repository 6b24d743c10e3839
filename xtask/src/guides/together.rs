//! Where the guides contradict each other.

use anyhow::Result;
use tonnage_core::job::keys;

use super::markdown::{markdown_table, size_text};
use super::question::Question;

pub fn together_section() -> Result<String> {
    let node = Question::of("examples/sapo-gpt2-swarm.toml").with(keys::SWARM_NODES, 1);
    let grpo = Question::of("examples/grpo-7b-judge-14b.toml").with(keys::TRL, "0.25");
    let by_precision = |job: &Question| -> Result<String> {
        let [fp32, bf16] = ["fp32", "bf16"].map(|precision| job.with(keys::PRECISION, precision).answer());
        let command = job.command().replacen("estimate", "estimate --compare fp32,bf16", 1);
        Ok(format!("{} in fp32, {} in bf16: `{command}`", size_text(fp32?.total()), size_text(bf16?.total())))
    };
    let row = |cells: [&str; 3]| cells.map(str::to_owned);
    let rows = [
        row([
            "dtype",
            "the first: fp32 only, half precision is unstable; the third: bf16, which \"saves ~50%\"; the fourth and fifth: fp16",
            "what half precision saves depends on what the memory is: logits that the loss takes in fp32, or states",
        ]),
        row(["a GPT-2 node, whose memory is logits", "fp32", &by_precision(&node)?]),
        row(["7B and 14B, whose memory is states", "bf16", &by_precision(&grpo)?]),
        row([
            "batch",
            "the first and second: questions; the third: completions; the fourth: rows of all GPUs or of one; the fifth: sequences",
            "`micro_batch_size` is rows of a pass on a GPU, `global_batch_size` rows of a step, `swarm.local_questions` questions",
        ]),
        row(["GB", "10^9 bytes, 2^30 bytes, or what stands on the box", "GiB, and of a GPU what PyTorch can have"]),
        row([
            "how the batch is found",
            "the second and fifth: constants times parameters, or a fixed factor",
            "only whole steps tell: simulated (`tonnage estimate`, `fit`), rehearsed with the real script (`tonnage rehearse`), or run \
             with the prediction beside it (`tonnage probe`)",
        ]),
    ];
    let table = markdown_table(["about", "guides", "ours"], &rows);
    Ok(format!("## 6. Where the guides contradict each other\n\n{table}"))
}

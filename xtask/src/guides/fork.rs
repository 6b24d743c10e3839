//! The fork's cure for out-of-memory errors: a formula for the batch size, fp16, and settings said to save memory.

use anyhow::Result;
use tonnage_core::job::keys;

use super::markdown::{change_text, markdown_table, see_command, size_text};
use super::question::{Question, largest_fitting, word};

const NODE: Question = Question::of("examples/sapo-qwen2.5-0.5b-swarm.toml");

/// The formula's model, overhead and factor, in GB.
const MODEL: f64 = 1.5;
const OVERHEAD: f64 = 2.0;
const FACTOR: f64 = 2.5;
/// GPU memory in GB, and a GPU of that size; those without a name in the catalog have all their nameplate here.
const GPUS: [(f64, &str, &str); 5] = [
    (8.0, "8GiB,sm_89,multiprocessors=36", "8 GB card"),
    (12.0, "12GiB,sm_89,multiprocessors=46", "12 GB card"),
    (24.0, "rtx-3090", "RTX 3090"),
    (40.0, "a100-40", "A100 40GB"),
    (80.0, "a100-80", "A100 80GB"),
];
/// Numbers of questions that are tried: this document is made in seconds, and each is a simulation.
const QUESTIONS: [u64; 15] = [1, 2, 3, 4, 6, 8, 12, 16, 20, 28, 40, 52, 64, 80, 112];

/// The formula of the guide: a batch size.
fn fork_formula(total: f64) -> u64 {
    ((total - OVERHEAD) / (MODEL * FACTOR)).max(1.0) as u64
}

pub fn fork_section() -> Result<String> {
    let intro = "## 2. A fork's cure for out-of-memory errors\n\n\
        The fork trains nodes like those above, Qwen2.5-0.5B on cards below 40 GB and models of about 1.5B on larger ones, with two \
        completions a question. Its guide computes a batch size from the memory of the GPU: \
        `(total - 2) / (1.5 * 2.5)`, whatever the model.\n\n";
    Ok([intro.to_owned(), batch_table()?, settings_table()?, data_parallel()?].concat())
}

/// The fork's node: two completions a question, none foreign.
fn node_question(model: &'static str, gpu: &'static str) -> Question {
    let one = NODE.with(keys::MODEL, model).with(keys::SWARM_NODES, 1).with(keys::SWARM_GPUS, 1);
    one.with(keys::NUM_GENERATIONS, 2).with(keys::GPU, gpu)
}

fn batch_table() -> Result<String> {
    let mut rows = Vec::new();
    for (memory, gpu, name) in GPUS {
        let batch = fork_formula(memory);
        let asked = node_question("Qwen/Qwen2.5-0.5B", gpu).with(keys::SWARM_LOCAL_QUESTIONS, batch).answer()?;
        let most = |model: &'static str| -> Result<String> {
            let node = node_question(model, gpu);
            let largest = largest_fitting(&QUESTIONS, |questions| node.with(keys::SWARM_LOCAL_QUESTIONS, questions))?;
            Ok(largest.map_or("none".to_owned(), |n| format!("{n} ({} rows)", 2 * n)))
        };
        rows.push([
            format!("{memory:.0} GB ({name})"),
            batch.to_string(),
            format!("{}, {}", size_text(asked.total()), word(asked.deployment.fit())),
            most("Qwen/Qwen2.5-0.5B")?,
            most("Qwen/Qwen2.5-1.5B")?,
        ]);
    }
    let tried = QUESTIONS.map(|n| n.to_string()).join(", ");
    let why = "**Why they differ.** The formula charges weights, gradients and optimizer once for every item of the \
        batch, though they are there once, and charges nothing for what does grow with the batch: activations and \
        logits. Its model is always 1.5 GB. And its result goes into `num_train_samples`, which counts questions: rows \
        are questions x completions. In the fork the function is not called by the training code at all.\n\n";
    let head = [
        "GPU",
        "guide's formula",
        "as many questions of Qwen2.5-0.5B need",
        "most questions, of those tried, that fit: Qwen2.5-0.5B",
        "Qwen2.5-1.5B",
    ];
    let shown = node_question("Qwen/Qwen2.5-0.5B", "rtx-3090").with(keys::SWARM_LOCAL_QUESTIONS, fork_formula(24.0));
    let see = see_command(&shown.command(), &[size_text(shown.answer()?.total())]);
    let table = markdown_table(head, &rows);
    Ok(format!("### The formula for the batch\n\n{table}Tried: {tried} questions.\n\n{why}{see}"))
}

/// The settings of the guide: what, its words, the job, and why.
fn changes_of(node: &Question) -> [(&'static str, &'static str, Question, &'static str); 10] {
    [
        ("as the code runs, 8 questions", "-", node.clone(), "fp32, checkpointing"),
        (
            "`fp16: true`",
            "\"~50% memory savings\"",
            node.with(keys::PRECISION, "amp-fp16"),
            "autocast keeps fp32 weights, gradients and moments and adds half-precision copies; the loss needs fp32 \
         logits again. And that trainer scales no loss (no GradScaler): small gradients become zero",
        ),
        (
            "fp16 for the weights as well",
            "-",
            node.with(keys::PRECISION, "fp16"),
            "half of all states; Adam in fp16 does not train well",
        ),
        (
            "`gradient_checkpointing: true`, turned off",
            "\"reduces memory usage\"",
            node.with(keys::GRADIENT_CHECKPOINTING, "false"),
            "it does, and was on before the guide",
        ),
        (
            "`num_train_samples: 1`",
            "\"start with 1\"",
            node.with(keys::SWARM_LOCAL_QUESTIONS, 1),
            "the one setting of the guide that bounds the logits; what is left is weights, gradients, moments and the \
         optimizer's temporary, and no batch lowers that",
        ),
        (
            "no emptying of the cache each step",
            "\"clears every 10 rounds\"",
            node.with(keys::SWARM_EMPTY_CACHE, "false"),
            "emptying the cache does not lower the peak of a step; GenRL empties it every step already",
        ),
        (
            "`max_split_size_mb:512`",
            "set before running",
            node.with(keys::ALLOCATOR_MAX_SPLIT_SIZE_MB, 512),
            "it changes which blocks are reused, not what is alive",
        ),
        (
            "`max_split_size_mb:128`, expandable segments",
            "512 without",
            node.with(keys::ALLOCATOR_MAX_SPLIT_SIZE_MB, 128).with(keys::ALLOCATOR_EXPANDABLE_SEGMENTS, "true"),
            "what its start script sets, which is not what its text says",
        ),
        ("`expandable_segments:True`", "-", node.with(keys::ALLOCATOR_EXPANDABLE_SEGMENTS, "true"), "fewer fragments"),
        (
            "head and loss in chunks of rows",
            "-",
            node.with(keys::SWARM_LOG_PROBS, "chunked_head"),
            "the logits never exist at once",
        ),
    ]
}

fn settings_table() -> Result<String> {
    let node = node_question("Qwen/Qwen2.5-0.5B", "a100-80");
    let base = node.answer()?.total();
    let mut rows = Vec::new();
    for (what, guide, question, why) in changes_of(&node) {
        let total = question.answer()?.total();
        rows.push([what.to_owned(), guide.to_owned(), size_text(total), change_text(base, total), why.to_owned()]);
    }
    let note = "`gradient_accumulation_steps` (4, or 8 \"if out of memory\") and `auto_batch_size` have no row: the \
        training code reads neither, and trains on all rows in one pass. `CUDA_LAUNCH_BLOCKING=0` has none: it is the default. \
        Nor have its fixes for mismatched tensors, which cut the larger to the smaller batch: completions go missing without a \
        word, so check that all (I + J) x G rows are trained on.\n\n";
    let head = ["a Qwen2.5-0.5B node", "guide", "ours", "change", "why"];
    let shown = node.with(keys::PRECISION, "amp-fp16");
    let figures = [size_text(shown.answer()?.total())];
    Ok(format!("### The settings\n\n{}{note}{}", markdown_table(head, &rows), see_command(&shown.command(), &figures)))
}

fn data_parallel() -> Result<String> {
    let alone = Question::of("examples/gpt2-a100.toml")
        .with(keys::GRADIENT_ACCUMULATION_STEPS, 1)
        .with(keys::MICRO_BATCH_SIZE, 16);
    let both = alone.with(keys::MICRO_BATCH_SIZE, 8).with(keys::WORLD_SIZE, 2).with(keys::PARALLEL, "data_parallel");
    let answer = both.answer()?;
    let one = alone.answer()?.total();
    let mut rows = vec![["one GPU, 16 rows".to_owned(), size_text(one), String::new()]];
    for gpu in &answer.deployment.gpus {
        let name = format!("DataParallel, 8 rows on each of two, GPU {}", gpu.first);
        rows.push([name, size_text(gpu.total_bytes), change_text(one, gpu.total_bytes)]);
    }
    let why = "The guide says DataParallel \"distributes batch processing\" and speeds up linearly. Rows are split, but \
        every GPU holds a replica, and what the replicas return is gathered on GPU 0, which gets the least relief. Adding up the memory of several cards, as the fork does to choose a model, is wrong for \
        the same reason.\n\n";
    let head = ["GPT-2, 1024 tokens, bf16 autocast", "ours", "against one GPU"];
    let figures: Vec<String> = answer.deployment.gpus.iter().map(|gpu| size_text(gpu.total_bytes)).collect();
    Ok(format!("### DataParallel\n\n{}{why}{}", markdown_table(head, &rows), see_command(&both.command(), &figures)))
}

#[cfg(test)]
mod tests {
    use super::fork_formula;

    #[test]
    fn the_guides_formula() {
        assert_eq!([8.0, 12.0, 24.0, 40.0, 80.0].map(fork_formula), [1, 2, 5, 10, 20]);
    }
}

//! A small GPT's estimator: its examples, its own formula run again, and the step.

use anyhow::{Context, Result};
use tonnage_core::job::guides::LegacyEstimate;
use tonnage_core::job::keys;
use tonnage_core::trace::Category;
use tonnage_core::units::Bytes;

use super::markdown::{change_text, markdown_table, see_command, size_text};
use super::question::{Answer, Question, word};

const SMALL: Question = Question::of("examples/lilwill.toml");

/// An example: what the guide calls it, parameters and GB as written, its verdict, the job, and the command that gives it
/// in the guide's own words.
struct Example {
    name: &'static str,
    parameters: &'static str,
    gb: &'static str,
    advice: &'static str,
    job: Question,
    command: &'static str,
    why: &'static str,
}

fn guide_examples() -> [Example; 4] {
    let medium = SMALL.with("model.n_embd", 768).with("model.n_layer", 12).with(keys::MICRO_BATCH_SIZE, 8);
    let large = medium.with("model.n_embd", 1024).with("model.n_layer", 24).with("model.n_head", 16);
    [
        Example {
            name: "1: 6 layers, 384, batch 24, fp32",
            parameters: "30.12M",
            gb: "0.54 GB",
            advice: "reasonable",
            job: SMALL.with(keys::PRECISION, "fp32"),
            command: "tonnage estimate examples/lilwill.toml --precision fp32 --legacy",
            why: "logits of 24 x 511 tokens x 50,257 entries in several copies, and six layers' attention scores; the formula has neither",
        },
        Example {
            name: "1: the same, mixed precision",
            parameters: "30.12M",
            gb: "0.31 GB",
            advice: "reasonable",
            job: SMALL,
            command: "tonnage estimate examples/lilwill.toml --legacy",
            why: "autocast keeps fp32 weights, gradients and moments, and the loss is in fp32",
        },
        Example {
            name: "2: 12 layers, 768, batch 8, mixed precision",
            parameters: "123.94M",
            gb: "1.03 GB",
            advice: "reasonable",
            job: medium,
            command: "tonnage estimate --model-embd 768 --model-layer 12 --batch-size 8 --mixed-precision --legacy",
            why: "the same, on 16 bytes a parameter instead of 8",
        },
        Example {
            name: "3: 24 layers, 1024, batch 4, mixed precision",
            parameters: "442.37M",
            gb: "3.67 GB",
            advice: "moderate",
            job: large.with(keys::MICRO_BATCH_SIZE, 4),
            command: "tonnage estimate --model-embd 1024 --model-layer 24 --model-head 16 --batch-size 4 --mixed-precision --legacy",
            why: "the guide's own formula gives neither of its two figures; 3.67 is below 4 and would be \"reasonable\"; its \
                  command leaves the heads at 6, which do not divide 1024",
        },
    ]
}

pub fn small_gpt_section() -> Result<String> {
    let intro = "## 5. A small GPT's estimator\n\n\
        A trainer of small GPTs prints an estimate before it starts: parameters times constants. `--legacy` of `tonnage estimate` \
        runs that formula again and prints it beside the step. It writes GB and means GiB. *Ours* is that trainer's own model and \
        loop (roby2358/agi2 at 6e54453): separate projections, attention scores as tensors of their own, the loss of all logits. \
        Simulated and run, it takes the same bytes in every case of testdata/truth/agi2_cases.json.\n\n";
    Ok([intro.to_owned(), table_of_examples()?, breakdown_table()?, savings_table()?].concat())
}

fn legacy_estimate(job: &Question) -> Result<LegacyEstimate> {
    LegacyEstimate::of(&job.resolve()?.job)?.context("the example is no GPT")
}

/// The guide's advice by its thresholds of 4, 8 and 12 GB.
fn advice_for(gib: f64) -> &'static str {
    match gib {
        gib if gib < 4.0 => "reasonable",
        gib if gib < 8.0 => "moderate",
        gib if gib < 12.0 => "high",
        _ => "very high",
    }
}

fn table_of_examples() -> Result<String> {
    let mut rows = Vec::new();
    for example in guide_examples() {
        let (formula, answer) = (legacy_estimate(&example.job)?, example.job.answer()?);
        let millions = |parameters: u64| format!("{:.2}M", parameters as f64 / 1e6);
        rows.push([
            example.name.to_owned(),
            format!("{}, {}, {}", example.parameters, example.gb, example.advice),
            format!("{}, {:.2} GB", millions(formula.parameters), Bytes(formula.total()).gib()),
            millions(answer.estimate.parameter_count),
            size_text(answer.total()),
            advice_for(Bytes(answer.total()).gib()).to_owned(),
            format!("`{}`", example.command),
            example.why.to_owned(),
        ]);
    }
    let on_t4 = SMALL.with(keys::PRECISION, "fp32").with(keys::GPU, "t4");
    let answer = on_t4.answer()?;
    let verdict = word(answer.deployment.fit());
    let why = format!(
        "Parameters differ by the biases and the last norm, which the formula leaves out, and by the positions, which it counts \
         and the trainer computes. The guide's vocabulary of 50,257 is GPT-2's; the trainer of that day made its own of the text's \
         first 50,000 characters, and prints its size: `vocab_size`. The advice goes by fixed thresholds, < 4, 4-8, 8-12 and > 12 GB, \
         whatever the GPU; a verdict needs one: on a T4, which has {} for PyTorch, the first example {verdict}.\n\n",
        size_text(answer.estimate.usable_bytes),
    );
    let head = [
        "example",
        "guide",
        "its formula, run again",
        "parameters",
        "ours",
        "advice by its thresholds",
        "command",
        "why",
    ];
    Ok(format!(
        "### The examples\n\n{}{why}{}",
        markdown_table(head, &rows),
        see_command(&on_t4.command(), &[size_text(answer.estimate.usable_bytes), verdict.to_owned()])
    ))
}

/// The bytes of these categories at the peak.
fn at_peak(answer: &Answer, categories: &[Category]) -> u64 {
    categories.iter().map(|category| answer.estimate.at_peak.by_category[*category as usize]).sum()
}

fn breakdown_table() -> Result<String> {
    let (formula, answer) = (legacy_estimate(&SMALL)?, SMALL.answer()?);
    let weights = at_peak(&answer, &[Category::Parameter]);
    let work =
        at_peak(&answer, &[Category::Activation, Category::Temporary, Category::OpInternal, Category::Recompute]);
    let [moments, gradients, input] =
        [Category::OptimizerState, Category::Gradient, Category::Input].map(|category| at_peak(&answer, &[category]));
    let rest = answer.total().saturating_sub(weights + work + moments + gradients + input);
    let all_gradients = format!(
        "fp32, {} when all are there, after backward; at the peak, in backward, few or none are",
        size_text(weights)
    );
    let row = |item: &str, guide: &str, formula: u64, ours: u64, why: &str| {
        [item.to_owned(), guide.to_owned(), size_text(formula), size_text(ours), why.to_owned()]
    };
    let rows = [
        row("model weights", "0.06 GB", formula.weights, weights, "autocast leaves them in fp32"),
        row(
            "activations",
            "0.08 GB",
            formula.activations,
            work,
            "the formula counts elements and calls them bytes, and has neither logits nor attention scores",
        ),
        row("optimizer state", "0.11 GB", formula.optimizer_state, moments, "two fp32 moments"),
        row("gradients", "0.06 GB", formula.gradients, gradients, &all_gradients),
        row(
            "IO tensors",
            "0.01 GB",
            formula.io_tensors,
            input,
            "token ids, 8 bytes each; the targets are cut from them",
        ),
        row(
            "all else, cache, context",
            "-",
            0,
            rest,
            "autocast's copies of weights, workspaces, what the allocator holds beyond what is allocated, and what lies outside it",
        ),
        row("**total**", "0.31 GB", formula.total(), answer.total(), "at its highest phase"),
    ];
    let head = ["item, lilwill.toml", "guide", "its formula, run again", "ours", "why"];
    let printed = [weights, work, moments, gradients, rest, answer.total()].map(size_text);
    Ok(format!(
        "### The breakdown\n\n{}{}",
        markdown_table(head, &rows),
        see_command("tonnage estimate examples/lilwill.toml --legacy", &printed)
    ))
}

fn savings_table() -> Result<String> {
    let full = SMALL.with(keys::PRECISION, "fp32");
    let (base, base_formula) = (full.answer()?.total(), legacy_estimate(&full)?.total());
    let mut rows = Vec::new();
    for (what, guide, job) in [
        ("mixed precision (fp16 autocast)", "\"~50% reduction\", 0.23 GB", full.with(keys::PRECISION, "amp-fp16")),
        ("batch 12 instead of 24", "\"smaller batches use less memory\"", full.with(keys::MICRO_BATCH_SIZE, 12)),
        ("256 tokens instead of 512", "\"shorter sequences use less\"", full.with(keys::SEQ_LEN, 256)),
        ("gradient checkpointing, written in", "\"future feature\"", full.with(keys::GRADIENT_CHECKPOINTING, "true")),
    ] {
        let (total, formula) = (job.answer()?.total(), legacy_estimate(&job)?.total());
        rows.push([
            what.to_owned(),
            guide.to_owned(),
            change_text(base_formula, formula),
            format!("{} ({})", size_text(total), change_text(base, total)),
            format!("`{}`", job.command()),
        ]);
    }
    let why = "Logits and attention scores are nearly all of the peak: what makes them fewer or narrower helps, what halves \
        weights hardly does.\n\n";
    let head = ["lilwill.toml in fp32, with", "guide", "by its formula", "ours", "command"];
    Ok(format!("### What saves memory\n\n{}{why}", markdown_table(head, &rows)))
}

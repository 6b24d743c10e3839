//! The guide to SAPO experiments: nodes per GPU, breakdowns of a node, totals, phases, remedies, hours and cost.

use anyhow::{Context, Result};
use tonnage_core::estimate::{Estimate, Fit};
use tonnage_core::gpu::catalog;
use tonnage_core::job::keys;
use tonnage_core::plan::time::cost_factor;
use tonnage_core::trace::{Category, PhaseKind};

use super::markdown::{change_text, gb_text, markdown_table, percent_text, see_command, size_text};
use super::question::{Answer, Question, word};

const GPT2: Question = Question::of("examples/sapo-gpt2-swarm.toml");
const QWEN: Question = Question::of("examples/sapo-qwen2.5-0.5b-swarm.toml");

/// GPU, and the nodes that the guide gives it.
const NODES: [(&str, &str, u64); 5] = [
    ("A100 80GB", "a100-80", 8),
    ("A100 40GB", "a100-40", 6),
    ("V100 32GB", "v100-32", 4),
    ("L4 24GB", "l4", 3),
    ("T4 15GB", "t4", 1),
];
/// The guide's figures of a node: weights, forward pass, gradients and optimizer, working memory, total.
const GPT2_NODE: Node = Node {
    name: "GPT-2 (124M)",
    vocabulary: 50_257,
    guide: ["0.5 GB", "4.0 GB", "1.5 GB", "0.5 GB", "~6.5 GB"],
    weights: "fp32, as GenRL loads them",
};
const QWEN_NODE: Node = Node {
    name: "Qwen2.5-0.5B",
    vocabulary: 151_936,
    guide: ["1.0 GB", "9.3 GB", "3.0 GB", "2.0 GB", "~16 GB (its rows add up to 15.3)"],
    weights: "the guide has the figure of bf16, here and for gradients and optimizer; GenRL loads fp32, as the guide says elsewhere",
};

/// A node as the guide describes it, and why its figure of the weights differs.
struct Node {
    name: &'static str,
    vocabulary: u64,
    guide: [&'static str; 5],
    weights: &'static str,
}

/// Steps over which operations are compared: what only the first does must not count.
const STEPS: u64 = 1000;
/// Rounds of an experiment, seconds the guide gives one, and its price of an hour on an A100.
const ROUNDS: f64 = 2000.0;
const ROUND_SECONDS: f64 = 35.0;
const DOLLARS_PER_HOUR: f64 = 1.29;
/// Seconds a round took in the logs that the project itself published: four workers, half the questions.
const LOGGED_SECONDS: [f64; 2] = [117.0, 146.0];

pub fn sapo_section() -> Result<String> {
    Ok([
        "## 1. SAPO experiments: nodes of a swarm on one GPU\n\n\
         A node of the swarm is a process with its own model, optimizer and CUDA context. It trains on all its rows at \
         once: 8 questions x 8 completions = 64 rows, of 64 prompt and 256 completion tokens here, in fp32.\n\n"
            .to_owned(),
        nodes_per_gpu()?,
        breakdown_table(&GPT2_NODE, &GPT2.with(keys::SWARM_NODES, 1))?,
        breakdown_table(&QWEN_NODE, &QWEN.with(keys::SWARM_NODES, 1).with(keys::SWARM_GPUS, 1))?,
        totals_table()?,
        phase_table()?,
        remedy_table()?,
        cost_note(),
    ]
    .concat())
}

fn nodes_per_gpu() -> Result<String> {
    let mut rows = Vec::new();
    for (name, gpu, nodes) in NODES {
        let node = GPT2.with(keys::GPU, gpu).with(keys::SWARM_NODES, nodes);
        let answer = node.answer()?;
        let without = node.with(keys::GRADIENT_CHECKPOINTING, "false").answer()?;
        let chunked = node.with(keys::SWARM_LOG_PROBS, "chunked_head").answer()?;
        rows.push([
            format!("{name} ({})", size_text(answer.estimate.usable_bytes)),
            nodes.to_string(),
            format!("{}, {}", size_text(answer.total()), word(answer.deployment.fit())),
            answer.room(None).to_string(),
            without.room(None).to_string(),
            chunked.room(None).to_string(),
            answer.room(Some(1)).to_string(),
            chunked.room(Some(1)).to_string(),
        ]);
    }
    let head = [
        "GPU (usable)",
        "guide: nodes",
        "the guide's nodes need",
        "fit as the code runs",
        "without checkpointing",
        "head in chunks",
        "lease of 1",
        "both",
    ];
    let why = "**Why they differ.** The guide divides the card by 6.5 GB. A node's peak is in backward, where the fp32 \
        logits of 64 x 256 tokens x 50,257 entries live in several copies, with their gradients; the guide counts one. \
        *As the code runs* is with gradient checkpointing, which GenRL has on by default, so the guide's second remedy \
        for an out-of-memory error is already spent.\n\n\
        **What to do instead.** Let only one node of a GPU be between forward and optimizer at a time (a lease), or compute head and \
        loss for 8 rows at a time; each multiplies the nodes a GPU holds.\n\n";
    let shown = GPT2.with(keys::GPU, "a100-80").with(keys::SWARM_NODES, 8);
    let figures = [size_text(shown.answer()?.total())];
    Ok(format!(
        "### Nodes per GPU (GPT-2)\n\n{}{why}{}",
        markdown_table(head, &rows),
        see_command(&shown.command(), &figures)
    ))
}

/// The highest allocated bytes of a kind of phase.
fn phase_bytes(estimate: &Estimate, kind: PhaseKind) -> u64 {
    let peaks = estimate.peak_per_phase.iter().filter(|peak| peak.phase.kind == kind);
    peaks.map(|peak| peak.allocated).max().unwrap_or(0)
}

/// The weights, a gradient for each, and Adam's moments.
struct States {
    weights: u64,
    moments: u64,
}

impl States {
    /// Of a job in fp32.
    fn of(estimate: &Estimate) -> Self {
        let weights = estimate.at_peak.by_category[Category::Parameter as usize];
        Self { weights, moments: estimate.at_peak.by_category[Category::OptimizerState as usize] }
    }
}

fn breakdown_table(described: &Node, node: &Question) -> Result<String> {
    let guide = described.guide;
    let copy = size_text(64 * 256 * described.vocabulary * 4);
    let logits = format!("one fp32 copy of the logits is {copy}; slicing, temperature and cross-entropy make more");
    let answer = node.answer()?;
    let estimate = &answer.estimate;
    let states = States::of(estimate);
    let forward = phase_bytes(estimate, PhaseKind::Forward);
    let cache = estimate.unused_reserved_bytes() + estimate.outside.high;
    let row = |item: &str, guide: &str, ours: String, why: &str| [item, guide, &ours, why].map(str::to_owned);
    let rows = [
        row("weights", guide[0], size_text(states.weights), described.weights),
        row(
            "forward pass, 64 rows",
            guide[1],
            size_text(forward.saturating_sub(states.weights + states.moments)),
            &logits,
        ),
        row(
            "gradients and optimizer",
            guide[2],
            size_text(states.weights + states.moments),
            "a gradient and Adam's two moments in fp32: 12 bytes a parameter",
        ),
        row(
            "backward, above forward",
            "-",
            size_text(estimate.peak_allocated_bytes.saturating_sub(forward)),
            "the gradients of the logits; the guide has no row for the phase in which the peak lies",
        ),
        row(
            "cache and CUDA context",
            guide[3],
            size_text(cache),
            "the guide's \"working memory\"; every process has its own",
        ),
        row(
            "**total of a node**",
            guide[4],
            format!("**{}**", size_text(estimate.total_bytes)),
            "the highest phase, not the sum of the rows: gradients take the place of logits as backward goes on",
        ),
    ];
    let head = ["item", "guide", "ours", "why"];
    let figures = [size_text(states.weights), size_text(estimate.total_bytes)];
    Ok(format!(
        "### A node: {}\n\n{}{}",
        described.name,
        markdown_table(head, &rows),
        see_command(&node.command(), &figures)
    ))
}

fn totals_table() -> Result<String> {
    let mut rows = Vec::new();
    for (what, gpu, nodes, guide) in [
        ("8 GPT-2 nodes on an A100 80GB", "a100-80", 8, "52 GB / 80 GB (65 %, safe)"),
        ("6 GPT-2 nodes on an A100 40GB", "a100-40", 6, "6 x 6.5 = 39 GB"),
        ("1 GPT-2 node on a T4", "t4", 1, "6.5 GB / 15 GB (43 %, very safe)"),
        ("8 GPT-2 nodes on an RTX 6000 Ada", "rtx-6000-ada", 8, "a card with \"80+ GB VRAM\""),
    ] {
        rows.push(total_row(what, guide, &GPT2.with(keys::GPU, gpu).with(keys::SWARM_NODES, nodes).answer()?));
    }
    let qwen = QWEN.answer()?;
    rows.push(total_row("8 Qwen2.5-0.5B nodes, an A100 80GB each", "128 GB over 8 GPUs", &qwen));
    rows.push(total_row(
        "one Qwen2.5-0.5B node on 16 GB (T4)",
        "\"8 separate GPUs with 16GB+ each\"",
        &QWEN.with(keys::GPU, "t4").answer()?,
    ));
    let least = QWEN.with(keys::SWARM_NODES, 1).with(keys::SWARM_GPUS, 1);
    let (full, chunked) = (smallest_gpu(&least)?, smallest_gpu(&least.with(keys::SWARM_LOG_PROBS, "chunked_head"))?);
    let why = format!(
        "**Why they differ.** As above, and: 39 GB is {} of what PyTorch sees of an A100 40GB, before a single context, while the \
         same guide calls 70 of 80 GB a risk; an RTX 6000 Ada has 48 GB. A Qwen2.5-0.5B node as the code runs needs at \
         least the {full} of our catalog; with the head in chunks, the {chunked}. Eight of them reserve {} in all.\n\n",
        percent_text(39_000_000_000, GPT2.with(keys::GPU, "a100-40").resolve()?.job.gpu.usable_bytes),
        size_text(qwen.total() * 8),
    );
    let head = ["swarm", "guide", "ours, per GPU", "of usable", "verdict"];
    let shown = QWEN.with(keys::GPU, "t4");
    let figures = [size_text(shown.answer()?.total()), "does not fit".to_owned()];
    Ok(format!("### Totals\n\n{}{why}{}", markdown_table(head, &rows), see_command(&shown.command(), &figures)))
}

fn total_row(what: &str, guide: &str, answer: &Answer) -> [String; 5] {
    let total = answer.total();
    [
        what.to_owned(),
        guide.to_owned(),
        format!("{} ({})", size_text(total), gb_text(total)),
        percent_text(total, answer.estimate.usable_bytes),
        word(answer.deployment.fit()).to_owned(),
    ]
}

/// The name of the catalog's GPU with the least memory on which `node` fits, by bisection: more memory never hurts.
fn smallest_gpu(node: &Question) -> Result<String> {
    let mut by_memory: Vec<_> = catalog().iter().map(|row| row.gpu()).collect();
    by_memory.sort_by_key(|gpu| gpu.usable_bytes);
    let (mut low, mut high) = (0, by_memory.len());
    while low < high {
        let middle = low.midpoint(high);
        if node.verdicts(&by_memory[middle..=middle])?[0].fit == Fit::Fits {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let gpu = by_memory.get(low).context("no GPU of the catalog is large enough")?;
    Ok(format!("{} ({})", gpu.name, size_text(gpu.usable_bytes)))
}

/// What eight nodes reserve together by the end of step `step` and before the next.
fn reserved_by(answer: &Answer, step: u32, nodes: u64) -> u64 {
    let estimate = &answer.estimate;
    let peaks = estimate.peak_per_phase.iter().filter(|peak| peak.phase.step == step);
    let reserved = peaks.map(|peak| peak.reserved).max().unwrap_or(0);
    (reserved + estimate.outside.high) * nodes
}

fn phase_table() -> Result<String> {
    let question = GPT2.with(keys::STEPS, 4);
    let answer = question.answer()?;
    let row = |when: &str, guide: &str, step: u32, why: &str| {
        [when.to_owned(), guide.to_owned(), size_text(reserved_by(&answer, step, 8)), why.to_owned()]
    };
    let rows = [
        row("models loaded", "10-20 GB", 0, "eight times the weights and a context; nothing else is there yet"),
        row("round 1", "45-55 GB (rounds 1-100)", 1, "Adam has no state before its first step"),
        row("round 2", "45-55 GB (rounds 1-100)", 2, "Adam's two moments, made in round 1, are beside the logits now"),
        row(
            "rounds 3 and 4",
            "50-60 GB, \"gradual increase due to optimizer state\" (rounds 500-1500)",
            4,
            "Adam's state never grows after its first step; what grows in a real run is the longest row so far",
        ),
        row("any later round", "50-60 GB, \"stable plateau\"; > 70 GB is a risk", 4, "the same"),
    ];
    let note = "Eight nodes of which each is at its own peak. Whether all peaks coincide is luck; a plan that counts on \
        luck fails in some round of 2,000.\n\n";
    let head = ["when", "guide, 8 GPT-2 nodes", "ours, 8 GPT-2 nodes", "why"];
    let figures = [size_text(reserved_by(&answer, 4, 8))];
    Ok(format!(
        "### Expected memory over time\n\n{}{note}{}",
        markdown_table(head, &rows),
        see_command(&question.command(), &figures)
    ))
}

fn remedy_table() -> Result<String> {
    let node = GPT2.with(keys::SWARM_NODES, 1);
    let base = node.answer()?.total();
    let mut rows = Vec::new();
    for (what, guide, question) in [
        ("as the code runs", "6.5 GB", node.clone()),
        ("gradient checkpointing off", "\"enable it\" is solution 2", node.with(keys::GRADIENT_CHECKPOINTING, "false")),
        ("head and loss in chunks of 8 rows", "-", node.with(keys::SWARM_LOG_PROBS, "chunked_head")),
        ("fp16 autocast", "not recommended (stability)", node.with(keys::PRECISION, "amp-fp16")),
        ("bf16 weights", "-", node.with(keys::PRECISION, "bf16")),
        (
            "6 own and 2 foreign questions",
            "same memory",
            Question::of("examples/sapo/gpt2-6-2.toml").with(keys::SWARM_NODES, 1),
        ),
        ("4 and 4", "same memory", Question::of("examples/sapo/gpt2-4-4.toml").with(keys::SWARM_NODES, 1)),
        ("2 and 6", "same memory", Question::of("examples/sapo/gpt2-2-6.toml").with(keys::SWARM_NODES, 1)),
        ("4 own questions and none foreign", "-", node.with(keys::SWARM_LOCAL_QUESTIONS, 4)),
    ] {
        let total = question.answer()?.total();
        rows.push([
            what.to_owned(),
            guide.to_owned(),
            size_text(total),
            change_text(base, total),
            format!("`{}`", question.command()),
        ]);
    }
    let alone = node.work()?;
    let shared = |file| -> Result<String> {
        let factor = cost_factor(&Question::of(file).work()?, &alone, STEPS).context("a node computes nothing")?;
        Ok(format!("{:.0} %", factor * 100.0))
    };
    let why = format!(
        "**Why.** Autocast does not help here: weights, gradients and Adam stay fp32, cross-entropy makes fp32 of \
         half-precision logits, and both are alive. How I and J are split leaves the rows of the training pass, and so \
         the peak, as they are; fewer rows lower it. The same memory is not the same work: a node of 8/0 generates 64 completions a \
         round, one of 4/4 half as many and one of 2/6 a quarter, so that a step of 6/2 takes {} of its operations, of 4/4 {}, of \
         2/6 {}. The guide compares them as equal, by their training samples.\n\n",
        shared("examples/sapo/gpt2-6-2.toml")?,
        shared("examples/sapo/gpt2-4-4.toml")?,
        shared("examples/sapo/gpt2-2-6.toml")?,
    );
    let head = ["a GPT-2 node", "guide", "ours", "change", "command"];
    Ok(format!("### Remedies\n\n{}{why}", markdown_table(head, &rows)))
}

fn cost_note() -> String {
    let hours = |seconds: f64| ROUNDS * seconds / 3600.0;
    let stated = hours(ROUND_SECONDS);
    let [fast, slow] = LOGGED_SECONDS.map(hours);
    let dollars = |hours: f64| format!("${:.0}", hours * DOLLARS_PER_HOUR);
    let saving = |ours: f64, theirs: f64| format!("{:.0} %", (1.0 - ours / theirs) * 100.0);
    let row = |cells: [&str; 4]| cells.map(str::to_owned);
    let rows = [
        row([
            "hours of an experiment",
            "~21 h, at ~35 s a round",
            &format!("{stated:.1} h at 35 s; {:.1} s a round make 21 h", 21.0 * 3600.0 / ROUNDS),
            "2,000 rounds",
        ]),
        row([
            "the same from the project's own logs",
            "-",
            &format!("{fast:.0}-{slow:.0} h"),
            "117 to 146 s a round were logged, with four workers and half the questions",
        ]),
        row([
            "four experiments",
            "4 days, 96 h, $124",
            &format!(
                "4 x 21 = 84 h, {}; at the logged rate {}-{}",
                dollars(84.0),
                dollars(4.0 * fast),
                dollars(4.0 * slow)
            ),
            "the guide pays for 96 h and plans 84; at $1.29 an hour, its price",
        ]),
        row([
            "saving against eight cloud machines at $400-500",
            "85-90 %",
            &format!(
                "{}-{} at $50, {}-{} at $124",
                saving(50.0, 400.0),
                saving(50.0, 500.0),
                saving(124.0, 400.0),
                saving(124.0, 500.0)
            ),
            "the stated saving holds for the subscription only",
        ]),
    ];
    format!("### Hours and cost\n\n{}", markdown_table(["item", "guide", "its own arithmetic", "basis"], &rows))
}

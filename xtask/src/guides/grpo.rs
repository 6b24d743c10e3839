//! GRPO with an evaluator: the batch tables, verdicts and breakdowns for 7B + 14B and for 0.5B + 0.5B.

use anyhow::Result;
use tonnage_core::estimate::{Estimate, Fit};
use tonnage_core::gpu::Gpu;
use tonnage_core::job::keys;
use tonnage_core::plan::fit::GpuVerdict;
use tonnage_core::trace::Category;

use super::grpo_guide::{Batch, Card, Change, LARGE, LARGE_CARDS, LARGE_OPTIONS, SMALL, SMALL_CARDS, SMALL_OPTIONS};
use super::markdown::{change_text, gb_text, markdown_table, see_command, size_text};
use super::question::{Answer, Question, gpus, word};

/// TRL's defaults, as the project's commands leave them.
const PROMPT: u64 = 512;
const COMPLETION: u64 = 256;
const GROUP: u64 = 8;

/// One of the two sizes that the guide treats.
struct Pair {
    base: Question,
    batches: &'static [Batch],
    cards: &'static [Card],
    /// The batch of the table of GPUs.
    stated: u64,
    vocabulary: u64,
}

/// The settings a row is computed with.
#[derive(Clone, Copy)]
enum Settings {
    /// Everything in bf16, no reference model: what the guide adds up.
    OfTheGuide,
    /// fp32 weights under bf16 autocast, and a reference model, as the project's code has it.
    OfTheProject,
}

impl Pair {
    fn large() -> Self {
        let base = Question::of("examples/grpo-7b-judge-14b.toml");
        Self { base, batches: &LARGE, cards: &LARGE_CARDS, stated: 8, vocabulary: 152_064 }
    }

    fn small() -> Self {
        let base = Question::of("examples/grpo-0.5b-judge-0.5b.toml").with(keys::GPU, "h200");
        Self { base, batches: &SMALL, cards: &SMALL_CARDS, stated: 128, vocabulary: 151_936 }
    }

    /// The job at `batch` rows; batches below a group are accumulated to one.
    fn question(&self, settings: Settings, batch: u64) -> Question {
        let (precision, beta) = match settings {
            Settings::OfTheGuide => ("bf16", "0.0"),
            Settings::OfTheProject => ("amp-bf16", "0.05"),
        };
        let trl =
            self.base.with(keys::TRL, "0.25").with(keys::PROMPT_LEN, PROMPT).with(keys::COMPLETION_LEN, COMPLETION);
        let question =
            trl.with(keys::PRECISION, precision).with(keys::GRPO_BETA, beta).with(keys::MICRO_BATCH_SIZE, batch);
        if batch < GROUP { question.with(keys::GRADIENT_ACCUMULATION_STEPS, GROUP / batch) } else { question }
    }

    fn rows(&self) -> Result<Vec<Row>> {
        let names: Vec<_> = self.cards.iter().map(|card| card.1).collect();
        let gpus = gpus(&names)?;
        let (guide, project) =
            (self.verdicts(Settings::OfTheGuide, &gpus)?, self.verdicts(Settings::OfTheProject, &gpus)?);
        Ok(guide.into_iter().zip(project).map(|(guide, project)| Row { guide, project }).collect())
    }

    /// The verdicts of every batch, from the largest down. GPUs like the H200 are always asked, for one simulation serves
    /// them all; others at the stated batch, and until a batch fits, leaving out those that are far too large.
    fn verdicts(&self, settings: Settings, gpus: &[Gpu]) -> Result<Vec<Vec<Option<GpuVerdict>>>> {
        let h200 = Gpu::parse("h200")?.device();
        let mut fitted = vec![false; gpus.len()];
        let mut table = Vec::new();
        for (batch, ..) in self.batches.iter().rev() {
            let question = self.question(settings, *batch);
            let mut answers = vec![None; gpus.len()];
            let alike: Vec<usize> = (0..gpus.len()).filter(|at| gpus[*at].device() == h200).collect();
            ask_cards(&question, gpus, alike, &mut answers)?;
            let needed = answers.iter().flatten().map(|answer| answer.total_bytes).max().unwrap_or(0);
            let open = |at: &usize| !fitted[*at] && needed / 20 * 19 <= gpus[*at].usable_bytes;
            let others = (0..gpus.len()).filter(|at| answers[*at].is_none() && (*batch == self.stated || open(at)));
            ask_cards(&question, gpus, others.collect(), &mut answers)?;
            for (fitted, answer) in fitted.iter_mut().zip(&answers) {
                *fitted |= answer.as_ref().is_some_and(|answer| answer.fit == Fit::Fits);
            }
            table.push(answers);
        }
        table.reverse();
        Ok(table)
    }

    fn batch_table(&self, rows: &[Row]) -> String {
        let h200 = self.cards.iter().position(|card| card.1 == "h200").unwrap_or(0);
        let lines: Vec<_> = self
            .batches
            .iter()
            .zip(rows)
            .map(|(batch, row)| {
                let ours = |answers: &[Option<GpuVerdict>]| {
                    answers[h200].as_ref().map_or(["-".to_owned(), "-".to_owned()], |answer| {
                        [size_text(answer.total_bytes), answer.peak_phase.kind.name().to_owned()]
                    })
                };
                let ([a, a_phase], [b, b_phase]) = (ours(&row.guide), ours(&row.project));
                let logits = gb_text(batch.0 * COMPLETION * self.vocabulary * 4);
                [
                    batch.0.to_string(),
                    batch.1.to_owned(),
                    batch.2.to_owned(),
                    batch.3.to_owned(),
                    a,
                    a_phase,
                    b,
                    b_phase,
                    logits,
                ]
            })
            .collect();
        let head = [
            "batch",
            "guide: activations",
            "guide: total",
            "guide: GPU",
            "ours: all bf16",
            "peak in",
            "ours: the project's",
            "peak in",
            "one fp32 copy of the logits",
        ];
        markdown_table(head, &lines)
    }

    fn card_table(&self, rows: &[Row]) -> String {
        let at = self.batches.iter().position(|batch| batch.0 == self.stated).unwrap_or(0);
        let lines: Vec<_> = self
            .cards
            .iter()
            .enumerate()
            .map(|(card, (name, _, guide))| {
                let largest = |of: fn(&Row) -> &Vec<Option<GpuVerdict>>| {
                    let fits =
                        |row: &&(&Batch, &Row)| of(row.1)[card].as_ref().is_some_and(|answer| answer.fit == Fit::Fits);
                    let pairs: Vec<_> = self.batches.iter().zip(rows).collect();
                    pairs.iter().rfind(fits).map_or("none".to_owned(), |(batch, _)| batch.0.to_string())
                };
                let verdict =
                    |answers: &[Option<GpuVerdict>]| answers[card].as_ref().map_or("-", |answer| word(answer.fit));
                [
                    (*name).to_owned(),
                    rows[at].usable(card),
                    (*guide).to_owned(),
                    verdict(&rows[at].guide).to_owned(),
                    largest(|row| &row.guide),
                    verdict(&rows[at].project).to_owned(),
                    largest(|row| &row.project),
                ]
            })
            .collect();
        let stated = format!("guide, batch {}", self.stated);
        let head = [
            "GPU",
            "usable",
            &stated,
            "ours: all bf16",
            "largest batch of the table",
            "ours: the project's",
            "largest batch",
        ];
        markdown_table(head, &lines)
    }
}

/// The verdicts on the GPUs under both settings.
struct Row {
    guide: Vec<Option<GpuVerdict>>,
    project: Vec<Option<GpuVerdict>>,
}

impl Row {
    fn usable(&self, card: usize) -> String {
        self.guide[card].as_ref().map_or("-".to_owned(), |answer| size_text(answer.usable_bytes))
    }
}

/// Judges `question` on those of `gpus` that are `chosen`.
fn ask_cards(question: &Question, gpus: &[Gpu], chosen: Vec<usize>, answers: &mut [Option<GpuVerdict>]) -> Result<()> {
    let named: Vec<Gpu> = chosen.iter().map(|at| gpus[*at].clone()).collect();
    for (at, answer) in chosen.into_iter().zip(question.verdicts(&named)?) {
        answers[at] = Some(answer);
    }
    Ok(())
}

/// The bytes of `model` at the peak.
fn of_model(estimate: &Estimate, model: &str) -> u64 {
    estimate.at_peak.by_model.iter().find(|(name, _)| *name == model).map_or(0, |(_, bytes)| *bytes)
}

/// The job at `batch` under both settings, with what it needs.
fn both_answers(pair: &Pair, batch: u64) -> Result<[(Question, Answer); 2]> {
    let [guide, project] =
        [Settings::OfTheGuide, Settings::OfTheProject].map(|settings| pair.question(settings, batch));
    let (guide_answer, project_answer) = (guide.answer()?, project.answer()?);
    Ok([(guide, guide_answer), (project, project_answer)])
}

/// What the guide adds up, at the batch that it recommends.
fn breakdown_table(jobs: &[(Question, Answer); 2], guide: [&str; 5]) -> String {
    let parts = |estimate: &Estimate| {
        let categories = &estimate.at_peak.by_category;
        let (judge, reference) = (of_model(estimate, "judge"), of_model(estimate, "reference"));
        let policy = categories[Category::Parameter as usize].saturating_sub(judge + reference);
        // A gradient for every parameter, in its dtype: all are there when the optimizer steps.
        let states = policy + categories[Category::OptimizerState as usize];
        let rest = estimate.total_bytes.saturating_sub(policy + states + judge + reference);
        [policy, states, judge, reference, rest, estimate.total_bytes]
    };
    let [a, b] = [0, 1].map(|at: usize| parts(&jobs[at].1.estimate));
    let whys = [
        "TRL 0.25 loads a model that is named by a string in fp32, and the project trains it so",
        "three times the weights, in their dtype; the guide's figure is that of bf16",
        "bf16 in both",
        "the project sets beta = 0.05, and any beta above 0 loads a second policy; the guide has none",
        "activations, logits, casts, caches of generation, the allocator's cache, the CUDA context",
        "the highest phase; the rows above it add up to it",
    ];
    let items = [
        "policy's weights",
        "gradients and optimizer",
        "evaluator's weights",
        "reference's weights",
        "all else",
        "**total**",
    ];
    let said = [guide[0], guide[1], guide[2], "-", guide[3], guide[4]];
    let row = |at: usize| {
        [items[at].to_owned(), said[at].to_owned(), size_text(a[at]), size_text(b[at]), whys[at].to_owned()]
    };
    let rows: Vec<_> = (0..items.len()).map(row).collect();
    markdown_table(["item", "guide", "ours: all bf16", "ours: the project's", "why"], &rows)
}

/// Totals of variants of the job, each against the job itself.
fn options_table(jobs: &[(Question, Answer); 2], variants: &[(&str, &str, Change, &str)]) -> String {
    let ours = |(base, answer): &(Question, Answer), apply: Change| match apply(base).answer() {
        Ok(changed) => format!("{} ({})", size_text(changed.total()), change_text(answer.total(), changed.total())),
        Err(_) => "not simulated".to_owned(),
    };
    let row = |(what, said, apply, why): &(&str, &str, Change, &str)| {
        [(*what).to_owned(), (*said).to_owned(), ours(&jobs[0], *apply), ours(&jobs[1], *apply), (*why).to_owned()]
    };
    let rows: Vec<_> = variants.iter().map(row).collect();
    markdown_table(["change", "guide", "ours: all bf16", "ours: the project's", "why"], &rows)
}

const SETTINGS: &str = "*All bf16* is what the guide adds up: weights, gradients and moments in bf16, no reference model. *The \
    project's* is what its code runs: fp32 weights under bf16 autocast and `beta = 0.05`, so a reference model in fp32. Both are \
    TRL 0.25, which computes full logits; prompts of 512 and completions of 256 tokens (TRL's defaults, which the \
    project's commands leave as they are), groups of 8, gradient checkpointing on (TRL's default), fused AdamW, and an \
    evaluator in bf16 that answers with 256 tokens. A batch counts completions; below 8 it is accumulated to one group.\n\n";

/// The section on 7B and 14B.
pub fn grpo_section() -> Result<String> {
    let pair = Pair::large();
    let rows = pair.rows()?;
    let intro = "## 3. GRPO with an evaluator: 7B and 14B\n\n\
        A Qwen2.5-7B policy is trained with TRL's GRPO; a Qwen2.5-14B evaluator on the same GPU answers what the policy \
        writes.\n\n";
    let why = "**Why they differ.** In its own setting the guide is right at small batches and far too high at large ones: \
        it scales a guessed activation with the batch, where checkpointing leaves little but the logits of the completion and \
        their gradient to grow. In the setting that the project runs it is far too low: states of fp32 and a reference model \
        alone exceed an H200. A step's peak is its highest phase, not a sum of columns; below a batch of 8, gradients of the \
        first passes are there while later ones run, so that less is not always less.\n\n";
    let jobs = both_answers(&pair, pair.stated)?;
    let [sees, cards] = [see_both(&jobs), pair.see_card(&rows)];
    let guide = ["~14 GB", "~42-50 GB", "~28 GB", "~10-15 GB", "~94-103 GB (its rows add up to 94-107)"];
    let breakdown = breakdown_table(&jobs, guide);
    let options = options_table(&jobs, &LARGE_OPTIONS);
    let best = Question::of("examples/grpo-7b-judge-14b.toml").with(keys::JUDGE_PLACE, "offload");
    let offloaded = size_text(best.answer()?.total());
    let instead = format!(
        "**What to do instead.** TRL 1.16's fused log-probabilities never hold the logits; bf16 weights, `beta = 0` and an \
         evaluator that is offloaded or on another GPU take most of the rest. With TRL 1.16, and the evaluator offloaded, the job of \
         our example needs {offloaded}.\n\n{}",
        see_command(&best.command(), std::slice::from_ref(&offloaded))
    );
    let a100 = on_a100(&pair)?;
    let option = pair.question(Settings::OfTheGuide, pair.stated).with(keys::JUDGE_WEIGHTS, "int8");
    let option = see_command(&option.command(), &[size_text(option.answer()?.total())]);
    let probe = "### The guide's probe\n\nThe guide tries a run with `--num-samples 10` before the full one. At batch 8 in groups of 8 that \
        is one prompt a step, and ten prompts hardly ever reach the longest completion, whose logits are the peak; and a comment \
        after a line's closing backslash ends its command there. A probe must force full lengths and run whole steps: `tonnage probe` and \
        `tonnage rehearse` do, before any GPU is rented.\n\n";
    Ok(format!(
        "{intro}{SETTINGS}### Batch and memory\n\n{}{why}{sees}### Which GPU\n\n{}\
         H100s of 96 GB exist in some clusters; our catalog has none, and the rows show its nearest. A GPU's usable memory is what \
         PyTorch sees.\n\n{cards}### On an A100 80GB\n\n{a100}\
         ### Breakdown at batch 8\n\n{breakdown}{sees}### The guide's options at batch 8\n\n{options}{option}{instead}{probe}",
        pair.batch_table(&rows),
        pair.card_table(&rows),
    ))
}

/// What the guide's "no" for an A100 leaves out, at its recommended batch.
fn on_a100(pair: &Pair) -> Result<String> {
    let plain = pair.question(Settings::OfTheGuide, pair.stated).with(keys::GPU, "a100-80");
    let mut rows = Vec::new();
    for (what, guide, job) in [
        ("as the guide adds it up", "❌ No", plain.clone()),
        ("evaluator in 8 bits", "\"28 -> 14 GB\"", plain.with(keys::JUDGE_WEIGHTS, "int8")),
        ("evaluator in 4 bits", "-", plain.with(keys::JUDGE_WEIGHTS, "nf4")),
        ("evaluator on another GPU", "-", plain.with(keys::JUDGE_PLACE, "other_gpu")),
        ("evaluator offloaded while it does not judge", "-", plain.with(keys::JUDGE_PLACE, "offload")),
        ("LoRA of rank 16", "-", plain.with(keys::LORA_R, 16)),
    ] {
        let answer = job.answer()?;
        rows.push([
            what.to_owned(),
            guide.to_owned(),
            size_text(answer.total()),
            word(answer.deployment.fit()).to_owned(),
            format!("`{}`", job.command()),
        ]);
    }
    let why = "The guide's \"no\" holds for one way to train, and it never separates devices.\n\n";
    let head = ["batch 8, all bf16, A100 80GB", "guide", "ours", "verdict", "command"];
    Ok(format!("{}{why}", markdown_table(head, &rows)))
}

/// How to see a pair's two totals.
fn see_both(jobs: &[(Question, Answer); 2]) -> String {
    jobs.iter().map(|(job, answer)| see_command(&job.command(), &[size_text(answer.total())])).collect()
}

impl Pair {
    /// How to see the first row of the table of GPUs.
    fn see_card(&self, rows: &[Row]) -> String {
        let at = self.batches.iter().position(|batch| batch.0 == self.stated).unwrap_or(0);
        let stated = self.cards.first().zip(rows[at].guide.first().and_then(Option::as_ref));
        stated.map_or_else(String::new, |((_, gpu, _), answer)| {
            let command = self.question(Settings::OfTheGuide, self.stated).with(keys::GPU, gpu).command();
            see_command(&command, &[size_text(answer.usable_bytes), word(answer.fit).to_owned()])
        })
    }
}

/// The section on 0.5B and 0.5B.
pub fn small_section() -> Result<String> {
    let pair = Pair::small();
    let rows = pair.rows()?;
    let why = "**Why they differ.** With a small model and a vocabulary of 151,936 the logits are the memory: at batch 128 one \
        fp32 copy of them is as large as the guide's whole total, and training holds several. \"Any GPU\" holds for none of \
        the larger rows.\n\n";
    let jobs = both_answers(&pair, pair.stated)?;
    let [sees, cards] = [see_both(&jobs), pair.see_card(&rows)];
    let option = pair.question(Settings::OfTheGuide, pair.stated).with(keys::TRL, "1.16");
    let option = see_command(&option.command(), &[size_text(option.answer()?.total())]);
    let breakdown = breakdown_table(&jobs, ["~1 GB", "~3-4 GB", "~1 GB", "~8-15 GB", "~14-22 GB"]);
    let options = options_table(&jobs, &SMALL_OPTIONS);
    Ok(format!(
        "## 3b. GRPO with an evaluator: 0.5B and 0.5B\n\nThe same with Qwen2.5-0.5B as policy and as evaluator, and the \
         same two settings.\n\n### Batch and memory\n\n{}{why}{sees}### Which GPU\n\n{}{cards}### Breakdown at batch 128\n\n\
         {breakdown}{sees}### What brings it down\n\n{options}{option}",
        pair.batch_table(&rows),
        pair.card_table(&rows),
    ))
}

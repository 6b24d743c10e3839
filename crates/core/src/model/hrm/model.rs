//! The model proper (models/hrm/hrm_act_v1.py): two levels of blocks that think in turn, only the last turn with
//! gradients, and the wrapper that decides which rows halt.

use std::rc::Rc;

use crate::building::{Builder, Init, Mode, Module};
use crate::dtype::DType;
use crate::op::{cat, empty, ones, zeros};
use crate::tensor::{Context, Tensor};

use super::config::{Config, PosEncodings};
use super::layers::{Block, CastedEmbedding, CastedLinear, CastedSparseEmbedding, CosSin, RotaryEmbedding};

/// What both answers of the head are in the beginning, so that nothing halts by chance.
const Q_BIAS: f64 = -5.0;
/// The root of 1/2, as the program writes it.
#[expect(clippy::approx_constant, reason = "of a bfloat16 model the rounding can differ")]
const POSITIONS_SCALE: f64 = 0.707_106_781;

/// A batch of rows, or the rows that are being worked on.
pub(crate) struct Batch {
    pub inputs: Tensor,
    pub labels: Tensor,
    pub puzzle_identifiers: Tensor,
}

impl Batch {
    /// Each tensor of the batch and of another one, in the order of the dictionary.
    fn zip_with(&self, other: &Self, f: impl Fn(&Tensor, &Tensor) -> Tensor) -> Self {
        Self {
            inputs: f(&self.inputs, &other.inputs),
            labels: f(&self.labels, &other.labels),
            puzzle_identifiers: f(&self.puzzle_identifiers, &other.puzzle_identifiers),
        }
    }
}

/// What both levels have in mind.
struct InnerCarry {
    z_h: Tensor,
    z_l: Tensor,
}

/// What goes from one segment to the next.
pub(crate) struct Carry {
    inner_carry: InnerCarry,
    pub(super) steps: Tensor,
    pub(super) halted: Tensor,
    pub(super) current_data: Batch,
}

impl Carry {
    /// What a checkpoint calls its tensors, in the order of [`Carry::tensors`].
    #[allow(dead_code, reason = "a training saves it, the simulation does not")]
    pub(crate) const NAMES: [&'static str; 7] =
        ["z_H", "z_L", "steps", "halted", "inputs", "labels", "puzzle_identifiers"];

    /// All its tensors.
    #[allow(dead_code, reason = "a training saves them, the simulation does not")]
    pub(crate) fn tensors(&self) -> [&Tensor; 7] {
        let Batch { inputs, labels, puzzle_identifiers } = &self.current_data;
        let InnerCarry { z_h, z_l } = &self.inner_carry;
        [z_h, z_l, &self.steps, &self.halted, inputs, labels, puzzle_identifiers]
    }

    /// Of tensors in that order.
    #[allow(dead_code, reason = "a training reads them, the simulation does not")]
    pub(crate) fn of_tensors([z_h, z_l, steps, halted, inputs, labels, puzzle_identifiers]: [Tensor; 7]) -> Self {
        let current_data = Batch { inputs, labels, puzzle_identifiers };
        Self { inner_carry: InnerCarry { z_h, z_l }, steps, halted, current_data }
    }
}

/// `HierarchicalReasoningModel_ACTV1ReasoningModule`
struct ReasoningModule {
    module: Module,
    layers: Vec<Block>,
}

impl ReasoningModule {
    fn new(at: &Builder, layers: u64, config: &Config) -> Self {
        let module = at.module();
        Self { module, layers: (0..layers).map(|i| Block::new(&at.at(&format!("layers.{i}")), config)).collect() }
    }

    fn forward(&self, hidden_states: &Tensor, input_injection: &Tensor, cos_sin: Option<&CosSin>) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = hidden_states + input_injection;
        for layer in &self.layers {
            hidden_states = layer.forward(cos_sin, &hidden_states);
        }
        hidden_states
    }
}

enum Positions {
    Rope(RotaryEmbedding),
    Learned(CastedEmbedding),
}

/// `HierarchicalReasoningModel_ACTV1_Inner`
struct Inner {
    module: Module,
    config: Config,
    embed_tokens: CastedEmbedding,
    lm_head: CastedLinear,
    q_head: CastedLinear,
    puzzle_emb: Option<CastedSparseEmbedding>,
    positions: Positions,
    h_level: ReasoningModule,
    l_level: ReasoningModule,
    h_init: Tensor,
    l_init: Tensor,
}

/// Logits of halting and of going on.
type QLogits = (Tensor, Tensor);

impl Inner {
    fn new(at: &Builder, config: Config) -> Self {
        let (hidden, dtype) = (config.hidden_size, config.forward_dtype);
        let level = |name: &str, layers| ReasoningModule::new(&at.at(name), layers, &config);
        Self {
            module: at.module(),
            embed_tokens: CastedEmbedding::new(&at.at("embed_tokens"), config.vocab_size, hidden, dtype),
            lm_head: CastedLinear::new(&at.at("lm_head"), hidden, config.vocab_size),
            q_head: CastedLinear::constant(&at.at("q_head"), hidden, 2, Q_BIAS),
            puzzle_emb: (config.puzzle_emb_ndim > 0).then(|| CastedSparseEmbedding::new(&at.at("puzzle_emb"), &config)),
            positions: match config.pos_encodings {
                PosEncodings::Rope => Positions::Rope(RotaryEmbedding::new(
                    &at.at("rotary_emb"),
                    config.head_dim(),
                    config.positions(),
                    config.rope_theta,
                )),
                PosEncodings::Learned => {
                    Positions::Learned(CastedEmbedding::new(&at.at("embed_pos"), config.positions(), hidden, dtype))
                }
            },
            h_level: level("H_level", config.h_layers),
            l_level: level("L_level", config.l_layers),
            h_init: at.saved_buffer("H_init", &[hidden], dtype, Init::TruncNormal(1.0)),
            l_init: at.saved_buffer("L_init", &[hidden], dtype, Init::TruncNormal(1.0)),
            config,
        }
    }

    fn input_embeddings(&self, batch: &Batch) -> Tensor {
        let mut embedding = self.embed_tokens.forward(&batch.inputs);
        let mut puzzle_embedding = None;
        if let Some(puzzle_emb) = &self.puzzle_emb {
            let (length, hidden) = (self.config.puzzle_emb_len(), self.config.hidden_size);
            let puzzle = puzzle_embedding.insert(puzzle_emb.forward(&batch.puzzle_identifiers));
            if length * hidden > puzzle.size(-1) {
                *puzzle = puzzle.pad_last(length * hidden);
            }
            embedding = cat(&[&puzzle.view(&[puzzle.size(0), length, hidden]), &embedding], 1);
        }
        if let Positions::Learned(embed_pos) = &self.positions {
            embedding = {
                let sum = &embedding + &embed_pos.table();
                sum.mul_scalar(POSITIONS_SCALE)
            };
        }
        embedding.mul_scalar((self.config.hidden_size as f64).sqrt())
    }

    fn empty_carry(&self, context: &Rc<Context>, rows: u64) -> InnerCarry {
        let sizes = [rows, self.config.positions(), self.config.hidden_size];
        let made = || empty(context, &sizes, self.config.forward_dtype);
        InnerCarry { z_h: made(), z_l: made() }
    }

    fn reset_carry(&self, reset_flag: &Tensor, carry: &InnerCarry) -> InnerCarry {
        let reset_flag = reset_flag.view(&[reset_flag.size(0), 1, 1]);
        InnerCarry {
            z_h: reset_flag.choose(&self.h_init, &carry.z_h),
            z_l: reset_flag.choose(&self.l_init, &carry.z_l),
        }
    }

    fn forward(&self, carry: &InnerCarry, batch: &Batch) -> (InnerCarry, Tensor, QLogits) {
        let _module = self.module.enter();
        let cos_sin = match &self.positions {
            Positions::Rope(rotary_emb) => Some(rotary_emb.forward()),
            Positions::Learned(_) => None,
        };
        let cos_sin = cos_sin.as_ref();
        let input_embeddings = self.input_embeddings(batch);
        let (mut z_h, mut z_l) = self.think_step(carry, &input_embeddings, cos_sin);
        z_l = self.l_level.forward(&z_l, &(&z_h + &input_embeddings), cos_sin);
        z_h = self.h_level.forward(&z_h, &z_l, cos_sin);
        let new_carry = InnerCarry { z_h: z_h.detach(), z_l: z_l.detach() };
        let output = self.output_logits(&z_h);
        let q_logits = self.q_head.forward(&z_h.select(1, 0)).float();
        (new_carry, output, (q_logits.select(1, 0), q_logits.select(1, 1)))
    }

    /// All cycles but the last turn of each level, without gradients.
    fn think_step(&self, carry: &InnerCarry, input_embeddings: &Tensor, cos_sin: Option<&CosSin>) -> (Tensor, Tensor) {
        let _no_grad = input_embeddings.context().set_grad_enabled(false);
        let (mut z_h, mut z_l) = (carry.z_h.clone(), carry.z_l.clone());
        let (h_cycles, l_cycles) = (self.config.h_cycles, self.config.l_cycles);
        for h_step in 1..=h_cycles {
            for l_step in 1..=l_cycles {
                if h_step < h_cycles || l_step < l_cycles {
                    z_l = self.l_level.forward(&z_l, &(&z_h + input_embeddings), cos_sin);
                }
            }
            if h_step < h_cycles {
                z_h = self.h_level.forward(&z_h, &z_l, cos_sin);
            }
        }
        (z_h, z_l)
    }

    /// `lm_head(z_H)[:, puzzle_emb_len:]`
    fn output_logits(&self, z_h: &Tensor) -> Tensor {
        let logits = self.lm_head.forward(z_h);
        let first = self.config.puzzle_emb_len();
        if self.puzzle_emb.is_some() { logits.slice(1, first..self.config.positions()) } else { logits.alias_all() }
    }
}

/// What the wrapper hands to the losses.
pub(super) struct Outputs {
    pub logits: Tensor,
    pub q_halt_logits: Tensor,
    pub q_continue_logits: Tensor,
    /// `None` where every row halts at once.
    pub target_q_continue: Option<Tensor>,
}

/// `HierarchicalReasoningModel_ACTV1`: adaptive computation time.
pub(super) struct ActModel {
    module: Module,
    inner: Inner,
    mode: Rc<Mode>,
}

impl ActModel {
    pub(super) fn new(at: &Builder, config: Config) -> Self {
        Self { module: at.module(), inner: Inner::new(&at.at("inner"), config), mode: at.mode() }
    }

    pub(super) fn puzzle_emb(&self) -> Option<&CastedSparseEmbedding> {
        self.inner.puzzle_emb.as_ref()
    }

    pub(super) const fn config(&self) -> &Config {
        &self.inner.config
    }

    pub(super) fn initial_carry(&self, batch: &Batch) -> Carry {
        let context = batch.inputs.context();
        let rows = batch.inputs.size(0);
        Carry {
            inner_carry: self.inner.empty_carry(context, rows),
            steps: zeros(context, &[rows], DType::Int32),
            halted: ones(context, &[rows], DType::Bool),
            current_data: batch.zip_with(batch, |tensor, _| tensor.empty_like()),
        }
    }

    pub(super) fn forward(&self, carry: &Carry, batch: &Batch) -> (Carry, Outputs) {
        let _module = self.module.enter();
        let new_inner_carry = self.inner.reset_carry(&carry.halted, &carry.inner_carry);
        let new_steps = carry.halted.choose_number(0.0, &carry.steps);
        let new_current_data = carry.current_data.zip_with(batch, |old, new| {
            let ones = vec![1; new.sizes().len() - 1];
            carry.halted.view(&[&[carry.halted.size(0)][..], &ones].concat()).choose(new, old)
        });
        let (inner_carry, logits, (q_halt_logits, q_continue_logits)) =
            self.inner.forward(&new_inner_carry, &new_current_data);
        drop(new_inner_carry);
        let mut outputs = Outputs { logits, q_halt_logits, q_continue_logits, target_q_continue: None };
        let (steps, halted) = self.halt_step(new_steps, &inner_carry, &new_current_data, &mut outputs);
        (Carry { inner_carry, steps, halted, current_data: new_current_data }, outputs)
    }

    /// Which rows halt, and what halting is worth: the value of the next segment, for which the model runs once more.
    fn halt_step(&self, steps: Tensor, carry: &InnerCarry, batch: &Batch, outputs: &mut Outputs) -> (Tensor, Tensor) {
        let context = Rc::clone(steps.context());
        let _no_grad = context.set_grad_enabled(false);
        let new_steps = steps.add_int(1);
        drop(steps);
        let is_last_step = new_steps.ge_number(self.config().halt_max_steps as f64);
        // All rows of an evaluation halt together.
        if self.config().halt_max_steps == 1 || !self.mode.is_training() {
            return (new_steps, is_last_step);
        }
        // Blocks and drops are Python's lives: merging them would free in another order.
        let mut halted = {
            let wants = outputs.q_halt_logits.gt_tensor(&outputs.q_continue_logits);
            is_last_step.bitwise_or(&wants)
        };
        let min_halt_steps = {
            let explores = outputs.q_halt_logits.rand_like().lt_number(self.config().halt_exploration_prob);
            &explores * &new_steps.randint_like(2..self.config().halt_max_steps + 1)
        };
        halted = {
            let may = new_steps.ge_tensor(&min_halt_steps);
            halted.bitwise_and(&may)
        };
        let (next_q_halt_logits, next_q_continue_logits) = self.inner.forward(carry, batch).2;
        let next = {
            let best = next_q_halt_logits.maximum(&next_q_continue_logits);
            is_last_step.choose(&next_q_halt_logits, &best)
        };
        outputs.target_q_continue = Some(next.sigmoid());
        (new_steps, halted)
    }
}

//! What the hierarchical reasoning model is made from: `HierarchicalReasoningModel_ACTV1Config` with the defaults of
//! `arch/hrm_v1.yaml`, and what no such config may ask for.

use crate::dtype::DType;
use crate::job::{FieldError, Fields};
use crate::model::family::bounds::{MAX_ELEMENTS, bound_weights};

/// The MLP is as wide as a multiple of this (`_find_multiple`, layers.py).
const MLP_MULTIPLE: u64 = 256;
/// What flash-attn takes: multiples of 8, up to 256.
const HEAD_DIM_MULTIPLE: u64 = 8;
const MAX_HEAD_DIM: u64 = 256;
/// The most cycles of either level; published recipes have up to 8.
const MAX_CYCLES: u64 = 1024;
/// The most blocks that one pass runs through: cycles cost no memory, but every one of them is simulated.
const MAX_BLOCKS_RUN: u64 = 1 << 14;

/// Which loss the logits go into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossType {
    /// `stablemax_cross_entropy`, in float64.
    Stablemax,
    /// `softmax_cross_entropy`
    Softmax,
}

/// How positions are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PosEncodings {
    /// `rope`
    Rope,
    /// `learned`
    Learned,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub batch_size: u64,
    pub seq_len: u64,
    pub puzzle_emb_ndim: u64,
    pub num_puzzle_identifiers: u64,
    pub vocab_size: u64,
    pub h_cycles: u64,
    pub l_cycles: u64,
    pub h_layers: u64,
    pub l_layers: u64,
    pub hidden_size: u64,
    /// Width of the MLP.
    pub intermediate_size: u64,
    pub num_heads: u64,
    pub pos_encodings: PosEncodings,
    pub halt_max_steps: u64,
    /// How often a row is made to think on for a while, drawn anew.
    pub halt_exploration_prob: f64,
    pub rope_theta: f64,
    pub rms_norm_eps: f64,
    pub loss_type: LossType,
    pub forward_dtype: DType,
}

impl Config {
    /// Reads the config of a model for `batch_size` rows of `seq_len` tokens, both of which size its buffers.
    pub(crate) fn read(fields: &Fields, batch_size: u64, seq_len: u64) -> Result<Self, FieldError> {
        let hidden_size = fields.size("hidden_size", 512)?;
        let config = Self {
            batch_size,
            seq_len,
            puzzle_emb_ndim: or_zero(fields, "puzzle_emb_ndim", || fields.size("puzzle_emb_ndim", hidden_size))?,
            num_puzzle_identifiers: fields.size("num_puzzle_identifiers", 1)?,
            vocab_size: vocab_size(fields)?,
            h_cycles: fields.bounded("H_cycles", 2, MAX_CYCLES)?,
            l_cycles: fields.bounded("L_cycles", 2, MAX_CYCLES)?,
            h_layers: or_zero(fields, "H_layers", || fields.layers("H_layers", 4))?,
            l_layers: or_zero(fields, "L_layers", || fields.layers("L_layers", 4))?,
            hidden_size,
            intermediate_size: intermediate_size(fields, hidden_size)?,
            num_heads: fields.size("num_heads", 8)?,
            pos_encodings: pos_encodings(fields)?,
            halt_max_steps: fields.size("halt_max_steps", 16)?,
            halt_exploration_prob: fields.number("halt_exploration_prob", 0.1)?,
            rope_theta: fields.positive("rope_theta", 10_000.0)?,
            rms_norm_eps: fields.positive("rms_norm_eps", 1e-5)?,
            loss_type: loss_type(fields)?,
            forward_dtype: forward_dtype(fields)?,
        };
        config.check_heads()?;
        config.check_cycles()?;
        config.check_sizes()?;
        Ok(config)
    }

    pub(super) const fn head_dim(&self) -> u64 {
        self.hidden_size / self.num_heads
    }

    /// Positions that the puzzle's embedding takes before the tokens.
    pub(super) const fn puzzle_emb_len(&self) -> u64 {
        self.puzzle_emb_ndim.div_ceil(self.hidden_size)
    }

    /// All positions of a row.
    pub(super) const fn positions(&self) -> u64 {
        self.seq_len.saturating_add(self.puzzle_emb_len())
    }

    fn check_heads(&self) -> Result<(), FieldError> {
        let head_dim = self.head_dim();
        if head_dim.is_multiple_of(HEAD_DIM_MULTIPLE) && (1..=MAX_HEAD_DIM).contains(&head_dim) {
            return Ok(());
        }
        let problem = format!(
            "{} heads of hidden_size = {} have {head_dim} dimensions; flash attention takes multiples of 8 up to 256",
            self.num_heads, self.hidden_size
        );
        Err(FieldError::new("num_heads", problem))
    }

    fn check_cycles(&self) -> Result<(), FieldError> {
        let blocks = self.h_cycles * (self.l_cycles * self.l_layers + self.h_layers);
        if blocks <= MAX_BLOCKS_RUN {
            return Ok(());
        }
        let problem = format!("makes {blocks} blocks of a pass; at most {MAX_BLOCKS_RUN} are simulated");
        Err(FieldError::new(if self.h_cycles > self.l_cycles { "H_cycles" } else { "L_cycles" }, problem))
    }

    /// The key that makes the inner width what it is: three times the hidden size is more than the usual expansion.
    const fn inner_key(&self) -> &'static str {
        if self.intermediate_size > self.hidden_size.saturating_mul(3) { "expansion" } else { "hidden_size" }
    }

    fn check_sizes(&self) -> Result<(), FieldError> {
        let (hidden, layers) = (self.hidden_size, self.h_layers + self.l_layers);
        bound_weights(&[
            ("vocab_size", [self.vocab_size, hidden], 2),
            ("num_puzzle_identifiers", [self.num_puzzle_identifiers, self.puzzle_emb_ndim], 1),
            (self.inner_key(), [self.intermediate_size, hidden], 3 * layers),
            ("hidden_size", [hidden, hidden], 4 * layers),
        ])?;
        let rows = u128::from(self.batch_size);
        let tokens = rows * u128::from(self.positions());
        let tensors = [
            ("vocab_size", tokens * u128::from(self.vocab_size)),
            ("puzzle_emb_ndim", rows * u128::from(self.puzzle_emb_ndim)),
            (self.inner_key(), tokens * 2 * u128::from(self.intermediate_size)),
            ("hidden_size", tokens * 3 * u128::from(hidden)),
        ];
        match tensors.into_iter().find(|(_, elements)| *elements > MAX_ELEMENTS) {
            Some((key, elements)) => {
                Err(FieldError::new(key, format!("makes a tensor of {elements} elements; no GPU holds it")))
            }
            None => Ok(()),
        }
    }
}

fn vocab_size(fields: &Fields) -> Result<u64, FieldError> {
    let missing = || FieldError::new("vocab_size", "is missing; the data set decides it (Sudoku 11, mazes 6, ARC 12)");
    fields.optional_size("vocab_size")?.ok_or_else(missing)
}

/// What `read` makes of a field that may also be 0: a level without layers, a model without puzzle embeddings.
fn or_zero(fields: &Fields, key: &str, read: impl Fn() -> Result<u64, FieldError>) -> Result<u64, FieldError> {
    let is_zero = fields.get(key).and_then(serde_json::Value::as_u64) == Some(0);
    if is_zero { Ok(0) } else { read() }
}

fn intermediate_size(fields: &Fields, hidden_size: u64) -> Result<u64, FieldError> {
    let expansion = match fields.get("expansion") {
        Some(value) => value.as_f64().filter(|expansion| (0.0..=1024.0).contains(expansion)),
        None => Some(4.0),
    };
    let problem = "must be a number up to 1024 that leaves the MLP a width";
    let expansion = expansion.ok_or_else(|| FieldError::new("expansion", problem))?;
    let wanted = (expansion * hidden_size as f64 * 2.0 / 3.0).round_ties_even() as u64;
    match wanted.next_multiple_of(MLP_MULTIPLE) {
        0 => Err(FieldError::new("expansion", problem)),
        width => Ok(width),
    }
}

fn pos_encodings(fields: &Fields) -> Result<PosEncodings, FieldError> {
    match fields.text("pos_encodings", "rope")? {
        "rope" => Ok(PosEncodings::Rope),
        "learned" => Ok(PosEncodings::Learned),
        other => Err(FieldError::new("pos_encodings", format!("must be rope or learned, found {other:.40}"))),
    }
}

fn loss_type(fields: &Fields) -> Result<LossType, FieldError> {
    match fields.text("loss_type", "stablemax_cross_entropy")? {
        "stablemax_cross_entropy" => Ok(LossType::Stablemax),
        "softmax_cross_entropy" => Ok(LossType::Softmax),
        other => Err(FieldError::new(
            "loss_type",
            format!("must be stablemax_cross_entropy or softmax_cross_entropy, found {other:.40}"),
        )),
    }
}

fn forward_dtype(fields: &Fields) -> Result<DType, FieldError> {
    match fields.text("forward_dtype", "bfloat16")? {
        "bfloat16" => Ok(DType::Bfloat16),
        "float16" => Ok(DType::Float16),
        other => Err(FieldError::new(
            "forward_dtype",
            format!("flash attention computes in bfloat16 or float16, not in {other:.40}"),
        )),
    }
}

//! How it is built: its config, its weights in the order of its modules.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tonnage_core::job::{CheckpointPolicy, FieldError, Fields, JobSpec, keys};
use tonnage_torch::{Argument, Device, ScalarType, Tensor, Torch, TorchError, operator};

use super::Agi2;
use super::block::{Affine, Block};
use crate::error::TrainError;
use crate::language_model::Weights;

/// `initializer_range` of its config, which no file sets.
const DEVIATION: f64 = 0.02;

/// `AGI2Config`, what of it the layers read.
struct Config {
    vocabulary: i64,
    width: i64,
    layers: u64,
    heads: i64,
    inner: i64,
    embd_pdrop: f64,
    attn_pdrop: f64,
    is_tied: bool,
}

impl Config {
    fn read(fields: &Fields) -> Result<Self, TrainError> {
        let refused = |error: FieldError| TrainError::refused(error.to_string(), "set it in the job file");
        let number = |key: &str, default: u64| fields.size(key, default).map(u64::cast_signed).map_err(refused);
        let share = |key: &str| fields.probability(key, 0.1).map_err(refused);
        let width = number("n_embd", 768)?;
        let config = Self {
            vocabulary: number("vocab_size", 50_257)?,
            width,
            layers: fields.layers("n_layer", 12).map_err(refused)?,
            heads: number("n_head", 12)?,
            inner: number("n_inner", width.cast_unsigned() * 4)?,
            embd_pdrop: share("embd_pdrop")?,
            attn_pdrop: share("attn_pdrop")?,
            is_tied: fields.flag(keys::TIE_WORD_EMBEDDINGS, true).map_err(refused)?,
        };
        if width % config.heads != 0 || width % 2 != 0 {
            let problem = format!("n_embd = {width} is no even multiple of n_head = {}", config.heads);
            return Err(TrainError::refused(problem, "choose sizes that divide"));
        }
        Ok(config)
    }
}

impl Agi2 {
    /// Builds it on the CPU and moves it, module by module, as `model.to(device)` does.
    ///
    /// # Errors
    /// When the config cannot be read, a weight is missing or of another size, or the device has no room.
    pub fn build(
        torch: &'static Torch,
        device: Device,
        job: &JobSpec,
        weights: Weights<'_>,
    ) -> Result<Self, TrainError> {
        let config = Config::read(&job.model.config)?;
        let trains = Arc::new(AtomicBool::new(true));
        let mut maker = Maker { torch, device, weights, named: Vec::new() };
        let table = [config.vocabulary, config.width];
        let embedding = maker.drawn("token_embeddings.embedding.weight", &table)?;
        let positions = sinusoids(torch, job.seq_len.cast_signed(), config.width)?.to_device(device)?;
        let block = |layer| maker.block(&format!("transformer_blocks.{layer}"), &config, &trains);
        let blocks = (0..config.layers).map(block).collect::<Result<_, _>>()?;
        let norm = maker.affine("ln_f", &[config.width])?;
        let head = (!config.is_tied).then(|| maker.drawn("output_projection.weight", &table)).transpose()?;
        Ok(Self {
            torch,
            device,
            embedding,
            positions,
            blocks,
            norm,
            head,
            mask: RefCell::default(),
            dropout: config.embd_pdrop,
            recomputes: job.gradient_checkpointing == CheckpointPolicy::EveryLayer,
            trains,
            named: maker.named,
        })
    }
}

/// Makes weights, in their order.
struct Maker<'a> {
    torch: &'static Torch,
    device: Device,
    weights: Weights<'a>,
    named: Vec<(String, Tensor)>,
}

impl Maker<'_> {
    /// Weight and bias of a linear layer, or of a norm, whose weight has one dimension.
    fn affine(&mut self, name: &str, sizes: &[i64]) -> Result<Affine, TrainError> {
        let is_norm = sizes.len() == 1;
        let name_of_weight = format!("{name}.weight");
        let weight =
            if is_norm { self.filled(&name_of_weight, sizes, 1.0)? } else { self.drawn(&name_of_weight, sizes)? };
        let bias = self.filled(&format!("{name}.bias"), &sizes[..1], 0.0)?;
        Ok(Affine { weight, bias })
    }

    /// Drawn around 0.
    fn drawn(&mut self, name: &str, sizes: &[i64]) -> Result<Tensor, TrainError> {
        let made = self.full(sizes, 0.0)?;
        if matches!(self.weights, Weights::Initial) {
            self.torch.call(operator!("normal_"), &[(&made).into(), 0.0.into(), DEVIATION.into()])?;
        }
        self.placed(name, sizes, made)
    }

    fn block(&mut self, at: &str, config: &Config, trains: &Arc<AtomicBool>) -> Result<Block, TrainError> {
        let (width, inner) = (config.width, config.inner);
        let mut affine = |name: &str, sizes: &[i64]| self.affine(&format!("{at}.{name}"), sizes);
        Ok(Block {
            query: affine("attention.w_q", &[width, width])?,
            key: affine("attention.w_k", &[width, width])?,
            value: affine("attention.w_v", &[width, width])?,
            out: affine("attention.w_o", &[width, width])?,
            up: affine("feed_forward.fc1", &[inner, width])?,
            down: affine("feed_forward.fc2", &[width, inner])?,
            before_attention: affine("ln1", &[width])?,
            before_feed_forward: affine("ln2", &[width])?,
            heads: config.heads,
            dropout: config.attn_pdrop,
            trains: Arc::clone(trains),
        })
    }

    fn filled(&mut self, name: &str, sizes: &[i64], value: f64) -> Result<Tensor, TrainError> {
        let made = self.full(sizes, value)?;
        self.placed(name, sizes, made)
    }

    fn full(&self, sizes: &[i64], value: f64) -> Result<Tensor, TorchError> {
        let arguments = [Argument::ints(sizes), value.into(), ScalarType::Float32.into()];
        self.torch.call(operator!("full"), &arguments)?.tensor()
    }

    /// The weight of that name, on the device.
    fn placed(&mut self, name: &str, sizes: &[i64], made: Tensor) -> Result<Tensor, TrainError> {
        let numbers = match &mut self.weights {
            Weights::Initial => made,
            Weights::Named(named) => {
                named(name)?.filter(|found| found.sizes().as_slice() == sizes).ok_or_else(|| {
                    TrainError::refused(
                        format!("the weights have no `{name}` of sizes {sizes:?}"),
                        "are they the weights of this config?",
                    )
                })?
            }
        };
        let tensor = numbers.to_device(self.device)?.requiring_grad()?;
        self.named.push((name.to_owned(), tensor.clone()));
        Ok(tensor)
    }
}

/// Half sines, half cosines of the position over 10,000 to the power of the dimension's share.
fn sinusoids(torch: &'static Torch, positions: i64, width: i64) -> Result<Tensor, TorchError> {
    let mut table = Vec::new();
    for position in 0..positions {
        for pair in 0..width / 2 {
            let angle = position as f64 / 10_000_f64.powf(2.0 * pair as f64 / width as f64);
            table.extend([angle.sin() as f32, angle.cos() as f32]);
        }
    }
    torch.tensor(&table, &[positions, width])
}

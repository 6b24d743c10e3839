//! The UNet's config.

use crate::job::{Attention, FieldError, Fields};
use crate::model::family::bounds::bound_weights;

use super::super::read_sizes;

/// `eps` and `act_fn` change no byte; what else a config may say is refused where it is not as in the published ones.
const FIXED: [(&str, &str); 6] = [
    ("mid_block_type", "UNetMidBlock2DCrossAttn"),
    ("act_fn", "silu"),
    ("resnet_time_scale_shift", "default"),
    ("time_embedding_type", "positional"),
    ("attention_type", "default"),
    ("class_embed_type", ""),
];
const DOWN: [&str; 2] = ["CrossAttnDownBlock2D", "DownBlock2D"];
const UP: [&str; 2] = ["CrossAttnUpBlock2D", "UpBlock2D"];

/// One level of the UNet.
#[derive(Clone, Copy)]
pub(super) struct Level {
    pub channels: u64,
    pub layers: u64,
    pub heads: u64,
    /// Blocks of its transformers; `None` where it has none, down and up.
    pub down: Option<u64>,
    pub up: Option<u64>,
}

/// What of `UNet2DConditionModel`'s config shapes a tensor.
pub(super) struct Config {
    pub in_channels: u64,
    pub out_channels: u64,
    pub levels: Vec<Level>,
    /// Of the transformer in the middle.
    pub mid_blocks: u64,
    pub cross_attention_dim: u64,
    pub norm_num_groups: u64,
    pub use_linear_projection: bool,
    /// Numbers of a time embedding, and of all that is embedded beside the time, where sizes and the whole prompt are.
    pub text_time: Option<[u64; 2]>,
    pub attention: Attention,
}

/// A number for each level, which may be one for all.
fn each_level(fields: &Fields, key: &str, default: u64, levels: usize) -> Result<Vec<u64>, FieldError> {
    match fields.get(key) {
        Some(value) if value.is_array() => {
            let list = read_sizes(fields, key, &[])?;
            let fits = list.len() == levels && list.iter().all(|size| *size > 0);
            if fits { Ok(list) } else { Err(FieldError::new(key, format!("must be {levels} sizes"))) }
        }
        _ => Ok(vec![fields.size(key, default)?; levels]),
    }
}

impl Config {
    pub(super) fn read(fields: &Fields, attention: Attention) -> Result<Self, FieldError> {
        for (key, usual) in FIXED {
            if fields.text(key, usual)? != usual {
                return Err(FieldError::unsimulated(key, format!("only `{usual}` is simulated")));
            }
        }
        let channels = read_sizes(fields, "block_out_channels", &[320, 640, 1280, 1280])?;
        let count = channels.len();
        let usual = |kinds: [&str; 2], last: usize| -> Vec<String> {
            (0..count).map(|at| kinds[usize::from(at == last)].to_owned()).collect()
        };
        let kinds = |key: &str, kinds: [&'static str; 2], last: usize| -> Result<Vec<bool>, FieldError> {
            let said = fields.texts(key)?.map(|texts| texts.into_iter().map(str::to_owned).collect());
            let names = said.unwrap_or_else(|| usual(kinds, last));
            let known = names.len() == count && names.iter().all(|name| kinds.contains(&name.as_str()));
            let wrong = || FieldError::unsimulated(key, format!("must be {count} of {} or {}", kinds[0], kinds[1]));
            if known { Ok(names.iter().map(|name| name == kinds[0]).collect()) } else { Err(wrong()) }
        };
        if count == 0 || count > 16 || channels.contains(&0) {
            return Err(FieldError::new("block_out_channels", "must be 1 to 16 sizes"));
        }
        let (down, up) = (kinds("down_block_types", DOWN, count - 1)?, kinds("up_block_types", UP, 0)?);
        let layers = each_level(fields, "layers_per_block", 2, count)?;
        let heads_key =
            if fields.get("num_attention_heads").is_some() { "num_attention_heads" } else { "attention_head_dim" };
        let heads = each_level(fields, heads_key, 8, count)?;
        let blocks = each_level(fields, "transformer_layers_per_block", 1, count)?;
        let level = |at: usize| Level {
            channels: channels[at],
            layers: layers[at],
            heads: heads[at],
            down: down[at].then_some(blocks[at]),
            up: up[count - 1 - at].then_some(blocks[at]),
        };
        let text_time = match fields.text("addition_embed_type", "")? {
            "" => None,
            "text_time" => {
                let (time, all) = ("addition_time_embed_dim", "projection_class_embeddings_input_dim");
                let (time, all) = (fields.size(time, 256)?, fields.size(all, 2816)?);
                let fits = all > time.saturating_mul(6);
                let problem = "must be more than six times `addition_time_embed_dim`";
                let wrong = || FieldError::new("projection_class_embeddings_input_dim", problem);
                Some([time, all]).filter(|_| fits).map(Some).ok_or_else(wrong)?
            }
            _ => return Err(FieldError::unsimulated("addition_embed_type", "only `text_time` is simulated")),
        };
        let config = Self {
            in_channels: fields.size("in_channels", 4)?,
            out_channels: fields.size("out_channels", 4)?,
            levels: (0..count).map(level).collect(),
            mid_blocks: blocks[count - 1],
            cross_attention_dim: fields.size("cross_attention_dim", 1280)?,
            norm_num_groups: fields.size("norm_num_groups", 32)?,
            use_linear_projection: fields.flag("use_linear_projection", false)?,
            text_time,
            attention,
        };
        config.check_sizes()?;
        Ok(config)
    }

    fn check_sizes(&self) -> Result<(), FieldError> {
        if self.out_channels != self.in_channels {
            return Err(FieldError::unsimulated(
                "out_channels",
                "must be `in_channels`: the loss is of their difference",
            ));
        }
        for level in &self.levels {
            let (channels, groups) = (level.channels, self.norm_num_groups);
            if !channels.is_multiple_of(groups) || !channels.is_multiple_of(level.heads) {
                let problem = "must be multiples of `norm_num_groups` and of their heads";
                return Err(FieldError::new("block_out_channels", problem));
            }
        }
        let weights = |level: &Level| {
            let blocks = 2 * level.layers.saturating_mul(level.down.or(level.up).unwrap_or(0));
            ("block_out_channels", [level.channels; 2], 60 * level.layers.saturating_add(1) + 20 * blocks)
        };
        bound_weights(&self.levels.iter().map(weights).collect::<Vec<_>>())
    }

    pub(super) fn time_width(&self) -> u64 {
        4 * self.levels[0].channels
    }
}

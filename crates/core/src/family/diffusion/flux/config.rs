//! Flux's config.

use crate::job::{Attention, FieldError, Fields};
use crate::model::family::bounds::bound_weights;

use super::super::read_sizes;

/// What of `FluxTransformer2DModel`'s config shapes a tensor.
#[derive(Clone)]
pub(super) struct Config {
    pub in_channels: u64,
    pub out_channels: u64,
    pub num_layers: u64,
    pub num_single_layers: u64,
    pub head_dim: u64,
    pub heads: u64,
    pub joint_attention_dim: u64,
    pub pooled_projection_dim: u64,
    pub guidance_embeds: bool,
    pub axes_dims_rope: Vec<u64>,
    pub attention: Attention,
}

impl Config {
    pub(super) fn read(fields: &Fields, attention: Attention) -> Result<Self, FieldError> {
        let in_channels = fields.size("in_channels", 64)?;
        let patch_size = fields.bounded("patch_size", 1, 64)?;
        let config = Self {
            in_channels,
            out_channels: fields.optional_size("out_channels")?.unwrap_or(in_channels) * patch_size * patch_size,
            num_layers: fields.layers("num_layers", 19)?,
            num_single_layers: fields.layers("num_single_layers", 38)?,
            head_dim: fields.size("attention_head_dim", 128)?,
            heads: fields.size("num_attention_heads", 24)?,
            joint_attention_dim: fields.size("joint_attention_dim", 4096)?,
            pooled_projection_dim: fields.size("pooled_projection_dim", 768)?,
            guidance_embeds: fields.flag("guidance_embeds", false)?,
            axes_dims_rope: read_sizes(fields, "axes_dims_rope", &[16, 56, 56])?,
            attention,
        };
        if !config.in_channels.is_multiple_of(4) || config.out_channels != config.in_channels {
            return Err(FieldError::unsimulated("in_channels", "must be four numbers of each channel, in and out"));
        }
        if config.axes_dims_rope.iter().sum::<u64>() != config.head_dim || config.axes_dims_rope.len() != 3 {
            return Err(FieldError::new("axes_dims_rope", "must be three, that add up to `attention_head_dim`"));
        }
        let width = config.head_dim.saturating_mul(config.heads);
        bound_weights(&[
            ("num_attention_heads", [width, width], 24 * config.num_layers + 15 * config.num_single_layers),
            ("joint_attention_dim", [config.joint_attention_dim, width], 1),
        ])?;
        Ok(config)
    }

    pub(super) fn width(&self) -> u64 {
        self.head_dim * self.heads
    }
}

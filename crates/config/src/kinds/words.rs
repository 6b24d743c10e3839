//! Why a key costs no memory of the GPU: the reasons that many keys share.

/// Of learning rates and the like.
pub const SCALAR: &str = "a number of the update: it changes values, no sizes";
/// Of data sets and their preparation.
pub const DATA: &str = "the data and how the host prepares it; rows are taken at their full length";
/// Why keys of logs change no byte.
pub const LOGS: &str = "what is logged, and where";
/// Why keys of checkpoints change no byte.
pub const SAVES: &str = "what is saved, and where: checkpoints are written from the host's memory";
/// Of the hub.
pub const HUB: &str = "what is fetched from the hub or pushed to it";
/// Of random numbers.
pub const SEED: &str = "random numbers";
/// Why keys of launchers change no byte.
pub const LAUNCH: &str = "how processes find each other";
/// Why keys of evaluation change no peak.
pub const EVAL: &str = "an evaluation keeps no activations, and takes no more rows than a pass of training";
/// Why names change no byte.
pub const NAME: &str = "a name";
/// Why numbers of a loss change no byte.
pub const LOSS: &str = "a number of the loss: it changes values, no sizes";
/// Why keys of sampling change no byte.
pub const SAMPLING: &str = "how tokens are drawn: it changes values, no sizes";
/// Why keys of code to load change no byte.
pub const CODE: &str = "which code is trusted or loaded";
/// Of vLLM's server.
pub const SERVER: &str = "where a vLLM server listens";
/// Why keys of tokenizers change no byte.
pub const TOKENS: &str = "how texts become tokens; rows are taken at their full length";

/// What is said of code that is compiled.
pub const COMPILE: &str = "torch.compile is not simulated: fused kernels keep other activations, as a rule fewer; `tonnage rehearse` \
                           runs the script";
/// What is said of products in fp8.
pub const FP8: &str = "products in fp8 make copies of their operands, which is not simulated: the range goes from weights and states alone \
                       and has no upper bound";
/// What is said of quantized weights.
pub const QUANTIZED: &str = "these weights of 4 or 8 bits are not simulated";
/// What is said of when ranks communicate.
pub const TIMES: &str = "when ranks speak: no size";
/// What is said of offloading.
pub const OFFLOAD: &str = "what is offloaded to the host is counted on the GPU: it takes no more than that; `tonnage rehearse` runs the \
                           script";
/// What is said of packed rows.
pub const PACKING: &str = "packed rows are simulated as rows of their full length; how they are laid end to end was not measured, the \
                           range allows a fifth of the peak";
/// What is said of weights of GPTQ.
pub const GPTQ: &str = "weights of GPTQ are simulated as bitsandbytes' nf4; how they are unpacked was not measured";
/// What is said of optimum's BetterTransformer.
pub const BETTER_TRANSFORMER: &str = "BetterTransformer's attention is PyTorch's own; the range allows a fifth";
/// What is said of training by diffusion.
pub const DIFFUSION: &str = "training by diffusion is simulated as training on next tokens: the range goes from weights and states alone \
                         and has no upper bound";
/// What is said of OFT's adapters.
pub const ROTATIONS: &str = "OFT's rotations are simulated as adapters of rank 1, whose states are smaller: what it makes of them for each \
                         layer is not, so that the range goes from weights and states alone and has no upper bound";
/// What is said of mixture of depths.
pub const DEPTHS: &str = "mixture of depths is simulated as all tokens through all layers, without its routers: the range goes from weights and \
                      states alone and has no upper bound";

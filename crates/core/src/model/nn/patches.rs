//! How images become tokens: a convolution makes a state of each patch, and a token for the whole image goes before them.

use crate::building::{Builder, Init, Module};
use crate::job::Image;
use crate::op::cat;
use crate::tensor::Tensor;

/// `nn.Conv2d` with a kernel as large as its stride.
pub(crate) struct Conv2d {
    module: Module,
    weight: Tensor,
    bias: Option<Tensor>,
    stride: [u64; 2],
}

impl Conv2d {
    pub(crate) fn new(at: &Builder, inputs: u64, outputs: u64, kernel: [u64; 2]) -> Self {
        let module = at.module();
        let weight = at.parameter("weight", &[outputs, inputs, kernel[0], kernel[1]], Init::Normal);
        Self { module, weight, bias: Some(at.parameter("bias", &[outputs], Init::Zeros)), stride: kernel }
    }

    pub(crate) fn without_bias(at: &Builder, inputs: u64, outputs: u64, kernel: [u64; 2]) -> Self {
        let module = at.module();
        let weight = at.parameter("weight", &[outputs, inputs, kernel[0], kernel[1]], Init::Normal);
        Self { module, weight, bias: None, stride: kernel }
    }

    pub(crate) fn weight(&self) -> &Tensor {
        &self.weight
    }

    pub(crate) fn forward(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        input.conv2d(&self.weight, self.bias.as_ref(), self.stride)
    }
}

/// `ViTPatchEmbeddings` and its copies: [rows, patches, width] of [rows, channels, height, width].
pub(crate) struct PatchEmbeddings {
    module: Module,
    projection: Conv2d,
}

impl PatchEmbeddings {
    pub(crate) fn new(at: &Builder, image: Image, width: u64) -> Self {
        let projection = Conv2d::new(&at.at("projection"), image.channels, width, image.patch);
        Self { module: at.module(), projection }
    }

    /// The dtype that pixels are cast to.
    pub(crate) fn weight(&self) -> &Tensor {
        &self.projection.weight
    }

    pub(crate) fn forward(&self, pixel_values: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let patches = self.projection.forward(pixel_values);
        patches.view(&[patches.size(0), patches.size(1), patches.size(2) * patches.size(3)]).transpose(1, 2)
    }
}

/// What stands before the patches and is added to them; it is moved to the device behind the projection and listed before it.
pub(crate) struct ImageTokens {
    cls_token: Tensor,
    position_embeddings: Tensor,
}

impl ImageTokens {
    /// The parameters of the embeddings at `at`, whose first one is listed at `slot`; `mask_token` are the sizes of one that nobody
    /// reads.
    pub(crate) fn new(at: &Builder, slot: usize, image: Image, width: u64, mask_token: Option<&[u64]>) -> Self {
        let cls_token = at.parameter_listed_at(slot, "cls_token", &[1, 1, width], Init::Normal);
        let masks = mask_token.map(|sizes| at.parameter_listed_at(slot + 1, "mask_token", sizes, Init::Zeros));
        let next = slot + 1 + usize::from(masks.is_some());
        let sizes = [1, image.tokens(), width];
        Self {
            cls_token,
            position_embeddings: at.parameter_listed_at(next, "position_embeddings", &sizes, Init::Normal),
        }
    }

    /// `cat((cls_tokens, embeddings), dim=1) + position_embeddings`
    pub(crate) fn add_to(&self, mut embeddings: Tensor) -> Tensor {
        let cls_tokens = self.cls_token.expand(&[embeddings.size(0), 1, embeddings.size(2)]);
        embeddings = cat(&[&cls_tokens, &embeddings], 1);
        &embeddings + &self.position_embeddings
    }
}

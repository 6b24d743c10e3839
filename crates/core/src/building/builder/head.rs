//! The language-model head: in fp32, or left out where something else stands on the model.

use super::{Builder, Init};
use crate::dtype::DType;
use crate::job::{JobError, keys};
use crate::tensor::Tensor;
use crate::trace::Category;

/// What becomes of the language-model head.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadPlace {
    /// It is built where its family builds it.
    Built,
    /// It is left out: something else stands on the model.
    LeftOut,
    /// Here it would be built, and is left out.
    Here,
}

impl Builder {
    /// The same model without its language-model head.
    pub(crate) fn without_head(&self) -> Self {
        self.clone().set(|settings| settings.head = HeadPlace::LeftOut)
    }

    /// The builder of the language-model head: where the head is left out, its weights have no memory and nobody lists them.
    pub(crate) fn of_head(&self) -> Self {
        let head = if self.head == HeadPlace::LeftOut { HeadPlace::Here } else { self.head };
        self.clone().set(|settings| settings.head = head)
    }

    pub(super) fn is_left_out(&self) -> bool {
        self.head == HeadPlace::Here
    }

    /// The head's weight, or the embedding's that is tied to it: cast to fp32 where the model's switches say so.
    pub(crate) fn head_parameter(&self, name: &str, sizes: &[u64], init: Init) -> Tensor {
        if !self.mode.has_fp32_head() || self.dtype == DType::Float32 || self.is_left_out() {
            return self.parameter(name, sizes, init);
        }
        let tensor = self.note_name(name, self.load(sizes, DType::Float32, Category::Parameter));
        self.built.borrow_mut().cast_head = tensor.allocation().map(|id| (id, *tensor.sizes()));
        self.count(tensor)
    }

    /// Casts the head now: until then its weight was there in the model's dtype.
    ///
    /// # Errors
    /// When the head is to be cast, but is tied to an embedding of a family that does not know of it.
    pub(crate) fn cast_head(&self) -> Result<(), JobError> {
        if !self.mode.has_fp32_head() || self.dtype == DType::Float32 {
            return Ok(());
        }
        let Some((id, sizes)) = self.built.borrow().cast_head else {
            let problem = "`cast_lm_head_to_fp32`: a head tied to this family's embedding is not simulated";
            return Err(JobError::new(problem)
                .about(&[keys::GRPO_CAST_LM_HEAD_TO_FP32])
                .hint("leave it out, or train in fp32")
                .or_rehearse());
        };
        let before = Tensor::empty(&self.context, "_to_copy.default", sizes, self.dtype);
        if let Some(before) = before.allocation() {
            self.context.swap_allocations(id, before);
        }
        Ok(())
    }
}

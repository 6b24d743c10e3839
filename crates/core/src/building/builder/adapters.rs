//! LoRA's part of building a model: which layers it targets, and its weights.

use crate::job::keys;
use std::rc::Rc;

use crate::dtype::DType;
use crate::job::{JobError, JobErrorKind, LoraSpec};
use crate::op::UNTOLD;
use crate::tensor::{Shape, Tensor};
use crate::trace::Category;

use super::super::module::{Module, Part};
use super::{Builder, Init, Quantization};

impl Builder {
    /// A module that peft trains in full beside adapters (`modules_to_save`, which its task types for classification set): a copy
    /// does its work, and the original stays, frozen.
    pub(crate) fn saved<T>(&self, build: impl Fn(&Self) -> T) -> T {
        match self.lora {
            Some(_) => self.copied(&build, &build).1,
            None => build(self),
        }
    }

    /// The original of an embedding or a head, frozen, and the copy that does its work, where `modules_to_save` names it.
    pub(crate) fn saved_if_named<T>(&self, original: impl Fn(&Self) -> T, copy: impl Fn(&Self) -> T) -> Option<(T, T)> {
        let lora = self.lora.as_ref().filter(|_| !self.is_left_out() && !self.is_frozen)?;
        lora.modules_to_save.iter().any(|name| self.path.ends_with(name.as_str())).then(|| self.copied(original, copy))
    }

    fn copied<T>(&self, original: impl Fn(&Self) -> T, copy: impl Fn(&Self) -> T) -> (T, T) {
        let original = original(&self.at("original_module").set(|settings| settings.is_replaced = true));
        let first = self.next_slot();
        // It is copied when peft has prepared the model.
        let dtype = if self.is_prepared { DType::Float32 } else { self.dtype };
        let copy = copy(&self.at("modules_to_save").at("default").set(|settings| {
            settings.lora = None;
            settings.is_prepared = false;
            settings.dtype = dtype;
        }));
        let mut built = self.built.borrow_mut();
        let weights = built.parameters.get(first..).unwrap_or_default().to_vec();
        built.copies.extend(weights);
        built.saved.push(self.path.clone());
        drop(built);
        (original, copy)
    }

    /// This module, which is an `nn.Linear`.
    pub(crate) fn linear_module(&self) -> Module {
        self.context.note_linear(self.module_id());
        self.module()
    }

    /// This module, which is an `nn.Embedding`.
    pub(crate) fn embedding_module(&self) -> Module {
        self.context.note_embedding(self.module_id());
        self.module()
    }

    /// The adapter of this linear layer, if LoRA targets it.
    pub(crate) fn adapter(&self) -> Option<Rc<LoraSpec>> {
        let lora = self.lora.as_ref().filter(|_| !self.is_frozen)?;
        let wanted = lora.is_all_linear() || self.is_target(lora);
        if wanted && self.is_replaced {
            self.built.borrow_mut().unadapted.get_or_insert_with(|| self.path.clone());
            return None;
        }
        wanted.then(|| self.adapt(lora))
    }

    /// The adapter of the output head: `all-linear` leaves it out.
    pub(crate) fn head_adapter(&self) -> Option<Rc<LoraSpec>> {
        let lora = self.lora.as_ref().filter(|_| !self.is_left_out())?;
        self.is_target(lora).then(|| self.adapt(lora))
    }

    /// Notes that peft makes adapters for these names, and for `all-linear`, that are not simulated: those on parameters of experts
    /// (peft 0.21, utils/transformers_weight_conversion.py, `_convert_peft_config_moe`).
    pub(crate) fn lack_adapters(&self, names: &[&str]) {
        let Some(lora) = &self.lora else { return };
        let names_one =
            |target: &String| names.iter().any(|name| target == name || target.ends_with(&format!(".{name}")));
        if lora.lists_names() {
            let named = names.iter().map(|name| (*name).to_owned()).collect();
            self.built.borrow_mut().adapted_by_name.push((self.path.clone(), named));
        } else if lora.is_all_linear() || lora.targets.iter().any(names_one) {
            self.built.borrow_mut().unadapted.get_or_insert_with(|| self.path.clone());
        }
    }

    /// Notes that peft refuses to adapt this linear layer (peft 0.21, tuners/tuners_utils.py, `_check_lora_target_modules_mamba`).
    pub(crate) fn refuse_adapter(&self) {
        if self.lora.as_ref().is_some_and(|lora| lora.is_all_linear() || self.is_target(lora)) {
            self.built.borrow_mut().refused.get_or_insert_with(|| self.path.clone());
        }
    }

    fn adapt(&self, lora: &Rc<LoraSpec>) -> Rc<LoraSpec> {
        self.built.borrow_mut().adapted.push(self.path.clone());
        Rc::clone(lora)
    }

    /// Whether a target names this module: its whole path, or the end of it.
    pub(super) fn is_target(&self, lora: &LoraSpec) -> bool {
        let ends_with = |target: &String| {
            self.path.strip_suffix(target.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        !self.is_frozen && lora.targets.iter().any(ends_with)
    }

    /// Refuses LoRA targets that no layer answers to, or one that takes no adapter, as peft does.
    pub(crate) fn check_targets(&self) -> Result<(), JobError> {
        let Some(lora) = &self.lora else { return Ok(()) };
        let built = self.built.borrow();
        let is_layer = |name: &String| built.adapted.iter().any(|path| path.ends_with(&format!(".{name}")));
        let by_name = built.adapted_by_name.iter().find(|(_, names)| names.iter().any(is_layer)).map(|(path, _)| path);
        if let Some(path) = built.unadapted.as_ref().or(by_name) {
            let problem = format!("`lora.targets`: adapters on the parameters of `{path}` are not simulated");
            return Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
                .about(&[keys::LORA_TARGETS])
                .hint("name the linear layers of the attention alone")
                .or_rehearse());
        }
        if let Some(path) = &built.refused {
            let problem = format!("`lora.targets`: peft refuses to adapt `{path}`, which kernels of mamba-ssm read");
            return Err(JobError::new(problem).about(&[keys::LORA_TARGETS]).hint("leave it out, and name `in_proj`"));
        }
        if let Some(path) = built.targeted.iter().find(|path| !built.adapted.contains(path)) {
            let problem = format!("`lora.targets`: `{path}` is no linear layer");
            return Err(JobError::new(problem)
                .about(&[keys::LORA_TARGETS])
                .hint("only adapters on linear layers are simulated")
                .or_rehearse());
        }
        let is_saved = |name: &&String| built.saved.iter().any(|path| path.ends_with(name.as_str()));
        if let Some(name) = lora.modules_to_save.iter().find(|name| !is_saved(name)) {
            let problem = format!(
                "`lora.modules_to_save`: no embedding and no head is called {name}, and copies of other modules are not simulated"
            );
            return Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
                .about(&[keys::LORA_MODULES_TO_SAVE])
                .or_rehearse());
        }
        if built.adapted.is_empty() {
            let problem = format!("`lora.targets`: no module is called {}", lora.targets.join(" or "));
            return Err(JobError::new(problem)
                .about(&[keys::LORA_TARGETS])
                .hint("set it to \"all-linear\" to adapt every linear layer"));
        }
        Ok(())
    }

    /// A trained adapter weight, fp32 whatever the model's dtype (peft's `autocast_adapter_dtype`).
    pub(crate) fn adapter_parameter(&self, (part, _name): (Part, &str), sizes: &[u64], _init: Init) -> Tensor {
        if let Some(tensor) = self.replicated_parameter() {
            return tensor;
        }
        self.begin_adapter();
        let dtype = if self.made_in_fp32 { self.dtype } else { DType::Float32 };
        if let Some(sharding) = self.sharding.filter(|_| !self.replicates_adapters) {
            return self.sharded_parameter((part, sizes), dtype, sharding, |tensor| self.count_adapter(tensor));
        }
        let mut tensor = self.load(sizes, dtype, Category::Parameter);
        if let Some(dtype) = self.adapter_dtype {
            let cast_later = Tensor::nowhere(&self.context, Shape::new(sizes), dtype);
            cast_later.set_data(&tensor);
            tensor = cast_later;
        }
        self.count_adapter(tensor)
    }

    fn count_adapter(&self, tensor: Tensor) -> Tensor {
        let mut built = self.built.borrow_mut();
        built.parameter_count += tensor.numel();
        built.adapters.push(tensor.clone());
        drop(built);
        self.list(tensor.into_parameter())
    }

    /// Adds the adapters now, once, to a model that was there without them: peft makes them in the base layers' dtype, and
    /// casts each when all are there (peft 0.21, tuners_utils.py, `cast_adapter_dtype`); what it trains in full is copied between.
    pub(crate) fn load_adapters_last(&self) {
        if std::mem::replace(&mut self.built.borrow_mut().adapters_are_last, true) {
            return;
        }
        let built = self.built.borrow();
        // Those that a trainer casts later are loaded in fp32 all the same.
        let is_cast = |dtype: &DType| {
            (self.adapter_dtype.is_some() && *dtype != DType::Float32)
                || built.adapters.iter().any(|adapter| adapter.dtype() != *dtype)
        };
        let made_in = self.dtype_of_new_adapters().filter(is_cast);
        let mut made: Vec<Tensor> = Vec::new();
        for adapter in &built.adapters {
            let magnitude = match made.as_slice() {
                [.., down, up] if adapter.sizes().len() == 1 => Some(first_magnitude(down, up)),
                _ => None,
            };
            made.push(match made_in {
                Some(dtype) => magnitude.unwrap_or_else(|| adapter.unary("_to_copy.default", dtype)),
                None => {
                    self.context.move_to_end(self.loaded_allocation(adapter).as_slice());
                    adapter.clone()
                }
            });
        }
        let copies: Vec<_> = built.copies.iter().filter_map(Tensor::allocation).collect();
        self.context.move_to_end(&copies);
        for (adapter, uncast) in built.adapters.iter().zip(made).filter(|_| made_in.is_some()) {
            self.context.move_to_end(self.loaded_allocation(adapter).as_slice());
            drop(uncast);
        }
    }

    /// The dtype of a base layer as peft sees it (`_get_base_layer_device_and_dtype`): weights in int8 have none that an adapter could
    /// take.
    fn dtype_of_new_adapters(&self) -> Option<DType> {
        match self.quantization {
            None => Some(self.dtype),
            Some(Quantization::FourBit(form)) => Some(form.compute),
            // Of its scales (gptqmodel 7.6, torch.py, `_LinearWeightMetadata`).
            Some(Quantization::GptqModel { .. }) => Some(DType::Float16),
            Some(Quantization::Int8 | Quantization::Gptq { .. } | Quantization::Awq { .. }) => None,
        }
    }

    /// Casts the adapters of a quantized model to bf16, as SFTTrainer does (trl 1.16, trainer/sft_trainer.py).
    pub(crate) fn cast_adapters(&self) {
        let _category = self.context.enter_category(Category::Parameter);
        for adapter in self.built.borrow().adapters.iter().filter(|adapter| adapter.dtype() != DType::Float32) {
            let cast = Tensor::empty(&self.context, "_to_copy.default", *adapter.sizes(), adapter.dtype());
            adapter.set_data(&cast);
        }
    }

    /// The adapters' weights, each layer's two after one another.
    pub(crate) fn adapters(&self) -> Vec<Tensor> {
        self.built.borrow().adapters.clone()
    }
}

/// What DoRA's magnitudes begin as: the norms of the rows of a base weight, which has the adapter's product added (peft 0.21,
/// tuners/lora/dora.py, `update_layer`).
fn first_magnitude(down: &Tensor, up: &Tensor) -> Tensor {
    let _no_grad = down.context().set_grad_enabled(false);
    let lora_weight = up.mm(down);
    let sum = {
        let scaled = lora_weight.mul_scalar(UNTOLD);
        &lora_weight + &scaled
    };
    sum.norm_of_rows()
}

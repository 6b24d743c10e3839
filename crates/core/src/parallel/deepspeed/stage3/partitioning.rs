//! How a loaded model is divided: parts of parameters, what they lie in, the groups that are stepped at once and their fp32 weights.

use std::rc::Rc;

use crate::building::Builder;
use crate::dtype::DType;
use crate::host::HostKind;
use crate::job::{DeepSpeed, JobSpec};
use crate::op::full;
use crate::optimizer;
use crate::tensor::{Context, Layout, Shape, Tensor};
use crate::trace::Category;

use super::param::Param;

/// What a rank makes of a loaded model, in DeepSpeed's order.
pub(super) struct Partitioning<'a> {
    pub context: &'a Rc<Context>,
    pub options: DeepSpeed,
    pub dtype: DType,
    /// All parameters; those that are trained.
    pub params: Vec<Rc<Param>>,
    pub trained: Vec<Rc<Param>>,
    /// Whether the Trainer made the optimizer: what decays is a group of its own, before the rest.
    pub of_trainer: bool,
}

impl Partitioning<'_> {
    fn filled(&self, category: Category, op: &'static str, elements: u64, dtype: DType) -> Tensor {
        let _category = self.context.enter_category(category);
        full(self.context, op, &[elements], dtype)
    }

    /// `defragment`: all trained parts go to the host, and come back as one tensor.
    fn defragment(&self) -> Tensor {
        self.trained.iter().for_each(|param| param.move_part(None));
        self.context.empty_cache();
        let elements = self.trained.iter().map(|param| param.partition).sum();
        let flat = self.filled(Category::Parameter, "_to_copy.default", elements, self.dtype);
        for param in &self.trained {
            param.move_part(Some(flat.alias(Layout::contiguous(Shape::new(&[param.partition])))));
        }
        flat
    }

    /// `_create_param_groups_fp16_flat_cpu_memory`: the trained parts of each of the optimizer's groups as one pinned tensor on the host.
    fn move_to_host(&self) -> Vec<Tensor> {
        let is_same = |one: &Rc<Param>, next: &Rc<Param>| {
            !self.of_trainer || optimizer::decays(&one.tensor) == optimizer::decays(&next.tensor)
        };
        let flatten = |group: &[Rc<Param>]| {
            let elements: u64 = group.iter().map(|param| param.partition).sum();
            let held = (HostKind::Pinned, Category::Parameter);
            let flat = Tensor::on_host(self.context, Shape::new(&[elements]), self.dtype, held);
            for param in group {
                param.move_part(Some(flat.alias(Layout::contiguous(Shape::new(&[param.partition])))));
            }
            flat
        };
        self.trained.chunk_by(is_same).map(flatten).collect()
    }

    /// What holds the trained parts from now on.
    pub(super) fn hold_parts(&self) -> Vec<Tensor> {
        if self.options.offload_param.is_some() { self.move_to_host() } else { vec![self.defragment()] }
    }

    /// `_create_fp16_sub_groups`: parameters in groups of at least `sub_group_size` elements.
    pub(super) fn sub_groups(&self) -> Vec<Vec<usize>> {
        let mut groups = vec![Vec::new()];
        let mut elements = 0_u64;
        let mut decayed = true;
        for (at, param) in self.trained.iter().enumerate() {
            let ends = self.of_trainer && std::mem::replace(&mut decayed, optimizer::decays(&param.tensor)) != decayed;
            if elements > 0 && (ends || elements >= self.options.sub_group_size) {
                groups.push(Vec::new());
                elements = 0;
            }
            elements = elements.saturating_add(param.partition);
            groups.last_mut().into_iter().for_each(|group| group.push(at));
        }
        groups
    }

    fn elements_of(&self, group: &[usize]) -> u64 {
        group.iter().filter_map(|&at| self.trained.get(at)).map(|param| param.partition).sum()
    }

    /// `_create_fp32_partitions`, then the gradient that `initialize_optimizer_states` makes and forgets.
    pub(super) fn masters(&self, groups: Vec<Vec<usize>>) -> Vec<(Vec<usize>, Tensor)> {
        if let Some(kind) = self.options.offload_optimizer {
            return groups.into_iter().map(|group| self.master_on_host(group, kind)).collect();
        }
        let is_converted = self.dtype != DType::Float32 || self.options.offload_param.is_some();
        // One group's goes when the next one's is there.
        let mut converted = None;
        let master = |group: Vec<usize>| {
            let elements = self.elements_of(&group);
            let filled = |op| self.filled(Category::Parameter, op, elements, DType::Float32);
            converted = is_converted.then(|| filled("_to_copy.default"));
            (group, filled("clone.default").into_parameter())
        };
        let masters: Vec<_> = groups.into_iter().map(master).collect();
        drop(converted);
        let largest = masters.iter().map(|(_, master)| master.numel()).max().unwrap_or(0);
        drop(self.filled(Category::Gradient, "zeros.default", largest, DType::Float32));
        masters
    }

    /// A group's fp32 weights, which nothing pins, and their gradient.
    fn master_on_host(&self, group: Vec<usize>, kind: HostKind) -> (Vec<usize>, Tensor) {
        let elements = Shape::new(&[self.elements_of(&group)]);
        let on_host = |held| Tensor::on_host(self.context, elements, DType::Float32, held);
        let master = on_host((HostKind::Pageable, Category::Parameter)).into_parameter();
        master.set_grad(Some(on_host((kind, Category::Gradient))));
        (group, master)
    }
}

/// Every parameter with this rank's part of it, which is there already where the model was loaded in parts, and the places in the
/// trace that made them.
pub(super) fn partition_params(
    job: &JobSpec,
    parameters: &[Tensor],
    builder: &Builder,
    options: DeepSpeed,
) -> (Vec<Rc<Param>>, Vec<u32>) {
    let world_size = job.parallel.world_size;
    let mut parts = builder.take_parts();
    let cut = |tensor: &Tensor| {
        let param = Param::new(tensor.clone(), world_size, options.param_persistence_threshold);
        let (mut module, part) = (tensor.module(), parts.iter().position(|(whole, _)| whole.is_same(tensor)));
        match part.map(|at| parts.swap_remove(at).1) {
            Some(part) => {
                module = part.module();
                param.hold_part(part);
            }
            None => param.cut(options.offload_param),
        }
        (Rc::new(param), module)
    };
    parameters.iter().map(cut).unzip()
}

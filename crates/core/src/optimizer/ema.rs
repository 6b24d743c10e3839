//! Averages of the weights: `AveragedModel` (torch/optim/swa_utils.py, 2.11) with `get_ema_multi_avg_fn`, and `EMAModel` (diffusers 0.42,
//! training_utils.py) as diffusers' examples step it.

use std::collections::HashMap;
use std::rc::Rc;

use crate::dtype::DType;
use crate::host::HostKind;
use crate::job::Ema;
use crate::op::full;
use crate::small_sort::SmallSort;
use crate::tensor::{Context, Tensor};
use crate::trace::Category;

const ON_HOST: (HostKind, Category) = (HostKind::Pageable, Category::OptimizerState);
const PINNED: (HostKind, Category) = (HostKind::Pinned, Category::OptimizerState);

/// An average of a model's weights.
pub(crate) struct Average {
    ema: Ema,
    context: Rc<Context>,
    parameters: Vec<Tensor>,
    /// Its copy of each parameter.
    shadow: Vec<Tensor>,
    /// Copies of buffers, which a model that averages has too.
    _buffers: Vec<Tensor>,
    has_stepped: bool,
}

impl Average {
    /// Of a model that is on the device: `AveragedModel(model)`, or `EMAModel(model.parameters())`.
    pub(crate) fn of_model(
        ema: Ema,
        context: &Rc<Context>,
        (parameters, buffers): (&[Tensor], &[Tensor]),
    ) -> Option<Self> {
        let copy = |tensor: &Tensor| copy_of(context, tensor, "clone.default");
        let (shadow, buffers) = match ema {
            Ema::Off => return None,
            Ema::AveragedModel => copy_model(context, (parameters, buffers)),
            Ema::AveragedModelCpu => {
                // `deepcopy(model)` is on the device before it moves.
                let (copies, copied) = copy_model(context, (parameters, buffers));
                let to_host = |tensors: Vec<Tensor>| tensors.iter().map(|tensor| tensor.to_host(ON_HOST)).collect();
                (to_host(copies), to_host(copied))
            }
            _ => (parameters.iter().map(copy).collect(), Vec::new()),
        };
        Some(Self::over(ema, context, parameters, (shadow, buffers)))
    }

    /// `EMAModel` of a model that was loaded once more, on the host, as the examples of diffusers have it.
    pub(crate) fn of_examples(ema: Ema, context: &Rc<Context>, parameters: &[Tensor]) -> Option<Self> {
        let shadow = parameters.iter().map(|parameter| {
            if ema.is_offloaded() { parameter.to_host(PINNED) } else { copy_of(context, parameter, "_to_copy.default") }
        });
        ema.is_on().then(|| Self::over(ema, context, parameters, (shadow.collect(), Vec::new())))
    }

    fn over(ema: Ema, context: &Rc<Context>, parameters: &[Tensor], copies: (Vec<Tensor>, Vec<Tensor>)) -> Self {
        Self {
            ema,
            context: Rc::clone(context),
            parameters: parameters.to_vec(),
            shadow: copies.0,
            _buffers: copies.1,
            has_stepped: false,
        }
    }

    /// `averaged.update_parameters(model)` or `ema_model.step(model.parameters())`.
    pub(crate) fn update(&mut self) {
        match self.ema {
            Ema::AveragedModel => self.lerp(),
            Ema::AveragedModelCpu => drop(self.parameters.iter().map(|one| one.to_host(ON_HOST)).collect::<Vec<_>>()),
            _ if self.ema.is_offloaded() => self.step_from_host(),
            _ => self.subtract_differences(),
        }
        self.has_stepped = true;
    }

    /// Weights are copied by the first update; each further one brings the number of updates to the device, for each dtype.
    fn lerp(&self) {
        self.count_passes(3);
        if !self.has_stepped {
            return;
        }
        let mut dtypes: Vec<DType> = Vec::new();
        for parameter in &self.parameters {
            if !dtypes.contains(&parameter.dtype()) {
                dtypes.push(parameter.dtype());
                drop(full(&self.context, "_to_copy.default", &[], DType::Int64));
            }
        }
    }

    /// `ema.to("cuda")`, a step, `ema.to("cpu")`: every parameter is back before the first goes.
    fn step_from_host(&mut self) {
        let on_device = {
            let _category = self.context.enter_category(Category::OptimizerState);
            self.shadow.iter().map(|shadow| shadow.to_device(&self.context)).collect()
        };
        self.shadow = on_device;
        self.subtract_differences();
        self.shadow = self.shadow.iter().map(|shadow| shadow.to_host(PINNED)).collect();
    }

    /// `shadow.sub_((1 - decay) * (shadow - parameter))`; what is frozen is copied.
    fn subtract_differences(&self) {
        self.count_passes(3);
        let trained = self.parameters.iter().filter(|parameter| parameter.requires_grad());
        let differences = trained.map(|parameter| parameter.detach().unary("sub.Tensor", parameter.dtype()));
        if self.ema.is_foreach() {
            drop(differences.collect::<Vec<_>>());
            return;
        }
        for difference in differences {
            let _scaled = difference.unary("mul.Tensor", difference.dtype());
            drop(difference);
        }
    }

    fn count_passes(&self, passes: u64) {
        self.parameters.iter().for_each(|one| self.context.count_bytes(one.bytes().saturating_mul(passes)));
    }
}

fn copy_of(context: &Rc<Context>, tensor: &Tensor, op: &'static str) -> Tensor {
    let _module = context.enter_module(tensor.module());
    let _category = context.enter_category(Category::OptimizerState);
    tensor.detach().unary(op, tensor.dtype())
}

/// `copy.deepcopy(model)`, which meets a module's own parameters, its own buffers, then its children.
fn copy_model(context: &Rc<Context>, (parameters, buffers): (&[Tensor], &[Tensor])) -> (Vec<Tensor>, Vec<Tensor>) {
    let all: Vec<(bool, &Tensor)> =
        parameters.iter().map(|tensor| (false, tensor)).chain(buffers.iter().map(|tensor| (true, tensor))).collect();
    let paths: Vec<Vec<String>> = context.read_trace(|trace| {
        let path = |tensor: &Tensor| trace.modules.get(tensor.module() as usize).map(|path| prefixes(path));
        all.iter().map(|(_, tensor)| path(tensor).unwrap_or_default()).collect()
    });
    // Modules are numbered as they are built, a module perhaps after its children.
    let mut first: HashMap<&str, u32> = HashMap::new();
    for ((_, tensor), path) in all.iter().zip(&paths) {
        for prefix in path {
            let known = first.entry(prefix).or_insert(u32::MAX);
            *known = tensor.module().min(*known);
        }
    }
    let place = |path: &Vec<String>| path.iter().filter_map(|prefix| first.get(prefix.as_str()).copied()).collect();
    let mut order: Vec<(Vec<u32>, usize)> = paths.iter().map(place).zip(0..).collect();
    order.small_sort();
    let (mut copies, mut copied) = (Vec::new(), Vec::new());
    for (_, at) in order {
        if let Some((is_buffer, tensor)) = all.get(at) {
            if *is_buffer { &mut copied } else { &mut copies }.push(copy_of(context, tensor, "clone.default"));
        }
    }
    (copies, copied)
}

/// `a.b.c` as `a`, `a.b`, `a.b.c`; nothing of the model itself.
fn prefixes(path: &str) -> Vec<String> {
    if path.starts_with('<') {
        return Vec::new();
    }
    let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
    ends.filter_map(|end| path.get(..end)).map(str::to_owned).collect()
}

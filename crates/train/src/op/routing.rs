//! What sends tokens to experts, and their products.

use tonnage_torch::{Argument, operator};

use super::create::{arange, index};
use crate::dtype::DType;
use crate::precision::scalar_type;
use crate::tensor::{Tensor, or_stop};

fn int(number: u64) -> Argument<'static> {
    Argument::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

impl Tensor {
    /// `topk(self, k, dim=-1)`: values, and their places.
    pub(crate) fn topk(&self, k: u64) -> (Tensor, Tensor) {
        let arguments = [self.into(), int(k), Argument::Int(-1), true.into(), true.into()];
        let made = self.context().torch.call(operator!("topk"), &arguments);
        let [values, places] = or_stop(made.and_then(|made| made.into_array::<2>()));
        (Self::of(self.context(), values), Self::of(self.context(), places))
    }

    /// `self.max(dim=-1, keepdim=True).values`, without the indices.
    pub(crate) fn max_last(&self) -> Tensor {
        let arguments = [self.into(), Argument::Int(-1), true.into()];
        let made = self.context().torch.call(operator!("max", "dim"), &arguments);
        let [values, _places] = or_stop(made.and_then(|made| made.into_array::<2>()));
        Self::of(self.context(), values)
    }

    /// `self.scatter_(1, places, 1)`
    pub(crate) fn set_ones_at(&self, places: &Tensor) {
        let arguments = [self.into(), Argument::Int(1), places.into(), Argument::Int(1)];
        or_stop(self.context().torch.call(operator!("scatter_", "value"), &arguments).map(drop));
    }

    /// `self.scatter_(1, places, values)`
    pub(crate) fn scatter_in_place(&self, places: &Tensor, values: &Tensor) -> Tensor {
        self.run(operator!("scatter_", "src"), [Argument::Int(1), places.into(), values.into()])
    }

    /// `self.repeat(times, 1)` of a matrix
    pub(crate) fn repeat_rows(&self, times: u64) -> Tensor {
        self.run(operator!("repeat"), [crate::tensor::ints(&[times, 1])])
    }

    /// `self /= other`
    pub(crate) fn div_in_place(&self, other: &Tensor) -> Tensor {
        self.run(operator!("div_", "Tensor"), [other.into()])
    }

    /// `one_hot(self, count)` of places
    pub(crate) fn one_hot(&self, count: u64) -> Tensor {
        self.run(operator!("one_hot"), [int(count)])
    }

    /// `self.index_add_(0, places, rows)`
    pub(crate) fn add_rows_in_place(&self, places: &Tensor, rows: &Tensor) -> Tensor {
        self.run(operator!("index_add_"), [Argument::Int(0), places.into(), rows.into()])
    }

    /// `self[i, j]`: what the leading dimensions hold at so many places, an index of each dimension.
    pub(crate) fn at_places(&self, indices: &[&Tensor]) -> Tensor {
        let indices: Vec<Option<&Tensor>> = indices.iter().map(|index| Some(*index)).collect();
        index(self, &[], &indices)
    }

    /// `sort(self)` of a vector of int64: in order, and where each came from.
    pub(crate) fn sort_places(&self) -> (Tensor, Tensor) {
        let arguments = [self.into(), Argument::Int(-1), false.into()];
        let made = self.context().torch.call(operator!("sort"), &arguments);
        let [numbers, places] = or_stop(made.and_then(|made| made.into_array::<2>()));
        (Self::of(self.context(), numbers), Self::of(self.context(), places))
    }

    /// `self // number` of int64
    pub(crate) fn floor_divide(&self, number: u64) -> Tensor {
        self.run(operator!("floor_divide", "Scalar"), [int(number)])
    }

    /// `clamp(self, 0, count - 1)` of int64
    pub(crate) fn clamp_places(&self, count: u64) -> Tensor {
        self.run(operator!("clamp"), [Argument::Int(0), int(count.saturating_sub(1))])
    }

    /// The numbers as int32, and how many there are of each below `count`: `histc` takes no whole numbers on a CPU.
    pub(crate) fn count_each(&self, count: u64) -> [Tensor; 2] {
        let counts = self.run(operator!("bincount"), [Argument::None, int(count)]);
        [self.to(DType::Int32), counts.to(DType::Int32)]
    }

    /// `bincount(self.reshape(-1), minlength=count).float()`
    pub(crate) fn count_chosen(&self, count: u64) -> Tensor {
        let flat = self.reshape(&[self.numel()]);
        flat.run(operator!("bincount"), [Argument::None, int(count)]).to(DType::Float32)
    }

    /// `zeros(count).scatter_add_(0, self.reshape(-1), mask.repeat_interleave(k))`, where `k` of `self` are one of the mask.
    pub(crate) fn count_chosen_where(&self, mask: &Tensor, count: u64) -> Tensor {
        let (rows, k) = (mask.numel(), self.numel() / mask.numel().max(1));
        let repeated = mask.unsqueeze(1).expand(&[rows, k]).reshape(&[rows * k]);
        let chosen = self.reshape(&[self.numel()]);
        let sums = super::zeros(self.context(), &[count], mask.dtype());
        sums.run(operator!("scatter_add_"), [Argument::Int(0), (&chosen).into(), (&repeated).into()])
    }

    /// `cumsum(self, dim=0, dtype=int32)` of a vector of int32
    pub(crate) fn running_sum(&self) -> Tensor {
        self.run(operator!("cumsum"), [Argument::Int(0), scalar_type(DType::Int32).into()])
    }

    /// `self[places]` of rows
    pub(crate) fn select_rows(&self, places: &Tensor) -> Tensor {
        index(self, &[], &[Some(places)])
    }

    /// What lies at `places` of dimension `at`, other dimensions whole (`self[:, places]` where `at` is 1).
    pub(crate) fn select_along(&self, at: usize, places: &Tensor) -> Tensor {
        let mut indices = vec![None; at];
        indices.push(Some(places));
        index(self, &[], &indices)
    }

    /// `inverse[self] = arange(n)`: where each of a permutation went.
    pub(crate) fn inverse_permutation(&self) -> Tensor {
        let places = arange(self.context(), self.numel());
        self.empty_like().run(operator!("scatter", "src"), [Argument::Int(0), self.into(), (&places).into()])
    }

    /// `masked_fill(self, mask, 0)`
    pub(crate) fn zero_where(&self, mask: &Tensor) -> Tensor {
        self.run(operator!("masked_fill", "Scalar"), [mask.into(), Argument::Int(0)])
    }

    /// `self.masked_fill_(mask, 0)`
    pub(crate) fn zero_where_in_place(&self, mask: &Tensor) -> Tensor {
        self.run(operator!("masked_fill_", "Scalar"), [mask.into(), Argument::Int(0)])
    }

    /// `self.sum(dim=0)` of a matrix
    pub(crate) fn sum_first(&self) -> Tensor {
        self.run(operator!("sum", "dim_IntList"), [[0].into()])
    }

    /// `self.sum(dim=1)` of three dimensions
    pub(crate) fn sum_middle(&self) -> Tensor {
        self.run(operator!("sum", "dim_IntList"), [[1].into()])
    }

    /// `grouped_mm(self, matrices, offs=ends)`
    pub(crate) fn grouped_mm(&self, matrices: &Tensor, ends: &Tensor) -> Tensor {
        self.run(operator!("_grouped_mm"), [matrices.into(), ends.into()])
    }
}

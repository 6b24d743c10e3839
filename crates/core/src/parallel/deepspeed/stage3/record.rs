//! The order in which modules ran in a pass, and when each parameter is used again by it.

use std::collections::{BTreeMap, VecDeque};

use crate::building::ModuleKey;

use super::coordinator::Own;

/// A parameter and a step at which a module runs that has it (`__ParamInTrace`).
#[derive(Clone, Copy)]
pub(super) struct Use {
    pub param: usize,
    pub step: usize,
}

/// `__submodule_order` and what follows from it.
#[derive(Default)]
pub(super) struct Record {
    order: Vec<ModuleKey>,
    own: Vec<Own>,
    /// Elements of the parameters of all modules before a step.
    before: Vec<u64>,
    steps: BTreeMap<usize, Vec<usize>>,
}

impl Record {
    pub(super) fn push(&mut self, module: ModuleKey) {
        self.order.push(module);
    }

    /// Whether this module runs at this step.
    pub(super) fn has(&self, step: usize, module: ModuleKey) -> bool {
        self.order.get(step) == Some(&module)
    }

    /// Ends the pass that was recorded, with the parameters that each module has by now.
    pub(super) fn close(&mut self, own_of: impl Fn(ModuleKey) -> Own, numel: impl Fn(usize) -> u64) {
        let mut sum = 0_u64;
        self.own = self.order.iter().map(|module| own_of(*module)).collect();
        for (step, own) in self.own.iter().enumerate() {
            self.before.push(sum);
            for &param in own.iter() {
                sum = sum.saturating_add(numel(param));
                self.steps.entry(param).or_default().push(step);
            }
        }
    }

    /// `__param_order`
    pub(super) fn uses(&self) -> VecDeque<Use> {
        let of_step =
            |(step, own): (usize, &Own)| -> Vec<Use> { own.iter().map(|&param| Use { param, step }).collect() };
        self.own.iter().enumerate().flat_map(of_step).collect()
    }

    /// Whether a parameter is used at `step` or later, before modules with so many elements have run.
    pub(super) fn reuses(&self, param: usize, step: usize, distance: u64) -> bool {
        let Some(steps) = self.steps.get(&param) else { return false };
        let next = steps.get(steps.partition_point(|used| *used < step));
        let until = |step: usize| self.before.get(step).copied().unwrap_or(u64::MAX);
        next.is_some_and(|&next| until(next).saturating_sub(until(step)) < distance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::building::Part;

    /// Three modules of ten elements each, then the first once more.
    #[test]
    fn a_parameter_is_used_again_only_within_the_distance() {
        let mut record = Record::default();
        let modules = [0, 1, 2, 0].map(|module| (module, Part::Itself));
        modules.iter().for_each(|module| record.push(*module));
        record.close(|(module, _)| [module as usize].into(), |_| 10);
        assert!(record.has(3, modules[0]) && !record.has(1, modules[0]));
        // After the first step ten elements of each of two modules lie before the next use.
        assert!(!record.reuses(0, 1, 20) && record.reuses(0, 1, 21));
        assert!(record.reuses(1, 1, 1) && !record.reuses(1, 2, 1000));
        assert_eq!(
            record.uses().iter().map(|used| (used.param, used.step)).collect::<Vec<_>>(),
            [(0, 0), (1, 1), (2, 2), (0, 3)]
        );
    }
}

//! [`BillView`]: the time, energy and price of a job, as JSON.

use serde::Serialize;
use tonnage_core::gpu::Price;
use tonnage_core::plan::time::{Bill, Bound, Range};

/// What a job takes and costs.
#[derive(Serialize)]
pub(crate) struct BillView<'a> {
    step_seconds: Range,
    basis: &'a str,
    parts: Vec<PartView>,
    flops_per_step: Option<u64>,
    notes: &'a [String],
    steps: u64,
    steps_are_given: bool,
    gpus: u64,
    wall_seconds: Range,
    gpu_hours: Range,
    kilowatt_hours: Option<Range>,
    dollars: Option<Range>,
    price: Option<&'a Price>,
}

#[derive(Serialize)]
struct PartView {
    name: &'static str,
    seconds: Range,
    bound: Option<Bound>,
}

impl<'a> BillView<'a> {
    pub(crate) fn new(bill: &'a Bill) -> Self {
        let estimated = bill.estimated.as_ref();
        let parts = estimated.map(|step| step.parts.as_slice()).unwrap_or_default();
        Self {
            step_seconds: bill.step.seconds,
            basis: &bill.step.basis,
            parts: parts
                .iter()
                .map(|part| PartView { name: part.name, seconds: part.seconds, bound: part.bound })
                .collect(),
            flops_per_step: estimated.map(|step| step.flops),
            notes: estimated.map(|step| step.notes.as_slice()).unwrap_or_default(),
            steps: bill.steps,
            steps_are_given: bill.is_whole,
            gpus: bill.gpus,
            wall_seconds: bill.costs.wall_seconds,
            gpu_hours: bill.costs.gpu_hours,
            kilowatt_hours: bill.costs.kilowatt_hours,
            dollars: bill.costs.dollars,
            price: bill.costs.price.as_ref(),
        }
    }
}

//! The measured tables that this module's tests replay (`testdata/scratch`).

use serde::Deserialize;
use serde_json::Value;

use super::{Device, Step, Steps};
use crate::dtype::DType;

/// One family's measured points on one device.
#[derive(Deserialize)]
pub(super) struct Table {
    cc: (u32, u32),
    sms: u64,
    pub(super) rows: Vec<Vec<Value>>,
}

impl Table {
    /// A family's table, parsed from the embedded JSON.
    pub(super) fn parse(text: &str) -> Self {
        serde_json::from_str(text).expect("a measured table is valid JSON")
    }

    /// The same cases on another device, whose table lists only the rows that differ, as `[index, events]`.
    fn patched(&self, text: &str) -> Self {
        let mut table = Self::parse(text);
        let mut rows = self.rows.clone();
        for patch in &table.rows {
            let index = usize::try_from(number(&patch[0])).expect("an index");
            *rows[index].last_mut().expect("events") = patch[1].clone();
        }
        table.rows = rows;
        table
    }

    /// Both devices' tables.
    pub(super) fn pair(full: &str, patch: &str) -> [Self; 2] {
        let first = Self::parse(full);
        let second = first.patched(patch);
        [first, second]
    }

    /// The rows of these kinds alone (the first column).
    pub(super) fn only(mut self, kinds: &[&str]) -> Self {
        self.rows.retain(|row| row.first().and_then(Value::as_str).is_some_and(|kind| kinds.contains(&kind)));
        self
    }

    pub(super) fn device(&self) -> Device {
        Device { compute_capability: self.cc, multiprocessors: self.sms }
    }

    /// Compares every row's events with what `predict` says; fails with the first few differences.
    pub(super) fn replay(&self, predict: impl Fn(&[Value], Device) -> Steps) {
        let mut wrong = Vec::new();
        for row in &self.rows {
            let Some((want, case)) = row.split_last() else { continue };
            let got = events(&predict(case, self.device()));
            let want = numbers(want);
            if got != want {
                wrong.push(format!("{case:?}\n  measured {want:?}\n  computed {got:?}"));
            }
        }
        let shown = wrong.iter().take(12).cloned().collect::<Vec<_>>().join("\n");
        assert!(wrong.is_empty(), "{} of {} rows differ\n{shown}", wrong.len(), self.rows.len());
    }
}

/// Steps in the tables' notation: bytes allocated, or minus one minus the allocation that is freed.
fn events(steps: &[Step]) -> Vec<i64> {
    let mut slots: std::collections::HashMap<u32, i64> = std::collections::HashMap::new();
    let mut allocations = 0_i64;
    let mut out = Vec::new();
    for step in steps {
        match *step {
            Step::Free { slot } => out.push(-(slots[&slot] + 1)),
            Step::Output { bytes, .. } => {
                out.push(bytes.cast_signed());
                allocations += 1;
            }
            Step::Alloc { bytes, slot } => {
                out.push(bytes.cast_signed());
                slots.insert(slot, allocations);
                allocations += 1;
            }
        }
    }
    out
}

/// A JSON list of integers.
pub(super) fn numbers(value: &Value) -> Vec<i64> {
    value.as_array().map(|list| list.iter().filter_map(Value::as_i64).collect()).unwrap_or_default()
}

/// A JSON list of sizes.
pub(super) fn sizes(value: &Value) -> Vec<u64> {
    value.as_array().map(|list| list.iter().filter_map(Value::as_u64).collect()).unwrap_or_default()
}

/// A JSON integer.
pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().expect("an integer")
}

/// A JSON flag, written as 0 or 1 or as a boolean.
pub(super) fn flag(value: &Value) -> bool {
    value.as_bool().unwrap_or_else(|| number(value) != 0)
}

/// A dtype by PyTorch's name.
pub(super) fn dtype(value: &Value) -> DType {
    serde_json::from_value(value.clone()).expect("a dtype's name")
}

//! The processes as rows: sorted, or as a tree.

use std::cmp::{Ordering, Reverse};
use tonnage_core::small_sort::SmallSort;

use super::app::{App, Sort};
use crate::board::Board;
use crate::sample::{DeviceSample, ProcessSample};

/// A process on a device.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Where it runs.
    pub device: &'a DeviceSample,
    pub process: &'a ProcessSample,
    /// How far below its ancestors it stands.
    pub depth: usize,
}

impl Row<'_> {
    /// What it is found again by.
    pub fn key(&self) -> (String, u32) {
        (self.device.id(), self.process.pid)
    }
}

/// All processes in the order that was chosen.
pub fn rows<'a>(board: &'a Board, app: &App) -> Vec<Row<'a>> {
    let of_device =
        |device: &'a DeviceSample| device.running().iter().map(move |process| Row { device, process, depth: 0 });
    let mut rows: Vec<Row<'a>> = board.sample.all_devices().flat_map(of_device).collect();
    rows.small_sort_by(|one, other| {
        let order = compare_rows(app.sort, one, other);
        if app.reverse { order.reverse() } else { order }
    });
    if app.tree { as_tree(&rows) } else { rows }
}

fn compare_rows(sort: Sort, one: &Row<'_>, other: &Row<'_>) -> Ordering {
    let (a, b) = (one.process, other.process);
    let memory = |process: &ProcessSample| Reverse(process.memory.ok());
    match sort {
        // Rows come in the order of devices, and the sort is stable.
        Sort::Device => Ordering::Equal,
        Sort::Memory => memory(a).cmp(&memory(b)),
        Sort::Sm => Reverse(a.sm.ok()).cmp(&Reverse(b.sm.ok())),
        Sort::Pid => a.pid.cmp(&b.pid),
        Sort::User => a.host.user.cmp(&b.host.user),
        Sort::Job => (&a.host.job, a.host.rank).cmp(&(&b.host.job, b.host.rank)),
    }
}

/// Each process below its parent, where the parent is on the list.
fn as_tree<'a>(rows: &[Row<'a>]) -> Vec<Row<'a>> {
    let is_listed = |pid: Option<u32>| rows.iter().any(|row| Some(row.process.pid) == pid);
    let roots = rows
        .iter()
        .filter(|row| !is_listed(row.process.host.parent) || row.process.host.parent == Some(row.process.pid));
    let mut ordered = Vec::new();
    roots.for_each(|root| descend_from(rows, *root, 0, &mut ordered));
    ordered
}

fn descend_from<'a>(rows: &[Row<'a>], row: Row<'a>, depth: usize, ordered: &mut Vec<Row<'a>>) {
    // A pid that stands on several devices has its children once.
    let is_first = !ordered.iter().any(|other| other.process.pid == row.process.pid);
    ordered.push(Row { depth, ..row });
    if !is_first || depth > 16 {
        return;
    }
    let is_child =
        |other: &&Row<'a>| other.process.host.parent == Some(row.process.pid) && other.process.pid != row.process.pid;
    for child in rows.iter().filter(is_child) {
        descend_from(rows, *child, depth + 1, ordered);
    }
}

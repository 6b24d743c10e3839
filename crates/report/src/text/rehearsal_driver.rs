//! The screen of a rehearsal whose processes left no record: what the phantom's driver gave them is all that is known.

use tonnage_core::rehearsal::{Rehearsal, Unrecorded};
use tonnage_core::units::Bytes;

use super::paint::{BOLD, WARN, paint_text, wrap_text};
use super::rehearsal::{failure_lines, other_gpus, size_lines, verdict_headline};
use super::table::{Align, Table};
use crate::look::Look;

/// The screen; empty where no process used a device.
pub fn driver_screen(rehearsal: &Rehearsal, look: &Look) -> String {
    let Some(on_gpu) = rehearsal.verdict_on(&rehearsal.gpu) else { return String::new() };
    let dot = look.pick(" · ", " | ");
    let count = if rehearsal.gpus > 1 { format!("{} x ", rehearsal.gpus) } else { String::new() };
    let parts = [
        format!("phantom {count}{}", rehearsal.gpu.name),
        format!("{:.1} s", rehearsal.wall_seconds),
        processes_text(&rehearsal.unrecorded),
    ];
    let head = paint_text(BOLD, "rehearsed, by what the driver gave");
    let mut text = format!("{head}\n{}\n\n", wrap_text(&parts.join(dot), look.width, 2));
    text.push_str(&failure_lines(rehearsal, look));
    let taken = format!("{} taken from the driver", Bytes(on_gpu.peak_reserved_bytes));
    text.push_str(&match rehearsal.carriers() {
        Some(carriers) => size_lines(rehearsal, &on_gpu, &taken, &carriers, look),
        None => verdict_headline(&on_gpu, rehearsal.known_fit(&on_gpu), &taken, look),
    });
    text.push_str(&other_gpus(rehearsal, look));
    text.push_str(&process_table(rehearsal, look));
    for line in WARNINGS {
        text.push_str(&format!("{} {}\n", paint_text(WARN, "!"), wrap_text(line, look.width, 2)));
    }
    text
}

/// What nobody saw.
const WARNINGS: [&str; 3] = [
    "our recorder was in no process that used the GPU (a native program, Python with -E, -I or -S, or one that ended by os._exit): what \
     was taken from the driver is exact, how much of it was allocated is not known, nor phases, lines and a trace",
    "it ran to its own end: --steps, --seconds and a steady peak stop Python only",
    "values of the device are zeros: what the program decides by them may be otherwise on a GPU",
];

fn processes_text(processes: &[Unrecorded]) -> String {
    match processes.len() {
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    }
}

/// What each process held of each device, where that is not one.
fn process_table(rehearsal: &Rehearsal, look: &Look) -> String {
    let rows: Vec<_> = rehearsal
        .unrecorded
        .iter()
        .flat_map(|process| process.devices.iter().map(move |used| (process.pid, used)))
        .collect();
    if rows.len() < 2 {
        return String::new();
    }
    let columns = [
        ("process", Align::Right),
        ("device", Align::Right),
        ("held, with its context", Align::Right),
        ("refused", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for (pid, used) in rows {
        table.row(vec![
            pid.to_string().into(),
            used.device.to_string().into(),
            Bytes(used.peak_bytes).to_string().into(),
            used.refusals.to_string().into(),
        ]);
    }
    format!("{}\n", table.render(look))
}

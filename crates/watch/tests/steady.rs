//! An hour at one sample a second, of 8 devices and 32 processes: what it keeps does not grow once its history is full.

mod scripted;

use scripted::Scripted;
use tonnage_watch::{Board, Sample, Sampler, observe_sample};

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn an_hour_is_steady() {
    let scripted = Scripted::new(include_str!("../../../testdata/nvml/node.jsonl"));
    let mut sampler = scripted.sampler();
    let mut board = Board::new(None);
    let mut full = 0;
    for second in 0..3600_u32 {
        scripted.at(f64::from(second));
        observe_sample(&mut board, Sample { time: 1e9 + f64::from(second), ..sampler.sample().unwrap() });
        if second == 1200 {
            full = resident();
        }
    }
    let grown = resident().saturating_sub(full);
    assert!(grown < 512 * 1024, "{grown} bytes in forty minutes");
    let device = &board.sample.devices[0];
    assert!(board.series(device, None).unwrap().history.all().len() <= 600);
}

//! How fast logs are read: one of ordinary training, one full of words that failures use too, one in colour.

use std::fmt::Write;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tonnage_doctor::Scanner;

const SIZE: usize = 64 << 20;
/// What a reader takes at a time.
const PIECE: usize = 1 << 20;

/// Lines of a training, by number, until there are enough.
fn log(line: impl Fn(&mut String, usize)) -> Vec<u8> {
    let mut text = String::with_capacity(SIZE + 1024);
    for number in 0.. {
        if text.len() >= SIZE {
            break;
        }
        line(&mut text, number);
    }
    text.into_bytes()
}

fn ordinary(text: &mut String, number: usize) {
    let share = number % 100;
    let _ = match number % 5 {
        0 => writeln!(
            text,
            "{{'loss': 1.{number:04}, 'grad_norm': 0.8412, 'learning_rate': 1.9e-05, 'epoch': 0.{share:02}}}"
        ),
        1 => writeln!(text, "  {share}%|██▏       | {number}/121300 [01:11<1:10:03,  3.52s/it]"),
        2 => writeln!(text, "[rank{}]: step {number} tokens/s 11423.1 mfu 0.41 memory 41.20 GiB", number % 8),
        3 => writeln!(text, "node1:534:1763 [3] NCCL INFO Channel 01 : 2[1040] -> 0[1020] via SHM/direct/direct"),
        _ => writeln!(
            text,
            "[INFO|trainer.py:2314] 2026-03-02 10:11:12,131 >> Saving model checkpoint to out/checkpoint-{number}"
        ),
    };
}

fn near_misses(text: &mut String, number: usize) {
    let _ = match number % 4 {
        0 => writeln!(text, "WARNING: step {number}: if you run out of memory, lower the batch size"),
        1 => writeln!(text, "INFO: {number} workers were Killed and came back, no CUDA error: all is well"),
        2 => writeln!(text, "    if \"CUDA out of memory. Tried to allocate\" in message: retry({number})"),
        _ => writeln!(text, "[INFO] NCCL error in: {number} ranks? none; No space left on device? there is"),
    };
}

fn coloured(text: &mut String, number: usize) {
    let _ = write!(text, "\x1b[32mINFO\x1b[0m \x1b[1m");
    ordinary(text, number);
}

fn scan(log: &[u8]) -> usize {
    let mut scanner = Scanner::new();
    log.chunks(PIECE).for_each(|piece| scanner.feed(piece));
    scanner.finish().findings.len()
}

fn read_logs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("failure");
    group.throughput(Throughput::Bytes(SIZE as u64)).sample_size(10);
    let logs = [("ordinary log", log(ordinary)), ("near misses", log(near_misses)), ("coloured log", log(coloured))];
    for (name, log) in logs {
        assert_eq!(scan(&log), 0, "{name}");
        group.bench_function(name, |bencher| bencher.iter(|| scan(&log)));
    }
    group.finish();
}

criterion_group!(benches, read_logs);
criterion_main!(benches);

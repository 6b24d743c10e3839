//! How fast logs are read: ordinary training, words that failures use too, colours, nothing but
//! tracebacks, nothing but errors.

use std::fmt::Write;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tonnage_doctor::Scanner;

const SIZE: usize = 64 << 20;
/// A kind of log: its name, its lines by number, whether a failure is found in it.
type Kind = (&'static str, fn(&mut String, usize), bool);
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

/// Exceptions that a program catches, one after another, in the colours of Python 3.13.
fn tracebacks(text: &mut String, number: usize) {
    let rank = number % 8;
    let _ = match number % 6 {
        0 => writeln!(text, "\x1b[31mERROR\x1b[0m \x1b[1mstep {number}\x1b[22m: the batch is skipped"),
        1 => writeln!(text, "[rank{rank}]: Traceback (most recent call last):"),
        2 => writeln!(
            text,
            "[rank{rank}]:   File \x1b[35m\"/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py\"\x1b[0m, line \x1b[35m1739\x1b[0m, in _wrapped_call_impl"
        ),
        3 => writeln!(text, "[rank{rank}]:     return self._call_impl(*args, **kwargs)"),
        4 => writeln!(text, "[rank{rank}]:            \x1b[1;31m^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\x1b[0m"),
        _ => writeln!(
            text,
            "[rank{rank}]: \x1b[1;35mValueError\x1b[0m: \x1b[35mexpected sequence of length 512 at dim 1 (got 498)\x1b[0m"
        ),
    };
}

/// Nothing but messages of PyTorch's allocator.
fn memory_errors(text: &mut String, number: usize) {
    let _ = writeln!(
        text,
        "[rank{}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.33 GiB of which 11.94 MiB is free. Process {number} has 79.31 GiB memory in use. Of the allocated memory 77.90 GiB is allocated by PyTorch, and 921.00 MiB is reserved by PyTorch but unallocated.",
        number % 8
    );
}

fn scan(log: &[u8]) -> usize {
    let mut scanner = Scanner::new();
    log.chunks(PIECE).for_each(|piece| scanner.feed(piece));
    scanner.finish().findings.len()
}

fn read_logs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("failure");
    group.throughput(Throughput::Bytes(SIZE as u64)).sample_size(10);
    let kinds: [Kind; 5] = [
        ("ordinary log", ordinary, false),
        ("near misses", near_misses, false),
        ("coloured log", coloured, false),
        ("tracebacks", tracebacks, true),
        ("out-of-memory errors", memory_errors, true),
    ];
    for (name, line, has_findings) in kinds {
        group.bench_function(name, |bencher| {
            let log = log(line);
            assert_eq!(scan(&log) > 0, has_findings, "{name}");
            bencher.iter(|| scan(&log));
        });
    }
    group.finish();
}

criterion_group!(benches, read_logs);
criterion_main!(benches);

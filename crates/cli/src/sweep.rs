//! Many estimates on all cores, in order, with a progress bar for those who wait at a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tonnage_core::small_sort::SmallSort;

use crate::terminal::Terminal;

/// Nobody needs a bar for what takes less.
const SILENT_FOR: Duration = Duration::from_millis(500);
/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);
/// Columns of the bar.
const BAR: usize = 30;

/// How many of them run at once.
pub fn thread_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// `answer` of each item, in the order of the items.
pub fn sweep_items<T: Sync, R: Send>(items: &[T], terminal: &Terminal, answer: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = thread_count().min(items.len().max(1));
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let worker = || {
        let mut answers = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return answers };
            answers.push((at, answer(item)));
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    let mut answers: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let finished = || workers.iter().all(std::thread::ScopedJoinHandle::is_finished);
        show_progress(items.len(), &done, finished, terminal);
        let answers = workers.into_iter().map(|worker| worker.join());
        answers.flat_map(|answers| answers.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    answers.small_sort_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Draws on stderr until all is done, if stderr is a terminal.
fn show_progress(total: usize, done: &AtomicUsize, finished: impl Fn() -> bool, terminal: &Terminal) {
    if terminal.is_kept() || !io::stderr().is_terminal() {
        return;
    }
    let started = Instant::now();
    let mut drawn = false;
    while !finished() {
        std::thread::sleep(TICK.min(SILENT_FOR.saturating_sub(started.elapsed()).max(Duration::from_millis(5))));
        if started.elapsed() > SILENT_FOR {
            draw_progress(done.load(Ordering::Relaxed), total, started, terminal);
            drawn = true;
        }
    }
    if drawn {
        erase_progress();
    }
}

fn draw_progress(done: usize, total: usize, started: Instant, terminal: &Terminal) {
    let full = done * BAR / total.max(1);
    let (block, rest) = if terminal.look.unicode { ("█", "░") } else { ("#", ".") };
    let left = match done {
        0 => String::new(),
        _ => format!(", {:.0} s left", started.elapsed().as_secs_f64() / done as f64 * (total - done) as f64),
    };
    // Nothing can be done about a stderr that is closed.
    let _ = write!(io::stderr(), "\r\x1b[K{}{} {done} of {total}{left}", block.repeat(full), rest.repeat(BAR - full));
    let _ = io::stderr().flush();
}

fn erase_progress() {
    let _ = write!(io::stderr(), "\r\x1b[K");
    let _ = io::stderr().flush();
}

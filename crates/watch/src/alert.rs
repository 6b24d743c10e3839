//! [`Alerts`]: what somebody should be told, once: raised when a condition begins, gone when it has been absent for a while.

use crate::board::Board;
use crate::sample::DeviceSample;

/// A condition must be absent for so long before it can be raised again.
const CLEAR_SECONDS: f64 = 30.0;
/// Less than this left is nearly full.
const NEARLY_FULL: f64 = 0.97;
/// A device that will be full sooner than this is worth a word.
const SOON_SECONDS: f64 = 900.0;
/// Processes that come in the first seconds were there before.
const SETTLE_SECONDS: f64 = 5.0;
/// Xids, ECC: a moment that stays shown for this long.
const MOMENT_SECONDS: f64 = 300.0;
/// More than the prediction by this much is above it, not beside it.
const ABOVE: f64 = 1.02;
/// `nvmlClocksEventReasons`: hardware slowdown, software and hardware thermal slowdown.
const HOT: u64 = 0x8 | 0x20 | 0x40;

/// What kind of thing it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertKind {
    /// The GPU is gone.
    Lost,
    /// The driver reported an Xid.
    Xid,
    /// Memory errors that were not corrected.
    MemoryErrors,
    /// There is hardly any memory left.
    NearlyFull,
    /// Memory grows and will soon be full.
    FillsUp,
    /// Memory grows though the job has warmed up.
    Leak,
    /// A process holds more than was predicted.
    AbovePrediction,
    /// Another job came onto the GPU.
    Neighbour,
    /// Clocks are held down by heat.
    Hot,
}

/// Something to tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// What kind of thing.
    pub kind: AlertKind,
    /// The device's UUID.
    pub device: String,
    /// The process, where it is about one.
    pub pid: Option<u32>,
    /// What happens.
    pub text: String,
    /// What to do.
    pub advice: String,
    /// Since when.
    pub since: f64,
    /// When it was last so.
    pub seen: f64,
}

/// All that holds now.
#[derive(Clone, Debug, Default)]
pub struct Alerts {
    active: Vec<Alert>,
}

impl AlertKind {
    /// Its word in JSON and labels.
    pub fn word(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Xid => "xid",
            Self::MemoryErrors => "memory_errors",
            Self::NearlyFull => "nearly_full",
            Self::FillsUp => "fills_up",
            Self::Leak => "leak",
            Self::AbovePrediction => "above_prediction",
            Self::Neighbour => "neighbour",
            Self::Hot => "hot",
        }
    }

    /// Whether it means an out-of-memory error ahead.
    pub fn is_oom_risk(self) -> bool {
        matches!(self, Self::NearlyFull | Self::FillsUp | Self::AbovePrediction)
    }

    fn lasts(self) -> f64 {
        if matches!(self, Self::Xid | Self::MemoryErrors) { MOMENT_SECONDS } else { CLEAR_SECONDS }
    }
}

impl Alerts {
    /// What holds, the gravest first.
    pub fn active(&self) -> &[Alert] {
        &self.active
    }

    /// Takes over what was found at `now`; returns what is new.
    pub fn update(&mut self, now: f64, found: Vec<Alert>) -> Vec<Alert> {
        let mut raised = Vec::new();
        for alert in found {
            match self.active.iter_mut().find(|known| known.is_same(&alert)) {
                Some(known) => *known = Alert { since: known.since, ..alert },
                None => {
                    raised.push(alert.clone());
                    self.active.push(alert);
                }
            }
        }
        self.active.retain(|alert| now - alert.seen <= alert.kind.lasts());
        self.active.sort_by_key(|alert| alert.kind);
        raised
    }
}

impl Alert {
    fn is_same(&self, other: &Self) -> bool {
        (self.kind, &self.device, self.pid) == (other.kind, &other.device, other.pid)
    }
}

/// What the newest sample of a board shows.
pub fn conditions(board: &Board) -> Vec<Alert> {
    let mut found = Vec::new();
    for device in board.sample.all_devices() {
        of_health(board, device, &mut found);
        of_memory(board, device, &mut found);
        of_processes(board, device, &mut found);
    }
    found
}

fn alert(board: &Board, device: &DeviceSample, kind: AlertKind, text: String, advice: impl Into<String>) -> Alert {
    let (time, advice) = (board.sample.time, advice.into());
    let text = format!("{}: {text}", board.label(device));
    Alert { kind, device: device.id(), pid: None, text, advice, since: time, seen: time }
}

fn of_health(board: &Board, device: &DeviceSample, found: &mut Vec<Alert>) {
    if let Some(why) = device.memory.err().filter(|why| why.is_loss()) {
        let advice = "save the kernel log; reset or replace the GPU";
        found.push(alert(board, device, AlertKind::Lost, why.reason().to_owned(), advice));
    }
    for xid in &device.xids {
        found.push(alert(board, device, AlertKind::Xid, format!("Xid {xid}"), xid_advice(*xid)));
    }
    if device.ecc_uncorrected.is_ok_and(|count| count > 0) || device.remap_pending == Ok(true) {
        let count = device.ecc_uncorrected.map_or_else(|_| "some".to_owned(), |count| count.to_string());
        let text = format!("{count} uncorrected memory errors");
        found.push(alert(
            board,
            device,
            AlertKind::MemoryErrors,
            text,
            "end the job at a checkpoint and reset the GPU",
        ));
    }
    if device.throttle.is_ok_and(|reasons| reasons & HOT != 0) {
        let text = "clocks are held down by heat or power supply".to_owned();
        found.push(alert(board, device, AlertKind::Hot, text, "look at cooling and power"));
    }
}

/// NVIDIA's Xid catalog, the classes that trainers meet.
fn xid_advice(xid: u64) -> &'static str {
    match xid {
        13 | 31 | 43 | 45 => "a kernel of the program failed: run with CUDA_LAUNCH_BLOCKING=1",
        48 | 63 | 64 | 92 | 94 | 95 => "a memory error of the GPU: reset it; replace it when it comes again",
        74 => "NVLink failed: look at the links and the fabric manager",
        79 => "the GPU fell off the bus: power, heat or seating; restart the machine",
        119 | 120 => "the GPU's own processor hangs: reset the GPU, update the driver",
        _ => "see NVIDIA's list of Xids",
    }
}

fn of_memory(board: &Board, device: &DeviceSample, found: &mut Vec<Alert>) {
    let Ok(memory) = device.memory else { return };
    if !device.instances.is_empty() {
        return;
    }
    let advice = || board.advice_on_memory(device);
    if (memory.total - memory.free) as f64 >= memory.total as f64 * NEARLY_FULL {
        let text = format!("only {} of memory left", mib(memory.free));
        found.push(alert(board, device, AlertKind::NearlyFull, text, advice()));
    }
    let Some(trend) = board.trend_of_device(device) else { return };
    let seconds = trend.seconds_to_fill(memory.free);
    let rate = mib((trend.bytes_per_second * 60.0) as u64);
    if seconds < SOON_SECONDS {
        let text = format!("grows by {rate} a minute and is full in {}", minutes(seconds));
        found.push(alert(board, device, AlertKind::FillsUp, text, advice()));
    }
}

fn of_processes(board: &Board, device: &DeviceSample, found: &mut Vec<Alert>) {
    for process in device.running() {
        let about = |alert: Alert| Alert { pid: Some(process.pid), ..alert };
        let Ok(bytes) = process.memory else { continue };
        let predicted = board.prediction.as_ref().filter(|_| board.is_of_job(process));
        if let Some(prediction) = predicted.filter(|prediction| bytes as f64 > prediction.range.1 as f64 * ABOVE) {
            let text =
                format!("process {} holds {}, {} were predicted", process.pid, mib(bytes), mib(prediction.peak_bytes));
            found.push(about(alert(board, device, AlertKind::AbovePrediction, text, board.key_to_change())));
        }
        let below = predicted.is_some_and(|prediction| bytes <= prediction.range.1);
        if let Some(trend) = board.trend_of_process(device, process.pid).filter(|_| !below) {
            let rate = mib((trend.bytes_per_second * 60.0) as u64);
            let text = format!("process {} grows by {rate} a minute since it warmed up", process.pid);
            found.push(about(alert(board, device, AlertKind::Leak, text, LEAK_ADVICE)));
        }
        if board.arrived(device, process.pid) > board.began + SETTLE_SECONDS
            && device.running().iter().any(|other| other.pid != process.pid && other.host.job != process.host.job)
            && process.host.job.is_some()
        {
            let job = process.host.job.as_deref().unwrap_or("another job");
            let text = format!("process {} of {job} came and holds {}", process.pid, mib(bytes));
            found.push(about(alert(board, device, AlertKind::Neighbour, text, "wait, move, or agree on a share")));
        }
    }
}

/// Where tensors that outlive their step come from.
const LEAK_ADVICE: &str = "keep no tensor with its graph between steps (append `loss.item()`, not `loss`); varying lengths need one `max_length`";

pub(crate) fn mib(bytes: u64) -> String {
    if bytes >= 10 << 30 {
        format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
    } else {
        format!("{} MiB", bytes >> 20)
    }
}

pub(crate) fn minutes(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 90.0 => format!("{seconds:.0} s"),
        seconds if seconds < 5400.0 => format!("{:.0} min", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.0} h", seconds / 3600.0),
        seconds => format!("{:.0} d", seconds / 86_400.0),
    }
}

//! [`Alerts`]: what somebody should be told, once: raised when a condition begins, gone when it has been absent for a while.

/// A condition must be absent for so long before it can be raised again.
const CLEAR_SECONDS: f64 = 30.0;
/// Xids, ECC: a moment that stays shown for this long.
const MOMENT_SECONDS: f64 = 300.0;

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
    pub text: String,
    /// What to do.
    pub advice: String,
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

//! A published figure, what kind of figure it is, and what is estimated for its job.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tonnage_core::job::keys;

use anyhow::{Context, Result, anyhow, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tonnage_core::estimate::{Estimate, estimate};
use tonnage_core::job::{ConfigSource, JobSource, Lookup, Override};

/// Where figures were published.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    pub address: String,
    #[serde(default)]
    pub commit: Option<String>,
    #[serde(default)]
    pub file: Option<String>,
    #[serde(default)]
    pub measured_by: Option<String>,
}

/// Which of our figures a published one is.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    AfterLoad,
    PeakAllocated,
    PeakReserved,
    AfterTraining,
    DeviceTotal,
}

/// A published figure and its job: a model, and what is set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    pub id: String,
    /// Its place in the list of sources.
    pub source: usize,
    pub gpu: String,
    /// Libraries and their versions, as the source says them.
    pub versions: BTreeMap<String, String>,
    pub instrument: String,
    /// The number as published, in `unit`.
    pub published: f64,
    pub unit: String,
    /// What the number's rounding leaves open, in bytes.
    pub bytes_low: u64,
    pub bytes_high: u64,
    /// A hub name, or a config beside the figures.
    pub model: String,
    /// `key=value` of a job file.
    pub set: Vec<String>,
    pub compared: Quantity,
    pub class: String,
    /// What the instrument does not see.
    #[serde(default)]
    pub unseen: Option<Unseen>,
}

/// What was on the GPU and is not in a published figure, by how the instrument works.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unseen {
    /// Adapters' weights, in fp32: fms-acceleration moves those that FSDP ignores to the GPU between the Trainer's making and its training
    /// (`lora_adapters_switch_ddp_from_fsdp`), and the tracker's figures are sums of what these two allocate.
    AdapterWeights,
}

/// What figures have in common, and how near they must be; `None` lists them only.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    pub name: String,
    pub what: String,
    #[serde(default)]
    pub tolerance_percent: Option<f64>,
    /// Why they are not nearer.
    #[serde(default)]
    pub why: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    sources: Vec<Source>,
    figures: Vec<Figure>,
}

/// All of `testdata/published`.
pub struct Library {
    folder: PathBuf,
    pub sources: Vec<Source>,
    pub figures: Vec<Figure>,
    pub classes: Vec<Class>,
}

/// A published figure beside the estimated one.
pub struct Compared<'a> {
    pub figure: &'a Figure,
    pub class: &'a Class,
    pub estimated: u64,
}

impl Library {
    pub fn read(folder: &Path) -> Result<Self> {
        let File { sources, figures } = json(&folder.join("figures.json"))?;
        let classes: Vec<Class> = json(&folder.join("classes.json"))?;
        for figure in &figures {
            ensure!(figure.source < sources.len(), "{}: no such source", figure.id);
            ensure!(figure.bytes_low <= figure.bytes_high, "{}: the interval is empty", figure.id);
        }
        Ok(Self { folder: folder.to_owned(), sources, figures, classes })
    }

    /// Every figure with its estimate; a job that several figures share is estimated once.
    pub fn compare(&self) -> Result<Vec<Compared<'_>>> {
        let mut estimates: BTreeMap<(&str, &[String]), Estimate> = BTreeMap::new();
        let mut compared = Vec::new();
        for figure in &self.figures {
            let class = self.classes.iter().find(|class| class.name == figure.class);
            let class = class.with_context(|| format!("{}: no class `{}`", figure.id, figure.class))?;
            let job = (figure.model.as_str(), figure.set.as_slice());
            let estimate = match estimates.entry(job) {
                std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::btree_map::Entry::Vacant(new) => {
                    new.insert(self.estimate(figure).with_context(|| figure.id.clone())?)
                }
            };
            let unseen = figure.unseen.map_or(0, |unseen| unseen.bytes(estimate));
            let estimated = figure.compared.of(estimate).saturating_sub(unseen);
            compared.push(Compared { figure, class, estimated });
        }
        Ok(compared)
    }

    fn estimate(&self, figure: &Figure) -> Result<Estimate> {
        let model = Override::flag(keys::MODEL, &figure.model);
        let set = figure.set.iter().map(|text| Override::assignment(text).map_err(|error| anyhow!("{error}")));
        let overrides = [Ok(model)].into_iter().chain(set).collect::<Result<Vec<_>>>()?;
        let mut source = JobSource::new().with(&overrides);
        for lookup in source.lookups(&[]) {
            let Lookup::Model(name) = lookup else { continue };
            let path = self.folder.join(&name);
            if path.is_file() {
                let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                source = source.config(name, ConfigSource::from(text));
            }
        }
        let resolved = source.resolve(&[]);
        Ok(estimate(&resolved.map_err(|error| anyhow!("{error}"))?.job)?)
    }
}

impl Quantity {
    fn of(self, estimate: &Estimate) -> u64 {
        match self {
            Self::AfterLoad => estimate.after_load_bytes,
            Self::PeakAllocated => estimate.peak_allocated_bytes,
            Self::PeakReserved => estimate.peak_reserved_bytes,
            Self::AfterTraining => estimate.steady_state_bytes,
            Self::DeviceTotal => estimate.total_bytes,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::AfterLoad => "allocated after loading",
            Self::PeakAllocated => "peak allocated",
            Self::PeakReserved => "peak reserved",
            Self::AfterTraining => "allocated after training",
            Self::DeviceTotal => "all of the GPU",
        }
    }
}

impl Unseen {
    const fn bytes(self, estimate: &Estimate) -> u64 {
        match self {
            Self::AdapterWeights => estimate.trainable_count.saturating_mul(4),
        }
    }
}

impl Compared<'_> {
    /// The signed distance to the middle of the published interval, in percent.
    pub fn error_percent(&self) -> f64 {
        let middle = f64::midpoint(self.figure.bytes_low as f64, self.figure.bytes_high as f64);
        (self.estimated as f64 - middle) / middle * 100.0
    }

    /// The distance to the published interval, in percent of its middle; 0 inside it.
    fn distance_percent(&self) -> f64 {
        let (low, high) = (self.figure.bytes_low, self.figure.bytes_high);
        let distance = low.saturating_sub(self.estimated).max(self.estimated.saturating_sub(high));
        distance as f64 / f64::midpoint(low as f64, high as f64) * 100.0
    }

    pub fn is_inside(&self) -> bool {
        self.class.tolerance_percent.is_none_or(|tolerance| self.distance_percent() <= tolerance)
    }

    /// Whether it is of the kinds that issue 18 has its bar for: quantized bases, FSDP1, experts.
    pub fn is_of_reach(&self) -> bool {
        self.figure.set.iter().any(|set| set.starts_with("quantization=") || set == "parallel=fsdp1")
            && !matches!(self.figure.compared, Quantity::DeviceTotal)
    }

    /// Whether the estimate is what was published, as exactly as that was printed.
    pub fn is_equal(&self) -> bool {
        self.distance_percent() <= 0.0
    }

    pub fn complaint(&self) -> String {
        let tolerance = self.class.tolerance_percent.unwrap_or_default();
        format!("{}: {:+.4} %, {tolerance} % are allowed", self.figure.id, self.error_percent())
    }
}

fn json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

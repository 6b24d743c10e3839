//! Judges the verdicts by capacity: what every reference case truly needs, against what is said of GPUs around that size.
//!
//! A case's measured peak of reserved bytes goes through without a retry, and less than its measured peak of allocated
//! bytes never does. Between them lies the smallest capacity that goes through: the recorded events say which, where
//! there are any; of other cases the simulated events, if their peaks are the measured ones; else the upper bound.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;
use serde_json::Value;
use tonnage_core::alloc::{CachingAllocator, Request, replay};
use tonnage_core::estimate::{SimulatedJob, Verdict};
use tonnage_core::gpu::Gpu;
use tonnage_core::job::{self, JobSpec};
use tonnage_core::recording::read_timeline;
use tonnage_core::units::MIB;

use crate::reference::{self, Figures};
use crate::verdict_tally::{Tally, Width};

/// Arguments of `verdicts`.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of `*cases.json` and `*truth.json`.
    #[arg(long, default_value = "testdata/truth")]
    truth: PathBuf,
    /// A folder of recorded events, `ID.jsonl` or `ID.jsonl.gz`; may be given more than once.
    #[arg(long, default_value = "testdata/timelines")]
    timelines: Vec<PathBuf>,
    /// The committed table; fails when it is not what would be written now, or a bar is missed.
    #[arg(long)]
    ratchet: Option<PathBuf>,
    /// Write the table to the ratchet file instead of checking it.
    #[arg(long, requires = "ratchet")]
    bless: bool,
}

/// Segments come in multiples of this.
const GRAIN: u64 = 2 * MIB;
/// The contexts that were measured, in bytes per multiprocessor: an L4's and an A100's (estimate/outside.rs).
const CONTEXTS: [u64; 2] = [226 * MIB / 58, 501 * MIB / 108];
/// Capacities around what a case needs, in percent: every one in between is tried.
const AROUND: std::ops::RangeInclusive<u64> = 80..=125;
/// Further capacities of each case, at random within the same bounds.
const RANDOM: u64 = 14;

/// Judges all sets.
pub fn run(args: &Args) -> Result<()> {
    let mut tally = Tally::default();
    for cases in case_files(&args.truth)? {
        let name = cases.file_name().unwrap_or_default().to_string_lossy().replace("cases.json", "");
        let truth = reference::read_truth(&args.truth.join(format!("{name}truth.json")))?;
        for case in &reference::read_cases(&cases)? {
            let id = reference::case_id(case);
            verdict_of_case(case, &truth[id], &args.timelines, &mut tally).with_context(|| id.to_owned())?;
        }
    }
    let table = tally.table();
    print!("{table}");
    match &args.ratchet {
        Some(path) if args.bless => fs::write(path, table).with_context(|| path.display().to_string())?,
        Some(path) => {
            let committed = fs::read_to_string(path).with_context(|| path.display().to_string())?;
            if committed != table {
                bail!("{} says otherwise: look at the difference, then --bless", path.display());
            }
        }
        None => {}
    }
    tally.check()
}

/// The case files of a folder, in order of their names.
fn case_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let files = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<PathBuf> = files.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    files.retain(|path| path.to_string_lossy().ends_with("cases.json"));
    files.sort();
    Ok(files)
}

fn verdict_of_case(case: &Value, truth: &Value, timelines: &[PathBuf], tally: &mut Tally) -> Result<()> {
    let measured: Figures = serde::Deserialize::deserialize(truth)?;
    let job = job::from_case(case)?;
    let simulated = SimulatedJob::new(&job)?;
    let recorded = recorded_requests(reference::case_id(case), timelines)?;
    let need = match &recorded {
        Some(requests) => {
            smallest_capacity(&job, requests, measured.peak_allocated_bytes, measured.peak_reserved_bytes)
        }
        None if simulated.replay_peaks()? == (measured.peak_allocated_bytes, measured.peak_reserved_bytes) => {
            simulated.least_reserved()?
        }
        None => measured.peak_reserved_bytes,
    };
    let plenty = simulated.brief_on(&with_memory(&job, 1 << 45))?;
    if plenty.safe_bytes < measured.peak_reserved_bytes + plenty.outside.high {
        bail!("the safe bound is below the measured peak");
    }
    let width = Width {
        need,
        retries: plenty.peak_reserved_bytes - simulated.least_reserved()?,
        context: plenty.outside.high - plenty.outside.low,
        margin: plenty.safe_bytes - plenty.total_bytes,
    };
    tally.case(recorded.is_some(), width);
    let mut before = None;
    for (usable, context) in gpus_around(need, job.gpu.multiprocessors) {
        let verdict = simulated.brief_on(&with_memory(&job, usable))?.verdict;
        tally.verdict(&verdict, usable >= need + context, usable >= measured.peak_reserved_bytes + context);
        let rank = Some(verdict_rank(&verdict));
        if rank < before {
            bail!("with more memory it stops fitting, at {usable} bytes");
        }
        before = rank;
    }
    Ok(())
}

/// Sizes of GPUs around what a case needs, smallest first, each with the context that it turns out to have.
fn gpus_around(need: u64, multiprocessors: u64) -> Vec<(u64, u64)> {
    let mut random = Random(need);
    let mut thousandths: Vec<u64> = AROUND.map(|percent| percent * 1000).collect();
    thousandths.extend((0..RANDOM).map(|_| random.between(AROUND.start() * 1000, AROUND.end() * 1000)));
    let mut gpu = |share: u64| {
        let context = multiprocessors * random.between(CONTEXTS[0], CONTEXTS[1]);
        ((u128::from(need + context) * u128::from(share) / 100_000) as u64, context)
    };
    let mut gpus: Vec<_> = thousandths.into_iter().map(&mut gpu).collect();
    gpus.sort_unstable();
    gpus
}

/// The better the higher.
const fn verdict_rank(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::DoesNotFit(_) => 0,
        Verdict::Tight { .. } => 1,
        Verdict::Fits => 2,
    }
}

fn with_memory(job: &JobSpec, usable_bytes: u64) -> Gpu {
    Gpu { usable_bytes, ..job.gpu.clone() }
}

/// The smallest capacity on which recorded events go through.
fn smallest_capacity(job: &JobSpec, requests: &[Request], allocated: u64, reserved: u64) -> u64 {
    let goes_through = |grains: u64| {
        let mut allocator = CachingAllocator::new(job.allocator.clone(), Some(grains * GRAIN));
        replay(&mut allocator, requests.iter().copied()).is_ok()
    };
    // Blocks may be smaller under pressure, so that a little less than the peak of allocated bytes can do.
    let (mut low, mut high) = (allocated / GRAIN * 9 / 10, reserved.div_ceil(GRAIN));
    while high - low > 1 {
        let middle = low.midpoint(high);
        if goes_through(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high * GRAIN
}

fn recorded_requests(id: &str, folders: &[PathBuf]) -> Result<Option<Vec<Request>>> {
    for path in folders.iter().flat_map(|folder| [".jsonl", ".jsonl.gz"].map(|end| folder.join(format!("{id}{end}")))) {
        if !path.exists() {
            continue;
        }
        let mut text = String::new();
        let mut file = File::open(&path).with_context(|| path.display().to_string())?;
        match path.extension().is_some_and(|end| end == "gz") {
            true => GzDecoder::new(file).read_to_string(&mut text)?,
            false => file.read_to_string(&mut text)?,
        };
        let recording = read_timeline(&text).with_context(|| path.display().to_string())?;
        return Ok(Some(recording.requests().collect()));
    }
    Ok(None)
}

/// Numbers that are the same in every run (xorshift).
struct Random(u64);

impl Random {
    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.max(1);
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        low + self.0 % (high - low + 1)
    }
}

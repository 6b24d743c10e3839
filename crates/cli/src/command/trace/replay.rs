//! `tonnage trace replay`: a recorded job under other allocator settings, or on a smaller GPU.

use clap::Args;
use serde_json::json;
use tonnage_core::alloc::{AllocatorConfig, CachingAllocator, ReplayOom, Replayed, replay};
use tonnage_core::gpu::Gpu;
use tonnage_core::recording::Recording;
use tonnage_report::text::{self, ReplayView};

use super::recorded;
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage trace replay snapshot.pickle
  tonnage trace replay snapshot.pickle --allocator expandable_segments:True
  tonnage trace replay step.jsonl.gz --capacity 16GiB";

/// Replays a recorded job through PyTorch's caching allocator
#[derive(Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::TRACE))]
pub struct ReplayArgs {
    /// A timeline (.jsonl) or a snapshot of torch.cuda.memory._dump_snapshot(), also compressed (.gz)
    recording: String,

    /// Allocator settings, as in PYTORCH_ALLOC_CONF ("" are PyTorch's defaults); without it, those of the recorded job
    #[arg(long, value_name = "TEXT")]
    allocator: Option<String>,

    /// What the allocator may reserve: a size (16GiB) or a GPU's name; without it, all it asks for
    #[arg(long, value_name = "SIZE")]
    capacity: Option<String>,

    /// Which device of a snapshot
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: usize,

    /// Prints JSON
    #[arg(long)]
    json: bool,
}

impl ReplayArgs {
    /// Replays it.
    ///
    /// # Errors
    /// When the recording or a setting cannot be read.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let recording = recorded::read_recording(&self.recording, self.device)?;
        let config = AllocatorConfig::parse(self.allocator.as_deref().unwrap_or(recording.settings()))
            .map_err(|error| Failure::bad_input(format!("`--allocator`: {error}")))?;
        let capacity = self.capacity.as_deref().map(parse_capacity).transpose()?;
        let mut allocator = CachingAllocator::new(config, capacity);
        let outcome = replay(&mut allocator, recording.requests());
        let (replayed, oom) = match &outcome {
            Ok(replayed) => (replayed, None),
            Err(oom) => (oom.replayed.as_ref(), Some(oom)),
        };
        let screen = || {
            let labels: Vec<_> = recording.phases().map(|phase| phase.label()).collect();
            let view = ReplayView { labels: &labels, replayed, oom, retries: allocator.stats().num_alloc_retries };
            text::replay_screen(&view, &terminal.look)
        };
        terminal.show(self.json, || Ok(format!("{:#}\n", json_document(&recording, replayed, oom))), screen)?;
        Ok(if oom.is_some() { Exit::No } else { Exit::Done })
    }
}

fn parse_capacity(text: &str) -> Result<u64, Failure> {
    let gpu = Gpu::parse(text);
    gpu.map(|gpu| gpu.usable_bytes)
        .map_err(|error| Failure::bad_input(format!("`--capacity`: {error}")).with_hint(error.hint()))
}

fn json_document(recording: &Recording, replayed: &Replayed, oom: Option<&ReplayOom>) -> serde_json::Value {
    let phases: Vec<_> = recording
        .phases()
        .zip(&replayed.phases)
        .map(|(phase, stats)| {
            json!({
                "phase": phase.label(),
                "peak_allocated_bytes": stats.peak_allocated,
                "peak_reserved_bytes": stats.peak_reserved,
            })
        })
        .collect();
    let total = &replayed.total;
    json!({
        "version": 1,
        "peak_allocated_bytes": total.peak_allocated,
        "peak_reserved_bytes": total.peak_reserved,
        "rounded512_peak_bytes": total.peak_rounded512,
        "num_alloc_retries": total.num_alloc_retries,
        "out_of_memory": oom.map(|oom| json!({"event": oom.event, "requested_bytes": oom.oom.requested,
            "allocated_bytes": oom.oom.allocated, "reserved_bytes": oom.oom.reserved})),
        "phases": phases,
    })
}

//! `tonnage gpus`: the catalog.

use clap::Args;
use serde_json::json;
use tonnage_core::gpu::{CatalogGpu, MigProfile, catalog, mig_profiles, price_rows};
use tonnage_report::text;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Lists the GPUs that are known, with the bytes a process can use
#[derive(Args)]
#[command(after_help = "Examples:\n  tonnage gpus\n  tonnage gpus --json\n  tonnage estimate gpt2 --gpu l4\n  \
    tonnage estimate gpt2 --gpu 24GiB,sm_86,multiprocessors=82")]
pub struct GpusArgs {
    /// Lists only GPUs whose id or name contains this
    filter: Option<String>,

    /// Prints JSON, sources included
    #[arg(long)]
    json: bool,
}

impl GpusArgs {
    /// Lists them.
    ///
    /// # Errors
    /// When none has such a name.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let wanted = self.filter.unwrap_or_default().to_lowercase();
        let called = |gpu: &&CatalogGpu| format!("{} {}", gpu.id, gpu.name).to_lowercase().contains(&wanted);
        let rows: Vec<_> = catalog().iter().filter(called).cloned().collect();
        if rows.is_empty() {
            return Err(Failure::bad_input(format!("no GPU of the catalog is called `{wanted}`"))
                .with_hint("give its memory as PyTorch reports it: `--gpu 24GiB`"));
        }
        let gpus = || rows.iter().map(row_json).collect::<Vec<_>>();
        let document = || Ok(format!("{:#}\n", json!({"version": 1, "gpus": gpus()})));
        terminal.show(self.json, document, || text::gpu_table(&rows, &terminal.look))?;
        Ok(Exit::Done)
    }
}

fn row_json(gpu: &CatalogGpu) -> serde_json::Value {
    let (major, minor) = gpu.compute_capability;
    json!({
        "id": gpu.id,
        "name": gpu.name,
        "usable_bytes": gpu.usable_bytes,
        "context_bytes": gpu.context_bytes,
        "sold_gb": gpu.sold_gb,
        "compute_capability": format!("{major}.{minor}"),
        "multiprocessors": gpu.multiprocessors,
        "bandwidth_gb_s": gpu.bandwidth_gb_s,
        "tflops": {
            "fp32": gpu.tflops.fp32,
            "tf32": gpu.tflops.tf32,
            "bf16": gpu.tflops.bf16,
            "fp16": gpu.tflops.fp16,
        },
        "interconnect": gpu.interconnect,
        "link_gb_s": gpu.link_gb_s,
        "watts": gpu.watts,
        "aliases": gpu.aliases,
        "nvml": gpu.nvml,
        "smi_mib": gpu.smi_mib,
        "mig": mig_profiles(gpu).iter().map(|slice| slice_json(gpu, slice)).collect::<Vec<_>>(),
        "prices": price_rows().iter().filter(|price| price.gpu == gpu.id).collect::<Vec<_>>(),
        "source": gpu.source,
    })
}

fn slice_json(gpu: &CatalogGpu, slice: &MigProfile) -> serde_json::Value {
    json!({
        "id": format!("{}:{}", gpu.id, slice.name),
        "usable_bytes": slice.usable_bytes(gpu),
        "multiprocessors": slice.multiprocessors,
    })
}

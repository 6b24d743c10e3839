//! The JSON that programs read; `docs/json.md` describes it. A field may be added within a version, never changed.

mod parts;

use serde::Serialize;
use tonnage_core::estimate::{Verdict, shown_bound};
use tonnage_core::gpu::CatalogGpu;
use tonnage_core::plan::fits_from::Carriers;
use tonnage_core::trace::Category;

use crate::answer::{Answer, Variant, verdict_name};
use crate::timeline_view::TimelineView;
use parts::{
    CarrierView, CaveatView, EngineView, GpuLoadView, GpuView, HostView, LegacyView, ModelView, OomView, Pairs,
    ProcessView, RangeView, RoomView, TensorView, ValueView, gpu_loads, phase_bytes, room_views,
};

/// The version of all JSON documents.
pub const VERSION: u32 = 1;

#[derive(Serialize)]
pub struct EstimateView<'a> {
    version: u32,
    #[serde(flatten)]
    body: Body<'a>,
}

/// Estimates of one job with one or more keys changed.
#[derive(Serialize)]
pub struct CompareView<'a> {
    version: u32,
    compare: Vec<VariantView<'a>>,
}

#[derive(Serialize)]
struct VariantView<'a> {
    changes: Pairs<'a, String>,
    /// `null` where there is no such job; `error` says why.
    estimate: Option<Body<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct Body<'a> {
    model: ModelView<'a>,
    /// `null` where none was named, as all that is about it.
    gpu: Option<GpuView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sizes_as_on: Option<GpuView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fits_from: Option<Vec<CarrierView<'a>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fits_from_untried: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fits_from_not_known: Vec<&'a str>,
    job: Vec<ValueView<'a>>,
    verdict: Option<&'static str>,
    num_alloc_retries: Option<u64>,
    out_of_memory: Option<OomView<'a>>,
    total_bytes: u64,
    range_bytes: RangeView,
    margin_bytes: u64,
    /// `null` where no size surely is enough.
    safe_bytes: Option<u64>,
    /// `null` where the verdict did not depend on it.
    least_bytes: Option<u64>,
    usable_bytes: Option<u64>,
    headroom_bytes: Option<i64>,
    peak_allocated_bytes: u64,
    peak_reserved_bytes: u64,
    rounded512_peak_bytes: u64,
    peak_phase: String,
    peak_per_phase: Pairs<'a, u64>,
    peak_reserved_per_phase: Pairs<'a, u64>,
    after_load_bytes: u64,
    steady_state_bytes: u64,
    context_bytes: RangeView,
    context_source: &'a str,
    /// Where something is offloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    host_bytes: Option<HostView<'a>>,
    /// `null` without an engine in the trainer's process.
    engine_bytes: Option<EngineView<'a>>,
    bytes_by_category_at_peak: Pairs<'a, u64>,
    unsplit_bytes_at_peak: u64,
    bytes_by_module_at_peak: Pairs<'a, u64>,
    bytes_by_model_at_peak: Pairs<'a, u64>,
    largest_live_at_peak: Vec<TensorView<'a>>,
    n_events: usize,
    caveats: Vec<CaveatView<'a>>,
    processes: Vec<ProcessView<'a>>,
    gpus: Vec<GpuLoadView>,
    room: Option<Vec<RoomView>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeline: Option<TimelineView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    legacy: Option<LegacyView>,
}

impl<'a> EstimateView<'a> {
    /// The document for `answer`, with the `top` largest tensors.
    pub fn new(answer: &'a Answer, top: usize) -> Self {
        Self { version: VERSION, body: Body::new(answer, top) }
    }
}

impl<'a> CompareView<'a> {
    /// The document for `variants`: what each changes, and its answer.
    pub fn new(variants: &'a [Variant], top: usize) -> Self {
        let variant = |variant: &'a Variant| VariantView {
            changes: Pairs(variant.changes.iter().map(|(key, value)| (key.into(), value.clone())).collect()),
            estimate: variant.answer.as_ref().ok().map(|answer| Body::new(answer, top)),
            error: variant.answer.as_ref().err().map(String::as_str),
        };
        Self { version: VERSION, compare: variants.iter().map(variant).collect() }
    }
}

fn carrier_views(carriers: &Carriers) -> Vec<CarrierView<'_>> {
    carriers.carrying.iter().map(CarrierView::new).collect()
}

/// The ids of GPUs of the catalog that are no carriers for one reason.
fn other_ids(answer: &Answer, which: impl Fn(&Carriers) -> &Vec<&'static CatalogGpu>) -> Vec<&str> {
    answer.carriers.iter().flat_map(which).map(|gpu| gpu.id.as_str()).collect()
}

impl<'a> Body<'a> {
    fn new(answer: &'a Answer, top: usize) -> Self {
        let (job, estimate) = (&answer.resolved.job, &answer.estimate);
        let at_peak = &estimate.at_peak;
        let categories = Category::ALL.into_iter().zip(at_peak.by_category).filter(|(_, bytes)| *bytes > 0);
        let is_named = answer.carriers.is_none();
        let (num_alloc_retries, out_of_memory) = match &estimate.verdict {
            Verdict::DoesNotFit(moment) if is_named => (0, moment.as_deref().map(OomView::new)),
            Verdict::Tight { retries } if is_named => (retries.unwrap_or(0), None),
            _ => (0, None),
        };
        Self {
            model: ModelView::new(job, estimate),
            gpu: is_named.then(|| GpuView::new(&job.gpu)),
            sizes_as_on: (!is_named).then(|| GpuView::new(&job.gpu)),
            fits_from: answer.carriers.as_ref().map(carrier_views),
            fits_from_untried: other_ids(answer, |carriers| &carriers.untried),
            fits_from_not_known: other_ids(answer, |carriers| &carriers.unknown),
            job: answer.resolved.provenance.iter().map(ValueView::new).collect(),
            verdict: is_named.then(|| verdict_name(estimate)),
            num_alloc_retries: is_named.then_some(num_alloc_retries),
            out_of_memory,
            total_bytes: estimate.total_bytes,
            range_bytes: RangeView { low: estimate.range.0, high: estimate.range.1 },
            margin_bytes: estimate.margin_bytes,
            safe_bytes: shown_bound(estimate.safe_bytes),
            least_bytes: estimate.least_bytes,
            usable_bytes: is_named.then_some(estimate.usable_bytes),
            headroom_bytes: is_named.then(|| estimate.headroom_bytes()),
            peak_allocated_bytes: estimate.peak_allocated_bytes,
            peak_reserved_bytes: estimate.peak_reserved_bytes,
            rounded512_peak_bytes: estimate.rounded512_peak_bytes,
            peak_phase: estimate.peak_phase.label(),
            peak_per_phase: phase_bytes(estimate, |peak| peak.allocated),
            peak_reserved_per_phase: phase_bytes(estimate, |peak| peak.reserved),
            after_load_bytes: estimate.after_load_bytes,
            steady_state_bytes: estimate.steady_state_bytes,
            context_bytes: RangeView { low: estimate.outside.low, high: estimate.outside.high },
            context_source: estimate.outside.source,
            host_bytes: HostView::of_estimate(estimate, job.parallel.world_size),
            engine_bytes: estimate.engine.as_ref().map(EngineView::new),
            bytes_by_category_at_peak: Pairs(
                categories.map(|(category, bytes)| (category.name().into(), bytes)).collect(),
            ),
            unsplit_bytes_at_peak: at_peak.unsplit_bytes,
            bytes_by_module_at_peak: Pairs(
                at_peak.by_module.iter().map(|(module, bytes)| (module.into(), *bytes)).collect(),
            ),
            bytes_by_model_at_peak: Pairs(
                at_peak.by_model.iter().map(|(model, bytes)| ((*model).into(), *bytes)).collect(),
            ),
            largest_live_at_peak: at_peak.largest.iter().take(top).map(TensorView::new).collect(),
            n_events: estimate.events,
            caveats: estimate.caveats.iter().map(CaveatView::new).collect(),
            processes: answer.deployment.processes.iter().map(|process| ProcessView::new(process, is_named)).collect(),
            gpus: gpu_loads(&answer.deployment, is_named),
            room: is_named.then(|| room_views(&answer.deployment)),
            timeline: answer.timeline.as_ref().map(TimelineView::new),
            legacy: answer.legacy.as_ref().map(LegacyView::new),
        }
    }
}

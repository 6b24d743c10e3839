//! The JSON that programs read; `docs/json.md` describes it. A field may be added within a version, never changed.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use tonnage_core::estimate::{
    Caveat, Deployment, Engine, Estimate, GpuLoad, LiveTensor, OomMoment, PhasePeak, Process, Room, Verdict,
    shown_bound,
};
use tonnage_core::job::Provenance;
use tonnage_core::job::guides::LegacyEstimate;
use tonnage_core::plan::fits_from::Carrier;
use tonnage_core::trace::Category;

use crate::answer::{Answer, Variant, fit_name, verdict_name};
use crate::timeline_view::TimelineView;

/// The version of all JSON documents.
pub const VERSION: u32 = 1;

/// An estimate.
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

#[derive(Serialize)]
struct ModelView<'a> {
    name: &'a str,
    model_type: &'a str,
    param_count: u64,
    trainable_params: u64,
}

#[derive(Serialize)]
struct GpuView<'a> {
    id: &'a str,
    name: &'a str,
    usable_bytes: u64,
    compute_capability: String,
    multiprocessors: u64,
}

/// A GPU of the catalog that carries the job.
#[derive(Serialize)]
struct CarrierView<'a> {
    gpu: &'a str,
    name: &'a str,
    sold_gb: u64,
    verdict: &'static str,
    total_bytes: u64,
    safe_bytes: Option<u64>,
    usable_bytes: u64,
}

#[derive(Serialize)]
struct ValueView<'a> {
    key: &'a str,
    value: serde_json::Value,
    origin: String,
}

#[derive(Serialize)]
struct RangeView {
    low: u64,
    high: u64,
}

#[derive(Serialize)]
struct EngineView<'a> {
    awake: u64,
    asleep: u64,
    source: &'a str,
}

#[derive(Serialize)]
struct OomView<'a> {
    event: usize,
    phase: Option<String>,
    op: &'a str,
    module: &'a str,
    node: Option<&'a str>,
    requested_bytes: u64,
    allocated_bytes: u64,
    reserved_bytes: u64,
}

#[derive(Serialize)]
struct TensorView<'a> {
    bytes: u64,
    category: &'static str,
    op: &'a str,
    module: &'a str,
    node: Option<&'a str>,
    phase: String,
}

#[derive(Serialize)]
struct ProcessView<'a> {
    name: &'a str,
    count: u64,
    total_bytes: u64,
    peak_allocated_bytes: u64,
    peak_reserved_bytes: u64,
    context_bytes: u64,
    peak_phase: String,
    peak_per_phase: Pairs<'a, u64>,
    verdict: Option<&'static str>,
}

#[derive(Serialize)]
struct GpuLoadView {
    first: u64,
    count: u64,
    processes: Vec<ProcessCountView>,
    total_bytes: u64,
    safe_bytes: Option<u64>,
    usable_bytes: Option<u64>,
    verdict: Option<&'static str>,
}

#[derive(Serialize)]
struct ProcessCountView {
    process: usize,
    count: u64,
}

#[derive(Serialize)]
struct RoomView {
    lease: Option<u64>,
    processes_per_gpu: u64,
    total_bytes: u64,
    training_bytes: u64,
    resting_bytes: u64,
    safe_training_bytes: u64,
    safe_resting_bytes: u64,
}

#[derive(Serialize)]
struct LegacyView {
    param_count: u64,
    total_bytes: u64,
    weights_bytes: u64,
    activations_bytes: u64,
    optimizer_state_bytes: u64,
    gradients_bytes: u64,
    io_tensors_bytes: u64,
}

#[derive(Serialize)]
struct CaveatView<'a> {
    code: &'a str,
    text: &'a str,
    widens_bytes: u64,
}

/// A JSON object whose keys keep their order.
struct Pairs<'a, T>(Vec<(std::borrow::Cow<'a, str>, T)>);

impl<T: Serialize> Serialize for Pairs<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
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

impl<'a> Body<'a> {
    fn new(answer: &'a Answer, top: usize) -> Self {
        let (job, estimate) = (&answer.resolved.job, &answer.estimate);
        let at_peak = &estimate.at_peak;
        let categories = Category::ALL.into_iter().zip(at_peak.by_category).filter(|(_, bytes)| *bytes > 0);
        let is_named = answer.carriers.is_none();
        let (num_alloc_retries, out_of_memory) = match &estimate.verdict {
            _ if !is_named => (0, None),
            Verdict::Fits => (0, None),
            Verdict::Tight { retries } => (retries.unwrap_or(0), None),
            Verdict::DoesNotFit(moment) => (0, moment.as_deref().map(OomView::new)),
        };
        Self {
            model: ModelView {
                name: &job.model.name,
                model_type: &job.model.model_type,
                param_count: estimate.parameter_count,
                trainable_params: estimate.trainable_count,
            },
            gpu: is_named.then(|| GpuView::new(&job.gpu)),
            sizes_as_on: (!is_named).then(|| GpuView::new(&job.gpu)),
            fits_from: answer.carriers.as_ref().map(|carriers| carriers.iter().map(CarrierView::new).collect()),
            job: answer.resolved.provenance.iter().map(ValueView::new).collect(),
            verdict: is_named.then(|| verdict_name(&estimate.verdict)),
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
            peak_per_phase: phases(estimate, |peak| peak.allocated),
            peak_reserved_per_phase: phases(estimate, |peak| peak.reserved),
            after_load_bytes: estimate.after_load_bytes,
            steady_state_bytes: estimate.steady_state_bytes,
            context_bytes: RangeView { low: estimate.outside.low, high: estimate.outside.high },
            context_source: estimate.outside.source,
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
            room: is_named.then(|| rooms(&answer.deployment)),
            timeline: answer.timeline.as_ref().map(TimelineView::new),
            legacy: answer.legacy.as_ref().map(LegacyView::new),
        }
    }
}

/// A figure of every phase, by its label.
fn phases<'a>(estimate: &Estimate, bytes: fn(&PhasePeak) -> u64) -> Pairs<'a, u64> {
    Pairs(estimate.peak_per_phase.iter().map(|peak| (peak.phase.label().into(), bytes(peak))).collect())
}

impl<'a> ProcessView<'a> {
    fn new(process: &'a Process, is_named: bool) -> Self {
        let estimate = &process.estimate;
        Self {
            name: process.name,
            count: process.count,
            total_bytes: estimate.total_bytes,
            peak_allocated_bytes: estimate.peak_allocated_bytes,
            peak_reserved_bytes: estimate.peak_reserved_bytes,
            context_bytes: estimate.outside.high,
            peak_phase: estimate.peak_phase.label(),
            peak_per_phase: phases(estimate, |peak| peak.allocated),
            verdict: is_named.then(|| verdict_name(&estimate.verdict)),
        }
    }
}

fn gpu_loads(deployment: &Deployment, is_named: bool) -> Vec<GpuLoadView> {
    let load = |gpu: &GpuLoad| GpuLoadView {
        first: gpu.first,
        count: gpu.count,
        processes: gpu.processes.iter().map(|&(process, count)| ProcessCountView { process, count }).collect(),
        total_bytes: gpu.total_bytes,
        safe_bytes: shown_bound(gpu.safe_bytes),
        usable_bytes: is_named.then_some(gpu.usable_bytes),
        verdict: is_named.then(|| fit_name(gpu.fit)),
    };
    deployment.gpus.iter().map(load).collect()
}

fn rooms(deployment: &Deployment) -> Vec<RoomView> {
    let room = |room: &Room| RoomView {
        lease: room.lease,
        processes_per_gpu: room.processes,
        total_bytes: room.total_bytes,
        training_bytes: room.each.training,
        resting_bytes: room.each.resting,
        safe_training_bytes: room.each.safe_training,
        safe_resting_bytes: room.each.safe_resting,
    };
    deployment.room.iter().map(room).collect()
}

impl<'a> GpuView<'a> {
    fn new(gpu: &'a tonnage_core::gpu::Gpu) -> Self {
        let (major, minor) = gpu.compute_capability;
        Self {
            id: &gpu.id,
            name: &gpu.name,
            usable_bytes: gpu.usable_bytes,
            compute_capability: format!("{major}.{minor}"),
            multiprocessors: gpu.multiprocessors,
        }
    }
}

impl<'a> CarrierView<'a> {
    fn new(carrier: &'a Carrier) -> Self {
        let verdict = &carrier.verdict;
        Self {
            gpu: &carrier.gpu.id,
            name: &carrier.gpu.name,
            sold_gb: carrier.gpu.sold_gb,
            verdict: fit_name(verdict.fit),
            total_bytes: verdict.total_bytes,
            safe_bytes: shown_bound(verdict.safe_bytes),
            usable_bytes: verdict.usable_bytes,
        }
    }
}

impl<'a> ValueView<'a> {
    fn new(value: &'a Provenance) -> Self {
        let json = serde_json::from_str(&value.value).unwrap_or_else(|_| value.value.as_str().into());
        Self { key: &value.key, value: json, origin: value.origin.to_string() }
    }
}

impl<'a> EngineView<'a> {
    fn new(engine: &'a Engine) -> Self {
        Self { awake: engine.awake_bytes, asleep: engine.asleep_bytes, source: engine.source }
    }
}

impl<'a> OomView<'a> {
    fn new(moment: &'a OomMoment) -> Self {
        Self {
            event: moment.event,
            phase: moment.phase.map(|phase| phase.label()),
            op: moment.op,
            module: &moment.module,
            node: moment.node,
            requested_bytes: moment.requested,
            allocated_bytes: moment.allocated,
            reserved_bytes: moment.reserved,
        }
    }
}

impl<'a> TensorView<'a> {
    fn new(tensor: &'a LiveTensor) -> Self {
        Self {
            bytes: tensor.bytes,
            category: tensor.category.name(),
            op: tensor.op,
            module: &tensor.module,
            node: tensor.node,
            phase: tensor.born.label(),
        }
    }
}

impl LegacyView {
    const fn new(legacy: &LegacyEstimate) -> Self {
        Self {
            param_count: legacy.parameters,
            total_bytes: legacy.total(),
            weights_bytes: legacy.weights,
            activations_bytes: legacy.activations,
            optimizer_state_bytes: legacy.optimizer_state,
            gradients_bytes: legacy.gradients,
            io_tensors_bytes: legacy.io_tensors,
        }
    }
}

impl<'a> CaveatView<'a> {
    fn new(caveat: &'a Caveat) -> Self {
        Self { code: caveat.code, text: &caveat.text, widens_bytes: caveat.widens_bytes }
    }
}

//! The objects that the JSON of an estimate is made of.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use tonnage_core::estimate::{
    Caveat, Deployment, Engine, Estimate, GpuLoad, LiveTensor, OomMoment, PhasePeak, Process, Room, shown_bound,
};
use tonnage_core::job::guides::LegacyEstimate;
use tonnage_core::job::{JobSpec, Provenance};
use tonnage_core::plan::fits_from::Carrier;
use tonnage_core::trace::Category;

use crate::answer::{fit_name, verdict_name};

#[derive(Serialize)]
pub(super) struct ModelView<'a> {
    pub(super) name: &'a str,
    pub(super) model_type: &'a str,
    pub(super) param_count: u64,
    pub(super) trainable_params: u64,
}

#[derive(Serialize)]
pub(super) struct GpuView<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) usable_bytes: u64,
    pub(super) compute_capability: String,
    pub(super) multiprocessors: u64,
}

/// A GPU of the catalog that carries the job.
#[derive(Serialize)]
pub(super) struct CarrierView<'a> {
    pub(super) gpu: &'a str,
    pub(super) name: &'a str,
    pub(super) sold_gb: u64,
    pub(super) verdict: &'static str,
    pub(super) total_bytes: u64,
    pub(super) safe_bytes: Option<u64>,
    pub(super) usable_bytes: u64,
}

#[derive(Serialize)]
pub(super) struct ValueView<'a> {
    pub(super) key: &'a str,
    pub(super) value: serde_json::Value,
    pub(super) origin: String,
}

#[derive(Serialize)]
pub(super) struct RangeView {
    pub(super) low: u64,
    pub(super) high: u64,
}

#[derive(Serialize)]
pub(super) struct EngineView<'a> {
    pub(super) awake: u64,
    pub(super) asleep: u64,
    pub(super) source: &'a str,
}

/// What a process keeps on the host, and the ranks of a machine together.
#[derive(Serialize)]
pub(super) struct HostView<'a> {
    pub(super) total: u64,
    pub(super) pinned: u64,
    pub(super) pageable: u64,
    pub(super) by_category: Pairs<'a, u64>,
    pub(super) ranks_of_machine: u64,
    pub(super) total_of_machine: u64,
}

impl HostView<'_> {
    pub(super) fn of_estimate(estimate: &Estimate, world_size: u64) -> Option<Self> {
        let host = &estimate.host;
        let (ranks_of_machine, total_of_machine) = host.of_machine(world_size);
        let category = |(category, bytes): &(Category, u64)| (category.name().into(), *bytes);
        (host.bytes() > 0).then(|| Self {
            total: host.bytes(),
            pinned: host.pinned_bytes,
            pageable: host.pageable_bytes,
            by_category: Pairs(host.by_category.iter().map(category).collect()),
            ranks_of_machine,
            total_of_machine,
        })
    }
}

#[derive(Serialize)]
pub(super) struct OomView<'a> {
    pub(super) event: usize,
    pub(super) phase: Option<String>,
    pub(super) op: &'a str,
    pub(super) module: &'a str,
    pub(super) node: Option<&'a str>,
    pub(super) requested_bytes: u64,
    pub(super) allocated_bytes: u64,
    pub(super) reserved_bytes: u64,
}

#[derive(Serialize)]
pub(super) struct TensorView<'a> {
    pub(super) bytes: u64,
    pub(super) category: &'static str,
    pub(super) op: &'a str,
    pub(super) module: &'a str,
    pub(super) node: Option<&'a str>,
    pub(super) phase: String,
}

#[derive(Serialize)]
pub(super) struct ProcessView<'a> {
    pub(super) name: &'a str,
    pub(super) count: u64,
    pub(super) total_bytes: u64,
    pub(super) peak_allocated_bytes: u64,
    pub(super) peak_reserved_bytes: u64,
    pub(super) context_bytes: u64,
    pub(super) peak_phase: String,
    pub(super) peak_per_phase: Pairs<'a, u64>,
    pub(super) verdict: Option<&'static str>,
}

#[derive(Serialize)]
pub(super) struct GpuLoadView {
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) processes: Vec<ProcessCountView>,
    pub(super) total_bytes: u64,
    pub(super) safe_bytes: Option<u64>,
    pub(super) usable_bytes: Option<u64>,
    pub(super) verdict: Option<&'static str>,
}

#[derive(Serialize)]
pub(super) struct ProcessCountView {
    pub(super) process: usize,
    pub(super) count: u64,
}

#[derive(Serialize)]
pub(super) struct RoomView {
    pub(super) lease: Option<u64>,
    pub(super) processes_per_gpu: u64,
    pub(super) total_bytes: u64,
    pub(super) training_bytes: u64,
    pub(super) resting_bytes: u64,
    pub(super) safe_training_bytes: u64,
    pub(super) safe_resting_bytes: u64,
}

#[derive(Serialize)]
pub(super) struct LegacyView {
    pub(super) param_count: u64,
    pub(super) total_bytes: u64,
    pub(super) weights_bytes: u64,
    pub(super) activations_bytes: u64,
    pub(super) optimizer_state_bytes: u64,
    pub(super) gradients_bytes: u64,
    pub(super) io_tensors_bytes: u64,
}

#[derive(Serialize)]
pub(super) struct CaveatView<'a> {
    pub(super) code: &'a str,
    pub(super) text: &'a str,
    pub(super) widens_bytes: u64,
}

/// A JSON object whose keys keep their order.
pub(super) struct Pairs<'a, T>(pub(super) Vec<(std::borrow::Cow<'a, str>, T)>);

impl<T: Serialize> Serialize for Pairs<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// A figure of every phase, by its label.
pub(super) fn phase_bytes<'a>(estimate: &Estimate, bytes: fn(&PhasePeak) -> u64) -> Pairs<'a, u64> {
    Pairs(estimate.peak_per_phase.iter().map(|peak| (peak.phase.label().into(), bytes(peak))).collect())
}

impl<'a> ProcessView<'a> {
    pub(super) fn new(process: &'a Process, is_named: bool) -> Self {
        let estimate = &process.estimate;
        Self {
            name: process.name,
            count: process.count,
            total_bytes: estimate.total_bytes,
            peak_allocated_bytes: estimate.peak_allocated_bytes,
            peak_reserved_bytes: estimate.peak_reserved_bytes,
            context_bytes: estimate.outside.high,
            peak_phase: estimate.peak_phase.label(),
            peak_per_phase: phase_bytes(estimate, |peak| peak.allocated),
            verdict: is_named.then(|| verdict_name(estimate)),
        }
    }
}

pub(super) fn gpu_loads(deployment: &Deployment, is_named: bool) -> Vec<GpuLoadView> {
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

pub(super) fn room_views(deployment: &Deployment) -> Vec<RoomView> {
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
    pub(super) fn new(gpu: &'a tonnage_core::gpu::Gpu) -> Self {
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
    pub(super) fn new(carrier: &'a Carrier) -> Self {
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
    pub(super) fn new(value: &'a Provenance) -> Self {
        let json = serde_json::from_str(&value.value).unwrap_or_else(|_| value.value.as_str().into());
        Self { key: &value.key, value: json, origin: value.origin.to_string() }
    }
}

impl<'a> EngineView<'a> {
    pub(super) fn new(engine: &'a Engine) -> Self {
        Self { awake: engine.awake_bytes, asleep: engine.asleep_bytes, source: engine.source }
    }
}

impl<'a> OomView<'a> {
    pub(super) fn new(moment: &'a OomMoment) -> Self {
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
    pub(super) fn new(tensor: &'a LiveTensor) -> Self {
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
    pub(super) const fn new(legacy: &LegacyEstimate) -> Self {
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
    pub(super) fn new(caveat: &'a Caveat) -> Self {
        Self { code: caveat.code, text: &caveat.text, widens_bytes: caveat.widens_bytes }
    }
}

impl<'a> ModelView<'a> {
    pub(super) fn new(job: &'a JobSpec, estimate: &Estimate) -> Self {
        Self {
            name: &job.model.name,
            model_type: &job.model.model_type,
            param_count: estimate.parameter_count,
            trainable_params: estimate.trainable_count,
        }
    }
}

//! Prometheus' text format: base units in names, `uuid` as the key that joins, identity in one `_info` series. A reading
//! that failed has no sample, and its success gauge is 0.

use std::fmt::Write as _;

use crate::absent::{Absent, Reading};
use crate::board::Board;
use crate::host::Command;
use crate::sample::{DeviceSample, ProcessSample};

/// What to leave in.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetricOptions {
    /// Series of processes: their number grows with every job.
    pub processes: bool,
    /// The names of NVIDIA's exporter as well, for dashboards that exist.
    pub dcgm: bool,
}

/// The metrics of the newest sample.
pub fn metrics_text(board: &Board, options: MetricOptions) -> String {
    let mut page = Page::default();
    of_the_watch(&mut page, board);
    of_devices(&mut page, board);
    if options.processes {
        of_processes(&mut page, board);
    }
    if options.dcgm {
        of_dcgm(&mut page, board);
    }
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
}

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    /// A family; without samples it is left out.
    fn family(&mut self, name: &str, kind: &str, help: &str, samples: &[(Vec<(&str, String)>, f64)]) {
        if samples.is_empty() {
            return;
        }
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let labels: Vec<(&str, &str)> = labels.iter().map(|(key, value)| (*key, value.as_str())).collect();
            let _ = writeln!(self.text, "{name}{} {value}", label_braces(&labels));
        }
    }

    fn gauge(&mut self, name: &str, help: &str, samples: &[(Vec<(&str, String)>, f64)]) {
        self.family(name, "gauge", help, samples);
    }
}

fn label_braces(labels: Labels<'_>) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escape_label(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

/// A label's value as the format wants it.
fn escape_label(value: &str) -> String {
    super::printable_text(value).replace('\\', "\\\\").replace('"', "\\\"")
}

fn of_the_watch(page: &mut Page, board: &Board) {
    let counted = if board.sample.problem.is_none() { 1.0 } else { 0.0 };
    page.gauge("tonnage_collect_success", "Whether the GPUs could be counted.", &[(Vec::new(), counted)]);
    let versions = vec![
        ("driver", board.sample.driver.clone().unwrap_or_default()),
        ("cuda", board.sample.cuda.map(|cuda| format!("{}.{}", cuda / 1000, cuda % 1000 / 10)).unwrap_or_default()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    page.gauge("tonnage_info", "Driver, CUDA and Tonnage.", &[(versions, 1.0)]);
    if let Some(prediction) = &board.prediction {
        let job = || vec![("job_name", prediction.job.clone())];
        let help = "Predicted peak of one process of the job, CUDA context included.";
        page.gauge("tonnage_predicted_peak_bytes", help, &[(job(), prediction.peak_bytes as f64)]);
    }
}

/// A gauge of devices: name, help, and how it is read.
type DeviceGauge = (&'static str, &'static str, fn(&Board, &DeviceSample) -> Reading<f64>);

const UNKNOWN: Absent = Absent::NOT_SUPPORTED;

const GAUGES: &[DeviceGauge] = &[
    ("gpu_memory_total_bytes", "Memory of the device.", |_, device| device.memory.map(|memory| memory.total as f64)),
    ("gpu_memory_used_bytes", "Memory in use, without what the driver keeps.", |_, device| {
        device.memory.map(|memory| memory.used as f64)
    }),
    ("gpu_memory_free_bytes", "Memory left.", |_, device| device.memory.map(|memory| memory.free as f64)),
    ("gpu_memory_reserved_bytes", "Memory that the driver keeps.", |_, device| {
        device.memory.and_then(|memory| memory.reserved.ok_or(UNKNOWN)).map(|reserved| reserved as f64)
    }),
    ("gpu_utilization_ratio", "Part of the time in which a kernel ran.", |_, device| {
        device.utilization.map(|percent| f64::from(percent) / 100.0)
    }),
    ("gpu_memory_utilization_ratio", "Part of the time in which memory was read or written.", |_, device| {
        device.memory_utilization.map(|percent| f64::from(percent) / 100.0)
    }),
    ("gpu_temperature_celsius", "Temperature of the GPU.", |_, device| device.temperature.map(f64::from)),
    ("gpu_fan_ratio", "Speed of the fan, of its highest.", |_, device| {
        device.fan.map(|percent| f64::from(percent) / 100.0)
    }),
    ("gpu_power_watts", "Power drawn.", |_, device| device.power),
    ("gpu_power_limit_watts", "Power that may be drawn.", |_, device| device.power_limit),
    ("gpu_sm_clock_hertz", "Clock of the multiprocessors.", |_, device| {
        device.sm_clock.map(|mhz| f64::from(mhz) * 1e6)
    }),
    ("gpu_memory_clock_hertz", "Clock of the memory.", |_, device| device.memory_clock.map(|mhz| f64::from(mhz) * 1e6)),
    ("gpu_throttle_reasons", "Bits of nvmlClocksEventReasons.", |_, device| device.throttle.map(|bits| bits as f64)),
    ("gpu_remap_pending", "Whether memory rows wait for a reset to be remapped.", |_, device| {
        device.remap_pending.map(f64::from)
    }),
    ("gpu_observed_peak_bytes", "The most memory that was seen in use.", |board, device| {
        device.memory?;
        board.series(device, None).map(|series| series.history.peak() as f64).ok_or(UNKNOWN)
    }),
    (
        "gpu_memory_trend_bytes_per_second",
        "Growth of memory in use after warm-up, where there is one.",
        |board, device| {
            device.memory?;
            board.trend_of_device(device).map(|trend| trend.bytes_per_second).ok_or(UNKNOWN)
        },
    ),
    ("gpu_seconds_to_full", "Seconds until the device is full, where memory grows.", |board, device| {
        board.seconds_to_full(device).ok_or(UNKNOWN)
    }),
];

/// Counters of devices; their names end with `_total`.
const COUNTERS: &[DeviceGauge] = &[
    ("gpu_energy_joules_total", "Energy since the driver was loaded.", |_, device| device.energy),
    (
        "gpu_ecc_uncorrected_errors_total",
        "Memory errors that were not corrected, since the driver was loaded.",
        |_, device| device.ecc_uncorrected.map(|count| count as f64),
    ),
];

fn of_devices(page: &mut Page, board: &Board) {
    let infos: Vec<_> = board.sample.all_devices().map(|device| (identity_labels(board, device), 1.0)).collect();
    page.gauge("tonnage_gpu_info", "Who a device is.", &infos);
    let success = |device: &DeviceSample| if device.memory.is_ok() { 1.0 } else { 0.0 };
    let successes: Vec<_> = board.sample.all_devices().map(|device| (uuid_label(device), success(device))).collect();
    page.gauge("tonnage_gpu_last_collect_success", "Whether the device's memory could be read.", &successes);
    for (kind, rows) in [("gauge", GAUGES), ("counter", COUNTERS)] {
        for (name, help, read) in rows {
            let is_memory = name.starts_with("gpu_memory_");
            let told = board.sample.all_devices().filter(|device| !is_memory || has_own_memory(board, device));
            let sample = |device: &DeviceSample| Some((uuid_label(device), read(board, device).ok()?));
            let samples: Vec<_> = told.filter_map(sample).collect();
            page.family(&format!("tonnage_{name}"), kind, help, &samples);
        }
    }
    let risk = |device: &DeviceSample| {
        device.memory.ok()?;
        let mut alerts = board.alerts.active().iter().filter(|alert| alert.device == device.id());
        Some((uuid_label(device), f64::from(u8::from(alerts.any(|alert| alert.kind.is_oom_risk())))))
    };
    let risks: Vec<_> = board.sample.all_devices().filter_map(risk).collect();
    page.gauge(
        "tonnage_gpu_oom_risk",
        "1 when an out-of-memory error is likely: nearly full, filling up, above the prediction.",
        &risks,
    );
    let alerts: Vec<_> = board
        .alerts
        .active()
        .iter()
        .map(|alert| {
            let pid = alert.pid.map(|pid| pid.to_string()).unwrap_or_default();
            (vec![("uuid", alert.device.clone()), ("kind", alert.kind.word().to_owned()), ("pid", pid)], 1.0)
        })
        .collect();
    page.gauge("tonnage_alert", "Alerts that hold.", &alerts);
}

/// Compute instances of one GPU instance share its memory: the first tells it.
fn has_own_memory(board: &Board, device: &DeviceSample) -> bool {
    let Some((gpu, _)) = device.instance else { return true };
    let siblings =
        board.sample.devices.iter().find(|parent| parent.instances.iter().any(|each| each.id() == device.id()));
    let mut siblings = siblings.into_iter().flat_map(|parent| &parent.instances);
    siblings.find(|each| each.instance.is_some_and(|ids| ids.0 == gpu)).is_none_or(|first| first.id() == device.id())
}

fn uuid_label(device: &DeviceSample) -> Vec<(&'static str, String)> {
    vec![("uuid", device.id())]
}

fn identity_labels(board: &Board, device: &DeviceSample) -> Vec<(&'static str, String)> {
    let ids = device.instance.map(|(gpu, compute)| (gpu.to_string(), compute.to_string())).unwrap_or_default();
    vec![
        ("uuid", device.id()),
        ("gpu", board.label(device)),
        ("name", device.name.clone().unwrap_or_default()),
        ("pci_bus_id", device.pci.clone().unwrap_or_default()),
        ("gpu_instance", ids.0),
        ("compute_instance", ids.1),
    ]
}

fn of_processes(page: &mut Page, board: &Board) {
    let all = || board.sample.all_devices().flat_map(|device| device.running().iter().map(move |each| (device, each)));
    let infos: Vec<_> = all().map(|(device, process)| (process_identity(device, process), 1.0)).collect();
    page.gauge("tonnage_process_info", "Who a process is.", &infos);
    let listed =
        board.sample.all_devices().map(|device| (uuid_label(device), f64::from(u8::from(device.processes.is_ok()))));
    let listed: Vec<_> = listed.collect();
    page.gauge("tonnage_process_last_collect_success", "Whether the device's processes could be listed.", &listed);
    let mut gauge = |name: &str, help: &str, read: &dyn Fn(&DeviceSample, &ProcessSample) -> Option<f64>| {
        let sample = |(device, process): (&DeviceSample, &ProcessSample)| {
            Some((vec![("uuid", device.id()), ("pid", process.pid.to_string())], read(device, process)?))
        };
        let samples: Vec<_> = all().filter_map(sample).collect();
        page.gauge(name, help, &samples);
    };
    gauge("tonnage_process_memory_used_bytes", "The process's own memory on the device.", &|_, process| {
        process.memory.ok().map(|bytes| bytes as f64)
    });
    gauge("tonnage_process_sm_ratio", "Part of the multiprocessors' time.", &|_, process| {
        process.sm.ok().map(|percent| f64::from(percent) / 100.0)
    });
    gauge(
        "tonnage_process_memory_trend_bytes_per_second",
        "Growth after warm-up, where there is one.",
        &|device, process| board.trend_of_process(device, process.pid).map(|trend| trend.bytes_per_second),
    );
    gauge("tonnage_process_observed_peak_bytes", "The most memory that was seen in use.", &|device, process| {
        board.series(device, Some(process.pid)).map(|series| series.history.peak() as f64)
    });
    gauge(
        "tonnage_process_prediction_error_ratio",
        "Observed peak over predicted peak, less one.",
        &|device, process| {
            let prediction = board.prediction.as_ref().filter(|_| board.is_of_job(process))?;
            prediction.error_ratio(board.series(device, Some(process.pid))?.history.peak())
        },
    );
}

/// Longer commands are cut: a label is no log.
const MOST_LABEL: usize = 120;

fn process_identity(device: &DeviceSample, process: &ProcessSample) -> Vec<(&'static str, String)> {
    let host = &process.host;
    let command =
        if let Command::Known(text) = &host.command { text.chars().take(MOST_LABEL).collect() } else { String::new() };
    vec![
        ("uuid", device.id()),
        ("pid", process.pid.to_string()),
        ("process_name", process.name.clone().unwrap_or_default()),
        ("command", command),
        ("user", host.user.clone().unwrap_or_default()),
        ("job_name", host.job.clone().unwrap_or_default()),
        ("rank", host.rank.map(|rank| rank.to_string()).unwrap_or_default()),
        ("container", host.container.clone().unwrap_or_default()),
    ]
}

const MIB: f64 = 1024.0 * 1024.0;

/// NVIDIA's names and units, as of dcgm-exporter 4: the labels of its dashboards.
const DCGM: &[DeviceGauge] = &[
    ("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", |_, device| {
        device.memory.map(|memory| memory.used as f64 / MIB)
    }),
    ("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", |_, device| {
        device.memory.map(|memory| memory.free as f64 / MIB)
    }),
    ("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", |_, device| {
        device.memory.and_then(|memory| memory.reserved.ok_or(UNKNOWN)).map(|reserved| reserved as f64 / MIB)
    }),
    ("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", |_, device| device.utilization.map(f64::from)),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", |_, device| device.memory_utilization.map(f64::from)),
    ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", |_, device| device.temperature.map(f64::from)),
    ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", |_, device| device.power),
    ("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", |_, device| device.sm_clock.map(f64::from)),
    ("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", |_, device| device.memory_clock.map(f64::from)),
];

fn of_dcgm(page: &mut Page, board: &Board) {
    for (name, help, read) in DCGM {
        let sample = |device: &DeviceSample| {
            let labels = vec![
                ("gpu", device.index.to_string()),
                ("UUID", device.id()),
                ("pci_bus_id", device.pci.clone().unwrap_or_default()),
                ("device", format!("nvidia{}", device.index)),
                ("modelName", device.name.clone().unwrap_or_default()),
            ];
            Some((labels, read(board, device).ok()?))
        };
        // Its memory once for each GPU instance is another family in NVIDIA's exporter: whole devices only.
        let samples: Vec<_> = board.sample.devices.iter().filter_map(sample).collect();
        page.gauge(name, help, &samples);
    }
}

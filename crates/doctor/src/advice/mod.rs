//! [`advise`]: what to do about a cause, with the exact flags of the framework, platform and phase that the log shows.
//! Estimated remedies come from `plan`; these need no job.

mod class;
mod exception;
mod framework;
mod known;
mod memory;

use super::cause::{FailureCause, Worker};
use super::phase::Phase;
use super::setting::Setting;
use super::signature::{MPI, UCX_NAME};
use tonnage_core::failure::Class;

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What, in words.
    pub text: String,
    /// The command, flag or setting.
    pub flag: Option<String>,
}

/// What advice must fit.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// On what and with what the job ran.
    pub setting: &'a Setting,
    /// What it was doing.
    pub phase: Option<Phase>,
}

fn say_text(text: &str) -> Advice {
    Advice { text: text.to_owned(), flag: None }
}

fn with_flag(text: &str, flag: &str) -> Advice {
    Advice { text: text.to_owned(), flag: Some(flag.to_owned()) }
}

/// The environment of PyTorch's allocator. Its name changed in 2.9, and 2.9.1 still reads only the old one for some
/// settings: both are set.
fn allocator(setting: &str) -> String {
    format!("PYTORCH_ALLOC_CONF={setting} PYTORCH_CUDA_ALLOC_CONF={setting}")
}

/// What to do, the first thing first.
pub fn advise(cause: &FailureCause, context: &Context<'_>) -> Vec<Advice> {
    match cause {
        FailureCause::GpuMemory(memory) => memory::advice(memory, context),
        FailureCause::EngineStart { engine, free, total, length, .. } => engine_start(engine, (*free, *total), *length),
        FailureCause::PortInUse { port } => port_in_use(*port),
        FailureCause::DiskFull { is_quota: true } => class::quota(),
        FailureCause::Xid { hardware, .. } => xid(*hardware, context),
        FailureCause::HostMemory { requested, .. } => class::host_memory(*requested, context),
        FailureCause::CudaFault { assertion: Some(assertion) } => class::assertion(assertion),
        FailureCause::Raised(exception) if cause.class() == Class::Raised => exception::advice(exception, context),
        FailureCause::WorkerFailed(worker) if cause.class() == Class::WorkerFailed => worker_failed(worker),
        FailureCause::Stated { class: Class::NoKernelImage, detail: Some(architecture) } => {
            class::kernel_image(architecture)
        }
        FailureCause::Stated { class: Class::NcclError, detail: Some(layer) }
            if [MPI, UCX_NAME].contains(&layer.as_str()) =>
        {
            class::mpi()
        }
        _ if cause.class() == Class::WorkerFailed => worker_failed(&Worker { exit_code: 1, ..Worker::default() }),
        _ => class::of_class(cause.class(), context),
    }
}

fn engine_start(engine: &str, (free, total): (Option<u64>, Option<u64>), length: Option<u64>) -> Vec<Advice> {
    // Without the device's total it is the cache that is too small: more of the GPU helps, not less.
    match engine {
        "SGLang" => return move_cache("--mem-fraction-static 0.92", "--context-length 8192"),
        "TGI" => return move_cache("--cuda-memory-fraction 0.95", "--max-batch-prefill-tokens 2048"),
        _ if total.is_none() => {
            return move_cache("--gpu-memory-utilization 0.95", &format!("--max-model-len {}", length.unwrap_or(8192)));
        }
        _ => {}
    }
    let orphan = with_flag(
        "end an engine that a crash left behind",
        "nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
    );
    let share = free.zip(total).filter(|(_, total)| *total > 0).map(|(free, total)| free as f64 / total as f64 - 0.02);
    let flag = share.filter(|share| *share > 0.05).map_or_else(
        || "--gpu-memory-utilization 0.8".to_owned(),
        |share| format!("--gpu-memory-utilization {:.2}", (share * 100.0).floor() / 100.0),
    );
    vec![orphan, with_flag("ask for less than is free", &flag)]
}

/// A cache that has no room beside the weights.
fn move_cache(share: &str, length: &str) -> Vec<Advice> {
    vec![
        with_flag("let sequences be shorter", length),
        with_flag("or give the engine more of the GPU", share),
        say_text("or spread the weights over more GPUs, or quantize them"),
    ]
}

fn port_in_use(port: Option<u64>) -> Vec<Advice> {
    let mut all =
        vec![with_flag("let torchrun choose a free port", "torchrun --standalone --nproc-per-node=N train.py")];
    match port {
        Some(port) if port < 1024 => all.push(say_text("ports below 1024 belong to root: take a higher one")),
        _ => {
            let port = port.unwrap_or(29500);
            all.push(with_flag(
                "see who holds the port: often a run that did not end",
                &format!("ss -ltnp 'sport = :{port}'"),
            ));
        }
    }
    all
}

fn xid(hardware: bool, context: &Context<'_>) -> Vec<Advice> {
    if hardware {
        return vec![
            say_text("the GPU or its link is at fault: do not run again on it; drain the node and report it"),
            with_flag("read its error counters", "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT"),
        ];
    }
    let mut all = vec![say_text("this error is usually the program's: a wrong address or a kernel's fault")];
    all.extend(class::of_class(Class::CudaFault, context));
    all
}

/// Statuses of shells and of `timeout` (coreutils), which no training program chooses.
fn of_shells(exit_code: i64) -> Option<Advice> {
    Some(match exit_code {
        2 => with_flag(
            "wrong usage: a flag that the program does not know, or lacks; it says which before it ends",
            "python train.py --help",
        ),
        124 => say_text("`timeout` ended it: its time was over; give it more, or save checkpoints in between"),
        126 => {
            with_flag("what was to run cannot be executed: it lacks the right to, or is no program", "chmod +x run.sh")
        }
        127 => with_flag(
            "the command was not found: a typing error, or an environment that was not activated",
            "command -v python torchrun; echo $PATH",
        ),
        -2 => say_text("somebody pressed Ctrl-C (SIGINT), or a scheduler did: nothing failed"),
        _ => return None,
    })
}

fn worker_failed(worker: &Worker) -> Vec<Advice> {
    let exit_code = worker.exit_code;
    if let Some(advice) = of_shells(exit_code) {
        return vec![advice];
    }
    let meaning = match exit_code {
        -6 => "it aborted (SIGABRT): often NCCL's watchdog after another rank's death",
        -15 => "it was told to end (SIGTERM): by whoever scheduled it, or as the echo of another failure",
        1 => "it raised an exception, which stands in its own log",
        _ => "the reason stands in its own log",
    };
    vec![
        say_text(meaning),
        with_flag("keep a log of every rank", "torchrun --log-dir logs --redirects 3 --tee 3"),
        with_flag(
            "have torchrun show the traceback",
            "from torch.distributed.elastic.multiprocessing.errors import record",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exception::{Exception, Raiser};
    use crate::memory::GpuMemory;
    use crate::setting::Framework;
    use tonnage_core::failure::CLASSES;

    fn advice(cause: &FailureCause, setting: &Setting) -> Vec<Advice> {
        advise(cause, &Context { setting, phase: None })
    }

    #[test]
    fn every_class_has_advice_wherever_it_ran() {
        let settings = [
            Setting::default(),
            Setting { windows: true, ..Setting::default() },
            Setting { amd: true, ..Setting::default() },
        ];
        for (class, name, _) in CLASSES {
            for setting in &settings {
                let stated = FailureCause::Stated { class: *class, detail: None };
                let special = [
                    (Class::Neighbour, FailureCause::GpuMemory(GpuMemory::default())),
                    (Class::GpuMemory, FailureCause::GpuMemory(GpuMemory::default())),
                    (
                        Class::EngineStart,
                        FailureCause::EngineStart {
                            engine: "vLLM",
                            free: Some(19),
                            total: Some(20),
                            wanted: None,
                            length: None,
                        },
                    ),
                    (Class::PortInUse, FailureCause::PortInUse { port: Some(80) }),
                    (Class::Xid, FailureCause::Xid { code: Some(31), hardware: false }),
                    (Class::WorkerFailed, FailureCause::WorkerFailed(Worker { exit_code: -6, ..Worker::default() })),
                    (
                        Class::Raised,
                        FailureCause::Raised(Exception {
                            name: "X".to_owned(),
                            message: String::new(),
                            raiser: Raiser::Program,
                        }),
                    ),
                ];
                let cause =
                    special.into_iter().find(|(special, _)| special == class).map_or(stated, |(_, cause)| cause);
                assert!(!advice(&cause, setting).is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn flags_are_the_framework_s_and_fit_the_platform() {
        let text = |setting: &Setting| {
            let memory = GpuMemory {
                requested: Some(1 << 30),
                free: Some(0),
                total: Some(24 << 30),
                unallocated: Some(4 << 30),
                ..GpuMemory::default()
            };
            advice(&FailureCause::GpuMemory(memory), setting)
                .into_iter()
                .filter_map(|advice| advice.flag)
                .collect::<String>()
        };
        assert!(text(&Setting { frameworks: vec![Framework::Fairseq], ..Setting::default() }).contains("--max-tokens"));
        assert!(text(&Setting::default()).contains("expandable_segments:True"));
        for setting in
            [Setting { windows: true, ..Setting::default() }, Setting { no_expandable: true, ..Setting::default() }]
        {
            assert!(!text(&setting).contains("expandable_segments:True"));
        }
        let neighbour = FailureCause::GpuMemory(GpuMemory {
            requested: Some(2 << 30),
            free: Some(1 << 30),
            total: Some(24 << 30),
            processes: vec![(7, 14 << 30)],
            this_process: Some(9 << 30),
            allocated: Some(8 << 30),
            unallocated: Some(1 << 20),
            ..GpuMemory::default()
        });
        let amd = Setting { amd: true, ..Setting::default() };
        assert!(advice(&neighbour, &amd).iter().all(|advice| !format!("{advice:?}").contains("nvidia-smi")));
    }

    #[test]
    fn an_engine_is_told_a_share_that_is_free() {
        let flag =
            |free, total| engine_start("vLLM", (Some(free), Some(total)), None).pop().and_then(|advice| advice.flag);
        assert_eq!(flag(1977, 2205).as_deref(), Some("--gpu-memory-utilization 0.87"));
        assert_eq!(flag(1, 0).as_deref(), Some("--gpu-memory-utilization 0.8"));
    }
}

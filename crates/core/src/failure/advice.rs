//! [`advice`]: what to do about a cause, with the exact flags. Estimated remedies come from `plan`; these need no job.

use super::cause::{FailureCause, Worker};
use super::class::Class;
use super::memory::GpuMemory;
use crate::units::Bytes;

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What, in words.
    pub text: String,
    /// The command, flag or setting.
    pub flag: Option<String>,
}

fn say(text: &str) -> Advice {
    Advice { text: text.to_owned(), flag: None }
}

fn with(text: &str, flag: &str) -> Advice {
    Advice { text: text.to_owned(), flag: Some(flag.to_owned()) }
}

/// The environment of PyTorch's allocator. Its name changed in 2.9, and 2.9.1 still reads only the old one for some
/// settings: both are set.
fn allocator(setting: &str) -> String {
    format!("PYTORCH_ALLOC_CONF={setting} PYTORCH_CUDA_ALLOC_CONF={setting}")
}

/// What to do, the first thing first.
pub fn advice(cause: &FailureCause) -> Vec<Advice> {
    match cause {
        FailureCause::GpuMemory(memory) => gpu_memory(memory),
        FailureCause::EngineStart { engine, free, total, length, .. } => engine_start(engine, (*free, *total), *length),
        FailureCause::PortInUse { port } => port_in_use(*port),
        FailureCause::Xid { hardware, .. } => xid(*hardware),
        FailureCause::WorkerFailed(worker) if cause.class() == Class::WorkerFailed => worker_failed(worker),
        _ => of_class(cause.class()),
    }
}

fn gpu_memory(memory: &GpuMemory) -> Vec<Advice> {
    let mut all = Vec::new();
    for class in memory.reasons() {
        match class {
            Class::GpuMemory => all.extend(too_large(memory)),
            Class::Neighbour => all.extend(neighbour(memory)),
            Class::AllocatorCap if memory.allowed.is_none() && memory.private_pools.is_some() => all.push(with(
                "let fewer CUDA graphs keep memory in private pools",
                "torch.compile(model, mode=\"default\")  # instead of reduce-overhead",
            )),
            other => all.extend(of_class(other)),
        }
    }
    all
}

/// The job itself.
fn too_large(memory: &GpuMemory) -> Vec<Advice> {
    if memory.requested == Some(1 << 60) {
        return vec![say(
            "a size was computed wrong, no memory is missing: print the shapes of the op in the traceback",
        )];
    }
    let mut all = Vec::new();
    if let (Some(requested), Some(total)) = (memory.requested, memory.total)
        && requested > total
    {
        let text = format!(
            "one tensor of {} is larger than the GPU: keep no attention scores, chunk the loss",
            Bytes(requested)
        );
        all.push(with(&text, "attn_implementation=\"sdpa\""));
    }
    all.push(with(
        "halve the micro-batch and accumulate twice as often: the same effective batch",
        "--per_device_train_batch_size N/2 --gradient_accumulation_steps 2*M",
    ));
    all.push(with("keep fewer activations", "--gradient_checkpointing true"));
    all
}

fn neighbour(memory: &GpuMemory) -> Vec<Advice> {
    let pids: Vec<String> =
        memory.neighbours().iter().filter(|(pid, _)| *pid > 1).map(|(pid, _)| pid.to_string()).collect();
    let owner = if pids.is_empty() {
        with("see who holds the memory", "nvidia-smi --query-compute-apps=pid,used_memory --format=csv")
    } else {
        with("see who holds the memory", &format!("ps -o pid,user,etime,args -p {}", pids.join(",")))
    };
    let move_away =
        with("wait until it ends, or take another GPU; the batch is not the reason", "CUDA_VISIBLE_DEVICES=1");
    vec![owner, move_away]
}

fn engine_start(engine: &str, (free, total): (Option<u64>, Option<u64>), length: Option<u64>) -> Vec<Advice> {
    // Without the device's total it is the cache that is too small: more of the GPU helps, not less.
    match engine {
        "SGLang" => return cache("--mem-fraction-static 0.92", "--context-length 8192"),
        "TGI" => return cache("--cuda-memory-fraction 0.95", "--max-batch-prefill-tokens 2048"),
        _ if total.is_none() => {
            return cache("--gpu-memory-utilization 0.95", &format!("--max-model-len {}", length.unwrap_or(8192)));
        }
        _ => {}
    }
    let orphan =
        with("end an engine that a crash left behind", "nvidia-smi --query-compute-apps=pid,used_memory --format=csv");
    let share = free.zip(total).filter(|(_, total)| *total > 0).map(|(free, total)| free as f64 / total as f64 - 0.02);
    let flag = share.filter(|share| *share > 0.05).map_or_else(
        || "--gpu-memory-utilization 0.8".to_owned(),
        |share| format!("--gpu-memory-utilization {:.2}", (share * 100.0).floor() / 100.0),
    );
    vec![orphan, with("ask for less than is free", &flag)]
}

/// A cache that has no room beside the weights.
fn cache(share: &str, length: &str) -> Vec<Advice> {
    vec![
        with("let sequences be shorter", length),
        with("or give the engine more of the GPU", share),
        say("or spread the weights over more GPUs, or quantize them"),
    ]
}

fn port_in_use(port: Option<u64>) -> Vec<Advice> {
    let mut all = vec![with("let torchrun choose a free port", "torchrun --standalone --nproc-per-node=N train.py")];
    match port {
        Some(port) if port < 1024 => all.push(say("ports below 1024 belong to root: take a higher one")),
        _ => {
            let port = port.unwrap_or(29500);
            all.push(with(
                "see who holds the port: often a run that did not end",
                &format!("ss -ltnp 'sport = :{port}'"),
            ));
        }
    }
    all
}

fn xid(hardware: bool) -> Vec<Advice> {
    if hardware {
        return vec![
            say("the GPU or its link is at fault: do not run again on it; drain the node and report it"),
            with("read its error counters", "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT"),
        ];
    }
    let mut all = vec![say("this error is usually the program's: a wrong address or a kernel's fault")];
    all.extend(of_class(Class::CudaFault));
    all
}

/// Statuses of shells and of `timeout` (coreutils), which no training program chooses.
fn of_shells(exit_code: i64) -> Option<Advice> {
    Some(match exit_code {
        2 => with(
            "wrong usage: a flag that the program does not know, or lacks; it says which before it ends",
            "python train.py --help",
        ),
        124 => say("`timeout` ended it: its time was over; give it more, or save checkpoints in between"),
        126 => with("what was to run cannot be executed: it lacks the right to, or is no program", "chmod +x run.sh"),
        127 => with(
            "the command was not found: a typing error, or an environment that was not activated",
            "command -v python torchrun; echo $PATH",
        ),
        -2 => say("somebody pressed Ctrl-C (SIGINT), or a scheduler did: nothing failed"),
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
        say(meaning),
        with("keep a log of every rank", "torchrun --log-dir logs --redirects 3 --tee 3"),
        with("have torchrun show the traceback", "from torch.distributed.elastic.multiprocessing.errors import record"),
    ]
}

/// What holds for every cause of a class.
fn of_class(class: Class) -> Vec<Advice> {
    match class {
        Class::Fragmentation => vec![
            with("let segments grow instead of lying side by side", &allocator("expandable_segments:True")),
            with("or keep large blocks whole", &allocator("max_split_size_mb:256")),
        ],
        Class::AllocatorCap => vec![
            with("lift the process's limit", "torch.cuda.set_per_process_memory_fraction(1.0)"),
            say(
                "where no limit is set: the driver keeps memory back (WSL, MIG, a reset GPU); compare `free` with nvidia-smi",
            ),
        ],
        Class::OutsideAllocator => vec![
            with("leave the libraries room: cap the allocator", "torch.cuda.set_per_process_memory_fraction(0.92)"),
            with("give its cache back before the first collective", "torch.cuda.empty_cache()"),
        ],
        Class::HostMemory => vec![
            with("load data with fewer processes; a smaller batch does not help", "--dataloader_num_workers 2"),
            with(
                "or ask for more of the host's memory",
                "#SBATCH --mem=0  # all of the node; docker run --memory 128g",
            ),
        ],
        Class::Killed => vec![
            with(
                "see whether the kernel did it",
                "dmesg -T | grep -i 'killed process'; cat /sys/fs/cgroup/memory.events",
            ),
            with("if so: fewer processes that load data", "--dataloader_num_workers 2"),
        ],
        Class::SharedMemory => vec![
            with("give the container more", "docker run --shm-size=16g  # or --ipc=host"),
            with("or load data in the main process", "--dataloader_num_workers 0"),
        ],
        Class::NcclTimeout => vec![
            say("look first for a rank that died or is slow: the others only wait for it"),
            with("keep a log of every rank", "torchrun --log-dir logs --redirects 3 --tee 3"),
            with("if a rank works long alone (saving, tokenising)", "--ddp_timeout 7200"),
        ],
        Class::NcclError => vec![
            say("look first for a rank that died: its neighbours lose their connection"),
            with("have NCCL say what failed", "NCCL_DEBUG=WARN"),
        ],
        Class::Protobuf => vec![
            say("often printed and not fatal: if the job went on, leave it"),
            with(
                "else install the protobuf that the package was made for",
                "pip install 'protobuf<6'  # 'protobuf<4' for Descriptors",
            ),
        ],
        Class::NoGpu => vec![
            with("see what the process sees", "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES"),
            with("ask for GPUs", "docker run --gpus all  # srun --gres=gpu:1"),
        ],
        Class::DriverMismatch => vec![
            say(
                "the driver was updated under a running kernel, or is older than CUDA needs: reboot, or load its modules anew",
            ),
            with(
                "compare versions",
                "nvidia-smi; cat /proc/driver/nvidia/version; python -c 'import torch; print(torch.version.cuda)'",
            ),
        ],
        Class::DiskFull => vec![
            with("see which disk", "df -h . /tmp ~/.cache/huggingface; df -i ."),
            with("keep fewer checkpoints", "--save_total_limit 2"),
        ],
        Class::CudaFault => vec![
            with("make the traceback point at the kernel", "CUDA_LAUNCH_BLOCKING=1"),
            with("find the access", "compute-sanitizer --tool memcheck python train.py"),
        ],
        Class::KernelLimit => vec![say(
            "not the GPU's memory: give the kernel smaller blocks or fewer stages, the op fewer elements, or take another one",
        )],
        Class::Crash => vec![
            with("have Python print where it was", "python -X faulthandler train.py"),
            say("look at the library on top: often one built for another PyTorch, CUDA or driver"),
        ],
        Class::TimeLimit => vec![
            with("ask for more time", "#SBATCH --time=24:00:00"),
            with("or be told before the end, save, and go on in another job", "#SBATCH --signal=B:USR1@300 --requeue"),
        ],
        Class::ExpandableSharing => {
            vec![with("turn expandable segments off in this process", &allocator("expandable_segments:False"))]
        }
        _ => of_machine(class),
    }
}

/// Machines, networks and engines.
fn of_machine(class: Class) -> Vec<Advice> {
    match class {
        Class::PagingFile => vec![
            with(
                "enlarge the paging file: every spawned process promises itself the libraries' whole size",
                "SystemPropertiesPerformance.exe  # Advanced, Virtual memory, Change: a custom size, 64 GB or more",
            ),
            with("and start fewer processes that load data", "--dataloader_num_workers 0"),
        ],
        Class::EngineCapacity => vec![with("let fewer requests run at one time", "--max-running-requests 64")],
        Class::Unreachable => vec![
            with("see whether the host answers from every node", "nc -vz $MASTER_ADDR $MASTER_PORT"),
            with("name the interface that the nodes share", "NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0"),
        ],
        Class::DuplicateGpu => vec![with(
            "give every rank a GPU of its own before the process group starts",
            "torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))",
        )],
        Class::DeviceBusy => {
            vec![with("see who has the device, and whether it is in exclusive mode", "nvidia-smi -q -d COMPUTE,PIDS")]
        }
        Class::NoKernelImage => vec![with(
            "install a build for this GPU, or build its extensions for it",
            "TORCH_CUDA_ARCH_LIST=\"8.6\" pip install --no-build-isolation --force-reinstall PACKAGE",
        )],
        Class::GpuHardware => vec![
            say("the GPU or its link is at fault: do not run again on it; drain the node and report it"),
            with("read its error counters", "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT; nvidia-smi nvlink -e"),
        ],
        Class::NodeFailure => vec![say("a machine failed or was taken away: start again without it")],
        Class::Raised => vec![say("the place is in the traceback: the innermost line of your own code comes first")],
        _ => of_program(class),
    }
}

/// Programs, and those who end them.
fn of_program(class: Class) -> Vec<Advice> {
    match class {
        Class::Divergence => vec![
            say("look at the steps before: a rate too high, a bad sample, or fp16 that overflows (bf16 does not)"),
            with("find the op that made the first NaN", "torch.autograd.set_detect_anomaly(True)"),
        ],
        Class::Usage => {
            vec![with(
                "see what the program takes; it says what it did not know before it ends",
                "python train.py --help",
            )]
        }
        Class::IoError => vec![
            with("see whether the file system answers", "df -h .; mount | grep \"$(df --output=target . | tail -1)\""),
            say("write checkpoints to a local disk first and copy them"),
        ],
        Class::Preempted | Class::Requeued => {
            vec![say("nothing failed: let the job go on from its last checkpoint when it starts again")]
        }
        Class::Cancelled => {
            vec![say("nothing failed: somebody cancelled the job; its scheduler says who (`sacct -j JOB`)")]
        }
        Class::Evicted => vec![with(
            "ask for what the pod really takes, memory and ephemeral storage",
            "resources: {requests: {memory: 64Gi, ephemeral-storage: 200Gi}}",
        )],
        Class::Interrupted => vec![say("nothing failed: somebody pressed Ctrl-C, or a notebook was interrupted")],
        Class::Terminated => {
            vec![say(
                "somebody or a scheduler told it to end: see who (time limit, preemption, `kill`, a container that stops)",
            )]
        }
        Class::Hangup => vec![with(
            "run it where no terminal can be closed",
            "tmux new -s train  # or: setsid nohup torchrun ... > train.log 2>&1 &",
        )],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::class::CLASSES;

    #[test]
    fn every_class_has_advice() {
        for (class, name, _) in CLASSES {
            let special = matches!(
                class,
                Class::GpuMemory
                    | Class::Neighbour
                    | Class::EngineStart
                    | Class::PortInUse
                    | Class::Xid
                    | Class::WorkerFailed
            );
            assert_eq!(of_class(*class).is_empty(), special, "{name}");
        }
        let special = [
            FailureCause::GpuMemory(GpuMemory::default()),
            FailureCause::EngineStart { engine: "vLLM", free: Some(19), total: Some(20), wanted: None, length: None },
            FailureCause::PortInUse { port: Some(80) },
            FailureCause::Xid { code: Some(31), hardware: false },
            FailureCause::WorkerFailed(Worker { exit_code: -6, ..Worker::default() }),
        ];
        assert!(special.iter().all(|cause| !advice(cause).is_empty()));
    }

    #[test]
    fn an_engine_is_told_a_share_that_is_free() {
        let flag =
            |free, total| engine_start("vLLM", (Some(free), Some(total)), None).pop().and_then(|advice| advice.flag);
        assert_eq!(flag(1977, 2205).as_deref(), Some("--gpu-memory-utilization 0.87"));
        assert_eq!(flag(1, 0).as_deref(), Some("--gpu-memory-utilization 0.8"));
    }
}

//! What holds for every cause of a class.

use super::framework;
use super::{Advice, Context, allocator, say_text, with_flag};
use crate::phase::Phase;
use crate::setting::Framework;
use tonnage_core::failure::Class;
use tonnage_core::units::Bytes;

/// MPI's ranks, and UCX below them.
pub(super) fn mpi() -> Vec<Advice> {
    vec![
        say_text("look first for a rank that died: its neighbours lose their connection"),
        with_flag("have UCX say what it does, or leave it out", "UCX_LOG_LEVEL=info  # or UCX_TLS=tcp,self,sm"),
    ]
}

/// What holds for every cause of a class.
pub(super) fn of_class(class: Class, context: &Context<'_>) -> Vec<Advice> {
    match class {
        Class::Fragmentation => fragmentation(context),
        Class::AllocatorCap => vec![
            with_flag("lift the process's limit", "torch.cuda.set_per_process_memory_fraction(1.0)"),
            say_text(
                "where no limit is set: the driver keeps memory back (WSL, MIG, a reset GPU); compare `free` with nvidia-smi",
            ),
        ],
        Class::OutsideAllocator => vec![
            with_flag(
                "leave the libraries room: cap the allocator",
                "torch.cuda.set_per_process_memory_fraction(0.92)",
            ),
            with_flag("give its cache back before the first collective", "torch.cuda.empty_cache()"),
            with_flag(
                "where it fails at the very first use with memory free: an id out of range did it; see which op",
                "CUDA_LAUNCH_BLOCKING=1",
            ),
        ],
        Class::HostMemory => host_memory(None, context),
        Class::Killed => killed_advice(context),
        Class::SharedMemory => vec![
            with_flag("give the container more", "docker run --shm-size=16g  # or --ipc=host"),
            with_flag("or load data in the main process", "--dataloader_num_workers 0"),
        ],
        Class::NcclTimeout => timeout(context),
        Class::NcclError => vec![
            say_text("look first for a rank that died: its neighbours lose their connection"),
            with_flag("have NCCL say what failed", "NCCL_DEBUG=WARN"),
        ],
        Class::Protobuf => vec![
            with_flag(
                "packages disagree about protobuf: install one that all of them take",
                "pip install 'protobuf>=3.20,<5'",
            ),
            say_text("where it is only printed and the job goes on, leave it"),
        ],
        Class::NoGpu => no_gpu(context),
        Class::DriverMismatch => vec![
            say_text(
                "the driver is older than this CUDA needs, or was updated under a running kernel: update or reload it, or install PyTorch for the CUDA that the driver has (cu118, cu126, ...)",
            ),
            with_flag(
                "compare versions",
                "nvidia-smi; cat /proc/driver/nvidia/version; python -c 'import torch; print(torch.version.cuda)'",
            ),
        ],
        Class::DiskFull => vec![
            with_flag("see which disk", "df -h . /tmp ~/.cache/huggingface; df -i ."),
            with_flag("keep fewer checkpoints", "--save_total_limit 2"),
        ],
        _ => of_process(class, context),
    }
}

/// What one user or project may take of a disk.
pub(super) fn quota() -> Vec<Advice> {
    vec![
        with_flag("it is your quota that is used up, not the disk: see it", "quota -s; lfs quota -h -u $USER ."),
        with_flag("keep fewer checkpoints", "--save_total_limit 2"),
        say_text("or write to the scratch space that has a larger one, caches (HF_HOME, TORCH_HOME, TMPDIR) too"),
    ]
}

/// Kernels, processes and their limits.
fn of_process(class: Class, context: &Context<'_>) -> Vec<Advice> {
    match class {
        Class::CudaFault => cuda_fault(context),
        Class::KernelLimit => vec![say_text(
            "not the GPU's memory: give the kernel smaller blocks or fewer stages, the op fewer elements, or take another one",
        )],
        Class::Crash => vec![
            with_flag("have Python print where it was", "python -X faulthandler train.py"),
            say_text("look at the library on top: often one built for another PyTorch, CUDA or driver"),
        ],
        Class::TimeLimit => vec![
            with_flag("ask for more time", "#SBATCH --time=24:00:00"),
            with_flag(
                "or be told before the end, save, and go on in another job",
                "#SBATCH --signal=B:USR1@300 --requeue",
            ),
        ],
        Class::ExpandableSharing => {
            vec![with_flag("turn expandable segments off in this process", &allocator("expandable_segments:False"))]
        }
        _ => of_machine(class, context),
    }
}

/// Machines, networks and engines.
fn of_machine(class: Class, context: &Context<'_>) -> Vec<Advice> {
    match class {
        Class::PagingFile => vec![
            with_flag(
                "enlarge the paging file: every spawned process promises itself the libraries' whole size",
                "SystemPropertiesPerformance.exe  # Advanced, Virtual memory, Change: a custom size, 64 GB or more",
            ),
            with_flag(
                "and start fewer processes that load data",
                framework::of(context.setting).workers.unwrap_or("DataLoader(num_workers=0)"),
            ),
        ],
        Class::EngineCapacity => vec![with_flag("let fewer requests run at one time", "--max-running-requests 64")],
        Class::Unreachable => vec![
            with_flag("see whether the host answers from every node", "nc -vz $MASTER_ADDR $MASTER_PORT"),
            with_flag("name the interface that the nodes share", "NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0"),
        ],
        Class::DuplicateGpu => vec![with_flag(
            "give every rank a GPU of its own before the process group starts",
            "torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))",
        )],
        Class::DeviceBusy => {
            vec![with_flag(
                "see who has the device, and whether it is in exclusive mode",
                "nvidia-smi -q -d COMPUTE,PIDS",
            )]
        }
        Class::NoKernelImage => vec![with_flag(
            "install a build for this GPU, or build its extensions for it",
            "TORCH_CUDA_ARCH_LIST=\"8.6\" pip install --no-build-isolation --force-reinstall PACKAGE",
        )],
        Class::GpuHardware => vec![
            say_text("the GPU or its link is at fault: do not run again on it; drain the node and report it"),
            with_flag(
                "read its error counters",
                "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT; nvidia-smi nvlink -e",
            ),
        ],
        Class::NodeFailure => vec![say_text("a machine failed or was taken away: start again without it")],
        Class::Reported => {
            vec![say_text("these are the program's own words: nothing is known of them but that they came last")]
        }
        Class::Raised => {
            vec![say_text("the place is in the traceback: the innermost line of your own code comes first")]
        }
        _ => of_program(class, context),
    }
}

/// Programs, and those who end them.
fn of_program(class: Class, context: &Context<'_>) -> Vec<Advice> {
    match class {
        Class::Divergence => vec![
            say_text(divergence_advice(context)),
            with_flag("find the op that made the first NaN", "torch.autograd.set_detect_anomaly(True)"),
        ],
        Class::Usage => {
            vec![with_flag(
                "see what the program takes; it says what it did not know before it ends",
                "python train.py --help",
            )]
        }
        Class::IoError => vec![
            with_flag(
                "see whether the file system answers",
                "df -h .; mount | grep \"$(df --output=target . | tail -1)\"",
            ),
            say_text("write checkpoints to a local disk first and copy them"),
        ],
        Class::Preempted | Class::Requeued => {
            vec![say_text("nothing failed: let the job go on from its last checkpoint when it starts again")]
        }
        Class::Cancelled => {
            vec![say_text("nothing failed: somebody cancelled the job; its scheduler says who (`sacct -j JOB`)")]
        }
        Class::Evicted => vec![with_flag(
            "ask for what the pod really takes, memory and ephemeral storage",
            "resources: {requests: {memory: 64Gi, ephemeral-storage: 200Gi}}",
        )],
        Class::Interrupted => vec![say_text("nothing failed: somebody pressed Ctrl-C, or a notebook was interrupted")],
        Class::Terminated => {
            vec![say_text(
                "somebody or a scheduler told it to end: see who (time limit, preemption, `kill`, a container that stops)",
            )]
        }
        Class::Hangup => vec![with_flag(
            "run it where no terminal can be closed",
            "tmux new -s train  # or: setsid nohup torchrun ... > train.log 2>&1 &",
        )],
        _ => Vec::new(),
    }
}

/// What makes losses diverge, by what the run shows.
fn divergence_advice(context: &Context<'_>) -> &'static str {
    if context.setting.has(Framework::Ultralytics) || context.setting.has(Framework::Mmcv) {
        return "look at the steps before: a rate too high, a box or label that is wrong, or half precision that overflows";
    }
    "look at the steps before: a rate too high, a bad sample, or fp16 that overflows (bf16 does not)"
}

/// Memory that lies in pieces: by what this PyTorch can.
fn fragmentation(context: &Context<'_>) -> Vec<Advice> {
    let setting = context.setting;
    let mut all = Vec::new();
    if !setting.windows && !setting.no_expandable && !setting.old_torch {
        all.push(with_flag("let segments grow instead of lying side by side", &allocator("expandable_segments:True")));
    }
    all.push(with_flag("keep large blocks whole", &allocator("max_split_size_mb:256")));
    if setting.no_expandable {
        all.push(say_text(
            "expandable segments are on already, or not to be had here: fewer sizes help, by padding to a multiple",
        ));
    }
    all
}

/// The host's memory: one large piece, an offload, or many processes that load data.
pub(super) fn host_memory(requested: Option<u64>, context: &Context<'_>) -> Vec<Advice> {
    /// More in one piece is one tensor or array of the program, no loader's batch.
    const ONE_PIECE: u64 = 8 << 30;
    let setting = context.setting;
    let mut all = Vec::new();
    if let Some(requested) = requested.filter(|requested| *requested >= ONE_PIECE) {
        let text = format!(
            "one tensor or array of {} is made on the host: make it smaller, in parts, or on the disk",
            Bytes(requested)
        );
        all.push(with_flag(&text, "np.memmap / datasets with keep_in_memory=False"));
    } else if context.phase == Some(Phase::Load) {
        all.push(with_flag(
            "load the weights once and in place: every rank holds its own copy while it loads",
            "low_cpu_mem_usage=True",
        ));
    } else if setting.offload {
        all.push(say_text("what is offloaded lies in the host's memory: 16 bytes for each parameter with Adam, over all ranks of the node; offload less, or to NVMe"));
    } else if setting.has(Framework::Ray) {
        all.push(with_flag(
            "give objects and workers less, or the node more",
            "ray.init(object_store_memory=...), num_cpus of each actor higher",
        ));
    } else if let Some(workers) = framework::of(setting).workers {
        all.push(with_flag("load data with fewer processes; a smaller batch does not help", workers));
    }
    all.push(more_host_memory(context));
    all
}

fn more_host_memory(context: &Context<'_>) -> Advice {
    let setting = context.setting;
    if setting.windows {
        return say_text("or close other programs, and let Windows' paging file grow");
    }
    if setting.colab {
        return say_text("or take a runtime with more memory (Colab: High-RAM)");
    }
    with_flag("or ask for more of the host's memory", "#SBATCH --mem=0  # all of the node; docker run --memory 128g")
}

fn killed_advice(context: &Context<'_>) -> Vec<Advice> {
    let mut all = vec![with_flag(
        "see whether the kernel did it",
        "dmesg -T | grep -i 'killed process'; cat /sys/fs/cgroup/memory.events",
    )];
    let cause = host_memory(None, context);
    all.extend(
        cause
            .into_iter()
            .map(|advice| Advice { text: format!("if so: {}", advice.text.trim_start_matches("or ")), ..advice }),
    );
    all
}

/// A GPU that cannot be used: by whose it is.
fn no_gpu(context: &Context<'_>) -> Vec<Advice> {
    let setting = context.setting;
    if setting.amd {
        return vec![
            with_flag(
                "see what the process sees",
                "rocminfo | grep gfx; echo $HIP_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES",
            ),
            with_flag(
                "let the container have the devices",
                "docker run --device /dev/kfd --device /dev/dri --group-add video",
            ),
        ];
    }
    if setting.apple {
        return vec![with_flag("there is no CUDA on this machine: take Apple's", "device = \"mps\"")];
    }
    let mut all = vec![
        with_flag("see what the process sees", "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES"),
        with_flag(
            "see whether PyTorch was built for CUDA",
            "python -c 'import torch; print(torch.__version__, torch.version.cuda)'",
        ),
    ];
    if setting.colab {
        all.push(say_text("Colab: Runtime, Change runtime type, a GPU"));
    } else if !setting.windows {
        all.push(with_flag("ask for GPUs", "docker run --gpus all  # srun --gres=gpu:1"));
    }
    all
}

fn cuda_fault(context: &Context<'_>) -> Vec<Advice> {
    if context.setting.amd {
        return vec![
            with_flag("make the traceback point at the kernel", "AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1"),
            say_text("see whether this GPU is one that the ROCm build supports"),
        ];
    }
    vec![
        with_flag("make the traceback point at the kernel", "CUDA_LAUNCH_BLOCKING=1"),
        with_flag("find the access", "compute-sanitizer --tool memcheck python train.py"),
    ]
}

/// A condition of a kernel: nearly always an index.
pub(super) fn assertion(assertion: &str) -> Vec<Advice> {
    vec![
        say_text(&format!("a kernel asserts `{assertion}`: an index, a label or a token's id is out of range")),
        with_flag(
            "compare the largest id with what the layer has",
            "batch[\"input_ids\"].max(), batch[\"labels\"].max(), model.config.vocab_size",
        ),
        with_flag("make the traceback point at the op", "CUDA_LAUNCH_BLOCKING=1  # or run one batch on the CPU"),
    ]
}

/// A build for the GPU at hand.
pub(super) fn kernel_image(architecture: &str) -> Vec<Advice> {
    let number = architecture.trim_start_matches("sm_");
    let dotted = number
        .split_at_checked(number.len().saturating_sub(1))
        .map(|(major, minor)| format!("{major}.{minor}"))
        .unwrap_or_default();
    vec![
        with_flag(
            &format!("this GPU is {architecture}, for which this PyTorch has no kernels: install a build that has"),
            "pip install --upgrade torch  # the CUDA build that PyTorch's install page names for it",
        ),
        with_flag(
            "build extensions for it as well",
            &format!("TORCH_CUDA_ARCH_LIST=\"{dotted}\" pip install --no-build-isolation --force-reinstall PACKAGE"),
        ),
    ]
}

/// Ranks that waited in vain.
fn timeout(context: &Context<'_>) -> Vec<Advice> {
    let mut all = vec![
        say_text("look first for a rank that died or is slow: those that report the timeout only waited for it"),
        with_flag(
            "have every rank note its collectives, and compare the notes",
            "TORCH_FR_BUFFER_SIZE=20000 TORCH_NCCL_DUMP_ON_TIMEOUT=1; then torchfrtrace --prefix /tmp/nccl_trace_rank_ .",
        ),
        with_flag("see where a rank that hangs is", "py-spy dump --pid PID"),
        with_flag("keep a log of every rank", "torchrun --log-dir logs --redirects 3 --tee 3"),
    ];
    if let Some(longer) = framework::of(context.setting).timeout.or(framework::PYTORCH.timeout) {
        let alone = match context.phase {
            Some(Phase::Save) => "it was saving: if one rank writes long alone, give the others more patience",
            Some(Phase::Eval) => {
                "it was evaluating: see that all ranks have as many batches; else give them more patience"
            }
            Some(Phase::Load) => "it was loading: if one rank prepares data long alone, give the others more patience",
            _ => "only if a rank works long alone (saving, tokenising)",
        };
        all.push(with_flag(alone, longer));
    }
    all
}

//! Fixed words of programs that state no exception, and the class that each speaks of among a log's last lines.

use tonnage_core::failure::Class;

/// The words of a line: how it begins, what it has, how it ends; each may be empty.
pub(crate) struct Row {
    pub(crate) class: Class,
    pub(crate) starts: &'static str,
    pub(crate) has: &'static str,
    pub(crate) ends: &'static str,
}

const fn row(class: Class, starts: &'static str, has: &'static str, ends: &'static str) -> Row {
    Row { class, starts, has, ends }
}

pub(crate) const ROWS: &[Row] = &[
    // PBS (src/resmom), LSF (its reports' TERM_ words), Kaggle, Colab.
    row(Class::HostMemory, "=>> PBS: job killed: mem ", "", ""),
    row(Class::HostMemory, "=>> PBS: job killed: vmem ", "", ""),
    row(Class::HostMemory, "TERM_MEMLIMIT: job killed", "", ""),
    row(Class::HostMemory, "Your notebook tried to allocate more memory than is available", "", ""),
    row(Class::HostMemory, "Your session crashed after using all available RAM", "", ""),
    row(Class::HostMemory, "terminate called after throwing an instance of 'std::bad_alloc'", "", ""),
    row(Class::HostMemory, "", "Memory cgroup out of memory: Kill", ""),
    // HTCondor (src/condor_starter), its sites' policies; SageMaker.
    row(Class::HostMemory, "", "Job has gone over cgroup memory limit of ", ""),
    row(Class::HostMemory, "", "Job has gone over memory limit of ", ""),
    row(Class::HostMemory, "", "memory usage exceeded request_memory", ""),
    row(
        Class::TimeLimit,
        "Your runtime has been disconnected due to inactivity or reaching its maximum duration",
        "",
        "",
    ),
    row(Class::TimeLimit, "", "MaxRuntimeExceeded - Training job runtime exceeded MaxRuntimeInSeconds", ""),
    row(Class::Cancelled, "via condor_rm (by user ", "", ")"),
    // SLURM's seff.
    row(Class::HostMemory, "State: OUT_OF_MEMORY", "", ""),
    row(Class::TimeLimit, "State: TIMEOUT", "", ""),
    row(Class::Cancelled, "State: CANCELLED", "", ""),
    row(Class::Preempted, "State: PREEMPTED", "", ""),
    row(Class::NodeFailure, "State: NODE_FAIL", "", ""),
    row(Class::WorkerFailed, "State: FAILED (exit code ", "", ""),
    // scontrol's.
    row(Class::HostMemory, "JobState=OUT_OF_MEMORY ", "", ""),
    row(Class::TimeLimit, "JobState=TIMEOUT ", "", ""),
    row(Class::Cancelled, "JobState=CANCELLED ", "", ""),
    row(Class::Preempted, "JobState=PREEMPTED ", "", ""),
    row(Class::NodeFailure, "JobState=NODE_FAIL ", "", ""),
    // Kubernetes' deadlines of pods and jobs.
    row(Class::TimeLimit, "", " active on the node longer than the specified deadline", ""),
    // A shell's, of SIGXCPU.
    row(Class::TimeLimit, "", "CPU time limit exceeded", ""),
    row(Class::TimeLimit, "", "Job was active longer than specified deadline", ""),
    row(Class::DiskFull, "", ": No space left on device (28)", ""),
    row(Class::DiskFull, "", "[errno 28] No space left on device", ""),
    row(Class::IoError, "", "", ": Stale file handle"),
    row(Class::IoError, "", "", ": Transport endpoint is not connected"),
    row(Class::IoError, "", "", ": Read-only file system"),
    row(Class::Evicted, "Pod ephemeral local storage usage exceeds", "", ""),
    row(Class::Evicted, "Usage of EmptyDir volume", "exceeds the limit", ""),
    row(Class::GpuMemory, "", "ernel failed : out of memory", ""),
    row(Class::NoGpu, "No devices were found", "", ""),
    // absl's handler of signals, which Ray and JAX have; a program's own.
    row(Class::Terminated, "", "*** SIGTERM received at time=", ""),
    row(Class::Terminated, "", "SIGTERM signal received", ""),
    row(Class::Terminated, "", "eceived SIGTERM", ""),
    row(Class::Terminated, "", "eceived signal SIGTERM", ""),
    row(Class::Terminated, "", "aught SIGTERM", ""),
    row(Class::Unreachable, "", "The client socket has failed to connect to any network address of ", ""),
    // Flask's.
    row(Class::PortInUse, "Port ", " is in use by another program", ""),
    row(Class::Unreachable, "ssh: connect to host ", " port ", ""),
    row(Class::Unreachable, "Host key verification failed.", "", ""),
    row(Class::Interrupted, "^C", "", "^C"),
    // What programs say that catch Ctrl-C, beside Python's own name for it.
    row(Class::Interrupted, "", "eyboard interrupt", ""),
    row(Class::Interrupted, "", "eyboard Interrupt", ""),
    row(Class::Interrupted, "KeyboardInterrupt ", "", ""),
    row(Class::Interrupted, "", "aught KeyboardInterrupt", ""),
    row(Class::Interrupted, "", "Detected KeyboardInterrupt, attempting graceful shutdown", ""),
    row(Class::Interrupted, "", "nterrupt signal received", ""),
    // Snakemake's.
    row(Class::Interrupted, "Terminating processes on user request", "", ""),
    row(Class::Interrupted, "--KeyboardInterrupt--", "", "--KeyboardInterrupt--"),
    row(Class::Interrupted, "", "nterrupted by user", ""),
    row(Class::Interrupted, "", "nterrupted by the user", ""),
    row(Class::Terminated, "[", "+  Terminated  ", ""),
    row(Class::Terminated, "User defined signal ", "", ""),
    // glibc's malloc and stack protector.
    row(Class::Crash, "free(): ", "", ""),
    row(Class::Crash, "malloc(): ", "", ""),
    row(Class::Crash, "realloc(): ", "", ""),
    row(Class::Crash, "munmap_chunk(): ", "", ""),
    row(Class::Crash, "malloc_consolidate(): ", "", ""),
    row(Class::Crash, "double free or corruption", "", ""),
    row(Class::Crash, "corrupted double-linked list", "", ""),
    row(Class::Crash, "corrupted size vs. prev_size", "", ""),
    row(Class::Crash, "*** stack smashing detected ***", "", ""),
    row(Class::Crash, "", "Signal: Segmentation fault (11)", ""),
    // Jupyter's, of a kernel that it starts again because it died.
    row(Class::Crash, "", "WARNING:root:kernel ", " restarted"),
    row(Class::Crash, "", "KernelRestarter: restarting kernel (", ""),
    row(Class::Crash, "", "The kernel appears to have died. It will restart automatically", ""),
    row(Class::Crash, "", " Python kernel has crashed", ""),
    row(Class::Crash, "zsh: illegal hardware instruction  ", "", ""),
    // PyTorch's, where it says no more.
    row(Class::NcclError, "", "we are taking the entire process down", ""),
    // Open MPI's count of what it has said, which went to another file.
    row(Class::NcclError, "", "help-mpi-errors.txt / mpi_errors_are_fatal", ""),
    // mpirun's closing words, where it names no signal.
    row(Class::WorkerFailed, "Primary job", "process returned", ""),
    // Python's subprocess, as who caught it prints it.
    row(Class::WorkerFailed, "Command '", "' returned non-zero exit status ", ""),
    // Programs of chemistry; runs of tests.
    row(Class::Reported, "Error termination via ", "", ""),
    row(Class::Reported, "", " finished by error termination in ", ""),
    row(Class::Reported, "FAILED (failures=", "", ")"),
    // The last line of NVIDIA's samples and trtexec.
    row(Class::Reported, "&&&& FAILED ", "", ""),
    row(Class::Reported, "FAILED (errors=", "", ")"),
    row(Class::Reported, "Errors while running CTest", "", ""),
    // Shells: cmd in English and Chinese, PowerShell, zsh, dash, bash; Python's own; SLURM's commands.
    row(Class::Usage, "'", "is not recognized as an internal or external command", ""),
    row(Class::Usage, "'", "不是内部或外部命令", ""),
    row(Class::Usage, "", "is not recognized as the name of a cmdlet", ""),
    row(Class::Usage, "zsh: command not found: ", "", ""),
    row(Class::Usage, "sh: ", "", ": not found"),
    row(Class::Usage, "/bin/sh: ", "", ": not found"),
    row(Class::Usage, "bash: ", "", ": No such file or directory"),
    row(Class::Usage, "-bash: ", "", ": No such file or directory"),
    row(Class::Usage, "/bin/bash: ", "", ": No such file or directory"),
    row(Class::Usage, "bash: ", "", ": Permission denied"),
    row(Class::Usage, "-bash: ", "", ": Permission denied"),
    row(Class::Usage, "/bin/bash: ", "", ": Permission denied"),
    row(Class::Usage, "", ": executable file not found in $PATH", ""),
    row(Class::Usage, "/", "python: No module named ", ""),
    row(Class::Usage, "/", "python3: No module named ", ""),
    row(Class::Usage, "", ": can't find '__main__' module in ", ""),
    row(Class::Usage, "Error: Invalid value for '", "", ""),
    row(Class::Usage, "sbatch: error: ", "", ""),
    row(Class::Usage, "salloc: error: ", "", ""),
    row(Class::Usage, "srun: error: Unable to allocate resources: ", "", ""),
    row(Class::Usage, "srun: error: Unable to create step for job ", ": Invalid ", ""),
    row(Class::Usage, "srun: fatal: ", "", ""),
    row(Class::Usage, "slurmstepd: error: execve(): ", "", ""),
    // bash on a script that it cannot read or run, Linux on a program for another machine.
    row(Class::Usage, "", ": syntax error near unexpected token ", ""),
    row(Class::Usage, "", ": syntax error: unexpected end of file", ""),
    row(Class::Usage, "", ": line ", ": unbound variable"),
    row(Class::Usage, "", ": line ", ": No such file or directory"),
    row(Class::Usage, "", ": line ", ": Permission denied"),
    row(Class::Usage, "", "exec format error", ""),
    // Hydra, which leaves its traceback out.
    row(Class::Usage, "Could not override '", "", ""),
    row(Class::Usage, "Key '", "' is not in struct", ""),
    row(Class::Usage, "Cannot find primary config '", "", ""),
    row(Class::Usage, "You must specify '", ", e.g, ", ""),
    row(Class::Usage, "In '", "': Could not find '", ""),
    row(Class::Usage, "In '", "': Could not load '", ""),
    row(Class::Usage, "", ": cannot execute binary file", ""),
];

/// Whole lines of shells in other languages, and in Markdown's stars.
pub(crate) const LINES: &[(Class, &str)] = &[
    (Class::Reported, "License checkout failed."),
    (Class::Reported, "Exécution arrêtée"),
    (Class::Reported, "Ausführung angehalten"),
    (Class::Reported, "Ejecución interrumpida"),
    (Class::Reported, "Esecuzione interrotta"),
    (Class::Reported, "Execução interrompida"),
    (Class::Killed, "**Killed**"),
    (Class::Killed, "已杀死"),
    (Class::Killed, "已殺死"),
    (Class::Killed, "Getötet"),
    (Class::Killed, "Processus arrêté"),
    (Class::Killed, "Tué"),
    (Class::Killed, "Terminado (killed)"),
    (Class::Killed, "強制終了"),
    (Class::Terminated, "已终止"),
    (Class::Terminated, "Beendet"),
];

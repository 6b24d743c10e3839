//! How much is read of a file. What is longer is refused, before it fills the memory. The aim for a reader at its limit is
//! 500 MiB and 5 s of a processor; `cargo xtask bounds` measures each and names those that miss it.

/// Bytes of a recording or a snapshot of PyTorch's, unpacked: a few megabytes of gzip unpack to any size.
pub const RECORDING_BYTES: u64 = 128 << 20;
/// Events of a timeline, 100 bytes each and as much again for their names; a step of an 8B model has 50,000.
pub const RECORDED_EVENTS: usize = 1_000_000;
/// Phases of a timeline, each with statistics of its own; a step has five.
pub const RECORDED_PHASES: usize = 100_000;
/// Events of a timeline that a rehearsal of one's own left.
pub const REHEARSED_EVENTS: usize = 2_000_000;
/// Allocations and frees of a snapshot, and blocks that were there before.
pub const SNAPSHOT_EVENTS: usize = 1_000_000;
/// Values of a pickle, of which an event of a snapshot is six to eight.
pub const PICKLE_VALUES: usize = 3_000_000;
/// Bytes of a line of a timeline, of a recording of GPUs or of a journal.
pub const LINE_BYTES: usize = 1 << 20;
/// Bytes of a recording or script of GPUs (`tonnage watch --replay`).
pub const GPU_RECORDING_BYTES: u64 = 128 << 20;
/// Lines of one: a line a second for each of eight GPUs, for 34 hours.
pub const GPU_RECORDING_LINES: usize = 1_000_000;
/// Samples of GPUs and processes that are played of one: 25 hours of eight GPUs with a process each, once a second. Of longer
/// ones every so many moments are.
pub const GPU_SAMPLES: usize = 1_500_000;
/// Bytes of a run's journal at its beginning, and as many at its end; what lies between is left out. A year of progress that is
/// noted every half minute has 100 MiB.
pub const JOURNAL_BYTES: u64 = 8 << 20;
/// Bytes of a model's config; those of models with many towers have 100 KiB.
pub const CONFIG_BYTES: usize = 4 << 20;
/// Bytes of a job file; a long one has a few KiB. Finding each value's line costs the square of the length.
pub const JOB_BYTES: usize = 64 << 10;
/// Bytes of a file that a user writes by hand: a suite, a GPU, a DeepSpeed config.
pub const HAND_WRITTEN_BYTES: u64 = 1 << 20;
/// Bytes of the index of a model's weights; that of 200 shards with 200,000 tensors has 20 MiB.
pub const INDEX_BYTES: u64 = 32 << 20;
/// Bytes of the header of a safetensors file: the format's own limit (safetensors 0.8, `MAX_HEADER_SIZE`).
pub const SAFETENSORS_HEADER_BYTES: u64 = 100_000_000;
/// Bytes of a JSON file that Tonnage or its users' programs write: an estimate, a record, a ledger.
pub const JSON_BYTES: u64 = 4 << 20;
/// Bytes of a `trainer_state.json`, which keeps every line that the Trainer logged.
pub const TRAINER_STATE_BYTES: u64 = 256 << 20;

//! Ranks that train together as under `torch.distributed`: a process group of PyTorch's, DistributedDataParallel's own reducer
//! (`c10d::Reducer`, which libtorch has), and the store where ranks meet.
//!
//! Tensors on the CPU go over a [`Transport`] of the program's own, because the headers of PyTorch's Gloo are in no wheel; those on a GPU
//! over the NCCL that PyTorch brought along.

use std::path::Path;
use std::time::Duration;

use crate::device::Device;
use crate::error::TorchError;
use crate::sys;
use crate::tensor::Tensor;

/// Adds numbers to as many others of the same type.
pub type Add<'a> = &'a dyn Fn(&mut [u8], &[u8]) -> Result<(), String>;

/// What moves bytes of host memory between ranks. All ranks call the same in the same order. An error is a sentence.
pub trait Transport: Send + Sync {
    /// Makes the numbers, of `size` bytes each, their sum over all ranks, the same to the last bit on each.
    ///
    /// # Errors
    /// When a rank has gone.
    fn all_reduce(&self, numbers: &mut [u8], size: usize, add: Add<'_>) -> Result<(), String>;

    /// Makes the bytes those of rank `root`.
    ///
    /// # Errors
    /// When a rank has gone.
    fn broadcast(&self, bytes: &mut [u8], root: usize) -> Result<(), String>;

    /// Fills `all` with the bytes of every rank, as many of each, in the order of ranks.
    ///
    /// # Errors
    /// When a rank has gone.
    fn all_gather(&self, own: &[u8], all: &mut [u8]) -> Result<(), String>;
}

/// Bytes of what names a communicator of NCCL (`NCCL_UNIQUE_ID_BYTES`).
pub const NCCL_ID: usize = 128;
/// `broadcast_bucket_size` of DistributedDataParallel.
const BROADCAST_BYTES: i64 = 250 << 20;
/// `bucket_cap_mb` and the first bucket's size where DistributedDataParallel decides (`_DEFAULT_FIRST_BUCKET_BYTES`).
const DEFAULT_BUCKET_CAP: i64 = 25 << 20;
const DEFAULT_FIRST_BUCKET: i64 = 1 << 20;

/// A process group, of which this process is a rank.
pub struct Group(sys::Group);

impl Group {
    /// The group of `ranks` processes over `transport`; `library` is what [`Shim::ranks`](crate::Shim::ranks) gave.
    ///
    /// # Errors
    /// When the library does not load.
    pub fn new(library: &Path, transport: Box<dyn Transport>, rank: u64, ranks: u64) -> Result<Self, TorchError> {
        let number = |number: u64| {
            i32::try_from(number).map_err(|_| TorchError::setup(format!("{number} ranks are more than PyTorch counts")))
        };
        sys::Group::new(sys::RanksLibrary::load(library)?, transport, number(rank)?, number(ranks)?).map(Self)
    }

    /// Names a communicator of NCCL, which one rank does for all.
    ///
    /// # Errors
    /// When this process has no NCCL.
    pub fn nccl_id(&self) -> Result<[u8; NCCL_ID], TorchError> {
        Ok(self.0.library().nccl_id()?.0)
    }

    /// Tensors on `device` go over NCCL from here on. All ranks call it.
    ///
    /// # Errors
    /// NCCL's.
    pub fn use_nccl(&self, id: [u8; NCCL_ID], device: Device) -> Result<(), TorchError> {
        self.0.use_nccl(&sys::NcclId(id), device.index())
    }

    /// Makes the tensors those of rank 0, as DistributedDataParallel does with a module's states (`_broadcast_coalesced`).
    ///
    /// # Errors
    /// When a rank has gone.
    pub fn broadcast(&self, tensors: &[Tensor]) -> Result<(), TorchError> {
        let handles: Vec<_> = tensors.iter().map(Tensor::handle).collect();
        self.0.broadcast(&handles, BROADCAST_BYTES)
    }

    /// Makes each tensor that of rank 0, with nothing beside it (`dist.broadcast`).
    ///
    /// # Errors
    /// When a rank has gone.
    pub fn broadcast_each(&self, tensors: &[Tensor]) -> Result<(), TorchError> {
        let handles: Vec<_> = tensors.iter().map(Tensor::handle).collect();
        self.0.broadcast_each(&handles)
    }

    /// Makes the tensor its sum over all ranks (`dist.all_reduce`).
    ///
    /// # Errors
    /// When a rank has gone.
    pub fn all_reduce(&self, tensor: &Tensor) -> Result<(), TorchError> {
        self.0.all_reduce(tensor.handle())
    }

    /// Fills `all` with every rank's `own`, one after the other (`dist.all_gather_into_tensor`).
    ///
    /// # Errors
    /// When a rank has gone, or there is room for another number of them.
    pub fn all_gather(&self, all: &Tensor, own: &Tensor) -> Result<(), TorchError> {
        self.0.all_gather(all.handle(), own.handle())
    }

    /// The reducer of DistributedDataParallel over these parameters: from here on backward passes that were announced to it make
    /// their gradients the mean over all ranks.
    ///
    /// # Errors
    /// When the device has no room for the buckets.
    pub fn reducer(&self, parameters: &[Tensor], buckets: Buckets) -> Result<Reducer, TorchError> {
        let said = |mebibytes: u64| i64::try_from(mebibytes << 20).unwrap_or(i64::MAX);
        let options = sys::ReducerOptions {
            bucket_cap: buckets.cap_mb.map_or(DEFAULT_BUCKET_CAP, said),
            first_bucket_cap: buckets.cap_mb.map_or(DEFAULT_FIRST_BUCKET, said),
            gradient_as_bucket_view: i32::from(buckets.hold_gradients),
        };
        let handles: Vec<_> = parameters.iter().map(Tensor::handle).collect();
        self.0.reducer(&handles, options).map(Reducer)
    }
}

/// How gradients lie in buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    /// `bucket_cap_mb`: MiB of a bucket; PyTorch's 25 with a first one of 1 where nothing is said.
    pub cap_mb: Option<u64>,
    /// `gradient_as_bucket_view`
    pub hold_gradients: bool,
}

/// DistributedDataParallel round a model: what it does before the model's forward, and after it.
pub struct Reducer(sys::Reducer);

impl Reducer {
    /// Before a forward pass whose gradients are reduced, or are not, as inside `no_sync()`.
    ///
    /// # Errors
    /// When the pass before left gradients out, or a rank has gone.
    pub fn before_forward(&self, reduces: bool) -> Result<(), TorchError> {
        self.0.before_forward(reduces)
    }

    /// After the forward pass, before backward, where its gradients are reduced.
    ///
    /// # Errors
    /// When the pass before left gradients out.
    pub fn before_backward(&self) -> Result<(), TorchError> {
        self.0.before_backward()
    }
}

/// Where ranks leave each other messages before they are connected (`init_method="env://"`).
pub struct Store(sys::Store);

/// Who serves a [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// A process beside this one.
    Another,
    /// This one, on its port.
    Port,
    /// This one, on a socket that listens already: so nobody else can have taken its port.
    Listener(i32),
}

impl Store {
    /// Meets the others at `host`; whatever is waited for is waited for so long at most.
    ///
    /// # Errors
    /// When nobody answers in time, or the port is another's.
    pub fn open(
        library: &Path,
        host: &str,
        port: u16,
        serving: Serving,
        patience: Duration,
    ) -> Result<Self, TorchError> {
        let listener = if let Serving::Listener(listener) = serving { Some(listener) } else { None };
        let milliseconds = i64::try_from(patience.as_millis()).unwrap_or(i64::MAX);
        let library = sys::RanksLibrary::load(library)?;
        sys::Store::open(library, host, port, serving != Serving::Another, listener, milliseconds).map(Self)
    }

    /// Leaves a message.
    ///
    /// # Errors
    /// When who serves it has gone.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), TorchError> {
        self.0.set(key, value)
    }

    /// Waits for a message of `room` bytes at most.
    ///
    /// # Errors
    /// When nobody leaves one in time.
    pub fn get(&self, key: &str, room: usize) -> Result<Vec<u8>, TorchError> {
        self.0.get(key, room)
    }
}

//! The processes of a training: what they tell each other, and how they meet.

mod place;
mod ring;

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tonnage_torch::{Device, Group, NCCL_ID, Serving, Store};

use crate::error::TrainError;

pub use place::{LISTENER, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, Place, RANK, ServedBy, WORLD_SIZE};
use ring::{Ring, Shared, Token, Waiting};

/// As long as PyTorch's ranks wait to meet (`Store::kDefaultTimeout`).
const PATIENCE: Duration = Duration::from_secs(300);
/// Bytes of an address as text.
const ADDRESS_ROOM: usize = 64;

/// The processes of a training, of which this is one. All call the same in the same order.
pub trait Ranks {
    /// How many processes train, at least 1.
    fn count(&self) -> u64;

    /// This one, from 0.
    fn rank(&self) -> u64;

    /// What every rank says, in their order.
    ///
    /// # Errors
    /// When a rank has gone.
    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, TrainError>;

    /// PyTorch's group of them; `None` where this is the only one.
    fn group(&self) -> Option<&Group>;

    /// The sum of numbers over all ranks, each for itself; the same on every rank.
    ///
    /// # Errors
    /// When a rank has gone.
    fn sum(&self, numbers: &[f64]) -> Result<Vec<f64>, TrainError> {
        let own: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let mut sums = vec![0.0; numbers.len()];
        for said in self.gather(&own)? {
            for (sum, number) in sums.iter_mut().zip(said.chunks_exact(8)) {
                *sum += number.try_into().map_or(f64::NAN, f64::from_le_bytes);
            }
        }
        Ok(sums)
    }
}

/// A training in one process: nothing is sent.
pub struct Alone;

impl Ranks for Alone {
    fn count(&self) -> u64 {
        1
    }

    fn rank(&self) -> u64 {
        0
    }

    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, TrainError> {
        Ok(vec![own.to_vec()])
    }

    fn group(&self) -> Option<&Group> {
        None
    }
}

/// One of several processes, connected to the others.
pub struct Joined {
    place: Place,
    ring: Arc<Ring>,
    group: Group,
    /// Others may still read what rank 0 serves.
    _store: Store,
}

impl Joined {
    /// Meets the other ranks; `library` is what [`Shim::ranks`](tonnage_torch::Shim::ranks) gave. Tensors of a GPU go over NCCL.
    ///
    /// # Errors
    /// When they do not come in time, or train something else, by what `program` says of this one.
    pub fn join_ranks(library: &Path, place: Place, device: Device, program: &str) -> Result<Self, TrainError> {
        let (store, ring) = connect_ring(library, &place)?;
        let ring = Arc::new(ring);
        let group = Group::new(library, Box::new(Shared(Arc::clone(&ring))), place.rank, place.ranks)?;
        let joined = Self { place, ring, group, _store: store };
        joined.check_equal(program)?;
        if device != Device::Cpu {
            let own = if joined.rank() == 0 { joined.group.nccl_id()?.to_vec() } else { Vec::new() };
            let first = joined.gather(&own)?.swap_remove(0);
            let id: [u8; NCCL_ID] = first
                .try_into()
                .map_err(|_| TrainError::Ranks("rank 0 has no name for NCCL's communicator".to_owned()))?;
            joined.group.use_nccl(id, device)?;
        }
        Ok(joined)
    }

    /// Whether another rank has gone: what went wrong here is not the cause.
    pub fn has_lost_a_rank(&self) -> bool {
        self.ring.has_lost_a_rank()
    }

    fn check_equal(&self, program: &str) -> Result<(), TrainError> {
        let all = self.gather(program.as_bytes())?;
        let Some(other) = all.iter().position(|other| *other != all[0]) else { return Ok(()) };
        Err(TrainError::refused_with(
            format!("rank {other} was started with another job than rank 0"),
            "all ranks need the same job file, data and version of tonnage, on every machine",
        ))
    }
}

fn connect_ring(library: &Path, place: &Place) -> Result<(Store, Ring), TrainError> {
    let serving = match place.served_by {
        ServedBy::Listener(listener) => Serving::Listener(listener),
        ServedBy::FirstRank if place.rank == 0 => Serving::Port,
        ServedBy::FirstRank | ServedBy::Launcher => Serving::Another,
    };
    let (host, port) = (place.host.as_str(), place.port);
    let apart = |what: &str| {
        let text = what.lines().next().unwrap_or_default().to_owned();
        TrainError::Ranks(format!("rank {} did not meet the others at {host}:{port}: {text}", place.rank))
    };
    let failed = |error: tonnage_torch::TorchError| apart(&error.text);
    let store = Store::open(library, host, port, serving, PATIENCE).map_err(failed)?;
    let key = |name: &str| format!("tonnage/{}/{name}", place.restarts);
    if place.rank == 0 {
        let mut token: Token = [0; 16];
        let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut token));
        random.map_err(|error| TrainError::about_file(Path::new("/dev/urandom"), error))?;
        store.set(&key("token"), &token).map_err(failed)?;
    }
    let waiting = Waiting::at(host, port).map_err(|text| apart(&text))?;
    store.set(&key(&place.rank.to_string()), waiting.address.to_string().as_bytes()).map_err(failed)?;
    let token = store.get(&key("token"), size_of::<Token>()).map_err(failed)?;
    let token: Token = token.try_into().map_err(|_| apart("something else is served there"))?;
    let next = store.get(&key(&((place.rank + 1) % place.ranks).to_string()), ADDRESS_ROOM).map_err(failed)?;
    let next = String::from_utf8(next).ok().and_then(|text| text.parse().ok());
    let next = next.ok_or_else(|| apart("something else is served there"))?;
    let ring = waiting.connect(next, token, place.rank, place.ranks, PATIENCE).map_err(|text| apart(&text))?;
    Ok((store, ring))
}

impl Ranks for Joined {
    fn count(&self) -> u64 {
        self.place.ranks
    }

    fn rank(&self) -> u64 {
        self.place.rank
    }

    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, TrainError> {
        self.ring.gather(own).map_err(TrainError::Ranks)
    }

    fn group(&self) -> Option<&Group> {
        Some(&self.group)
    }
}

//! Ranks in a ring of connections: each sends to the next and receives from the one before it, so that every machine sends and
//! receives the same, and a sum is computed in one order and is the same to the last bit everywhere.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tonnage_torch::{Add, Transport};

/// As long as PyTorch's process groups wait for a rank (`default_pg_timeout`), in milliseconds.
const PATIENCE_MS: i32 = 30 * 60 * 1000;
/// Of what is told by a rank about itself; tensors are not.
const LONGEST_MESSAGE: u64 = 1 << 30;
/// A broadcast goes round in pieces, so that all links work at once.
const PIECE: usize = 1 << 20;
/// What tells the ranks of one training from whoever else connects.
pub(super) type Token = [u8; 16];

/// A connection to each neighbour.
pub(super) struct Ring {
    rank: u64,
    ranks: u64,
    ends: Mutex<Ends>,
    lost: AtomicBool,
}

struct Ends {
    next: TcpStream,
    previous: TcpStream,
}

/// A rank that waits for the one before it.
pub(super) struct Waiting {
    listener: TcpListener,
    /// What others connect to.
    pub address: SocketAddr,
}

/// The address of this machine that a connection to `host` comes from.
fn own_address(host: &str, port: u16) -> std::io::Result<IpAddr> {
    let target = (host, port).to_socket_addrs()?.next().ok_or(ErrorKind::AddrNotAvailable)?;
    let any: IpAddr = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Nothing is sent: the system only chooses the way.
    let probe = UdpSocket::bind((any, 0))?;
    probe.connect(target)?;
    Ok(probe.local_addr()?.ip())
}

impl Waiting {
    /// Listens on a port that the system chooses, where the ranks that meet at `host` can reach it.
    pub fn at(host: &str, port: u16) -> Result<Self, String> {
        let bound = own_address(host, port).and_then(|address| TcpListener::bind((address, 0)));
        let listened = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) =
            listened.map_err(|error| format!("this rank cannot be reached by the others at {host}: {error}"))?;
        Ok(Self { listener, address })
    }

    /// Connects to the next rank and waits for the one before, so long at most.
    pub fn connect(
        self,
        next: SocketAddr,
        token: Token,
        rank: u64,
        ranks: u64,
        patience: Duration,
    ) -> Result<Ring, String> {
        let after = (rank + 1) % ranks;
        let unreachable = |error: std::io::Error| format!("rank {after} cannot be reached at {next}: {error}");
        let mut to_next = TcpStream::connect_timeout(&next, patience).map_err(unreachable)?;
        to_next.write_all(&token).and_then(|()| to_next.write_all(&rank.to_le_bytes())).map_err(unreachable)?;
        let from_previous = self.accept(token, (rank + ranks - 1) % ranks, patience)?;
        for end in [&to_next, &from_previous] {
            end.set_nodelay(true).and_then(|()| end.set_nonblocking(true)).map_err(unreachable)?;
        }
        let ends = Mutex::new(Ends { next: to_next, previous: from_previous });
        Ok(Ring { rank, ranks, ends, lost: AtomicBool::new(false) })
    }

    fn accept(&self, token: Token, wanted: u64, patience: Duration) -> Result<TcpStream, String> {
        let until = Instant::now() + patience;
        let failed = |error: std::io::Error| format!("rank {wanted} did not connect: {error}");
        self.listener.set_nonblocking(true).map_err(failed)?;
        loop {
            match self.listener.accept() {
                Ok((mut stream, _)) => {
                    stream.set_nonblocking(false).map_err(failed)?;
                    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
                    stream.set_read_timeout(Some(left)).map_err(failed)?;
                    let mut hello = [0; 24];
                    // Whoever says something else is none of ours.
                    if stream.read_exact(&mut hello).is_ok()
                        && hello[..16] == token
                        && hello[16..] == wanted.to_le_bytes()
                    {
                        return Ok(stream);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(2)),
                Err(error) => return Err(failed(error)),
            }
            if Instant::now() >= until {
                return Err(format!("rank {wanted} did not connect within {} s", patience.as_secs()));
            }
        }
    }
}

impl Ends {
    /// Sends and receives at once: were one done after the other, all could wait for all.
    fn exchange_bytes(&mut self, mut send: &[u8], mut receive: &mut [u8]) -> Result<(), End> {
        while !send.is_empty() || !receive.is_empty() {
            let mut moved = false;
            if !send.is_empty() {
                match self.next.write(send) {
                    Ok(count) => (send, moved) = (&send[count..], true),
                    Err(error) if would_wait(&error) => {}
                    Err(_) => return Err(End::Next),
                }
            }
            if !receive.is_empty() {
                match self.previous.read(receive) {
                    Ok(0) => return Err(End::Previous),
                    Ok(count) => (receive, moved) = (&mut receive[count..], true),
                    Err(error) if would_wait(&error) => {}
                    Err(_) => return Err(End::Previous),
                }
            }
            if !moved {
                self.wait_ready(!send.is_empty(), !receive.is_empty())?;
            }
        }
        Ok(())
    }

    fn wait_ready(&self, sends: bool, receives: bool) -> Result<(), End> {
        let of = |wanted: bool, flag| if wanted { flag } else { PollFlags::empty() };
        let mut both = [
            PollFd::new(self.next.as_fd(), of(sends, PollFlags::POLLOUT)),
            PollFd::new(self.previous.as_fd(), of(receives, PollFlags::POLLIN)),
        ];
        match poll(&mut both, PollTimeout::try_from(PATIENCE_MS).unwrap_or(PollTimeout::MAX)) {
            Ok(0) => Err(End::Silent),
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(_) => Err(End::Previous),
        }
    }
}

fn would_wait(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// How a connection ended.
enum End {
    Next,
    Previous,
    Silent,
}

impl Ring {
    /// Whether a rank has gone.
    pub fn has_lost_a_rank(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    fn told_lost(&self, result: Result<(), End>) -> Result<(), String> {
        let Err(end) = result else { return Ok(()) };
        self.lost.store(true, Ordering::SeqCst);
        let (next, previous) = ((self.rank + 1) % self.ranks, (self.rank + self.ranks - 1) % self.ranks);
        Err(match end {
            End::Next => format!("rank {next} has gone: its connection to rank {} ended", self.rank),
            End::Previous => format!("rank {previous} has gone: its connection to rank {} ended", self.rank),
            End::Silent => format!("rank {previous} has sent nothing for {} min", PATIENCE_MS / 60_000),
        })
    }

    /// What every rank says, in their order.
    pub fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = vec![Vec::new(); self.ranks as usize];
        all[self.rank as usize] = own.to_vec();
        for step in 0..self.ranks - 1 {
            let sent = ((self.rank + self.ranks - step) % self.ranks) as usize;
            let received = ((self.rank + 2 * self.ranks - step - 1) % self.ranks) as usize;
            let mut length = [0; 8];
            let result = ends.exchange_bytes(&(all[sent].len() as u64).to_le_bytes(), &mut length);
            self.told_lost(result)?;
            let length = u64::from_le_bytes(length);
            if length > LONGEST_MESSAGE {
                return Err(format!("rank {received} speaks of {length} bytes, which is none of this program's"));
            }
            let mut bytes = vec![0; length as usize];
            let result = ends.exchange_bytes(&all[sent], &mut bytes);
            self.told_lost(result)?;
            all[received] = bytes;
        }
        Ok(all)
    }
}

/// The bytes of a rank's part of so many numbers.
fn part_of(numbers: usize, size: usize, ranks: usize, at: usize) -> std::ops::Range<usize> {
    numbers * at / ranks * size..numbers * (at + 1) / ranks * size
}

impl Transport for Ring {
    /// Each part is summed on its way round, then goes round once more.
    fn all_reduce(&self, numbers: &mut [u8], size: usize, add: Add<'_>) -> Result<(), String> {
        let (rank, ranks, count) = (self.rank as usize, self.ranks as usize, numbers.len() / size.max(1));
        let of = |at: usize| part_of(count, size, ranks, at % ranks);
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let mut received = vec![0; (count / ranks + 1) * size];
        for step in 0..ranks - 1 {
            let (sent, own) = (of(rank + ranks - step), of(rank + 2 * ranks - step - 1));
            let received = &mut received[..own.len()];
            let result = ends.exchange_bytes(&numbers[sent], received);
            self.told_lost(result)?;
            add(&mut numbers[own], received)?;
        }
        for step in 0..ranks - 1 {
            let (sent, own) = (of(rank + ranks + 1 - step), of(rank + ranks - step));
            let received = &mut received[..own.len()];
            let result = ends.exchange_bytes(&numbers[sent], received);
            self.told_lost(result)?;
            numbers[own].copy_from_slice(received);
        }
        Ok(())
    }

    fn broadcast(&self, bytes: &mut [u8], root: usize) -> Result<(), String> {
        let (rank, ranks) = (self.rank as usize, self.ranks as usize);
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let (receives, sends) = (rank != root, (rank + 1) % ranks != root && ranks > 1);
        for piece in bytes.chunks_mut(PIECE) {
            let received = if receives { ends.exchange_bytes(&[], piece) } else { Ok(()) };
            let sent = received.and_then(|()| if sends { ends.exchange_bytes(piece, &mut []) } else { Ok(()) });
            self.told_lost(sent)?;
        }
        Ok(())
    }

    fn all_gather(&self, own: &[u8], all: &mut [u8]) -> Result<(), String> {
        let (rank, ranks) = (self.rank as usize, self.ranks as usize);
        let of = |at: usize| at % ranks * own.len()..(at % ranks + 1) * own.len();
        all[of(rank)].copy_from_slice(own);
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let mut received = vec![0; own.len()];
        for step in 0..ranks - 1 {
            let result = ends.exchange_bytes(&all[of(rank + ranks - step)], &mut received);
            self.told_lost(result)?;
            all[of(rank + 2 * ranks - step - 1)].copy_from_slice(&received);
        }
        Ok(())
    }
}

/// A ring that several own.
pub(super) struct Shared(pub Arc<Ring>);

impl Transport for Shared {
    fn all_reduce(&self, numbers: &mut [u8], size: usize, add: Add<'_>) -> Result<(), String> {
        self.0.all_reduce(numbers, size, add)
    }

    fn broadcast(&self, bytes: &mut [u8], root: usize) -> Result<(), String> {
        self.0.broadcast(bytes, root)
    }

    fn all_gather(&self, own: &[u8], all: &mut [u8]) -> Result<(), String> {
        self.0.all_gather(own, all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    /// A ring of threads, each of which does `work`.
    fn ring<R: Send>(ranks: u64, work: impl Fn(&Ring) -> R + Sync) -> Vec<R> {
        let waiting: Vec<Waiting> = (0..ranks).map(|_| Waiting::at("127.0.0.1", 9).unwrap()).collect();
        let addresses: Vec<SocketAddr> = waiting.iter().map(|one| one.address).collect();
        std::thread::scope(|scope| {
            let started: Vec<_> = (0..ranks)
                .zip(waiting)
                .map(|(rank, waiting)| {
                    let (next, work) = (addresses[((rank + 1) % ranks) as usize], &work);
                    scope.spawn(move || work(&waiting.connect(next, [7; 16], rank, ranks, SOON).unwrap()))
                })
                .collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn add(to: &mut [u8], more: &[u8]) -> Result<(), String> {
        for (to, more) in to.chunks_exact_mut(8).zip(more.chunks_exact(8)) {
            let sum = f64::from_le_bytes(to.try_into().unwrap()) + f64::from_le_bytes(more.try_into().unwrap());
            to.copy_from_slice(&sum.to_le_bytes());
        }
        Ok(())
    }

    fn bytes(numbers: &[f64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn sums_are_equal_to_the_bit_whatever_their_number() {
        for ranks in [2, 3, 5] {
            for count in [0, 1, 2, 7, 1000] {
                let all = ring(ranks, |ring| {
                    let own: Vec<f64> = (0..count).map(|at| 0.1 * (at + 1) as f64 * (ring.rank + 1) as f64).collect();
                    let mut numbers = bytes(&own);
                    ring.all_reduce(&mut numbers, 8, &add).unwrap();
                    numbers
                });
                assert!(all.iter().all(|one| *one == all[0]), "{ranks} ranks, {count} numbers");
                let share = (1..=ranks).sum::<u64>() as f64;
                for (at, sum) in all[0].chunks_exact(8).enumerate() {
                    let sum = f64::from_le_bytes(sum.try_into().unwrap());
                    assert!((sum - 0.1 * (at + 1) as f64 * share).abs() < 1e-9);
                }
            }
        }
    }

    #[test]
    fn messages_of_any_length_and_broadcasts_from_any_rank_arrive() {
        let all = ring(3, |ring| {
            let own = vec![ring.rank as u8; ring.rank as usize * 100_000];
            let gathered = ring.gather(&own).unwrap();
            let mut bytes = vec![ring.rank as u8; 2 * PIECE + 5];
            ring.broadcast(&mut bytes, 2).unwrap();
            let mut equal = [0; 9];
            ring.all_gather(&[ring.rank as u8 + 1; 3], &mut equal).unwrap();
            (gathered, bytes, equal)
        });
        for (gathered, bytes, equal) in all {
            assert_eq!(equal, [1, 1, 1, 2, 2, 2, 3, 3, 3]);
            assert_eq!(gathered.iter().map(Vec::len).collect::<Vec<_>>(), [0, 100_000, 200_000]);
            assert!(bytes.len() == 2 * PIECE + 5 && bytes.iter().all(|byte| *byte == 2));
        }
    }

    #[test]
    fn a_rank_that_goes_is_named_and_nobody_waits() {
        let said = ring(2, |ring| if ring.rank == 1 { Ok(vec![]) } else { ring.gather(b"here") });
        let error = said[0].as_ref().unwrap_err();
        assert!(error.starts_with("rank 1 has gone"), "{error}");
    }

    #[test]
    fn strangers_are_not_let_in() {
        let waiting = [Waiting::at("127.0.0.1", 9).unwrap(), Waiting::at("127.0.0.1", 9).unwrap()];
        let [first, second] = &waiting;
        let (to_first, to_second) = (first.address, second.address);
        let mut stranger = TcpStream::connect(to_first).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\nHost: somebody\r\n\r\n").unwrap();
        let [first, second] = waiting;
        std::thread::scope(|scope| {
            let one = scope.spawn(move || first.connect(to_second, [1; 16], 0, 2, SOON).unwrap().gather(b"a"));
            let other = second.connect(to_first, [1; 16], 1, 2, SOON).unwrap().gather(b"b").unwrap();
            assert_eq!((one.join().unwrap().unwrap(), other.len()), (vec![b"a".to_vec(), b"b".to_vec()], 2));
        });
    }
}

//! [`Connections`]: how many there may be at one time. Those that only wait make room for those that ask.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// Connections at one time.
const MOST: usize = 32;

/// Those that are open, the oldest first.
#[derive(Clone, Default)]
pub(super) struct Connections(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    open: VecDeque<Open>,
    /// The number of the last that came.
    last: u64,
}

struct Open {
    number: u64,
    stream: TcpStream,
    /// Whether it has not said yet what it wants.
    is_idle: bool,
}

/// A connection's place among them, given back when it is dropped.
pub(super) struct Place {
    connections: Connections,
    number: u64,
}

impl Connections {
    /// A place for one more, for which the oldest that only waits has to go; `None` where all are being answered.
    pub fn place_for(&self, stream: &TcpStream) -> Option<Place> {
        let stream = stream.try_clone().ok()?;
        let number = self.with(|table| table.add(stream))?;
        Some(Place { connections: self.clone(), number })
    }

    fn with<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Table {
    fn add(&mut self, stream: TcpStream) -> Option<u64> {
        if self.open.len() >= MOST {
            let oldest = self.open.iter().position(|open| open.is_idle)?;
            let closed: Option<io::Result<()>> =
                self.open.remove(oldest).map(|open| open.stream.shutdown(Shutdown::Both));
            // One that is closed already leaves its place as well.
            drop(closed);
        }
        self.last += 1;
        self.open.push_back(Open { number: self.last, stream, is_idle: true });
        Some(self.last)
    }
}

impl Place {
    /// It said what it wants: from now on it does not have to make room.
    pub fn has_asked(&self) {
        self.connections.with(|table| {
            table.open.iter_mut().filter(|open| open.number == self.number).for_each(|open| open.is_idle = false);
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.with(|table| table.open.retain(|open| open.number != self.number));
    }
}

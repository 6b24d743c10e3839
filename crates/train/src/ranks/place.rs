//! Which rank a process is, in the variables that torchrun sets (torch/distributed/elastic/agent/server/local_elastic_agent.py).

use crate::error::TrainError;

/// The number of a process among all of a training, from 0.
pub const RANK: &str = "RANK";
/// How many there are.
pub const WORLD_SIZE: &str = "WORLD_SIZE";
/// Its number on its machine, which is its GPU's.
pub const LOCAL_RANK: &str = "LOCAL_RANK";
/// How many there are on its machine.
pub const LOCAL_WORLD_SIZE: &str = "LOCAL_WORLD_SIZE";
/// Where they meet.
pub const MASTER_ADDR: &str = "MASTER_ADDR";
/// At which port.
pub const MASTER_PORT: &str = "MASTER_PORT";
/// A socket that listens on that port already, by its number in the process of rank 0: this program's own.
pub const LISTENER: &str = "TONNAGE_RANKS_LISTENER";
/// Whether torchrun's agent serves the store.
const AGENT_STORE: &str = "TORCHELASTIC_USE_AGENT_STORE";
/// What torchrun's agent has started before: what those left in the store is not read.
const RESTARTS: &str = "TORCHELASTIC_RESTART_COUNT";

/// A process of a training with several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 0.
    pub rank: u64,
    /// How many processes train.
    pub ranks: u64,
    /// From 0, on its machine.
    pub local_rank: u64,
    /// How many on its machine.
    pub local_ranks: u64,
    /// Where they meet.
    pub host: String,
    /// At which port.
    pub port: u16,
    /// Who serves the store.
    pub served_by: ServedBy,
    /// How often the launcher has started them all before.
    pub restarts: u64,
}

/// Who serves the store where ranks meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedBy {
    /// The launcher (`TORCHELASTIC_USE_AGENT_STORE`).
    Launcher,
    /// Rank 0, on the port.
    FirstRank,
    /// Rank 0, on a socket that it was given.
    Listener(i32),
}

impl Place {
    /// What the variables say, of which `get` gives the values; `None` where they say nothing.
    ///
    /// # Errors
    /// When one is missing, or is no number that it can be.
    pub fn of_variables(get: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, TrainError> {
        let said = |name: &str| get(name).filter(|value| !value.is_empty());
        if said(RANK).is_none() || said(WORLD_SIZE).is_none() {
            return Ok(None);
        }
        let refused =
            |problem: String| TrainError::refused_with(problem, "torchrun sets them; `unset RANK` trains without");
        let number = |name: &str| match said(name).map(|value| value.parse::<u64>()) {
            Some(Ok(number)) => Ok(Some(number)),
            None => Ok(None),
            Some(Err(_)) => Err(refused(format!("the variable {name} is no number"))),
        };
        let needed = |name: &str| refused(format!("the variable {RANK} is set, and {name} is not"));
        let (rank, ranks) = (number(RANK)?.unwrap_or(0), number(WORLD_SIZE)?.unwrap_or(1));
        let local_rank = number(LOCAL_RANK)?.unwrap_or(rank);
        let local_ranks = number(LOCAL_WORLD_SIZE)?.unwrap_or(ranks);
        if rank >= ranks || local_rank >= local_ranks {
            return Err(refused(format!("{RANK} {rank} of {WORLD_SIZE} {ranks} is no rank: they count from 0")));
        }
        let served_by = match number(LISTENER)?.and_then(|listener| i32::try_from(listener).ok()) {
            Some(listener) if rank == 0 => ServedBy::Listener(listener),
            _ if said(AGENT_STORE).is_some_and(|value| value == "True") => ServedBy::Launcher,
            _ => ServedBy::FirstRank,
        };
        Ok(Some(Self {
            rank,
            ranks,
            local_rank,
            local_ranks,
            host: said(MASTER_ADDR).ok_or_else(|| needed(MASTER_ADDR))?,
            port: number(MASTER_PORT)?.and_then(|port| u16::try_from(port).ok()).ok_or_else(|| needed(MASTER_PORT))?,
            served_by,
            restarts: number(RESTARTS)?.unwrap_or(0),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(variables: &[(&str, &str)]) -> Result<Option<Place>, TrainError> {
        Place::of_variables(&|name| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn torchruns_variables_are_read() {
        let all = [
            ("RANK", "5"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("MASTER_ADDR", "node1"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
        ];
        let found = place(&all).unwrap().unwrap();
        assert_eq!((found.rank, found.ranks, found.local_rank, found.local_ranks), (5, 8, 1, 4));
        assert_eq!((found.host.as_str(), found.port, found.restarts), ("node1", 29500, 2));
        assert_eq!(found.served_by, ServedBy::Launcher);
        assert_eq!(place(&[]).unwrap(), None);
        assert_eq!(place(&[("WORLD_SIZE", "4")]).unwrap(), None, "a cluster may set that alone");
    }

    #[test]
    fn a_listener_is_rank_0s() {
        let of = |rank| {
            let variables = [
                ("RANK", rank),
                ("WORLD_SIZE", "2"),
                ("MASTER_ADDR", "127.0.0.1"),
                ("MASTER_PORT", "1"),
                (LISTENER, "7"),
            ];
            place(&variables).unwrap().unwrap().served_by
        };
        assert_eq!((of("0"), of("1")), (ServedBy::Listener(7), ServedBy::FirstRank));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (variables, wanted) in [
            (vec![("RANK", "0"), ("WORLD_SIZE", "2")], "MASTER_ADDR"),
            (vec![("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a")], "MASTER_PORT"),
            (vec![("RANK", "2"), ("WORLD_SIZE", "2")], "is no rank"),
            (vec![("RANK", "x"), ("WORLD_SIZE", "2")], "RANK is no number"),
        ] {
            let said = place(&variables).unwrap_err().to_string();
            assert!(said.contains(wanted), "{said}");
        }
    }
}

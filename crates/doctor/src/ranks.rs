//! [`Ranks`]: which ranks raised, waited, lost the others, were torn down, or were not heard of; and which was first.

use crate::cause::{Collective, FailureCause};
use crate::diagnosis::{Located, Source};
use crate::exception::Raiser;
use crate::setting::Setting;
use crate::stamp::Stamp;
use crate::text;
use tonnage_core::failure::{Class, Strength};

/// Ranks of which the silent ones are listed.
const MOST_RANKS: u32 = 4096;

/// What is known of a rank's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// It states a failure of its own.
    Raised,
    /// It waited for others.
    Waited,
    /// It lost the connection to others.
    Lost,
    /// Its launcher ended it.
    TornDown,
    /// It says nothing.
    Silent,
}

impl End {
    /// Its name for programs: `raised`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Waited => "waited",
            Self::Lost => "lost",
            Self::TornDown => "torn_down",
            Self::Silent => "silent",
        }
    }
}

/// Every rank that is known of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// Each with its end, in the order of ranks; empty where no rank is named.
    pub ends: Vec<(u32, End)>,
    /// Those that stopped at an earlier collective than others.
    pub behind: Vec<u32>,
}

impl Ranks {
    pub(crate) fn of_sources(sources: &[Source], causes: &[Located<'_>], setting: &Setting) -> Self {
        let mut ends: Vec<(u32, End)> =
            causes.iter().filter_map(|found| Some((found.rank()?, end_of(found)?))).collect();
        ends.sort_unstable();
        ends.dedup_by_key(|(rank, _)| *rank);
        if ends.is_empty() {
            return Self::default();
        }
        let of_files = sources.iter().filter_map(|source| source.rank);
        let highest = ends.iter().map(|(rank, _)| *rank).chain(of_files).max().unwrap_or(0);
        let world = setting.world.unwrap_or(0).max(highest.saturating_add(1)).min(MOST_RANKS);
        if world > 1 {
            let silent = (0..world).filter(|rank| ends.iter().all(|(known, _)| known != rank));
            let silent: Vec<(u32, End)> = silent.map(|rank| (rank, End::Silent)).collect();
            ends.extend(silent);
            ends.sort_unstable();
        }
        Self { ends, behind: ranks_behind(causes) }
    }

    /// The ranks that ended so.
    pub fn with(&self, end: End) -> Vec<u32> {
        self.ends.iter().filter(|(_, other)| *other == end).map(|(rank, _)| *rank).collect()
    }

    /// Whether a rank waited for others that were not waiting for it.
    pub(crate) fn has_only_waited(&self, rank: u32) -> bool {
        self.ends.contains(&(rank, End::Waited)) && !self.behind.contains(&rank)
    }
}

fn end_of(found: &Located<'_>) -> Option<End> {
    Some(match (&found.finding.cause, found.class()) {
        (FailureCause::Raised(exception), _) if exception.raiser == Raiser::Launcher => return None,
        (FailureCause::Raised(exception), _) if exception.raiser == Raiser::Victim => End::Lost,
        (_, Class::NcclTimeout) => End::Waited,
        (_, Class::NcclError) => End::Lost,
        (_, Class::Terminated) => End::TornDown,
        (_, Class::WorkerFailed) => return None,
        _ if found.strength() >= Strength::Ending => End::Raised,
        _ => return None,
    })
}

/// The ranks whose collectives stopped earlier than others' of the same group: none where all stopped at the same.
fn ranks_behind(causes: &[Located<'_>]) -> Vec<u32> {
    let measures: [fn(&Collective) -> Option<u64>; 3] =
        [|it| it.last_enqueued, |it| it.sequence, |it| it.last_completed];
    measures.iter().map(|measure| behind_by(causes, *measure)).find(|ranks| !ranks.is_empty()).unwrap_or_default()
}

fn behind_by(causes: &[Located<'_>], measure: fn(&Collective) -> Option<u64>) -> Vec<u32> {
    let mut reached: Vec<(Option<&str>, u32, u64)> = Vec::new();
    for found in causes {
        let FailureCause::NcclTimeout(collective) = &found.finding.cause else { continue };
        let (Some(rank), Some(number)) = (found.rank(), measure(collective)) else { continue };
        let group = collective.group.as_deref();
        if !reached.iter().any(|(other, known, _)| *other == group && *known == rank) {
            reached.push((group, rank, number));
        }
    }
    for group in reached.iter().map(|(group, ..)| *group) {
        let of_group: Vec<(u32, u64)> =
            reached.iter().filter(|(other, ..)| *other == group).map(|(_, rank, number)| (*rank, *number)).collect();
        let low = of_group.iter().map(|(_, number)| *number).min().unwrap_or(0);
        let behind: Vec<u32> = of_group.iter().filter(|(_, number)| *number == low).map(|(rank, _)| *rank).collect();
        if behind.len() < of_group.len() {
            return behind;
        }
    }
    Vec::new()
}

/// Whether ranks of one machine are told from those of another.
fn is_of_several_nodes(setting: &Setting, sources: &[Source]) -> bool {
    let nodes = |source: &Source| {
        let lower = source.name.to_ascii_lowercase();
        let parts: Vec<String> = lower.split(['/', '\\']).map(str::to_owned).collect();
        parts.into_iter().find(|part| part.contains("node") || part.contains("host") || part.contains("worker"))
    };
    let mut names: Vec<String> = sources.iter().filter_map(nodes).collect();
    names.sort_unstable();
    names.dedup();
    setting.several_nodes || names.len() > 1
}

/// The rank that a launcher's summary names as the first to fail.
pub(crate) fn rank_named(causes: &[Located<'_>], setting: &Setting, sources: &[Source]) -> Option<u32> {
    let several = is_of_several_nodes(setting, sources);
    let of = |found: &Located<'_>| match &found.finding.cause {
        FailureCause::WorkerFailed(worker) if worker.first && !(worker.is_local && several) => {
            worker.rank.and_then(|rank| u32::try_from(rank).ok())
        }
        _ => None,
    };
    let named: Vec<(u32, Option<Stamp>)> =
        causes.iter().filter_map(|found| Some((of(found)?, found.finding.stamp))).collect();
    // Every node's agent names its own: of several the earliest, where the clock tells.
    let is_first = |(rank, stamp): &&(u32, Option<Stamp>)| {
        let before = |other: &Option<Stamp>| stamp.zip(*other).is_some_and(|(stamp, other)| stamp.is_before(other));
        named.iter().all(|(other, other_stamp)| other == rank || before(other_stamp))
    };
    named.iter().find(is_first).map(|(rank, _)| *rank)
}

/// The rank that failed first, where anything names it.
pub(crate) fn first_failed(
    root: &Located<'_>,
    causes: &[Located<'_>],
    named: Option<u32>,
    ranks: &Ranks,
    setting: &Setting,
    sources: &[Source],
) -> Option<u32> {
    // What befalls a whole job befalls no rank first.
    if is_of_the_job(root.class()) {
        return only_labelled(root, causes).filter(|_| root.class() == Class::Interrupted);
    }
    let is_victim = is_victim(root);
    // What hangs in a rank's own watchdog is of that rank, where no other rank waits.
    let hangs = root.finding.signature == "nccl_heartbeat"
        && causes.iter().filter_map(Located::rank).all(|rank| Some(rank) == root.rank());
    let has_waited = |rank: &u32| is_victim && !hangs && ranks.has_only_waited(*rank);
    // A launcher names whom it saw end first: of several that waited in vain, one by chance.
    let named = named.filter(|rank| !has_waited(rank));
    if named.is_some() {
        return if is_overruled(root, causes, named) { root.rank() } else { named };
    }
    // Of one process there is no other.
    if setting.single && setting.world.is_none_or(|world| world == 1) && ranks.ends.iter().all(|(rank, _)| *rank == 0) {
        return Some(0);
    }
    if hangs {
        return root.rank();
    }
    let several = is_of_several_nodes(setting, sources);
    if is_victim {
        let one = |ranks: &[u32]| (ranks.len() == 1).then(|| ranks[0]);
        let told = || rank_summary(causes, several).filter(|rank| !has_waited(rank));
        return one(&ranks.behind).or_else(told).or_else(|| one(&silent_logs(sources, causes)));
    }
    if root.rank().is_some() && !(several && root.finding.rank.is_none() && is_local_name(root.source)) {
        return is_alone(root, causes).then(|| root.rank()).flatten();
    }
    let own = worker_rank(root, several).filter(|_| !speaks_of_several(causes));
    own.or_else(|| only_rank(root, causes)).or_else(|| rank_summary(causes, several))
}

/// Whether the root is of a rank that waits in vain or loses the others: it is not the first.
fn is_victim(root: &Located<'_>) -> bool {
    let raised = matches!(&root.finding.cause, FailureCause::Raised(it) if it.raiser == Raiser::Victim);
    // A CUDA call that failed is the rank's own.
    let words = ["unhandled cuda error", "NCCL WARN Cuda failure"];
    let is_own = words.iter().any(|words| text::has_phrase(&root.finding.text, words));
    let lost = matches!(root.class(), Class::NcclTimeout | Class::Unreachable);
    raised || lost || (root.class() == Class::NcclError && !is_own)
}

/// Whether the rank that a launcher saw first lost another one, and that one says why.
fn is_overruled(root: &Located<'_>, causes: &[Located<'_>], named: Option<u32>) -> bool {
    let is_echo = |found: &Located<'_>| found.strength() <= Strength::Echo;
    let mut of_named = causes.iter().filter(|found| found.rank().is_some() && found.rank() == named).peekable();
    root.strength() == Strength::Cause
        && root.rank().is_some()
        && root.rank() != named
        && of_named.peek().is_some()
        && of_named.all(is_echo)
}

/// Whether a class is of what a scheduler or a person does to all ranks at once.
const fn is_of_the_job(class: Class) -> bool {
    matches!(
        class,
        Class::Cancelled
            | Class::TimeLimit
            | Class::Preempted
            | Class::Requeued
            | Class::Interrupted
            | Class::Terminated
            | Class::Hangup
    )
}

/// Whether srun names several tasks that failed, of which a line about one is only the last.
fn speaks_of_several(causes: &[Located<'_>]) -> bool {
    let lists = |found: &&Located<'_>| {
        matches!(&found.finding.cause, FailureCause::WorkerFailed(worker) if worker.rank.is_none() && worker.exit_code > 0)
            && text::has_phrase(&found.finding.text, ": tasks ")
    };
    // MPI tells of every rank that something killed, in the order of their numbers.
    let told = causes.iter().filter(|found| found.finding.signature == "mpi_bad_termination");
    let mut ranks = told.filter_map(|found| worker_rank(found, false));
    let first = ranks.next();
    causes.iter().any(|found| lists(&found)) || ranks.any(|rank| Some(rank) != first)
}

/// The one rank that states the same, where the root itself names none.
fn only_rank(root: &Located<'_>, causes: &[Located<'_>]) -> Option<u32> {
    let same = causes.iter().filter(|found| found.class() == root.class());
    let mut ranks: Vec<u32> = same.filter_map(Located::rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks.first().copied().filter(|_| ranks.len() == 1)
}

/// The one rank that wrote a traceback under its own label, `[rank2]: `, of an interrupt that only it saw.
fn only_labelled(root: &Located<'_>, causes: &[Located<'_>]) -> Option<u32> {
    let same = causes.iter().filter(|found| std::ptr::eq(found.source, root.source));
    let mut ranks: Vec<u32> = same.filter_map(|found| found.finding.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
        .first()
        .copied()
        .filter(|_| ranks.len() == 1 && !causes.iter().any(|found| found.class() == Class::WorkerFailed))
}

/// Whether no other rank states the same, or all of them later, by the clock or by their order in one log.
fn is_alone(root: &Located<'_>, causes: &[Located<'_>]) -> bool {
    let same =
        |found: &&Located<'_>| found.class() == root.class() && found.rank().is_some() && found.rank() != root.rank();
    causes.iter().filter(same).all(|found| match (root.finding.stamp, found.finding.stamp) {
        (Some(first), Some(other)) if other.is_before(first) => false,
        (Some(first), Some(other)) => first.is_before(other) || is_written_before(root, found),
        _ => is_written_before(root, found),
    })
}

/// Whether both raised, label their lines in one log, and the first had written its whole traceback before the other
/// began: ranks write theirs as they end.
fn is_written_before(first: &Located<'_>, other: &Located<'_>) -> bool {
    let labelled = first.finding.rank.is_some() && other.finding.rank.is_some();
    labelled
        && first.finding.chain().is_some()
        && std::ptr::eq(first.source, other.source)
        && other.finding.chain().is_some_and(|head| head > first.finding.line)
}

/// A log whose folder is a machine's numbers the ranks of that machine.
fn is_local_name(source: &Source) -> bool {
    source.name.to_ascii_lowercase().contains("local")
}

/// Ranks with logs of their own in which nothing is found, where others waited.
fn silent_logs(sources: &[Source], causes: &[Located<'_>]) -> Vec<u32> {
    let with_rank: Vec<u32> = sources.iter().filter_map(|source| source.rank).collect();
    let heard = |rank: u32| causes.iter().any(|found| found.rank() == Some(rank));
    let silent: Vec<u32> = with_rank.iter().copied().filter(|rank| !heard(*rank)).collect();
    if with_rank.len() > silent.len() + 1 { silent } else { Vec::new() }
}

/// The rank of a launcher's line about one worker, where it speaks of one alone.
fn rank_summary(causes: &[Located<'_>], several: bool) -> Option<u32> {
    let mut ranks: Vec<u32> = causes.iter().filter_map(|found| worker_rank(found, several)).collect();
    ranks.dedup();
    ranks.first().copied().filter(|_| ranks.len() == 1 && !speaks_of_several(causes))
}

fn worker_rank(found: &Located<'_>, several: bool) -> Option<u32> {
    match &found.finding.cause {
        // Those that end by SIGTERM are torn down after the first.
        FailureCause::WorkerFailed(worker) if !(worker.is_local && several) && worker.exit_code != -15 => {
            worker.rank.and_then(|rank| u32::try_from(rank).ok())
        }
        _ => None,
    }
}

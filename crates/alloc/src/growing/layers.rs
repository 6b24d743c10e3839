//! The layers of a stretch, and how those are replayed of which the small requests are known.

use std::ops::Range;

use super::counters::Level;
use super::{Kind, Op, Run, bytes_at, is_small};
use crate::arena::BlockId;
use crate::caching::OutOfMemory;

/// Where small blocks lie may alternate between so many arrangements.
const MOST_ARRANGEMENTS: usize = 4;
/// After so many layers that did not answer alike the others are run as they are.
const MOST_WATCHED: usize = 3 * MOST_ARRANGEMENTS;
/// Layers are looked for among so many distances between equal events.
const MOST_DISTANCES: usize = 400;

/// Equal sections of a stretch, one after another.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layers {
    /// The first event of the first.
    begin: usize,
    /// How many events each has.
    len: usize,
    count: usize,
}

impl Layers {
    /// The longest run of equal sections; `None` where they are not most of the stretch.
    pub fn find_layers(ops: &[Op]) -> Option<Self> {
        let middle = ops.len() / 2;
        let distances = (1..ops.len().saturating_sub(middle)).filter(|distance| equal_ops(ops, middle, *distance));
        for len in distances.take(MOST_DISTANCES) {
            let after = (middle..ops.len() - len).take_while(|at| equal_ops(ops, *at, len)).count();
            let before = (0..middle).rev().take_while(|at| equal_ops(ops, *at, len)).count();
            let count = (before + after) / len + 1;
            if count > MOST_ARRANGEMENTS && 2 * count * len > ops.len() {
                return Some(Self { begin: middle - before, len, count });
            }
        }
        None
    }

    fn layer_ops(&self, at: usize) -> Range<usize> {
        self.begin + at * self.len..self.begin + (at + 1) * self.len
    }
}

/// Whether the event so far behind another does the same.
fn equal_ops(ops: &[Op], at: usize, distance: usize) -> bool {
    let (one, Some(other)) = (ops[at], ops.get(at + distance)) else { return false };
    one.stream == other.stream
        && match (one.kind, other.kind) {
            (Kind::Free { of: Some(of) }, Kind::Free { of: Some(other) }) => of + distance == other,
            (one, other) => one == other,
        }
}

/// What a section does, its small requests taken together.
enum Part {
    /// The small requests rise to `high`, at this event of the section, and come to `after`.
    Small { high: Level, at: usize, after: Level },
    /// A large request, or what is freed of the large pool.
    Large(usize),
}

/// Small blocks of the layers that live, by the event that made them.
type Live = Vec<(usize, BlockId, u64)>;

/// What is known of the small pool when a section begins.
struct Known {
    /// The small blocks of sections before it: how far back they were made, and their addresses.
    lives: Vec<(usize, u64)>,
    /// Whether anything but the sections' own blocks has changed since the one before.
    is_disturbed: bool,
}

impl<F: FnMut(u64, super::Place)> Run<'_, F> {
    /// One time of the stretch; whether layers answered alike.
    pub(super) fn with_layers(&mut self, layers: &Layers) -> Result<bool, (usize, Box<OutOfMemory>)> {
        self.replay_range(0..layers.begin)?;
        let mut live = Live::new();
        let mut known: Vec<Known> = Vec::new();
        let (mut at, mut is_disturbed, mut found) = (0, true, false);
        while at < layers.count {
            if at >= MOST_WATCHED && !found {
                self.replay_range(layers.layer_ops(at).start..layers.layer_ops(layers.count - 1).end)?;
                break;
            }
            let section = layers.layer_ops(at);
            let lives = live.iter().map(|(made, _, addr)| (section.start - made, *addr)).collect();
            known.push(Known { lives, is_disturbed });
            if let Some(period) = shortest_period(&known) {
                let sections = (layers.count - at) / period * period;
                if sections > 0 && self.skip_layers(layers, at..at + sections, &mut live)? {
                    at += sections;
                    found = true;
                    known.clear();
                    is_disturbed = true;
                    continue;
                }
            }
            is_disturbed = self.watch_section(section, &mut live)?;
            at += 1;
        }
        self.replay_range(layers.layer_ops(layers.count - 1).end..self.ops.len())?;
        Ok(found)
    }

    /// Runs a section and keeps account of its small blocks; whether it changed anything else of the small pool.
    fn watch_section(&mut self, section: Range<usize>, live: &mut Live) -> Result<bool, (usize, Box<OutOfMemory>)> {
        let mut is_disturbed = false;
        for at in section {
            let id = self.ops[at].id as usize;
            let before = (self.allocator.stats().num_device_alloc, self.allocator.stats().num_device_free);
            match self.ops[at].kind {
                Kind::Alloc { bytes, growth } => {
                    self.replay_op(at)?;
                    let small = is_small(bytes_at(bytes, growth, self.time));
                    let stats = self.allocator.stats();
                    is_disturbed |= before.1 != stats.num_device_free || small && before.0 != stats.num_device_alloc;
                    if small {
                        live.push((at, self.blocks[id], self.allocator.address(self.blocks[id])));
                    }
                }
                Kind::Free { of } => {
                    match live.iter().position(|(made, ..)| Some(*made) == of) {
                        Some(at) => drop(live.swap_remove(at)),
                        None => is_disturbed |= self.allocator.is_in_small_pool(self.blocks[id]),
                    }
                    self.replay_op(at)?;
                }
            }
        }
        live.sort_unstable_by_key(|(made, ..)| *made);
        Ok(is_disturbed)
    }

    /// Runs sections whose small requests are answered as before, without them; `false`, and nothing has happened, where
    /// the device may have no room for their large ones.
    fn skip_layers(
        &mut self,
        layers: &Layers,
        sections: Range<usize>,
        live: &mut Live,
    ) -> Result<bool, (usize, Box<OutOfMemory>)> {
        let first = layers.layer_ops(sections.start);
        let (parts, large) = self.section_parts(first.clone());
        if self.allocator.room() < large.saturating_mul(sections.len() as u64) {
            return Ok(false);
        }
        for section in sections.clone() {
            let begin = layers.layer_ops(section).start;
            let mut level = Level::default();
            for part in &parts {
                match *part {
                    Part::Large(at) => self.replay_op(begin + at)?,
                    Part::Small { high, at, after } => {
                        let highest = self.allocator.small_blocks_pass(level, high, after);
                        self.note_rise(highest, begin + at);
                        level = after;
                    }
                }
            }
        }
        let by = sections.len() * layers.len;
        for (made, block, _) in live.iter_mut() {
            self.blocks[self.ops[*made].id as usize] = BlockId::NONE;
            *made += by;
            self.blocks[self.ops[*made].id as usize] = *block;
        }
        Ok(true)
    }

    /// A section in parts, and the most that its large requests can take from the driver.
    fn section_parts(&self, section: Range<usize>) -> (Vec<Part>, u64) {
        let (mut parts, mut large) = (Vec::new(), 0_u64);
        let (mut level, mut high, mut high_at) = (Level::default(), Level::default(), 0);
        for at in section.clone() {
            let made = |of: usize| match self.ops[of].kind {
                Kind::Alloc { bytes, growth } => bytes_at(bytes, growth, self.time),
                Kind::Free { .. } => 0,
            };
            let (asked, rises) = match self.ops[at].kind {
                Kind::Alloc { .. } => (Some(made(at)), true),
                Kind::Free { of } => (of.map(made), false),
            };
            match asked.filter(|bytes| is_small(*bytes)) {
                Some(bytes) if rises => {
                    level = level.plus_bytes(bytes, 1);
                    if level.block > high.block {
                        high_at = at - section.start;
                    }
                    high = high.or_higher(level);
                }
                Some(bytes) => level = level.plus_bytes(bytes, -1),
                None => {
                    parts.push(Part::Small { high, at: high_at, after: level });
                    parts.push(Part::Large(at - section.start));
                    (high, high_at) = (level, at - section.start);
                    if rises {
                        large = large.saturating_add(self.allocator.most_from_driver(asked.unwrap_or(0)));
                    }
                }
            }
        }
        parts.push(Part::Small { high, at: high_at, after: level });
        (parts, large)
    }
}

/// After how many sections the small pool is as it is now.
fn shortest_period(known: &[Known]) -> Option<usize> {
    let (now, earlier) = known.split_last()?;
    let mut is_disturbed = now.is_disturbed;
    for (period, before) in (1..=MOST_ARRANGEMENTS).zip(earlier.iter().rev()) {
        if is_disturbed {
            return None;
        }
        if before.lives == now.lives {
            return Some(period);
        }
        is_disturbed |= before.is_disturbed;
    }
    None
}

//! Which runs share a GPU, when, and for how long: the longest first, none without its bytes.

/// A run to place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item {
    /// GPUs that it takes.
    pub gpus: usize,
    /// Bytes that it is promised on each.
    pub bytes: u64,
    /// How long it takes by itself; runs of unknown length count as none longer than they.
    pub seconds: f64,
}

/// A run in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// The item's index.
    pub item: usize,
    pub gpus: Vec<usize>,
    /// Seconds from the suite's start to its own.
    pub start: f64,
    /// And to its end.
    pub end: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    pub gpus: usize,
    /// Bytes of each.
    pub usable_bytes: u64,
    /// Runs at once, at most.
    pub slots: usize,
}

/// What can be promised now.
pub struct Free {
    /// Bytes of each GPU.
    bytes: Vec<u64>,
    slots: usize,
}

impl Free {
    /// Of a machine on which nothing runs.
    pub fn all_free(machine: &Machine) -> Self {
        Self { bytes: vec![machine.usable_bytes; machine.gpus], slots: machine.slots }
    }

    /// The GPUs with the most room that `item` may have; `None` where they are not free.
    pub fn take_gpus(&mut self, item: &Item) -> Option<Vec<usize>> {
        let mut gpus: Vec<usize> = (0..self.bytes.len()).filter(|gpu| self.bytes[*gpu] >= item.bytes).collect();
        if self.slots == 0 || gpus.len() < item.gpus {
            return None;
        }
        gpus.sort_by_key(|gpu| std::cmp::Reverse(self.bytes[*gpu]));
        gpus.truncate(item.gpus);
        gpus.iter().for_each(|gpu| self.bytes[*gpu] -= item.bytes);
        self.slots -= 1;
        Some(gpus)
    }

    /// Takes back what a run had.
    pub fn give_back(&mut self, item: &Item, gpus: &[usize]) {
        gpus.iter().for_each(|gpu| self.bytes[*gpu] += item.bytes);
        self.slots += 1;
    }
}

/// The order in which runs are started: the longest first, then the largest.
pub fn packing_order(items: &[Item]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&items[*a], &items[*b]);
        b.seconds.total_cmp(&a.seconds).then(b.gpus.cmp(&a.gpus)).then(b.bytes.cmp(&a.bytes))
    });
    order
}

/// Runs that are looked at behind the first that does not fit now.
const LOOKAHEAD: usize = 64;

/// Places all, as if runs on one GPU did not slow each other. What fits no empty machine is left out.
pub fn pack_items(items: &[Item], machine: &Machine) -> Vec<Placed> {
    let fits = |item: &Item| item.gpus <= machine.gpus && item.bytes <= machine.usable_bytes && machine.slots > 0;
    let mut waiting: Vec<usize> = packing_order(items).into_iter().filter(|at| fits(&items[*at])).collect();
    waiting.reverse();
    let (mut free, mut now) = (Free::all_free(machine), 0.0);
    let (mut running, mut done): (Vec<Placed>, Vec<Placed>) = (Vec::new(), Vec::new());
    while !waiting.is_empty() {
        let mut at = waiting.len();
        let mut looked = 0;
        while at > 0 && looked < LOOKAHEAD && free.slots > 0 {
            at -= 1;
            let item = &items[waiting[at]];
            match free.take_gpus(item) {
                Some(gpus) => {
                    running.push(Placed { item: waiting[at], gpus, start: now, end: now + item.seconds });
                    waiting.remove(at);
                }
                None => looked += 1,
            }
        }
        let next = running.iter().map(|one| one.end).fold(f64::INFINITY, f64::min);
        let (ended, others): (Vec<_>, Vec<_>) = running.into_iter().partition(|one| one.end <= next);
        ended.iter().for_each(|one| free.give_back(&items[one.item], &one.gpus));
        (running, now) = (others, next);
        done.extend(ended);
    }
    done.extend(running);
    done.sort_by(|a, b| a.start.total_cmp(&b.start).then(a.item.cmp(&b.item)));
    done
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_longest_begin_and_small_ones_share_a_gpu() {
        let item = |gib: u64, seconds| Item { gpus: 1, bytes: gib * GIB, seconds };
        let items = [item(6, 10.0), item(12, 30.0), item(10, 20.0), item(30, 5.0)];
        let placed = pack_items(&items, &Machine { gpus: 1, usable_bytes: 24 * GIB, slots: 9 });
        let found: Vec<_> = placed.iter().map(|one| (one.item, one.start, one.end)).collect();
        assert_eq!(found, [(1, 0.0, 30.0), (2, 0.0, 20.0), (0, 20.0, 30.0)], "30 GiB fit no GPU of 24");
        let wide = [Item { gpus: 2, ..items[0] }, item(20, 10.0), item(20, 10.0)];
        let placed = pack_items(&wide, &Machine { gpus: 2, usable_bytes: 24 * GIB, slots: 9 });
        assert_eq!(placed[0].gpus.len(), 2);
        assert_eq!(placed[2].start, 10.0);
    }

    proptest! {
        #[test]
        fn promises_never_exceed_a_gpu_and_all_that_fits_is_placed(
            items in prop::collection::vec((1usize..4, 1u64..30, 0u32..50), 1..60), gpus in 1usize..4, slots in 1usize..6,
        ) {
            let items: Vec<Item> = items.into_iter()
                .map(|(gpus, bytes, seconds)| Item { gpus, bytes, seconds: f64::from(seconds) }).collect();
            let machine = Machine { gpus, usable_bytes: 24, slots };
            let placed = pack_items(&items, &machine);
            prop_assert_eq!(placed.len(), items.iter().filter(|item| item.gpus <= gpus && item.bytes <= 24).count());
            for moment in placed.iter().map(|one| one.start) {
                let now = || placed.iter().filter(move |one| one.start <= moment && moment < one.end);
                prop_assert!(now().count() <= slots);
                for gpu in 0..gpus {
                    let promised: u64 = now().filter(|one| one.gpus.contains(&gpu)).map(|one| items[one.item].bytes).sum();
                    prop_assert!(promised <= 24);
                }
            }
        }
    }
}

//! Where parameters lie in a group's flat tensor, and which ranks have a part of each.

use std::ops::Range;

use crate::job::Parallel;
use crate::tensor::Tensor;

/// Partitions begin at multiples of so many elements (`nccl_start_alignment_factor`).
const ALIGNMENT: u64 = 2;

/// What a rank updates of the flat tensor, and where each parameter lies in it.
pub(super) struct Partition {
    /// Elements of a partition; every rank has as many.
    pub elements: u64,
    ranks: u64,
    own: Range<u64>,
    spans: Vec<Range<u64>>,
}

impl Partition {
    pub(super) fn new(parameters: &[Tensor], parallel: Parallel) -> Self {
        let mut end = 0;
        let mut spans = Vec::with_capacity(parameters.len());
        for parameter in parameters {
            let begin = end;
            end += parameter.numel();
            spans.push(begin..end);
        }
        let ranks = parallel.world_size;
        let elements = end.div_ceil(ALIGNMENT * ranks) * ALIGNMENT;
        let own = elements * parallel.rank..elements * (parallel.rank + 1);
        Self { elements, ranks, own, spans }
    }

    /// Elements of the flat tensor.
    pub(super) fn elements_of_all(&self) -> u64 {
        self.elements * self.ranks
    }

    /// Zeros behind the last parameter.
    pub(super) fn padding_of_all(&self) -> u64 {
        self.elements_of_all() - self.spans.last().map_or(0, |span| span.end)
    }

    /// How many elements of a parameter this rank updates; `None` where it is another's.
    pub(super) fn own_part(&self, at: usize) -> Option<u64> {
        let span = self.spans.get(at)?;
        let part = span.end.min(self.own.end).checked_sub(span.start.max(self.own.start))?;
        (part > 0).then_some(part)
    }

    /// Zeros behind this rank's gradients.
    pub(super) fn own_padding(&self) -> u64 {
        let parts: u64 = (0..self.spans.len()).filter_map(|at| self.own_part(at)).sum();
        self.elements - parts
    }
}

/// The partitions of the optimizer's groups, whose parameters follow one another.
pub(super) struct Partitions {
    groups: Vec<Partition>,
}

impl Partitions {
    pub(super) fn new(groups: &[&[Tensor]], parallel: Parallel) -> Self {
        Self { groups: groups.iter().map(|parameters| Partition::new(parameters, parallel)).collect() }
    }

    /// Each group with its parameters' places.
    pub(super) fn groups(&self) -> impl Iterator<Item = (Range<usize>, &Partition)> {
        let mut begin = 0;
        self.groups.iter().map(move |group| {
            let first = begin;
            begin += group.spans.len();
            (first..begin, group)
        })
    }

    fn place(&self, at: usize) -> Option<(&Partition, usize)> {
        let (range, group) = self.groups().find(|(range, _)| range.contains(&at))?;
        Some((group, at - range.start))
    }

    /// How many elements of a parameter this rank updates; `None` where it is another's.
    pub(super) fn own_part(&self, at: usize) -> Option<u64> {
        let (group, place) = self.place(at)?;
        group.own_part(place)
    }

    /// Elements of consecutive gradients by the rank that they go to; neighbours of one rank are one slice.
    pub(super) fn slices(&self, parameters: &[usize]) -> Vec<u64> {
        let mut slices: Vec<u64> = Vec::new();
        let mut last = None;
        for (group, place) in parameters.iter().filter_map(|&at| self.place(at)) {
            let Some(span) = group.spans.get(place) else { continue };
            let mut begin = span.start;
            while begin < span.end {
                let rank = begin / group.elements.max(1);
                let end = span.end.min((rank + 1) * group.elements.max(1));
                match slices.last_mut() {
                    Some(slice) if last == Some(rank) => *slice += end - begin,
                    _ => slices.push(end - begin),
                }
                last = Some(rank);
                begin = end;
            }
        }
        slices
    }
}

//! [`Windows`]: a search for many texts that looks at few places (Wu and Manber, "A fast algorithm for multi-pattern
//! searching", 1994): four bytes that stand in no text's window let it pass over the others.

/// Bytes of every text that are looked for first; a shorter text cannot be searched for so.
pub(crate) const WINDOW: usize = 10;
/// Bytes that are looked at together.
const BLOCK: usize = 4;
/// Bits of a block's hash: a table of 32 KiB stays in a processor's nearest cache.
const BITS: u32 = 15;

/// A search for texts of at least [`WINDOW`] bytes.
pub(crate) struct Windows {
    texts: Vec<Vec<u8>>,
    /// By a block's hash, how far the next window's end may be away.
    shifts: Vec<u8>,
    /// By a block's hash, which of the lists has the texts whose windows end with it.
    lists_at: Vec<u16>,
    /// Texts, and bytes of each up to its window's end.
    lists: Vec<Vec<(usize, usize)>>,
}

impl Windows {
    /// `None` where a text is too short, or where there are more than it counts.
    pub(crate) fn new(texts: &[&[u8]]) -> Option<Self> {
        if texts.len() >= usize::from(u16::MAX) || texts.iter().any(|text| text.len() < WINDOW) {
            return None;
        }
        let farthest = u8::try_from(WINDOW + 1 - BLOCK).ok()?;
        let mut windows = Self {
            texts: texts.iter().map(|text| text.to_vec()).collect(),
            shifts: vec![farthest; 1 << BITS],
            lists_at: vec![0; 1 << BITS],
            lists: vec![Vec::new()],
        };
        for (number, text) in texts.iter().enumerate() {
            windows.add(number, text)?;
        }
        Some(windows)
    }

    fn add(&mut self, number: usize, text: &[u8]) -> Option<()> {
        let start = (0..=text.len() - WINDOW).min_by_key(|start| commonness(text, start + WINDOW - BLOCK))?;
        for (block, away) in text.get(start..start + WINDOW)?.windows(BLOCK).rev().zip(0..) {
            let place = hash(block.try_into().ok()?);
            let shift = self.shifts.get_mut(place)?;
            *shift = away.min(*shift);
            if away == 0 {
                let list = self.lists_at.get_mut(place)?;
                if *list == 0 {
                    *list = u16::try_from(self.lists.len()).ok()?;
                    self.lists.push(Vec::new());
                }
                self.lists.get_mut(usize::from(*list))?.push((number, start + WINDOW));
            }
        }
        Some(())
    }

    /// One of the texts from a place on, the first but for those that overlap: its number, and where it begins.
    pub(crate) fn find(&self, bytes: &[u8], from: usize) -> Option<(usize, usize)> {
        let mut end = from + WINDOW;
        loop {
            let place = hash(bytes.get(end - BLOCK..end)?.try_into().ok()?);
            match self.shifts.get(place) {
                Some(0) => {
                    if let Some(found) = self.at(bytes, from, end, place) {
                        return Some(found);
                    }
                    end += 1;
                }
                shift => end += usize::from(*shift?),
            }
        }
    }

    /// A text whose window ends there.
    fn at(&self, bytes: &[u8], from: usize, end: usize, place: usize) -> Option<(usize, usize)> {
        let list = self.lists.get(usize::from(*self.lists_at.get(place)?))?;
        let mut starts = list.iter().filter_map(|(number, before)| Some((*number, end.checked_sub(*before)?)));
        let stands = |(number, start): &(usize, usize)| {
            let text = self.texts.get(*number).map(Vec::as_slice).unwrap_or_default();
            *start >= from && bytes.get(*start..).is_some_and(|rest| rest.starts_with(text))
        };
        starts.find(stands)
    }
}

fn hash(block: [u8; BLOCK]) -> usize {
    // The golden ratio's bits spread the sums of letters.
    (u32::from_le_bytes(block).wrapping_mul(0x9e37_79b1) >> (32 - BITS)) as usize
}

/// How common the block at `start` is in logs, roughly.
fn commonness(text: &[u8], start: usize) -> u32 {
    let block = text.get(start..start + BLOCK).unwrap_or_default();
    block.iter().map(|byte| u32::from(crate::text::commonness_of(*byte))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_found_wherever_it_stands() {
        let texts: [&[u8]; 5] =
            [b"out of memory!", b"a b c d e f", b"0123456789", b"memory of the", b"SIGSEGV was sent to"];
        let windows = Windows::new(&texts).unwrap();
        for (number, text) in texts.iter().enumerate() {
            for before in 0..40 {
                let hay = ["x y".repeat(20).as_bytes().get(..before).unwrap(), *text, b" and so on"].concat();
                assert_eq!(windows.find(&hay, 0), Some((number, before)), "{number} behind {before}");
                assert_eq!(windows.find(&hay, before), Some((number, before)));
                assert_eq!(windows.find(&hay, before + 1), None);
                assert_eq!(windows.find(&hay[..before + text.len() - 1], 0), None, "cut off");
            }
        }
        assert_eq!(windows.find(b"", 0), None);
        assert_eq!(windows.find(b"0123456789", 99), None);
        assert!(Windows::new(&[b"short"]).is_none());
    }
}

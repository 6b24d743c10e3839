//! [`Stamp`]: when a line was written, as far as it says so; enough to tell which of two files' lines came first.

/// A time of a day, perhaps of a day of the year. Without a year, as many logs write none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Month and day as `month * 100 + day`.
    pub day: Option<u32>,
    /// Milliseconds since midnight.
    pub millis: u32,
}

impl Stamp {
    /// Whether this one is certainly earlier: by a second or more, as clocks of nodes differ.
    pub fn is_before(self, other: Self) -> bool {
        match (self.day, other.day) {
            (Some(day), Some(other_day)) if day != other_day => day < other_day,
            _ => self.millis.saturating_add(1000) <= other.millis,
        }
    }

    /// Seconds from this time to the other; 0 where that is earlier, a day's where they are of different days.
    pub(crate) fn seconds_to(self, other: Self) -> u32 {
        const DAY: u32 = 24 * 60 * 60;
        match (self.day, other.day) {
            (Some(day), Some(other_day)) if day < other_day => DAY,
            (Some(day), Some(other_day)) if day > other_day => 0,
            _ => other.millis.saturating_sub(self.millis) / 1000,
        }
    }

    /// The first time of day that the line's first bytes state.
    pub(crate) fn of_line(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let head = bytes.get(..bytes.len().min(96)).unwrap_or(bytes);
        let at = memchr::memchr_iter(b':', head).find(|at| time_at(head, *at).is_some())?;
        let millis = time_at(head, at)?;
        Some(Self { day: day_before(head.get(..at.checked_sub(2)?)?), millis })
    }
}

/// `10:11:13.345` around the colon at `at`.
fn time_at(text: &[u8], at: usize) -> Option<u32> {
    let two = |from: usize| {
        let pair = text.get(from..from + 2)?;
        pair.iter().all(u8::is_ascii_digit).then(|| u32::from(pair[0] - b'0') * 10 + u32::from(pair[1] - b'0'))
    };
    let (hours, minutes, seconds) = (two(at.checked_sub(2)?)?, two(at + 1)?, two(at + 4)?);
    let colon = text.get(at + 3) == Some(&b':');
    if !colon || hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    let fraction = text.get(at + 6).filter(|point| matches!(point, b'.' | b','));
    let digits = text.get(at + 7..at + 10).filter(|digits| fraction.is_some() && digits.iter().all(u8::is_ascii_digit));
    let millis = digits.map_or(0, |digits| digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')));
    Some(((hours * 60 + minutes) * 60 + seconds) * 1000 + millis)
}

/// The day that ends the text before a time: `2024-05-05 `, `2024-05-05T`, `05-05 `, `E0505 `, `[E505 `.
fn day_before(head: &[u8]) -> Option<u32> {
    let end = head.iter().rposition(u8::is_ascii_digit)?;
    if head.len() - end > 3 {
        return None;
    }
    let start = head.get(..=end)?.iter().rposition(|byte| !byte.is_ascii_digit() && !b"-/".contains(byte));
    let word = head.get(start.map_or(0, |at| at + 1)..=end)?;
    let numbers: Vec<u32> = word
        .split(|byte| b"-/".contains(byte))
        .filter_map(|part| std::str::from_utf8(part).ok()?.parse().ok())
        .collect();
    let (month, date) = match *numbers.as_slice() {
        [_, month, date] if word.len() == 10 && word.get(4).is_some_and(|byte| b"-/".contains(byte)) => (month, date),
        [month, date, _] if word.len() == 10 => (month, date),
        [month, date] => (month, date),
        [glued] if matches!(word.len(), 3 | 4) => (glued / 100, glued % 100),
        _ => return None,
    };
    ((1..=12).contains(&month) && (1..=31).contains(&date)).then(|| month * 100 + date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_logs_write_them() {
        let cases = [
            ("[2024-05-06 10:11:13,345] [ERROR] x", Some((Some(506), 36_673_345))),
            ("2024-05-06T10:11:13.3456Z x", Some((Some(506), 36_673_345))),
            ("[rank3]:[E506 10:11:13.345678 ProcessGroupNCCL.cpp:607] x", Some((Some(506), 36_673_345))),
            ("E0506 10:11:13.345000 2606 api.py:869] x", Some((Some(506), 36_673_345))),
            ("ERROR 05-06 10:11:13 [core.py:3] x", Some((Some(506), 36_673_000))),
            ("05/06/2024 10:11:13 - INFO", Some((Some(506), 36_673_000))),
            ("  time      : 2024-05-06_10:11:13", Some((Some(506), 36_673_000))),
            ("10:11:13 x", Some((None, 36_673_000))),
            ("  0%| | 0/10 [00:00<?, ?it/s]", None),
            ("ratio 3:4:5", None),
            ("4294967295-1 10:11:13 x", Some((None, 36_673_000))),
            ("99999999-5-5 10:11:13 x", Some((None, 36_673_000))),
        ];
        for (text, stamp) in cases {
            assert_eq!(Stamp::of_line(text).map(|stamp| (stamp.day, stamp.millis)), stamp, "{text}");
        }
    }

    #[test]
    fn a_second_tells_before_from_after() {
        let at = |day, millis| Stamp { day, millis };
        assert!(at(Some(506), 0).is_before(at(Some(507), 0)) && at(None, 0).is_before(at(Some(1), 1000)));
        assert!(!at(Some(506), 0).is_before(at(Some(506), 999)));
    }
}

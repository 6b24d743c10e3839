//! [`Look`]: the space and the characters a terminal offers.

/// How text may look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub width: usize,
    /// Whether anything but ASCII may be printed.
    pub unicode: bool,
}

impl Look {
    /// One of two texts, by what may be printed.
    pub(crate) fn pick<'a>(&self, unicode: &'a str, ascii: &'a str) -> &'a str {
        if self.unicode { unicode } else { ascii }
    }

    /// A bar for `share` of `width` columns, in eighths of a column where Unicode allows.
    pub(crate) fn bar(&self, share: f64, width: usize) -> String {
        let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
        if !self.unicode {
            return "#".repeat((eighths + 4) / 8);
        }
        let mut bar = "█".repeat(eighths / 8);
        bar.extend([None, Some('▏'), Some('▎'), Some('▍'), Some('▌'), Some('▋'), Some('▊'), Some('▉')][eighths % 8]);
        if eighths == 0 && share > 0.0 {
            bar.push('▏');
        }
        bar
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_round_to_what_can_be_drawn() {
        let (unicode, ascii) = (Look { width: 80, unicode: true }, Look { width: 80, unicode: false });
        let cases = [(0.0, "", ""), (0.001, "▏", ""), (0.5, "██", "##"), (0.53, "██▏", "##"), (7.0, "████", "####")];
        for (share, fine, coarse) in cases {
            assert_eq!((unicode.bar(share, 4).as_str(), ascii.bar(share, 4).as_str()), (fine, coarse), "{share}");
        }
    }
}

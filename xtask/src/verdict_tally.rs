//! Counts of verdicts that were right and wrong, and how wide tight is.

use std::fmt::Write;

use anyhow::{Result, bail};
use tonnage_core::estimate::Verdict;
use tonnage_core::units::GIB;

/// The bars: percent of the verdicts of a kind that may be wrong.
const FITS_WRONG: f64 = 1.0;
const DOES_NOT_FIT_WRONG: f64 = 5.0;
/// Contexts weigh little beside cases of this size.
const LARGE: u64 = 8 * GIB;

/// What was found.
#[derive(Default)]
pub struct Tally {
    cases: usize,
    recorded: usize,
    fits: Count,
    tight: Count,
    does_not_fit: Count,
    widths: Vec<Width>,
}

/// Verdicts of a kind, and how many of them were wrong; of tight ones, those on GPUs that are too small.
#[derive(Default)]
struct Count {
    given: usize,
    wrong: usize,
}

/// One of the parts of a width.
type Part = fn(&Width) -> u64;

/// What lies between the least and the safe bound of a case, in bytes.
pub struct Width {
    /// The smallest capacity that goes through.
    pub need: u64,
    /// From there to the peak of reserved bytes: runs by flushing the cache.
    pub retries: u64,
    /// From the lowest to the highest context.
    pub context: u64,
    /// The margin, and what is not known.
    pub margin: u64,
}

impl Count {
    fn add(&mut self, wrong: bool) {
        self.given += 1;
        self.wrong += usize::from(wrong);
    }

    fn percent_wrong(&self) -> f64 {
        self.wrong as f64 / self.given.max(1) as f64 * 100.0
    }
}

impl Tally {
    /// Counts a case.
    pub fn case(&mut self, recorded: bool, width: Width) {
        self.cases += 1;
        self.recorded += usize::from(recorded);
        self.widths.push(width);
    }

    /// Counts a verdict on a GPU on which the job truly goes through or not, and without a retry or not.
    pub fn verdict(&mut self, verdict: &Verdict, goes_through: bool, without_retry: bool) {
        match verdict {
            Verdict::Fits => self.fits.add(!without_retry),
            Verdict::Tight { .. } => self.tight.add(!goes_through),
            Verdict::DoesNotFit(_) => self.does_not_fit.add(goes_through),
        }
    }

    pub fn table(&self) -> String {
        let mut text = format!("{} cases, {} with recorded events\n\n", self.cases, self.recorded);
        let _ = writeln!(text, "{:14} {:>9} {:>9} {:>9}   bar", "verdict", "given", "wrong", "percent");
        let rows = [
            ("fits", &self.fits, format!("{FITS_WRONG} %")),
            ("does not fit", &self.does_not_fit, format!("{DOES_NOT_FIT_WRONG} %")),
            ("tight", &self.tight, "wrong: too small after all".to_owned()),
        ];
        for (name, count, bar) in rows {
            let percent = count.percent_wrong();
            let _ = writeln!(text, "{name:14} {:>9} {:>9} {percent:>9.3}   {bar}", count.given, count.wrong);
        }
        text.push_str("\nwidth of tight, in percent of what a case needs\n");
        let _ = writeln!(text, "{:40} {:>8} {:>8} {:>8}", "", "median", "90th", "largest");
        self.widths_of(&mut text, "all cases", 0);
        self.widths_of(&mut text, "cases of 8 GiB and more", LARGE);
        text
    }

    fn widths_of(&self, text: &mut String, title: &str, from: u64) {
        let parts: [(&str, Part); 4] = [
            ("runs by flushing the cache", |width| width.retries),
            ("context not measured", |width| width.context),
            ("margin", |width| width.margin),
            ("together", |width| width.retries + width.context + width.margin),
        ];
        for (name, part) in parts {
            let percent = |width: &Width| part(width) as f64 / width.need.max(1) as f64 * 100.0;
            let mut percents: Vec<f64> = self.widths.iter().filter(|width| width.need >= from).map(percent).collect();
            percents.sort_by(f64::total_cmp);
            let at =
                |share: usize| percents.get((percents.len() * share / 100).min(percents.len() - 1)).unwrap_or(&0.0);
            let name = format!("{title}: {name}");
            let _ = writeln!(text, "{name:52} {:>8.1} {:>8.1} {:>8.1}", at(50), at(90), at(100));
        }
    }

    /// Fails when a bar is missed.
    pub fn check(&self) -> Result<()> {
        let (fits, does_not_fit) = (self.fits.percent_wrong(), self.does_not_fit.percent_wrong());
        if fits > FITS_WRONG || does_not_fit > DOES_NOT_FIT_WRONG {
            bail!("too many wrong verdicts: fits {fits:.2} %, does not fit {does_not_fit:.2} %");
        }
        Ok(())
    }
}

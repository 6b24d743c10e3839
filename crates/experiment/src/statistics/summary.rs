//! What an array is like: mean, median, interquartile mean, standard deviation.

/// The mean; NaN of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard deviation of a sample (n - 1); NaN below two values.
pub fn sd(values: &[f64]) -> f64 {
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    if values.len() < 2 { f64::NAN } else { (squares / (values.len() - 1) as f64).sqrt() }
}

/// The value below which a share `q` of `sorted` lies, between two values linearly (numpy's default).
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = q.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

/// The interquartile mean: without the lowest and the highest quarter, each rounded down to whole values, as rliable and
/// `scipy.stats.trim_mean(values, 0.25)` have it. Of fewer than four values it is the mean.
pub fn iqm(values: &[f64]) -> f64 {
    let (mut sorted, cut) = (values.to_vec(), values.len() / 4);
    sorted.sort_unstable_by(f64::total_cmp);
    mean(&sorted[cut..sorted.len() - cut])
}

/// All of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub n: usize,
    pub mean: f64,
    pub median: f64,
    /// The interquartile mean.
    pub iqm: f64,
    /// The sample's standard deviation; NaN of one value.
    pub sd: f64,
    pub min: f64,
    pub max: f64,
}

impl Summary {
    /// Of `values`; `None` of nothing.
    pub fn of(values: &[f64]) -> Option<Self> {
        let min = values.iter().copied().min_by(f64::total_cmp)?;
        let max = values.iter().copied().max_by(f64::total_cmp)?;
        let (n, mean, median) = (values.len(), mean(values), median(values));
        Some(Self { n, mean, median, iqm: iqm(values), sd: sd(values), min, max })
    }
}

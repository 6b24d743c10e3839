//! Which token comes next: transformers' temperature, top-k and top-p (generation/logits_process.py of 5.17), in that order.

use tonnage_core::job::GenerationSpec;

use tonnage_core::random::SplitMix64;

/// Chooses the next token by temperature, top-k and top-p, with its own random numbers.
#[derive(Clone, Debug)]
pub struct Chooser {
    how: GenerationSpec,
    random: SplitMix64,
}

/// A token, and what it was drawn with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    /// The token's id in the vocabulary.
    pub token: u32,
    /// Natural logarithm of its share of what was drawn from.
    pub log_probability: f64,
}

impl Chooser {
    /// Draws by `seed`.
    pub const fn new(how: GenerationSpec, seed: u64) -> Self {
        Self { how, random: SplitMix64::new(seed) }
    }

    /// Whether it takes the likeliest token in any case.
    pub fn is_greedy(&self) -> bool {
        !self.how.do_sample || self.how.temperature == 0.0 || self.how.top_k == 1
    }

    /// A token by the logits of all.
    pub fn choose(&mut self, logits: &[f32]) -> Option<Drawn> {
        if self.is_greedy() {
            return greedy_token(logits);
        }
        let mut kept: Vec<(u32, f64)> = (0..)
            .zip(logits)
            .filter(|(_, logit)| !logit.is_nan())
            .map(|(token, logit)| (token, f64::from(*logit) / self.how.temperature))
            .collect();
        // The likeliest first; of equal ones the one with the smaller number.
        kept.sort_by(|(a, left), (b, right)| right.total_cmp(left).then(a.cmp(b)));
        if self.how.top_k > 0 {
            kept.truncate(usize::try_from(self.how.top_k).unwrap_or(usize::MAX));
        }
        let mut shares = softmax_shares(&kept);
        let nucleus = nucleus_size(&shares, self.how.top_p);
        shares.truncate(nucleus);
        let all: f64 = shares.iter().sum();
        let mut left = self.random.unit() * all;
        let last = shares.len().checked_sub(1)?;
        let at = shares.iter().position(|share| {
            left -= share;
            left < 0.0
        });
        let at = at.unwrap_or(last);
        Some(Drawn { token: kept[at].0, log_probability: (shares[at] / all).ln() })
    }
}

/// The likeliest; of equal ones the first, as `argmax` has it.
fn greedy_token(logits: &[f32]) -> Option<Drawn> {
    let known = (0_u32..).zip(logits).filter(|(_, logit)| !logit.is_nan());
    let (token, _) = known.reduce(|best, one| if one.1 > best.1 { one } else { best })?;
    Some(Drawn { token, log_probability: log_softmax(logits)[token as usize] })
}

fn softmax_shares(kept: &[(u32, f64)]) -> Vec<f64> {
    let largest = kept.first().map_or(0.0, |(_, logit)| *logit);
    let powers: Vec<f64> = kept.iter().map(|(_, logit)| (logit - largest).exp()).collect();
    let all: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / all).collect()
}

/// How many of the likeliest have `top_p` together; at least one.
fn nucleus_size(shares: &[f64], top_p: f64) -> usize {
    if top_p >= 1.0 {
        return shares.len();
    }
    let mut before = 0.0;
    // A token stays if those before it have less (`cumulative_probs <= 1 - top_p` from below, in transformers' words).
    let kept = shares.iter().take_while(|share| {
        let stays = before < top_p;
        before += **share;
        stays
    });
    kept.count().max(1)
}

/// Natural logarithms of the shares of all tokens.
pub(super) fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().filter(|logit| !logit.is_nan()).fold(f32::NEG_INFINITY, f32::max);
    let largest = f64::from(largest);
    let all: f64 = logits.iter().filter(|logit| !logit.is_nan()).map(|logit| (f64::from(*logit) - largest).exp()).sum();
    logits
        .iter()
        .map(|logit| if logit.is_nan() { f64::NEG_INFINITY } else { f64::from(*logit) - largest - all.ln() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn how(temperature: f64, top_k: u64, top_p: f64) -> GenerationSpec {
        GenerationSpec { do_sample: true, temperature, top_k, top_p, ..GenerationSpec::default() }
    }

    fn counts(how: GenerationSpec, logits: &[f32]) -> Vec<u32> {
        let mut chooser = Chooser::new(how, 3);
        let mut counts = vec![0; logits.len()];
        for _ in 0..20_000 {
            counts[chooser.choose(logits).unwrap().token as usize] += 1;
        }
        counts
    }

    #[test]
    fn draws_follow_the_shares() {
        let logits = [0.0, 3.0_f32.ln(), f32::NEG_INFINITY];
        let found = counts(how(1.0, 0, 1.0), &logits);
        assert!(found[0].abs_diff(5_000) < 350 && found[2] == 0, "{found:?}");
        // Half the temperature squares the odds: 1 to 9.
        let found = counts(how(0.5, 0, 1.0), &logits);
        assert!(found[0].abs_diff(2_000) < 250, "{found:?}");
    }

    #[test]
    fn only_the_likeliest_are_drawn_from() {
        let logits = [1.0, 2.0, 4.0, 3.0];
        let drawn = |how| counts(how, &logits).iter().map(|count| *count > 0).collect::<Vec<_>>();
        assert_eq!(drawn(how(1.0, 2, 1.0)), [false, false, true, true]);
        // Shares: 0.03, 0.09, 0.64, 0.24.
        assert_eq!(drawn(how(1.0, 0, 0.6)), [false, false, true, false]);
        assert_eq!(drawn(how(1.0, 0, 0.7)), [false, false, true, true]);
        assert_eq!(drawn(how(1.0, 0, 0.0)), [false, false, true, false]);
    }

    #[test]
    fn a_seed_decides_and_greedy_needs_none() {
        let logits = [0.5, 0.1, 0.2, 0.4];
        let draw = |seed| {
            let mut chooser = Chooser::new(how(1.0, 0, 1.0), seed);
            (0..20).map(|_| chooser.choose(&logits).unwrap().token).collect::<Vec<_>>()
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
        let mut greedy = Chooser::new(GenerationSpec::default(), 1);
        assert!(greedy.is_greedy());
        let drawn = greedy.choose(&[1.0, 2.0, 2.0, f32::NAN]).unwrap();
        assert_eq!(drawn.token, 1);
        assert!((drawn.log_probability.exp() - 0.4223).abs() < 1e-4);
        assert_eq!(greedy.choose(&[f32::NAN]), None);
    }
}

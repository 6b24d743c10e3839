//! [`Random`]: the one source of chance, so that a report of the same records is the same to the byte.

/// SplitMix64 (Steele, Lea, Flood 2014): the state advances by the golden ratio, the output mixes it.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Sixty-four bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is above zero.
    pub const fn below(&mut self, bound: usize) -> usize {
        ((self.bits() as u128 * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // The first outputs of the reference implementation for seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!([random.bits(), random.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn every_number_below_a_bound_is_as_likely() {
        let mut random = Random::new(1);
        let mut counts = [0; 7];
        (0..70_000).for_each(|_| counts[random.below(7)] += 1);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }
}

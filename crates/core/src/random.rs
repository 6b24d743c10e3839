//! [`SplitMix64`]: the one source of chance, so that the same seed gives the same everywhere.

/// SplitMix64 (Steele, Lea, Flood 2014): the state advances by the golden ratio, the output mixes it.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, evenly (Lemire 2019, without his rejection: the bias is below 2^-32 for bounds of 32 bits).
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// A place in a list of `len`, which is above zero.
    pub const fn index_below(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// From 0 up to 1, without 1: 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // The first outputs of the reference implementation for seed 1234567.
        let mut random = SplitMix64::new(1_234_567);
        assert_eq!([random.next_u64(), random.next_u64()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn draws_are_even_and_within_their_bounds() {
        let mut random = SplitMix64::new(7);
        let mut seen = [0_u32; 5];
        for _ in 0..50_000 {
            seen[random.index_below(5)] += 1;
            assert!((0.0..1.0).contains(&random.unit()));
        }
        // Five standard deviations of a binomial of 50,000 draws with share 1/5.
        assert!(seen.iter().all(|count| count.abs_diff(10_000) < 450), "{seen:?}");
    }
}

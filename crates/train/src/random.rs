//! Numbers by chance that a seed decides, the same on every machine.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Begins at `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, evenly (Lemire 2019, without his rejection: the bias is below 2^-32 for bounds of 32 bits).
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
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
    fn draws_are_even_and_within_their_bounds() {
        let mut random = SplitMix64::new(7);
        let mut seen = [0_u32; 5];
        for _ in 0..50_000 {
            seen[random.below(5) as usize] += 1;
            assert!((0.0..1.0).contains(&random.unit()));
        }
        // Five standard deviations of a binomial of 50,000 draws with share 1/5.
        assert!(seen.iter().all(|count| count.abs_diff(10_000) < 450), "{seen:?}");
    }
}

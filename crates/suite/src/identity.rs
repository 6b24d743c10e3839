//! A run's identity: the hash of what makes it the run that it is. Started again, a suite does only what no run of the same
//! identity has done.

use std::sync::LazyLock;

use serde::Serialize;

/// What makes a run the run that it is.
#[derive(Serialize)]
pub struct Makes<'a> {
    /// Keys of the job that were said, and their values, in the order of the keys.
    pub job: Vec<(&'a str, &'a str)>,
    /// Parameters and their values, likewise.
    pub parameters: Vec<(&'a str, String)>,
    pub seed: u64,
    /// The command, parameters filled in.
    pub command: &'a [String],
    /// The folder it runs in.
    pub directory: &'a str,
    /// The version of the code.
    pub code: &'a str,
}

impl Makes<'_> {
    /// Sixteen hexadecimal digits of the SHA-256 of its JSON.
    pub fn identity(&self) -> String {
        // Of texts and numbers nothing can fail to be written.
        let text = serde_json::to_string(self).unwrap_or_default();
        hex_of(&sha256(text.as_bytes()))[..16].to_owned()
    }
}

/// The digest in hexadecimal digits.
pub fn hex_of(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first 32 bits of the fractions of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2).
static CONSTANTS: LazyLock<[u32; 64]> = LazyLock::new(|| {
    let mut made = [0; 64];
    let is_prime = |n: &u64| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    made.iter_mut().zip((2..).filter(is_prime)).for_each(|(slot, prime)| *slot = fraction_of_root(prime, 3));
    made
});

/// Those of the square roots of the first 8 (5.3.3).
static START: LazyLock<[u32; 8]> =
    LazyLock::new(|| [2, 3, 5, 7, 11, 13, 17, 19].map(|prime| fraction_of_root(prime, 2)));

/// The first 32 bits of the fraction of the root of `n`: of the whole number whose power is at most `n * 2^(32 power)`.
fn fraction_of_root(n: u64, power: u32) -> u32 {
    let target = u128::from(n) << (32 * power);
    let (mut low, mut high) = (0u128, 1u128 << 40);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if middle.checked_pow(power).is_some_and(|raised| raised <= target) { low = middle } else { high = middle }
    }
    (low & 0xffff_ffff) as u32
}

/// SHA-256 (FIPS 180-4).
pub fn sha256(message: &[u8]) -> [u8; 32] {
    let mut state = *START;
    let mut padded = message.to_vec();
    padded.push(0x80);
    // The last eight bytes of a block are the length's.
    let end = (padded.len() + 8).next_multiple_of(64);
    padded.resize(end, 0);
    padded[end - 8..].copy_from_slice(&(message.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        compress_block(&mut state, block, &CONSTANTS);
    }
    let mut digest = [0; 32];
    digest.chunks_exact_mut(4).zip(state).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_be_bytes()));
    digest
}

fn compress_block(state: &mut [u32; 8], block: &[u8], constants: &[u32; 64]) {
    let mut schedule = [0u32; 64];
    for (word, bytes) in schedule.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for at in 16..64 {
        let (a, b) = (schedule[at - 15], schedule[at - 2]);
        let small0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
        let small1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
        schedule[at] = schedule[at - 16].wrapping_add(small0).wrapping_add(schedule[at - 7]).wrapping_add(small1);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, constant) in schedule.iter().zip(constants) {
        let big1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let first = h.wrapping_add(big1).wrapping_add(choice).wrapping_add(*constant).wrapping_add(*word);
        let big0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(big0.wrapping_add(majority)));
    }
    for (word, more) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NIST's examples, and lengths about the end of a block against Python's hashlib.
    #[test]
    fn digests_are_the_published_ones() {
        let of = |text: &[u8]| hex_of(&sha256(text));
        assert_eq!(of(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(of(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let two = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(of(two), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        assert_eq!(of(&[b'a'; 55]), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
        assert_eq!(of(&[b'a'; 56]), "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
        assert_eq!(of(&[b'a'; 63]), "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
        assert_eq!(of(&[b'a'; 64]), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
    }

    #[test]
    fn everything_that_makes_a_run_is_in_its_identity() {
        let command = ["python".to_owned(), "t.py".to_owned()];
        let other = ["python".to_owned(), "t.py ".to_owned()];
        let of = |seed, command: &[String], code, directory| {
            Makes {
                job: vec![("seq_len", "8")],
                parameters: vec![("lr", "1".to_owned())],
                seed,
                command,
                directory,
                code,
            }
            .identity()
        };
        let first = of(1, &command, "a", "/");
        assert_eq!((first.len(), first == of(1, &command, "a", "/")), (16, true));
        for changed in
            [of(2, &command, "a", "/"), of(1, &other, "a", "/"), of(1, &command, "b", "/"), of(1, &command, "a", "/x")]
        {
            assert_ne!(first, changed);
        }
    }
}

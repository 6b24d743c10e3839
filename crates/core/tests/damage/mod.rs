//! Damage to a file that was valid: cuts, other bytes, parts twice, parts of another text. Also used by other crates' tests.

use proptest::prelude::*;

/// A change to a valid file.
#[derive(Clone, Debug)]
pub enum Damage {
    Cut(usize),
    Byte(usize, u8),
    Doubled(usize, usize),
    Spliced(usize, &'static str),
}

/// One to three of them.
pub fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let texts =
        vec!["{", "}", "[", "null", "-1", "18446744073709551616", "1e999", "\"\\ud800\"", "\u{0}", "\n", ",,", "true"];
    let one = prop_oneof![
        any::<usize>().prop_map(Damage::Cut),
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        (any::<usize>(), 1..64_usize).prop_map(|(at, length)| Damage::Doubled(at, length)),
        (any::<usize>(), proptest::sample::select(texts)).prop_map(|(at, text)| Damage::Spliced(at, text)),
    ];
    proptest::collection::vec(one, 1..4)
}

/// A valid file after them.
pub fn damaged(mut bytes: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        let place = |at: usize, bytes: &[u8]| at % (bytes.len() + 1);
        match damage {
            Damage::Cut(at) => bytes.truncate(place(*at, &bytes)),
            Damage::Byte(at, byte) => {
                let at = place(*at, &bytes);
                if let Some(old) = bytes.get_mut(at) {
                    *old = *byte;
                }
            }
            Damage::Doubled(at, length) => {
                let at = place(*at, &bytes);
                let part = bytes[at..(at + length).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
            Damage::Spliced(at, text) => {
                let at = place(*at, &bytes);
                bytes.splice(at..at, text.bytes());
            }
        }
    }
    bytes
}

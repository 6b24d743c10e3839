//! How answers are read: digits and signs, nothing that a parser of floats would take beside them.

/// A whole number as it is written: no sign but `-`, no leading zeros, no `-0`.
pub(crate) fn read_integer(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = !digits.is_empty()
        && digits.len() <= 36
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits.len() == 1 || !digits.starts_with('0'))
        && text != "-0";
    is_plain.then(|| text.parse().ok()).flatten()
}

/// Places behind the point of a decimal number, and the number without its point; trailing zeros are taken off.
pub(crate) fn read_decimal(text: &str) -> Option<(i128, u32)> {
    let (whole, part) = match text.split_once('.') {
        Some((whole, part)) if !part.is_empty() => (whole, part.trim_end_matches('0')),
        Some(_) => return None,
        None => (text, ""),
    };
    let is_negative = whole.starts_with('-');
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    read_integer(digits)?;
    if digits.len() + part.len() > 36 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: i128 = format!("{digits}{part}").parse().ok()?;
    let places = u32::try_from(part.len()).ok()?;
    Some((if is_negative { -number } else { number }, places)).filter(|_| !is_negative || number != 0)
}

/// A decimal number of so many places, as it is written without trailing zeros.
pub(crate) fn write_decimal(number: i128, places: u32) -> String {
    let (sign, digits) = (if number < 0 { "-" } else { "" }, number.unsigned_abs().to_string());
    let places = places as usize;
    let digits = format!("{digits:0>width$}", width = places + 1);
    let (whole, part) = digits.split_at(digits.len() - places);
    let part = part.trim_end_matches('0');
    if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_spelling() {
        assert_eq!((read_integer("-12"), read_integer("0")), (Some(-12), Some(0)));
        for none in ["", "-", "+1", "01", "-0", "1.0", "1 2", "１", "1e3", &"9".repeat(40)] {
            assert_eq!(read_integer(none), None, "{none}");
        }
    }

    #[test]
    fn decimals_may_have_zeros_at_their_end() {
        assert_eq!(
            (read_decimal("1.50"), read_decimal("-0.5"), read_decimal("3")),
            (Some((15, 1)), Some((-5, 1)), Some((3, 0)))
        );
        for none in [".5", "1.", "1.2.3", "1e5", "nan", "inf", "-0", "-0.0", "00.1", "1,5", "0x1"] {
            assert_eq!(read_decimal(none), None, "{none}");
        }
        for (number, places, wanted) in
            [(-5, 1, "-0.5"), (150, 2, "1.5"), (7, 3, "0.007"), (0, 3, "0"), (1200, 2, "12")]
        {
            assert_eq!(write_decimal(number, places), wanted);
            assert!(read_decimal(wanted).is_some());
        }
    }
}

//! Times as people type them: `90m`, `24h`, `3d`.

/// The seconds that `text` means.
///
/// # Errors
/// When it is no number with a unit.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no time: write it as 90m, 24h or 3d");
    let text_trimmed = text.trim();
    let unit_start = text_trimmed.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let (number, unit) = text_trimmed.split_at(unit_start);
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let unit = match unit {
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        "w" => 7.0 * 86400.0,
        _ => return Err(wrong()),
    };
    let seconds = number * unit;
    if seconds.is_finite() && seconds > 0.0 { Ok(seconds) } else { Err(wrong()) }
}

/// Dollars, with or without the sign.
///
/// # Errors
/// When it is no amount above 0.
pub fn parse_dollars(text: &str) -> Result<f64, String> {
    let amount = text.trim().trim_start_matches('$').replace(',', "").parse::<f64>().ok();
    amount
        .filter(|amount| amount.is_finite() && *amount > 0.0)
        .ok_or_else(|| format!("`{text}` is no amount of dollars"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_seconds("90m"), Ok(5400.0));
        assert_eq!(parse_seconds(" 1.5 h "), Ok(5400.0));
        assert_eq!(parse_seconds("3d"), Ok(259_200.0));
        for wrong in ["24", "h", "-1h", "1y", "", "infh"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn dollars_may_have_a_sign() {
        assert_eq!(parse_dollars("$1,200"), Ok(1200.0));
        assert!(["0", "-3", "x", "inf"].iter().all(|text| parse_dollars(text).is_err()));
    }
}

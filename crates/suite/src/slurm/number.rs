//! A number as versions of SLURM write it in JSON: `7`, `"7"`, or `{"set": true, "infinite": false, "number": 7}` (since 23.02).

use serde_json::Value;

/// The number; `None` where there is none, or it is not set.
pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Object(fields) => match fields.get("set") {
            Some(Value::Bool(false)) => None,
            _ => number(fields.get("number")?),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let of = |text: &str| number(&serde_json::from_str(text).unwrap());
        for (text, expected) in [
            ("7", Some(7)),
            ("\"7\"", Some(7)),
            (r#"{"set": true, "infinite": false, "number": 7}"#, Some(7)),
            (r#"{"set": false, "infinite": false, "number": 0}"#, None),
            ("null", None),
            ("-1", None),
            ("\"\"", None),
            ("[]", None),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
    }
}

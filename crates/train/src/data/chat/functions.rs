//! What transformers gives to templates beside Jinja's own: `raise_exception`, `strftime_now`, and a `tojson` that writes as Python's
//! `json.dumps(ensure_ascii=False)` does.

use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value as JinjaValue};
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

pub(super) fn add_functions(environment: &mut Environment<'_>) {
    environment.add_function("raise_exception", |said: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, said))
    });
    environment.add_function("strftime_now", |format: String| strftime(&format, now_seconds()));
    environment.add_filter("tojson", to_json);
}

fn to_json(value: &JinjaValue, how: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = how.get("indent")?;
    let sorts: Option<bool> = how.get("sort_keys")?;
    let _: Option<bool> = how.get("ensure_ascii")?;
    how.assert_all_used()?;
    let failed = |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    let mut value: Value = serde_json::to_value(value).map_err(failed)?;
    if sorts == Some(true) {
        value.sort_all_objects();
    }
    let mut bytes = Vec::new();
    let written = match indent {
        Some(indent) => {
            let indent = " ".repeat(indent);
            value
                .serialize(&mut Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(indent.as_bytes())))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut bytes, Spaced)),
    };
    written.map_err(failed)?;
    String::from_utf8(bytes).map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

/// Python's `", "` and `": "`.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

/// Seconds since 1970, of UTC.
fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Python's `strftime` for the words that templates use; others are refused.
fn strftime(format: &str, seconds: u64) -> Result<String, Error> {
    let (year, month, day) = date_of(seconds / 86_400);
    let (month_name, day_name) = (MONTHS[month as usize - 1], DAYS[(seconds / 86_400 % 7) as usize]);
    let of_day = seconds % 86_400;
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let word = characters.next();
        text.push_str(&match word {
            Some('Y') => year.to_string(),
            Some('y') => format!("{:02}", year % 100),
            Some('m') => format!("{month:02}"),
            Some('d') => format!("{day:02}"),
            Some('B') => month_name.to_owned(),
            Some('b') => month_name[..3].to_owned(),
            Some('A') => day_name.to_owned(),
            Some('a') => day_name[..3].to_owned(),
            Some('H') => format!("{:02}", of_day / 3600),
            Some('M') => format!("{:02}", of_day / 60 % 60),
            Some('S') => format!("{:02}", of_day % 60),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('%') => "%".to_owned(),
            other => {
                let problem = format!("strftime_now: `%{}` is not known here", other.unwrap_or(' '));
                return Err(Error::new(ErrorKind::InvalidOperation, problem));
            }
        });
    }
    Ok(text)
}

/// Year, month and day of a day after 1970-01-01, by the Gregorian calendar.
fn date_of(day: u64) -> (u64, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut left) = (1970, day);
    while left >= 365 + u64::from(leap(year)) {
        left -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `datetime.fromtimestamp(..., timezone.utc).strftime(...)`
    #[test]
    fn dates_are_pythons() {
        for (seconds, written) in [
            (0, "01 Jan 1970 00:00:00 Thu 70-01"),
            (951_782_399, "28 Feb 2000 23:59:59 Mon 00-02"),
            (951_782_400, "29 Feb 2000 00:00:00 Tue 00-02"),
            (1_795_331_220, "22 Nov 2026 07:07:00 Sun 26-11"),
        ] {
            assert_eq!(strftime("%d %b %Y %H:%M:%S %a %y-%m", seconds).unwrap(), written);
        }
        assert_eq!(strftime("%A, %B %d, %F 100%%", 0).unwrap(), "Thursday, January 01, 1970-01-01 100%");
        assert!(strftime("%j", 0).unwrap_err().to_string().contains("`%j`"));
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        let mut environment = Environment::new();
        add_functions(&mut environment);
        let render = |text: &str| {
            let value: Value = serde_json::from_str("{\"b\": [1, 2.5, null, true], \"a\": \"ü\\n\"}").unwrap();
            environment.render_str(text, minijinja::context! { value }).unwrap()
        };
        assert_eq!(render("{{ value | tojson }}"), "{\"b\": [1, 2.5, null, true], \"a\": \"ü\\n\"}");
        assert_eq!(render("{{ value.b | tojson(indent=2) }}"), "[\n  1,\n  2.5,\n  null,\n  true\n]");
        assert_eq!(render("{{ value | tojson(sort_keys=true) }}"), "{\"a\": \"ü\\n\", \"b\": [1, 2.5, null, true]}");
    }
}

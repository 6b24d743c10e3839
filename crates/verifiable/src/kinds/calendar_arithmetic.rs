//! Dates of the Gregorian calendar: leap years, weekdays, days between dates, and the n-th weekday of a month.

use tonnage_core::random::SplitMix64;

use crate::kind::{Kind, Made, Question, adopt_answer};

pub(super) const KIND: Kind = Kind {
    name: "calendar_arithmetic",
    about: "leap years, weekdays, days between dates, the n-th weekday of a month",
    levels: 4,
    is_terse: false,
    make: ask_calendar,
    adopt: adopt_answer,
    check: |question: &Question, answer| answer.eq_ignore_ascii_case(&question.answer),
};

const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
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

/// A level asks one thing more.
fn ask_calendar(random: &mut SplitMix64, level: u32) -> Made {
    match random.below(u64::from(level)) {
        0 => ask_leap_year(random),
        1 => ask_weekday(random),
        2 => ask_days_between(random),
        _ => ask_weekday_of_month(random),
    }
}

fn ask_leap_year(random: &mut SplitMix64) -> Made {
    let year = draw_year(random);
    Made::new(format!("Is {year} a leap year? Answer Yes or No."), if is_leap(year) { "Yes" } else { "No" })
}

fn ask_weekday(random: &mut SplitMix64) -> Made {
    let date = draw_date(random);
    Made::new(
        format!("Which day of the week is {}? Answer with its name.", write_date(date)),
        weekday_name(days_since_1970(date)),
    )
}

fn ask_days_between(random: &mut SplitMix64) -> Made {
    let first = draw_date(random);
    let second = date_of_days(days_since_1970(first) + random.below(1500) as i64);
    let text = format!(
        "How many days are there from {} to {}, the first day not counted?",
        write_date(first),
        write_date(second)
    );
    Made::new(text, (days_since_1970(second) - days_since_1970(first)).to_string())
}

fn ask_weekday_of_month(random: &mut SplitMix64) -> Made {
    let (year, month) = (draw_year(random), 1 + random.below(12) as u32);
    let (nth, weekday) = (random.below(5), random.index_below(7));
    let first = days_since_1970((year, month, 1));
    let until = (weekday as i64 - first.rem_euclid(7) - 3).rem_euclid(7);
    let day = 1 + until + 7 * nth as i64;
    let ordinal = ["first", "second", "third", "fourth", "fifth"][nth as usize];
    let (weekday, name) = (WEEKDAYS[weekday], MONTHS[month as usize - 1]);
    let text = format!(
        "On which day of the month is the {ordinal} {weekday} of {name} {year}? Answer with the number, or with None if \
         there is no such day."
    );
    let has_it = date_of_days(first + day - 1).1 == month;
    Made::new(text, if has_it { day.to_string() } else { "None".to_owned() })
}

/// Year, month from 1, day from 1.
type Date = (i64, u32, u32);

fn draw_year(random: &mut SplitMix64) -> i64 {
    // Centuries come often enough to be learnt.
    if random.below(8) == 0 { 100 * (16 + random.below(9) as i64) } else { 1600 + random.below(800) as i64 }
}

fn draw_date(random: &mut SplitMix64) -> Date {
    let first = days_since_1970((1900, 1, 1));
    date_of_days(first + random.below(73_000) as i64)
}

fn write_date((year, month, day): Date) -> String {
    format!("{} {day}, {year}", MONTHS[month as usize - 1])
}

const fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// The first of January 1970 was a Thursday.
fn weekday_name(days: i64) -> &'static str {
    WEEKDAYS[(days + 3).rem_euclid(7) as usize]
}

/// Days since the first of January 1970 (Hinnant, chrono-compatible low-level date algorithms).
fn days_since_1970((year, month, day): Date) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let months = (i64::from(month) + 9) % 12;
    let of_year = (153 * months + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn date_of_days(days: i64) -> Date {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days - era * 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let months = (5 * of_year + 2) / 153;
    let month = if months < 10 { months + 3 } else { months - 9 };
    let day = of_year - (153 * months + 2) / 5 + 1;
    (year + era * 400 + i64::from(month <= 2), month as u32, day as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (date, weekday) in [((2000, 2, 29), "Tuesday"), ((1900, 3, 1), "Thursday"), ((2026, 11, 22), "Sunday")] {
            assert_eq!(weekday_name(days_since_1970(date)), weekday);
        }
        assert_eq!((days_since_1970((1970, 1, 1)), days_since_1970((2000, 3, 1))), (0, 11_017));
        // 400 years, each day the next of the one before.
        let mut expected: Date = (1600, 1, 1);
        for day in days_since_1970(expected)..days_since_1970((2000, 1, 1)) {
            assert_eq!(date_of_days(day), expected);
            let (year, month, date) = expected;
            let long = [31, 28 + u32::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month as usize - 1];
            expected = match (date == long, month) {
                (false, _) => (year, month, date + 1),
                (true, 12) => (year + 1, 1, 1),
                (true, _) => (year, month + 1, 1),
            };
        }
    }

    #[test]
    fn the_nth_weekday_is_found() {
        let kind = &KIND;
        let mut seen = [0_u32; 2];
        for seed in 0..4000 {
            let question = kind.question(4, seed);
            let Some((ordinal, rest)) = question.text.split_once("is the ").and_then(|(_, rest)| rest.split_once(' '))
            else {
                continue;
            };
            let nth = ["first", "second", "third", "fourth", "fifth"].iter().position(|word| *word == ordinal);
            let (Some(nth), Some((weekday, rest))) = (nth, rest.split_once(" of ")) else { continue };
            let (name, year) = rest.split_once('?').unwrap().0.split_once(' ').unwrap();
            let month = 1 + MONTHS.iter().position(|one| *one == name).unwrap() as u32;
            // By walking through the month.
            let first = days_since_1970((year.parse().unwrap(), month, 1));
            let all: Vec<i64> = (0..31)
                .filter(|day| date_of_days(first + day).1 == month && weekday_name(first + day) == weekday)
                .map(|day| day + 1)
                .collect();
            let expected = all.get(nth).map_or("None".to_owned(), ToString::to_string);
            assert_eq!(question.answer, expected, "{}", question.text);
            seen[usize::from(expected == "None")] += 1;
        }
        assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
    }
}

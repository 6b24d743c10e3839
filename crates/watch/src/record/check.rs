//! [`check`]: what a line of a recording may say. A slip of the pen is named with its line, instead of a figure that is
//! absent or zero without a word.

use super::told::{Object, Told};

/// The version of recordings that is written and read.
pub(super) const VERSION: u64 = 1;

const HEADER: &[&str] = &["tonnage_recording", "started", "driver", "cuda", "t", "error"];
const TEXTS: &[&str] = &["name", "uuid", "pci", "serial", "profile", "compute_capability"];
/// Those the samples have, and those the scripted library answers beside them (docs/watch.md).
const NUMBERS: &[&str] = &[
    "total",
    "reserved",
    "used",
    "bar1_total",
    "bar1_used",
    "utilization",
    "memory_utilization",
    "encoder",
    "decoder",
    "temperature",
    "slowdown_temperature",
    "shutdown_temperature",
    "fan",
    "power",
    "power_limit",
    "energy",
    "graphics_clock",
    "sm_clock",
    "memory_clock",
    "video_clock",
    "max_graphics_clock",
    "max_sm_clock",
    "max_memory_clock",
    "max_video_clock",
    "throttle",
    "performance_state",
    "persistence",
    "compute_mode",
    "display_active",
    "display_mode",
    "ecc_corrected",
    "ecc_uncorrected",
    "remapped_corrected",
    "remapped_uncorrected",
    "remapped_pending",
    "remapped_failed",
    "mig_mode",
    "gpu_instance",
    "compute_instance",
];
const PROCESS_TEXTS: &[&str] = &["name", "command", "user", "container", "job", "node"];
const PROCESS_NUMBERS: &[&str] =
    &["pid", "used", "sm", "mem", "rank", "parent", "started", "gpu_instance", "compute_instance"];
const KINDS: &[&str] = &["compute", "graphics", "mps"];
const RAMP: &[&str] = &["at", "per_second", "most"];

/// Whether a line's values are what a recording can say.
pub(super) fn check_line(values: &Object<'_>) -> Result<(), String> {
    if let Some(version) = values.get("tonnage_recording").filter(|version| version.as_u64() != Some(VERSION)) {
        return Err(format!("`tonnage_recording` is {version}; this program reads version {VERSION}"));
    }
    if let Some(time) = values.get("t").filter(|time| time.as_f64().is_none_or(|time| time < 0.0)) {
        return Err(format!("`t` is {time}, not a number of seconds from 0"));
    }
    if values.get("device").is_some() {
        return check_device(values);
    }
    for (key, value) in values.iter() {
        match key {
            "error" => check_errors(value)?,
            "driver" => check_text(key, value)?,
            "cuda" | "started" => check_number(key, value)?,
            key if HEADER.contains(&key) => {}
            key if is_of_a_device(key) => {
                return Err(format!("`{key}` belongs to a `device`, and the line names none"));
            }
            key => return Err(unknown_key(key)),
        }
    }
    Ok(())
}

fn is_of_a_device(key: &str) -> bool {
    TEXTS.contains(&key) || NUMBERS.contains(&key) || ["processes", "processes_late", "mig", "xid"].contains(&key)
}

fn unknown_key(key: &str) -> String {
    format!("`{key}` is no key of a recording (docs/watch.md has the table)")
}

/// The values of a device, or of an instance of one.
fn check_device(values: &Object<'_>) -> Result<(), String> {
    for (key, value) in values.iter() {
        match key {
            "t" | "device" => {}
            "error" => check_errors(value)?,
            "xid" if value.as_u64().is_some() => {}
            "xid" => return Err(format!("`xid` is {value}, not a number of an Xid")),
            "processes" | "processes_late" => check_list(key, value, check_process)?,
            "mig" => check_list(key, value, check_device)?,
            key if TEXTS.contains(&key) => check_text(key, value)?,
            key if NUMBERS.contains(&key) => check_number(key, value)?,
            key => return Err(unknown_key(key)),
        }
    }
    Ok(())
}

fn check_process(values: &Object<'_>) -> Result<(), String> {
    if values.get("pid").is_none_or(|pid| pid.as_u64().is_none()) {
        return Err("a process has a `pid`".to_owned());
    }
    for (key, value) in values.iter() {
        match key {
            "kind" if value.as_str().is_some_and(|kind| KINDS.contains(&kind)) => {}
            "kind" => return Err(format!("`kind` is {value}, not one of {}", KINDS.join(", "))),
            "gone" | "of_the_host" if matches!(value, Told::Bool(_)) => {}
            key if PROCESS_TEXTS.contains(&key) => check_text(key, value)?,
            key if PROCESS_NUMBERS.contains(&key) => check_number(key, value)?,
            key => return Err(format!("`{key}` is no key of a process")),
        }
    }
    Ok(())
}

fn check_list(key: &str, value: &Told<'_>, each: fn(&Object<'_>) -> Result<(), String>) -> Result<(), String> {
    let wrong = || format!("`{key}` is no list of objects");
    match value {
        Told::Null => Ok(()),
        Told::List(rows) => rows.iter().try_for_each(|row| each(row.as_object().ok_or_else(wrong)?)),
        _ => Err(wrong()),
    }
}

fn check_errors(value: &Told<'_>) -> Result<(), String> {
    let is_word = |word: &Told<'_>| word.as_str().is_some() || word.is_null();
    let is_right =
        value.is_null() || value.as_object().is_some_and(|errors| errors.iter().all(|(_, word)| is_word(word)));
    if is_right { Ok(()) } else { Err("`error` has errors by call, as in {\"*\": \"gpu_is_lost\"}".to_owned()) }
}

fn check_text(key: &str, value: &Told<'_>) -> Result<(), String> {
    if value.as_str().is_some() || value.is_null() { Ok(()) } else { Err(format!("`{key}` is {value}, not a text")) }
}

fn check_number(key: &str, value: &Told<'_>) -> Result<(), String> {
    let is_amount = |value: &Told<'_>| value.as_f64().is_some_and(|number| number >= 0.0);
    let is_right = match value {
        Told::Null => true,
        Told::Object(ramp) => {
            let is_known = |(name, part): (&str, &Told<'_>)| RAMP.contains(&name) && part.as_f64().is_some();
            ramp.get("at").is_some_and(is_amount) && ramp.iter().all(is_known)
        }
        _ => is_amount(value),
    };
    if is_right {
        Ok(())
    } else {
        Err(format!("`{key}` is {value}, not a number from 0, `null` or {{\"at\": A, ...}}"))
    }
}

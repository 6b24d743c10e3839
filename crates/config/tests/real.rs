//! Configs of public repositories, rewritten with the same keys (testdata/configs): none of their keys is lost.

use std::fs;
use std::path::{Path, PathBuf};

use tonnage_config::{Became, ConfigText, Kind, Reading, read_files};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/configs")
}

fn configs() -> Vec<(Kind, String, String)> {
    let mut configs = Vec::new();
    for kind in fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let of = Kind::find_kind(&kind.file_name().unwrap().to_string_lossy()).unwrap();
        for file in fs::read_dir(&kind).unwrap().map(|entry| entry.unwrap().path()) {
            let name = file.strip_prefix(folder()).unwrap().to_string_lossy().into_owned();
            configs.push((of, name, fs::read_to_string(&file).unwrap()));
        }
    }
    configs.sort_by(|one, other| one.1.cmp(&other.1));
    configs
}

fn read(kind: Kind, name: &str, text: &str) -> Reading {
    read_files(&[(Some(kind), ConfigText { name, text })]).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The keys that stand at the left margin, found without a parser.
fn margin_keys(text: &str) -> Vec<String> {
    let key = |line: &str| {
        let (key, _) = line.split_once(':')?;
        let is_key = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || "_-".contains(c));
        is_key.then(|| key.to_owned())
    };
    text.lines().filter_map(key).collect()
}

#[test]
fn there_are_sixty_and_no_key_of_them_is_lost() {
    let configs = configs();
    assert!(configs.len() >= 60, "{}", configs.len());
    for (kind, name, text) in configs {
        let reading = read(kind, &name, &text);
        let keys: Vec<&str> = reading.keys().map(|read| read.key.as_str()).collect();
        assert!(keys.len() > 4, "{name}: {keys:?}");
        if name.ends_with(".yaml") {
            let margin = margin_keys(&text);
            assert!(margin.len() > 4, "{name}");
            for key in margin {
                let is_it = |read: &&str| {
                    **read == key || read.strip_prefix(key.as_str()).is_some_and(|rest| rest.starts_with('.'))
                };
                assert!(keys.iter().any(is_it), "{name}: `{key}` is lost");
            }
        }
        assert_eq!(reading.files[0].keys.len(), {
            let tally = reading.files[0].tally();
            tally.used + tally.no_memory + tally.noted + tally.refused + tally.not_understood
        });
    }
}

#[test]
fn the_kind_of_each_is_told_by_its_keys() {
    for (kind, name, text) in configs() {
        let read =
            read_files(&[(None, ConfigText { name: &name, text: &text })]).unwrap_or_else(|error| panic!("{error}"));
        let told = read.files[0].kind.name();
        assert_eq!(told.split('-').next(), kind.name().split('-').next(), "{name} is taken for {told}");
    }
}

/// What nobody here knows is written down, so that a row that is lost is seen.
#[test]
fn keys_that_nobody_knows_are_those_that_are_known_to_be_unknown() {
    let mut lines = String::new();
    for (kind, name, text) in configs() {
        let reading = read(kind, &name, &text);
        let tally = reading.files[0].tally();
        let unknown: Vec<&str> =
            reading.keys().filter(|read| read.became == Became::NotUnderstood).map(|read| read.key.as_str()).collect();
        lines.push_str(&format!(
            "{name}: {} used, {} no memory, {} noted, {} refused; not understood: {}\n",
            tally.used,
            tally.no_memory,
            tally.noted,
            tally.refused,
            if unknown.is_empty() { "none".to_owned() } else { unknown.join(", ") }
        ));
    }
    let path = folder().join("expected.txt");
    if std::env::var_os("TONNAGE_BLESS").is_some() {
        fs::write(&path, &lines).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), lines, "TONNAGE_BLESS=1 writes it anew");
}

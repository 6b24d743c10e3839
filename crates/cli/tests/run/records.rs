//! Records of an older and of a newer Tonnage: shown, listed, gone on with; what is not known is kept as it is.

use super::Home;

/// The first version's fields, and no more.
const OLDER: (&str, &str) =
    (include_str!("../data/records/older/run.json"), include_str!("../data/records/older/events.jsonl"));
/// Fields, events and values that this version does not know.
const NEWER: (&str, &str) =
    (include_str!("../data/records/newer/run.json"), include_str!("../data/records/newer/events.jsonl"));

fn home(name: &str, (run, events): (&str, &str)) -> Home {
    let home = Home::new(name);
    let folder = home.path("home/runs/20261101-120000");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("run.json"), run.replace("FOLDER", &home.path(".").display().to_string())).unwrap();
    std::fs::write(folder.join("events.jsonl"), events).unwrap();
    home
}

#[test]
fn older_and_newer_records_are_shown_and_gone_on_with() {
    for (name, record) in [("records-older", OLDER), ("records-newer", NEWER)] {
        let home = home(name, record);
        for words in [&["list"][..], &["list", "--json"], &["status"], &["show"], &["show", "--json"], &["logs"]] {
            let output = home.run(words);
            assert_eq!(output.status.code(), Some(0), "{name} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let before = home.last();
        assert_eq!(before["attempts"].as_array().unwrap().len(), 1, "{name}: {before:#}");
        assert_eq!(before["attempts"][0]["failure"]["class"], "killed", "{name}");
        assert_eq!(before["run"]["state"], "abandoned (its supervisor died)", "{name}");
        let output = home.run(&["run", "--resume", "last"]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.stdout, b"trained\n", "{name}");
        let events = std::fs::read_to_string(home.path("home/runs/20261101-120000/events.jsonl")).unwrap();
        assert!(events.starts_with(record.1.trim_end()), "{name}: what was there stays");
        assert_eq!(home.last()["result"]["outcome"], "succeeded", "{name}");
    }
}

#[test]
fn a_record_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new("records-private");
    assert!(home.run(&["run", "--", "true"]).status.success());
    let mut paths = vec![home.path("home")];
    while let Some(path) = paths.pop() {
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
        if path.is_dir() {
            paths.extend(std::fs::read_dir(path).unwrap().flatten().map(|entry| entry.path()));
        }
    }
}

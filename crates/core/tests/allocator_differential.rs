//! Replays what `testdata/allocator/record.py` recorded of PyTorch's allocator under many settings, event by event.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use tonnage_core::alloc::{AllocatorConfig, BlockId, CachingAllocator};
use tonnage_core::units::MIB;

/// The counters of a recording, in its order.
const FIELDS: &str = "allocated_bytes.all.current,reserved_bytes.all.current,requested_bytes.all.current,\
    active_bytes.all.current,inactive_split.all.current,inactive_split_bytes.all.current,segment.all.current,\
    num_alloc_retries,num_ooms,oversize_allocations.current,oversize_segments.current,num_device_alloc,num_device_free";
const COUNTERS: usize = 13;

type Counters = [i64; COUNTERS];

fn counters(allocator: &CachingAllocator) -> Counters {
    let s = allocator.stats();
    let values = [
        s.allocated,
        s.reserved,
        s.requested,
        s.active(),
        s.inactive_split,
        s.inactive_split_bytes,
        s.segments,
        s.num_alloc_retries,
        s.num_ooms,
        s.oversize_allocations,
        s.oversize_segments,
        s.num_device_alloc,
        s.num_device_free,
    ];
    values.map(|n| n as i64)
}

/// `# settings=... total_mib=... fields=...`
fn allocator_of(header: &str) -> CachingAllocator {
    let fields: HashMap<&str, &str> = header.split(' ').filter_map(|word| word.split_once('=')).collect();
    assert_eq!(fields["fields"], FIELDS);
    let total_mib: u64 = fields["total_mib"].parse().unwrap();
    CachingAllocator::new(AllocatorConfig::parse(fields["settings"]).unwrap(), Some(total_mib * MIB))
}

/// Does one event; false if its outcome (success or out of memory) is another than the recorded one.
fn step(allocator: &mut CachingAllocator, live: &mut HashMap<u64, BlockId>, event: &str) -> bool {
    let words: Vec<&str> = event.split_whitespace().collect();
    let number = |i: usize| words[i].parse::<u64>().unwrap();
    match words[0] {
        "a" | "o" => {
            let block = allocator.malloc(number(2));
            let as_recorded = block.is_ok() == (words[0] == "a");
            live.extend(block.ok().map(|block| (number(1), block)));
            return as_recorded;
        }
        "f" => allocator.free(live.remove(&number(1)).unwrap()),
        "e" => allocator.empty_cache(),
        other => panic!("unknown event {other}"),
    }
    true
}

/// Number of events, or the first that differs.
fn check(path: &Path) -> Result<usize, String> {
    let mut text = String::new();
    GzDecoder::new(File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let name = path.file_name().unwrap().to_string_lossy();
    let mut lines = text.lines();
    let mut allocator = allocator_of(lines.next().unwrap());
    let (mut live, mut expected) = (HashMap::new(), [0; COUNTERS]);
    for (index, line) in lines.clone().enumerate() {
        let (event, changes) = line.split_once(" | ").unwrap();
        for (counter, change) in expected.iter_mut().zip(changes.split(' ')) {
            *counter += change.parse::<i64>().unwrap();
        }
        let as_recorded = step(&mut allocator, &mut live, event);
        let found = counters(&allocator);
        if !as_recorded || found != expected {
            let names = FIELDS.split(',').zip(expected.iter().zip(&found));
            let differing: Vec<_> = names.filter(|(_, (e, f))| e != f).collect();
            return Err(format!("{name}, event {index} `{event}`: (PyTorch, here) differ in {differing:?}"));
        }
    }
    Ok(lines.count())
}

fn recordings() -> Vec<PathBuf> {
    let folder = match std::env::var_os("TONNAGE_ALLOCATOR_RECORDINGS") {
        Some(elsewhere) => elsewhere.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/allocator"),
    };
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|e| e == "gz")).collect()
}

/// `TONNAGE_ALLOCATOR_RECORDINGS` names another folder, to check more than is kept here.
#[test]
fn every_event_equals_the_real_allocator() {
    let paths = recordings();
    assert!(paths.len() >= 17);
    let (equal, differing): (Vec<_>, Vec<_>) = paths.iter().map(|path| check(path)).partition(Result::is_ok);
    let differing: Vec<String> = differing.into_iter().filter_map(Result::err).collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    println!("{} events of {} recordings equal", equal.into_iter().flatten().sum::<usize>(), paths.len());
}

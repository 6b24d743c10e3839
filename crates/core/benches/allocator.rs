//! How long one event of a recorded training job takes the allocator: time per iteration over the events printed.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use flate2::read::GzDecoder;
use tonnage_core::alloc::{AllocatorConfig, CachingAllocator, Request, replay};
use tonnage_core::recording::read_timeline;

fn timelines() -> Vec<PathBuf> {
    let folder = match std::env::var_os("TONNAGE_TIMELINES") {
        Some(elsewhere) => elsewhere.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/timelines"),
    };
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "gz")).collect();
    paths.sort();
    paths
}

fn requests(path: &Path) -> Vec<Request> {
    let mut text = String::new();
    GzDecoder::new(File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    read_timeline(&text).unwrap().requests().collect()
}

fn benchmark(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("replay");
    for path in timelines() {
        let requests = requests(&path);
        let name = path.file_name().unwrap().to_string_lossy().replace(".jsonl.gz", "");
        group.throughput(Throughput::Elements(requests.len() as u64));
        for (mode, config) in [("default", AllocatorConfig::default()), ("expandable", AllocatorConfig::expandable())] {
            group.bench_with_input(BenchmarkId::new(mode, &name), &requests, |bencher, requests| {
                bencher.iter(|| {
                    let mut allocator = CachingAllocator::new(config.clone(), None);
                    black_box(replay(&mut allocator, requests.iter().copied())).unwrap()
                });
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(std::time::Duration::from_secs(2));
    targets = benchmark
}
criterion_main!(benches);

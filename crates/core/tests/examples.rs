//! The examples run: each is the program of `cargo run --example`.

#[path = "../examples/builder.rs"]
mod builder;
#[path = "../examples/changes.rs"]
mod changes;
#[path = "../examples/estimate.rs"]
mod estimate;
#[path = "../examples/sweep.rs"]
mod sweep;
#[path = "../examples/verdict.rs"]
mod verdict;

#[test]
fn every_example_runs() {
    builder::main().expect("builder");
    changes::main().expect("changes");
    estimate::main().expect("estimate");
    sweep::main().expect("sweep");
    verdict::main().expect("verdict");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    assert_eq!(std::fs::read_dir(folder).expect("the folder").count(), 5, "an example that no test runs");
}

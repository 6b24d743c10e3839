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

#[test]
fn the_page_about_the_library_shows_the_example_of_the_crate() {
    let read = |path: &str| std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).expect(path);
    let page = read("../../docs/library.md");
    let shown = page.split("```").nth(1).and_then(|block| block.strip_prefix("rust\n")).expect("a block of Rust");
    let source = read("src/lib.rs");
    let docs: Vec<&str> = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim_start).collect();
    assert!(docs.join("\n").contains(shown.trim_end()), "docs/library.md is not what the crate's docs show:\n{shown}");
}

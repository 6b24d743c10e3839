//! Links the program at a fixed address where that is Linux's own C library: the 38,000 relocations of one that may lie anywhere are a
//! megabyte of the program, 170 kB of what pip downloads, and work at every start.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|said| said == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}

//! Links the program at a fixed address on Linux with glibc: what may lie anywhere has a megabyte of relocations (`readelf --sections`), which
//! pip downloads and every start works through. Functions that came out alike are one there (70 KB of the wheel), where rustc brings the linker.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|said| said == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
    if is("PROFILE", "release") && links_with_own_lld() {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// Whether the linker is rustc's own lld: of this target by default since 1.90, unless somebody chose another. GNU's knows no `--icf`.
fn links_with_own_lld() -> bool {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    let said = |name: &str| env::var(name).unwrap_or_default();
    let flags = said("CARGO_ENCODED_RUSTFLAGS");
    if said("TARGET") != TARGET || said("HOST") != TARGET || !said("RUSTC_LINKER").is_empty() || flags.contains("link")
    {
        return false;
    }
    let printed = |what: &[&str]| {
        let output = Command::new(said("RUSTC")).args(what).output().ok()?;
        String::from_utf8(output.stdout).ok()
    };
    let minor = printed(&["--version"]).and_then(|version| version.split('.').nth(1)?.parse::<u32>().ok());
    let folder = printed(&["--print", "sysroot"]);
    let has_lld =
        |folder: String| Path::new(folder.trim()).join("lib/rustlib").join(TARGET).join("bin/gcc-ld/ld.lld").exists();
    minor.is_some_and(|minor| minor >= 90) && folder.is_some_and(has_lld)
}

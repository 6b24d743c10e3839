//! Compiles `crates/phantom` to the shared library that `tonnage rehearse` preloads; it needs nothing but rustc.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let source = Path::new("../phantom/src");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-changed=build.rs");
    let library = PathBuf::from(variable("OUT_DIR")).join("libtonnage_phantom.so");
    // The loader that reads LD_PRELOAD is Linux's; elsewhere the program says that it cannot rehearse.
    if variable("CARGO_CFG_TARGET_OS") == "linux" {
        compile(&source.join("lib.rs"), &library);
    } else if let Err(error) = std::fs::write(&library, []) {
        fail(&format!("{}: {error}", library.display()));
    }
}

fn compile(source: &Path, library: &Path) {
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args([
        "--crate-type",
        "cdylib",
        "--crate-name",
        "tonnage_phantom",
        "--edition",
        "2024",
        "--cap-lints",
        "allow",
    ]);
    // The soname makes it the driver that PyTorch and Triton look for by name.
    for option in ["opt-level=2", "panic=abort", "strip=symbols", "link-arg=-Wl,-soname,libcuda.so.1"] {
        rustc.args(["-C", option]);
    }
    if variable("TARGET") != variable("HOST") {
        rustc.args(["--target", &variable("TARGET")]);
    }
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={linker}"));
    }
    rustc.arg("-o").arg(library).arg(source);
    match rustc.status() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("{}: {status}", source.display())),
        Err(error) => fail(&format!("{}: {error}", variable("RUSTC"))),
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

fn fail(problem: &str) -> ! {
    eprintln!("the phantom GPU's library: {problem}");
    std::process::exit(1)
}

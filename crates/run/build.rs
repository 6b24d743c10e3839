//! Compiles the phantom GPU to the shared library that `tonnage rehearse` preloads; it needs nothing but rustc. Its source is
//! `crates/phantom`, linked into this package as the folder `phantom`, so that a published package has it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names a library that was built before, for those who compile for a machine whose linker they lack.
const BUILT: &str = "TONNAGE_BUILT_PHANTOM";

fn main() {
    // Cargo looks at the times of files, not of the link to their folder.
    let source = match std::fs::canonicalize("phantom") {
        Ok(source) => source,
        Err(error) => fail(&format!("phantom: {error}")),
    };
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-changed=build.rs");
    let library = PathBuf::from(variable("OUT_DIR")).join("libtonnage_phantom.so");
    println!("cargo::rerun-if-env-changed={BUILT}");
    if let Some(built) = env::var_os(BUILT) {
        // An empty file stands for none: the program says that it cannot rehearse.
        if let Err(error) = std::fs::read(&built).and_then(|bytes| std::fs::write(&library, bytes)) {
            fail(&format!("{}: {error}", Path::new(&built).display()));
        }
    } else if variable("CARGO_CFG_TARGET_OS") == "linux" {
        compile(&source.join("lib.rs"), &library);
    // The loader that reads LD_PRELOAD is Linux's; elsewhere the program says that it cannot rehearse.
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
    rustc.args(["-C", "link-arg=-Wl,-soname,libcuda.so.1"]);
    // Small, since pip downloads it within the program: 2 packs a fifth larger, and small steps take as long with either.
    for option in ["opt-level=s", "lto=fat", "codegen-units=1", "panic=abort", "strip=symbols"] {
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

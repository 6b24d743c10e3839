//! `tonnage train` where the PyTorch is missing, too old, or cannot be reached: a sentence with the way out, and nothing is begun or lost.

use std::fs;
use std::path::PathBuf;

use super::Home;
use super::train::{JOB, home};

/// A folder that looks like an installed PyTorch.
fn looks_like_torch(home: &Home, version: &str) -> PathBuf {
    let root = home.path("site/torch");
    for folder in ["lib", "include/ATen"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for library in ["libtorch.so", "libtorch_cpu.so", "libc10.so"] {
        fs::write(root.join("lib").join(library), "").unwrap();
    }
    fs::write(root.join("include/ATen/ATen.h"), "").unwrap();
    fs::write(root.join("version.py"), format!("__version__ = '{version}'\ncuda = None\n")).unwrap();
    root
}

/// What `train` says with no program on its path; a training that was there stays as it was.
fn refused(home: &Home, words: &[&str], variables: &[(&str, &str)]) -> String {
    fs::create_dir_all(home.path("out/checkpoint-3")).unwrap();
    fs::create_dir_all(home.path("empty")).unwrap();
    let mut command = home.command(&[&["train", "job.toml", "--overwrite"], words].concat());
    for name in ["TONNAGE_TORCH", "VIRTUAL_ENV", "CONDA_PREFIX", "CXX"] {
        command.env_remove(name);
    }
    command.env("PATH", home.path("empty")).env("XDG_CACHE_HOME", home.path("cache")).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(home.path("out/checkpoint-3").is_dir(), "nothing is removed before the engine is there: {said}");
    said
}

#[test]
fn no_pytorch_at_all() {
    let said = refused(&home("engine-none", JOB), &[], &[]);
    assert!(said.contains("no PyTorch was found on this machine") && said.contains("--get-torch"), "{said}");
}

#[test]
fn a_pytorch_that_is_too_old() {
    let home = home("engine-old", JOB);
    let root = looks_like_torch(&home, "2.3.1+cu121");
    let said = refused(&home, &["--torch", root.to_str().unwrap()], &[]);
    assert!(said.contains("is PyTorch 2.3.1+cu121") && said.contains("2.7 or newer is needed"), "{said}");
}

#[test]
fn no_compiler_and_one_that_fails() {
    let home = home("engine-compiler", JOB);
    let root = looks_like_torch(&home, "2.11.0");
    let torch = ["--torch", root.to_str().unwrap()];
    let said = refused(&home, &torch, &[]);
    assert!(said.contains("no C++ compiler was found") && said.contains("apt install g++"), "{said}");
    let said = refused(&home, &torch, &[("CXX", "/bin/false")]);
    assert!(said.contains("/bin/false"), "{said}");
}

//! Weights as Hugging Face's Python reads and writes them.
//!
//! `TONNAGE_TORCH` names a Python with torch and safetensors.

#[path = "../../torch/tests/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use tonnage_torch::{ScalarType, Torch};
use tonnage_train::store::weights::{Reader, write};

fn torch() -> &'static Torch {
    support::load_torch(false)
}

fn python(script: &str, path: &Path) -> String {
    let python = std::env::var_os("TONNAGE_TORCH").expect("TONNAGE_TORCH names a Python");
    let output = Command::new(python).args(["-c", script]).arg(path).output().expect("Python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn what_is_written_is_what_python_reads() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("written.safetensors");
    let weight = torch().tensor(&[1.5_f32, -2.0, 0.25, 4.0, 5.0, 6.0], &[2, 3]).expect("six");
    let half = torch().tensor_of_bytes(&[0x80, 0x3f], &[], ScalarType::Bfloat16).expect("one");
    write(&path, &[("model.weight".to_owned(), weight), ("scale".to_owned(), half)]).expect("it is written");
    let script = "import sys, safetensors.torch as s; t = s.load_file(sys.argv[1]); \
                  print(t['model.weight'].tolist(), t['scale'].dtype, t['scale'].item())";
    assert_eq!(python(script, &path).trim(), "[[1.5, -2.0, 0.25], [4.0, 5.0, 6.0]] torch.bfloat16 1.0");
    let mut reader = Reader::open(&path).expect("it is whole");
    assert_eq!(reader.names(), ["model.weight", "scale"]);
    let again = reader.tensor(torch(), "model.weight").expect("it is read").expect("it is there");
    assert_eq!(again.to_vec::<f32>().expect("floats"), [1.5, -2.0, 0.25, 4.0, 5.0, 6.0]);
    assert!(reader.tensor(torch(), "no.such.weight").expect("no failure").is_none());
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn what_python_writes_is_what_is_read() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("from-python.safetensors");
    let script = "import sys, torch, safetensors.torch as s; \
                  s.save_file({'ids': torch.arange(5), 'mask': torch.tensor([True, False]), 'half': torch.ones(2, 2, dtype=torch.float16)}, \
                  sys.argv[1], metadata={'format': 'pt'})";
    python(script, &path);
    let all = Reader::open(&path).expect("it is whole").all(torch()).expect("it is read");
    assert_eq!(all["ids"].to_vec::<i64>().expect("ints"), [0, 1, 2, 3, 4]);
    assert_eq!(all["mask"].to_vec::<bool>().expect("flags"), [true, false]);
    assert_eq!(
        (all["half"].sizes().as_slice(), all["half"].scalar_type().expect("a dtype")),
        ([2, 2].as_slice(), ScalarType::Float16)
    );
}

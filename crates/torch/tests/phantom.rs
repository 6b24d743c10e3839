//! CUDA memory through the engine, over the phantom GPU: a process of its own, because the phantom must be preloaded.
//!
//! `TONNAGE_TORCH` names a libtorch with CUDA, `TONNAGE_TORCH_PRELOAD` the phantom's library.

mod support;

use std::path::PathBuf;
use std::process::Command;

use tonnage_torch::{Argument, Device, ErrorKind, ScalarType, Tensor, Torch, TorchError, operator};

const MIB: u64 = 1 << 20;
const GPU: Device = Device::Cuda(0);

fn load() -> &'static Torch {
    support::load_torch(true)
}

fn zeros(torch: &'static Torch, elements: i64) -> Result<Tensor, TorchError> {
    let arguments = [[elements].into(), ScalarType::Float32.into(), Argument::Default, GPU.into()];
    torch.call(operator!("zeros"), &arguments)?.tensor()
}

/// Runs the test `name` of this file again, over a phantom GPU of 8 GiB.
fn over_the_phantom(name: &str) {
    let preload = std::env::var_os("TONNAGE_TORCH_PRELOAD").expect("TONNAGE_TORCH_PRELOAD names the phantom's library");
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--include-ignored", "--exact", name, "--nocapture"])
        .env("LD_PRELOAD", preload)
        .env("TONNAGE_PHANTOM_DEVICES", "total=8589934592,cc=8.0,sms=108")
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn is_child() -> bool {
    std::env::var_os("LD_PRELOAD").is_some()
}

#[test]
#[ignore = "needs PyTorch and the phantom: TONNAGE_TORCH, TONNAGE_TORCH_PRELOAD"]
fn the_allocator_says_what_it_holds() {
    if !is_child() {
        return over_the_phantom("the_allocator_says_what_it_holds");
    }
    let torch = load();
    assert_eq!(torch.cuda_devices().unwrap(), 1);
    torch.initialise(GPU).unwrap();
    let kept = zeros(torch, 1 << 20).unwrap();
    drop(zeros(torch, 3 << 20).unwrap());
    let memory = torch.memory(GPU).unwrap();
    assert_eq!((memory.allocated, memory.peak_allocated), (4 * MIB, 16 * MIB));
    assert_eq!(memory.reserved, memory.peak_reserved);
    torch.reset_peak(GPU).unwrap();
    assert_eq!(torch.memory(GPU).unwrap().peak_allocated, 4 * MIB);
    torch.synchronize(GPU).unwrap();
    assert_eq!(kept.device(), GPU);
    drop(kept);
    torch.empty_cache().unwrap();
    assert_eq!(torch.memory(GPU).unwrap().reserved, 0);
}

#[test]
#[ignore = "needs PyTorch and the phantom: TONNAGE_TORCH, TONNAGE_TORCH_PRELOAD"]
fn out_of_memory_has_pytorchs_own_words() {
    if !is_child() {
        return over_the_phantom("out_of_memory_has_pytorchs_own_words");
    }
    let torch = load();
    let error = zeros(torch, 4 << 30).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutOfMemory);
    assert!(
        error.text.starts_with("CUDA out of memory. Tried to allocate 16.00 GiB. GPU 0 has a total capacity of"),
        "{error}"
    );
    assert_eq!(torch.memory(GPU).unwrap().out_of_memory, 1);
}

#[test]
#[ignore = "needs PyTorch and the phantom: TONNAGE_TORCH, TONNAGE_TORCH_PRELOAD"]
fn a_checkpoint_keeps_only_what_goes_in() {
    if !is_child() {
        return over_the_phantom("a_checkpoint_keeps_only_what_goes_in");
    }
    let torch = load();
    let x = zeros(torch, 1 << 20).unwrap().requiring_grad().unwrap();
    let sines = |mut value: Tensor| {
        for _ in 0..8 {
            value = value.torch().call(operator!("sin"), &[(&value).into()])?.tensor()?;
        }
        Ok::<_, TorchError>(value)
    };
    let held = |run: &dyn Fn() -> Tensor| {
        let before = torch.memory(GPU).unwrap().allocated;
        let result = run();
        let held = torch.memory(GPU).unwrap().allocated - before;
        // Backward of CUDA tensors runs on a thread of PyTorch's own, the checkpointed function too.
        torch.backward(&torch.call(operator!("sum"), &[(&result).into()]).unwrap().tensor().unwrap()).unwrap();
        drop(result);
        x.set_grad(None).unwrap();
        assert_eq!(torch.memory(GPU).unwrap().allocated, before, "nothing is left");
        held
    };
    // Each sin saves its input: seven of them are made inside. A checkpoint holds the output alone.
    assert_eq!(held(&|| sines(x.clone()).unwrap()), 8 * 4 * MIB);
    let checkpointed = || {
        let lent = x.clone();
        torch.checkpoint(GPU, move || sines(lent.clone())).unwrap()
    };
    assert_eq!(held(&checkpointed), 4 * MIB);
}

#[test]
#[ignore = "needs PyTorch and the phantom: TONNAGE_TORCH, TONNAGE_TORCH_PRELOAD"]
fn a_history_is_written_as_pytorch_writes_it() {
    if !is_child() {
        return over_the_phantom("a_history_is_written_as_pytorch_writes_it");
    }
    let torch = load();
    torch.initialise(GPU).unwrap();
    let history = torch.record_history(1000).unwrap();
    drop(zeros(torch, 1 << 20).unwrap());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("history.pickle");
    history.write_snapshot(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let names = ["device_traces", "segments", "alloc", "free_completed"];
    for name in names {
        assert!(bytes.windows(name.len()).any(|window| window == name.as_bytes()), "{name}");
    }
    assert!(history.write_snapshot("/no/such/folder/history.pickle".as_ref()).is_err());
}

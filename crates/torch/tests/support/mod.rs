//! libtorch as tests load it: the one that `TONNAGE_TORCH` names, once for all tests of a process.

use std::path::PathBuf;
use std::sync::OnceLock;

use tonnage_torch::{Found, Search, Shim, Torch};

/// The PyTorch that was found and its shim, compiled below `TONNAGE_TORCH_CACHE` or where cargo lets tests write.
pub fn compile_shim() -> (Found, Shim) {
    let found = Search::of_environment(None).find().expect("TONNAGE_TORCH names a PyTorch");
    let cache = std::env::var_os("TONNAGE_TORCH_CACHE")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("torch"), PathBuf::from);
    let shim = Shim::of(&found, &cache, &mut |report| eprintln!("{report}")).expect("the shim compiles");
    (found, shim)
}

/// With CUDA or without, as all tests of a process want it.
pub fn load_torch(with_cuda: bool) -> &'static Torch {
    static LOADED: OnceLock<&'static Torch> = OnceLock::new();
    LOADED.get_or_init(|| {
        let (found, shim) = compile_shim();
        Torch::load(&found, &shim, with_cuda).expect("libtorch loads")
    })
}

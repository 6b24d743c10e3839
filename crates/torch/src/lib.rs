//! PyTorch's libtorch without Python and without linking to it: found on this machine at run time, reached through a small C++ shim
//! that is compiled once for the version found.
//!
//! Every operator is called by its name in PyTorch's dispatcher, so what a program allocates, saves for backward and computes is
//! what the same calls do in Python. Errors are values; no exception and no panic crosses the shim.
//!
//! ```no_run
//! use tonnage_torch::{Search, Shim, Torch, operator};
//!
//! let found = Search::of_environment(None).find()?;         // --torch, TONNAGE_TORCH, a virtual environment, python3
//! let shim = Shim::of(&found, "/home/me/.cache/tonnage/torch".as_ref(), &mut |report| eprintln!("{report}"))?;
//! let torch = Torch::load(&found, &shim, false)?;
//!
//! let x = torch.tensor(&[1.0_f32, 2.0, 3.0], &[3])?.requiring_grad()?;
//! let loss = torch.call(operator!("mul", "Tensor"), &[(&x).into(), (&x).into()])?.tensor()?;
//! let loss = torch.call(operator!("sum"), &[(&loss).into()])?.tensor()?;
//! torch.backward(&loss)?;
//! assert_eq!(x.grad()?.expect("a leaf's gradient").to_vec::<f32>()?, [2.0, 4.0, 6.0]);
//! # Ok::<(), tonnage_torch::TorchError>(())
//! ```

mod autograd;
mod checkpoint;
mod device;
mod error;
mod find;
mod get;
mod history;
mod operator;
mod python;
mod ranks;
mod scalar;
mod shim;
#[allow(unsafe_code)]
mod sys;
mod tensor;
mod version;

pub use autograd::{AutocastScope, GradScope};
pub use device::{Device, DeviceMemory};
pub use error::{ErrorKind, TorchError};
pub use find::{Found, Search, Source};
pub use get::{Download, download_plan};
pub use history::History;
pub use operator::{Argument, Operator, Output, Results};
pub use ranks::{Add, Buckets, Group, NCCL_ID, Reducer, Serving, Store, Transport};
pub use scalar::{Element, ScalarType};
pub use shim::Shim;
pub use sys::Torch;
pub use tensor::Tensor;
pub use version::{NEWEST_TRIED, OLDEST, Version};

//! PyTorch's versions: which are known to work, and what each asks of the compiler.

use std::fmt::{self, Display, Formatter};

/// `major.minor` of PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// 2 in 2.11.
    pub major: u32,
    /// 11 in 2.11.
    pub minor: u32,
}

/// The oldest that the shim is compiled against; before it wheels had another C++ ABI.
pub const OLDEST: Version = Version { major: 2, minor: 7 };
/// The newest that `testdata/torch/versions.py` tried (docs/torch-versions.md); newer ones are tried with a word of warning.
pub const NEWEST_TRIED: Version = Version { major: 2, minor: 15 };
/// From here the caching allocator is reached without CUDA's headers (`c10::getDeviceAllocator`).
pub(crate) const GENERIC_ALLOCATOR: Version = Version { major: 2, minor: 9 };
/// From here libtorch's own headers are C++20 (torch/csrc/autograd of 2.15 does not compile as C++17).
const CPP_20: Version = Version { major: 2, minor: 12 };

impl Version {
    /// Of `2.11.0+cu130`.
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        let mut parts = text.trim().split(['.', '+', 'a', 'b', 'r']);
        Some(Self { major: parts.next()?.parse().ok()?, minor: parts.next()?.parse().ok()? })
    }

    /// The language standards to try, the likeliest first.
    pub(crate) fn standards(self) -> [&'static str; 2] {
        if self >= CPP_20 { ["-std=c++20", "-std=c++17"] } else { ["-std=c++17", "-std=c++20"] }
    }
}

impl Display for Version {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_pytorch_writes_them() {
        let of = |major, minor| Some(Version { major, minor });
        assert_eq!(Version::of_text("2.11.0+cu130"), of(2, 11));
        assert_eq!(Version::of_text("2.9.0a0+gitabc"), of(2, 9));
        assert_eq!(Version::of_text("2.16.0.dev20261101\n"), of(2, 16));
        assert_eq!(Version::of_text("nightly"), None);
        assert!(of(2, 7) < of(2, 11));
    }
}

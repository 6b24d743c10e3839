//! Text that a user names, read no further than such text ever is: a device or a disk image must not fill the memory.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _};
use std::path::Path;

/// More than any job file, config or index; the core refuses much smaller ones with its own words.
const MOST_BYTES: u64 = 64 << 20;

/// The text of a file.
///
/// # Errors
/// When it cannot be read, is no UTF-8 or is too long.
pub fn read(path: impl AsRef<Path>) -> std::io::Result<String> {
    let mut text = String::new();
    let count = File::open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)? as u64;
    if count > MOST_BYTES {
        return Err(Error::new(ErrorKind::FileTooLarge, "is larger than any such file"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_refused() {
        assert_eq!(read("/dev/zero").unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read("/dev/null").unwrap(), "");
    }
}

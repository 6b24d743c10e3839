//! Files that are read no further than such files ever are: a device, a disk image or a damaged record must not fill the memory.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _};
use std::path::Path;

/// The text of a file of at most `most` bytes.
///
/// # Errors
/// When it cannot be read, is no UTF-8 or is longer.
pub fn read_text(path: impl AsRef<Path>, most: u64) -> std::io::Result<String> {
    let bytes = read(path, most)?;
    String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
}

/// What is in a file of at most `most` bytes.
///
/// # Errors
/// When it cannot be read, or is longer.
pub fn read(path: impl AsRef<Path>, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let problem = format!("is larger than any such file, more than {most} bytes");
        return Err(Error::new(ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_refused() {
        assert_eq!(read_text("/dev/zero", 1 << 20).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read_text("/dev/null", 0).unwrap(), "");
    }
}

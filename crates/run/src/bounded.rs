//! Files that are read no further than such files ever are: a device, a disk image or a damaged record must not fill the memory.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// The text of a file of at most `most` bytes.
///
/// # Errors
/// When it cannot be read, is no UTF-8 or is longer.
pub fn read_text(path: impl AsRef<Path>, most: u64) -> std::io::Result<String> {
    let bytes = read_bounded(path, most)?;
    String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
}

/// What is in a file of at most `most` bytes.
///
/// # Errors
/// When it cannot be read, or is longer.
pub fn read_bounded(path: impl AsRef<Path>, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let problem = format!("is larger than any such file, more than {most} bytes");
        return Err(Error::new(ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

/// The first lines of a file and its last ones, at most so many bytes of each; and how many bytes lie between them.
///
/// # Errors
/// When it cannot be read.
pub fn read_ends(path: impl AsRef<Path>, most: u64) -> std::io::Result<(Vec<u8>, u64)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    file.by_ref().take(2 * most).read_to_end(&mut bytes)?;
    if length <= 2 * most {
        return Ok((bytes, 0));
    }
    bytes.truncate(most as usize);
    let ended = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    bytes.truncate(ended);
    let mut last = Vec::new();
    file.seek(SeekFrom::Start(length - most))?;
    file.take(most).read_to_end(&mut last)?;
    let begins = last.iter().position(|byte| *byte == b'\n').map_or(last.len(), |end| end + 1);
    bytes.extend_from_slice(&last[begins..]);
    Ok((bytes, length - ended as u64 - (last.len() - begins) as u64))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_file_the_first_and_the_last_lines_are_read() {
        let path = std::env::temp_dir().join(format!("tonnage-ends-{}", std::process::id()));
        let text: String = (0..1000).map(|line| format!("{line:06}\n")).collect();
        std::fs::write(&path, &text).unwrap();
        assert_eq!(read_ends(&path, 3500).unwrap(), (text.clone().into_bytes(), 0));
        let (ends, left_out) = read_ends(&path, 10).unwrap();
        assert_eq!((String::from_utf8(ends).unwrap(), left_out), ("000000\n000999\n".to_owned(), 7000 - 14));
        std::fs::write(&path, "x".repeat(1000)).unwrap();
        assert_eq!(read_ends(&path, 10).unwrap(), (Vec::new(), 1000));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_never_ends_is_refused() {
        assert_eq!(read_text("/dev/zero", 1 << 20).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read_text("/dev/null", 0).unwrap(), "");
    }
}

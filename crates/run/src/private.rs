//! Folders that only this user can have written: temporary ones under a name that nobody can guess, and whether one that is
//! there can be trusted with code.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::{geteuid, mkdtemp};

use crate::interrupts;

/// Permissions that let others write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In such a folder only the owner of a file can rename or remove it.
const STICKY: u32 = 0o1000;

/// A temporary folder that only its owner may enter; it goes when this goes, or when a signal ends this process.
#[derive(Debug)]
pub struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// A new one; signals that ask this process to end are taken from now on.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make() -> io::Result<Self> {
        let make = || Ok(mkdtemp(&std::env::temp_dir().join("tonnage-XXXXXX"))?);
        interrupts::register_folder(make).map(Self)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        interrupts::forget_folder(&self.0);
        // A temporary folder that stays behind is no reason to fail.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Makes a folder, with those above it, that no other user may enter.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that is not there yet, for its owner only, whatever the umask.
pub(crate) fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(content)
}

/// Whether nobody but this user and root can put something into `folder`, or something else in its place: the owners and modes
/// of it and of all folders above it.
pub(crate) fn is_out_of_reach(folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    folder.ancestors().enumerate().all(|(above, path)| {
        fs::metadata(path).is_ok_and(|found| {
            let closed = found.mode() & WRITABLE_BY_OTHERS == 0 || above > 0 && found.mode() & STICKY != 0;
            let owner = found.uid();
            closed && (owner == geteuid().as_raw() || above > 0 && owner == 0)
        })
    })
}

/// Whether `folder` and all in it belong to this user, are written by nobody else, and `is_known` knows every file and link; what
/// Python compiled of them (`__pycache__`) may lie beside them.
pub(crate) fn holds_only(folder: &Path, is_known: &dyn Fn(&Path) -> bool) -> bool {
    let mut below = vec![folder.to_owned()];
    while let Some(path) = below.pop() {
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            // Moved into its place by another process meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path != folder => continue,
            Err(_) => return false,
        };
        if !is_own(&found) {
            return false;
        }
        if found.is_dir() {
            let Ok(entries) = fs::read_dir(&path) else { return false };
            for entry in entries {
                let Ok(entry) = entry else { return false };
                below.push(entry.path());
            }
        } else if !is_known(path.strip_prefix(folder).unwrap_or(&path)) && !is_compiled(&path) {
            return false;
        }
    }
    true
}

fn is_own(found: &Metadata) -> bool {
    // A link has no permissions of its own.
    found.uid() == geteuid().as_raw() && (found.is_symlink() || found.mode() & WRITABLE_BY_OTHERS == 0)
}

fn is_compiled(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("pyc"))
        && path.parent().and_then(Path::file_name) == Some(OsStr::new("__pycache__"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn temporary_folders_are_exclusive_and_go() {
        let (one, other) = (TemporaryFolder::make().unwrap(), TemporaryFolder::make().unwrap());
        assert_ne!(one.path(), other.path());
        assert_eq!(fs::metadata(one.path()).unwrap().mode() & 0o777, 0o700);
        assert!(!one.path().display().to_string().contains(&std::process::id().to_string()));
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists() && other.path().exists());
    }

    #[test]
    fn foreign_and_open_files_are_seen() {
        let folder = TemporaryFolder::make().unwrap();
        let path = folder.path();
        let known = |name: &Path| name == Path::new("a.py");
        write_new(&path.join("a.py"), b"x").unwrap();
        assert!(holds_only(path, &known) && is_out_of_reach(path));
        assert!(write_new(&path.join("a.py"), b"y").is_err());
        make_folder(&path.join("__pycache__")).unwrap();
        write_new(&path.join("__pycache__/a.cpython-312.pyc"), b"").unwrap();
        assert!(holds_only(path, &known));
        write_new(&path.join("__pycache__/argparse.py"), b"").unwrap();
        assert!(!holds_only(path, &known));
        fs::remove_file(path.join("__pycache__/argparse.py")).unwrap();
        fs::set_permissions(path.join("a.py"), fs::Permissions::from_mode(0o666)).unwrap();
        assert!(!holds_only(path, &known));
        fs::remove_file(path.join("a.py")).unwrap();
        symlink("/etc/hostname", path.join("b.py")).unwrap();
        assert!(!holds_only(path, &known));
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!is_out_of_reach(path));
    }

    /// Root can give files away; everybody else meets root's.
    #[test]
    fn what_another_user_owns_is_trusted_with_nothing() {
        if !geteuid().is_root() {
            assert!(!is_out_of_reach(Path::new("/")) && !holds_only(Path::new("/"), &|_| true));
            return;
        }
        let nobody = Some(65534);
        let folder = TemporaryFolder::make().unwrap();
        let inner = folder.path().join("a/b");
        make_folder(&inner).unwrap();
        write_new(&inner.join("a.py"), b"x").unwrap();
        assert!(holds_only(&inner, &|_| true) && is_out_of_reach(&inner));
        std::os::unix::fs::chown(inner.join("a.py"), nobody, None).unwrap();
        assert!(!holds_only(&inner, &|_| true));
        // Who owns a folder above can put another in its place, whatever its mode.
        std::os::unix::fs::chown(folder.path().join("a"), nobody, None).unwrap();
        assert!(!is_out_of_reach(&inner));
        std::os::unix::fs::chown(folder.path().join("a"), Some(0), None).unwrap();
        std::os::unix::fs::chown(&inner, nobody, None).unwrap();
        assert!(!is_out_of_reach(&inner));
    }
}

//! The hub cache of Hugging Face's programs on this machine, read without a network: `models--org--name/refs/main` names a
//! revision, `snapshots/REVISION` has its files as links to `blobs`.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use tonnage_core::job::is_full_name;
use tonnage_core::limit::JSON_BYTES;
use tonnage_run::bounded::read_text;

/// Folders of models that are looked through for a name in another case.
const MOST_MODELS: usize = 10_000;
/// Folders of one model that are looked through for its only revision.
const MOST_REVISIONS: usize = 1000;
/// Characters of a commit.
const COMMIT: std::ops::RangeInclusive<usize> = 7..=64;
/// Characters of a commit that are shown.
const SHORT: usize = 7;

/// A model as it lies in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The commit, as the cache names its folder.
    pub revision: String,
    /// The folder with its files.
    pub folder: PathBuf,
}

impl Snapshot {
    /// The text of its config.
    ///
    /// # Errors
    /// With what is wrong with the file, in words.
    pub fn read_config(&self) -> Result<String, String> {
        let path = self.folder.join("config.json");
        let inside = self.folder.parent().and_then(Path::parent).and_then(|root| root.canonicalize().ok());
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(_) if path.is_symlink() => {
                return Err(format!("{} is a link to what is not there: download it again", path.display()));
            }
            Err(_) => {
                let revision = self.short_commit();
                return Err(format!("its revision {revision} in the hub cache has no config.json: `hf download` it"));
            }
        };
        // Files of a snapshot are links into the folder of the same model.
        if inside.is_none_or(|inside| !real.starts_with(inside)) || !real.is_file() {
            return Err(format!("{} is no file of this model's folder in the hub cache", path.display()));
        }
        read_text(&real, JSON_BYTES).map_err(|error| error.to_string().to_lowercase())
    }

    /// The beginning of the commit.
    pub fn short_commit(&self) -> &str {
        self.revision.get(..SHORT).unwrap_or(&self.revision)
    }
}

/// Where Hugging Face's programs keep what they download (huggingface_hub 1.33, `constants.py`).
fn cache_root(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let said = |name: &str| variable(name).filter(|value| !value.as_os_str().is_empty());
    let home = || said("HOME");
    let cache = || said("XDG_CACHE_HOME").or_else(|| Some(home()?.join(".cache")));
    let of_hugging_face = || said("HF_HOME").or_else(|| Some(cache()?.join("huggingface")));
    let named = said("HF_HUB_CACHE").or_else(|| said("HUGGINGFACE_HUB_CACHE"));
    let root = named.or_else(|| Some(of_hugging_face()?.join("hub")))?;
    match root.strip_prefix("~") {
        Ok(rest) => Some(home()?.join(rest)),
        Err(_) => Some(root),
    }
}

/// The model called `name` in the cache of this user; `None` where there is none.
pub fn find_snapshot(name: &str) -> Option<Snapshot> {
    find_in(&cache_root(|name| std::env::var_os(name).map(PathBuf::from))?, name)
}

fn find_in(root: &Path, name: &str) -> Option<Snapshot> {
    if !is_full_name(name) {
        return None;
    }
    let folder = folder_of(root, &format!("models--{}", name.replace('/', "--")))?;
    let snapshots = folder.join("snapshots");
    let revision = main_revision(&folder.join("refs/main")).or_else(|| only_revision(&snapshots))?;
    let folder = snapshots.join(&revision);
    folder.is_dir().then_some(Snapshot { revision, folder })
}

/// The folder of a model. The hub takes names in any case, its programs name folders as they were asked.
fn folder_of(root: &Path, name: &str) -> Option<PathBuf> {
    let exact = root.join(name);
    if exact.is_dir() {
        return Some(exact);
    }
    let entries = fs::read_dir(root).ok()?.take(MOST_MODELS).filter_map(Result::ok);
    let mut alike =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(|other| other.eq_ignore_ascii_case(name)));
    match (alike.next(), alike.next()) {
        (Some(only), None) => Some(only.path()),
        _ => None,
    }
}

/// What `refs/main` says, which is a commit and nothing else.
fn main_revision(path: &Path) -> Option<String> {
    let read = || -> io::Result<String> {
        let mut text = String::new();
        if path.metadata()?.is_file() {
            File::open(path)?.take(*COMMIT.end() as u64 + 2).read_to_string(&mut text)?;
        }
        Ok(text)
    };
    read().ok().map(|text| text.trim().to_owned()).filter(|text| is_commit(text))
}

/// The revision of a cache without `refs/main`, where there is one alone.
fn only_revision(snapshots: &Path) -> Option<String> {
    let names = fs::read_dir(snapshots).ok()?.take(MOST_REVISIONS).filter_map(Result::ok);
    let mut commits = names.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| is_commit(name));
    match (commits.next(), commits.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

fn is_commit(text: &str) -> bool {
    COMMIT.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_variables_say() {
        let with = |set: &[(&str, &str)]| {
            let set: Vec<(String, PathBuf)> = set.iter().map(|(name, value)| ((*name).into(), value.into())).collect();
            cache_root(|name| set.iter().find(|(set, _)| set == name).map(|(_, value)| value.clone()))
        };
        let path = |text: &str| Some(PathBuf::from(text));
        let home = ("HOME", "/h");
        assert_eq!(with(&[home]), path("/h/.cache/huggingface/hub"));
        assert_eq!(with(&[home, ("XDG_CACHE_HOME", "/x")]), path("/x/huggingface/hub"));
        assert_eq!(with(&[home, ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/f")]), path("/f/hub"));
        assert_eq!(with(&[home, ("HF_HOME", "/f"), ("HF_HUB_CACHE", "/c")]), path("/c"));
        assert_eq!(with(&[home, ("HF_HOME", ""), ("HF_HUB_CACHE", "~/c")]), path("/h/c"));
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn names_are_found_in_any_case() {
        let root = std::env::temp_dir().join(format!("tonnage-hub-{}", std::process::id()));
        let model = |name: &str| fs::create_dir_all(root.join(name).join("snapshots/abcdef1")).unwrap();
        model("models--Org--Model-7B");
        let folder = |name: &str| find_in(&root, name).map(|found| found.folder);
        let expected = root.join("models--Org--Model-7B/snapshots/abcdef1");
        assert_eq!(folder("Org/Model-7B"), Some(expected.clone()));
        assert_eq!(folder("org/model-7b"), Some(expected.clone()));
        assert_eq!(folder("org/model-8b"), None);
        model("models--ORG--Model-7B");
        assert_eq!((folder("org/model-7b"), folder("Org/Model-7B")), (None, Some(expected)), "which is not known");
        fs::remove_dir_all(root).unwrap();
    }
}

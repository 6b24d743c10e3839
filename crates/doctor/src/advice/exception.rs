//! What to do about an exception: by its words, by the module or the file that is missing.

use super::known::KNOWN;
use super::{Advice, Context, say_text, with_flag};
use crate::exception::Exception;
use crate::text::{has_phrase, text_after};

/// What to do about an exception.
pub(super) fn advice(exception: &Exception, context: &Context<'_>) -> Vec<Advice> {
    let line = format!("{}: {}", exception.name, exception.message);
    if let Some(missing) = missing_module(exception) {
        return missing;
    }
    if let Some(missing) = missing_file(exception, context) {
        return missing;
    }
    let found = KNOWN.iter().find(|known| known.words.iter().any(|words| has_phrase(&line, words)));
    let mut all: Vec<Advice> = found
        .map(|known| {
            known
                .remedies
                .iter()
                .map(|(text, flag)| flag.map_or_else(|| say_text(text), |flag| with_flag(text, flag)))
                .collect()
        })
        .unwrap_or_default();
    if all.is_empty() {
        all.push(say_text("look at the named line first: it is the innermost one of your own code"));
        all.push(with_flag("stop where it is raised", "python -m pdb -c continue train.py"));
    }
    all
}

/// `No module named 'x'`
fn missing_module(exception: &Exception) -> Option<Vec<Advice>> {
    let name = text_after(&exception.message, "No module named ")?.trim_matches(['\'', '"', ' ', '.']);
    let package = name.split(['.', '\'']).next()?;
    // Modules whose packages have other names.
    const PACKAGES: &[(&str, &str)] = &[
        ("cv2", "opencv-python-headless"),
        ("PIL", "pillow"),
        ("yaml", "pyyaml"),
        ("sklearn", "scikit-learn"),
        ("skimage", "scikit-image"),
        ("google", "protobuf"),
        ("flash_attn", "flash-attn --no-build-isolation"),
        ("bs4", "beautifulsoup4"),
        ("apex", "git+https://github.com/NVIDIA/apex --no-build-isolation"),
        ("Crypto", "pycryptodome"),
        ("pkg_resources", "'setuptools<81'"),
        ("distutils", "setuptools"),
    ];
    let install = PACKAGES.iter().find(|(module, _)| *module == package).map_or(package, |(_, package)| package);
    let is_plain = package.chars().all(|character| character.is_alphanumeric() || character == '_');
    if !is_plain {
        return None;
    }
    Some(vec![
        with_flag(
            "the module is not in the environment of the Python that ran: install it there",
            &format!("python -m pip install {install}"),
        ),
        with_flag(
            "where it is the project's own: run from its folder, or install the project",
            "pip install -e .  # or PYTHONPATH=.",
        ),
    ])
}

/// A file that is not there; Google Drive that is not mounted.
fn missing_file(exception: &Exception, context: &Context<'_>) -> Option<Vec<Advice>> {
    let gone = has_phrase(&exception.message, "[Errno 2]") || exception.short_name() == "FileNotFoundError";
    if !gone {
        return None;
    }
    let drive = has_phrase(&exception.message, "/content/drive") || has_phrase(&exception.message, "MyDrive");
    if drive || (context.setting.colab && has_phrase(&exception.message, "drive")) {
        return Some(vec![
            with_flag(
                "Google Drive is not mounted, or was disconnected: mount it before the run",
                "from google.colab import drive; drive.mount('/content/drive')",
            ),
            with_flag("then look whether the path is there", "ls /content/drive/MyDrive"),
        ]);
    }
    Some(vec![
        say_text(
            "the path does not exist where the job ran: relative to another folder, on another node, or not mounted",
        ),
        with_flag("look for it there", "pwd; ls -l PATH; df -h PATH"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exception::Files;
    use crate::setting::Setting;

    fn flags(name: &str, message: &str) -> Vec<String> {
        let setting = Setting::default();
        let context = Context { setting: &setting, phase: None };
        advice(&Exception::new(name, message, &Files::default()), &context)
            .into_iter()
            .filter_map(|advice| advice.flag)
            .collect()
    }

    #[test]
    fn every_known_exception_has_its_own_remedy() {
        for known in KNOWN {
            assert!(!known.remedies.is_empty());
            for words in known.words {
                let first =
                    KNOWN.iter().find(|other| other.words.iter().any(|other| has_phrase(words, other))).unwrap();
                assert!(std::ptr::eq(first, known), "{words} is hidden by another one's words");
            }
        }
    }

    #[test]
    fn the_guides_own_crashes_have_remedies() {
        assert_eq!(
            flags("ModuleNotFoundError", "No module named 'cv2'")[0],
            "python -m pip install opencv-python-headless"
        );
        assert!(
            flags("FileNotFoundError", "[Errno 2] No such file or directory: '/content/drive/MyDrive/x'")[0]
                .contains("drive.mount")
        );
        assert!(
            flags("AttributeError", "'MessageFactory' object has no attribute 'GetPrototype'")[0]
                .contains("protobuf>=3.20,<5")
        );
        assert!(flags("ImportError", "x.so: undefined symbol: _ZN3c10")[0].contains("flash-attn"));
    }
}

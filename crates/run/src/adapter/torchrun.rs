//! `torchrun`: per-rank logs in the attempt's folder, and lines on the screen that say their rank.

use std::path::Path;

use super::{Adapter, flags};

/// The adapter.
pub(super) static TORCHRUN: Adapter = Adapter { name: "torchrun", speaks, set: |_, _, _, _| Ok(false), finish };

fn speaks(argv: &[String]) -> bool {
    launcher(argv).is_some()
}

/// The place of the word after which torchrun's own flags may stand.
fn launcher(argv: &[String]) -> Option<usize> {
    argv.iter().position(|word| word.rsplit('/').next() == Some("torchrun") || word == "torch.distributed.run")
}

fn finish(argv: &mut Vec<String>, folder: &Path) {
    let Some(at) = launcher(argv) else { return };
    if flags::has(argv, &["--log_dir", "--tee", "--redirects"]) {
        return;
    }
    let logs = folder.join("ranks").display().to_string();
    // 3 is stdout and stderr: to the rank's file, and on with the rank in front.
    let flags = ["--log-dir".to_owned(), logs, "--tee".to_owned(), "3".to_owned()];
    argv.splice(at + 1..at + 1, flags);
}

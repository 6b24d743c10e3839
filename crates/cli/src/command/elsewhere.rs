//! Commands that start or look after processes, where there is no Unix: each says what it needs, whatever it is given.

use std::ffi::OsString;

use clap::Args;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Words that are not read.
#[derive(Args)]
pub struct Unread {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<OsString>,
}

impl Unread {
    fn refuse_command(name: &str) -> Failure {
        let problem = format!("`tonnage {name}` needs Linux");
        Failure::bad_input(problem).with_hint(
            "run it on the machine with the GPU, or in WSL 2 (`wsl --install`); `tonnage estimate`, `fit`, `plan`, `doctor` \
             and `watch` work here",
        )
    }
}

macro_rules! refused {
    ($($module:ident: $($args:ident = $name:literal),+;)+) => {
        $(pub mod $module {
            $(
                #[doc = concat!("Needs Linux; refused here (`tonnage ", $name, "`)")]
                #[derive(clap::Args)]
                pub struct $args {
                    #[command(flatten)]
                    unread: super::Unread,
                }

                impl $args {
                    /// Refuses.
                    ///
                    /// # Errors
                    /// Always.
                    pub fn run(self, _terminal: &super::Terminal) -> Result<super::Exit, super::Failure> {
                        drop(self.unread.words);
                        Err(super::Unread::refuse_command($name))
                    }
                }
            )+
        })+
    };
}

refused! {
    attach: AttachArgs = "attach";
    generate: GenerateArgs = "generate";
    keep: GuardianArgs = "guardian", KeepArgs = "keep", BeginArgs = "begin";
    list: ListArgs = "list";
    logs: LogsArgs = "logs";
    probe: ProbeArgs = "probe";
    rehearse: RehearseArgs = "rehearse";
    remove: RemoveArgs = "remove";
    run: RunArgs = "run";
    show: ShowArgs = "show";
    status: StatusArgs = "status";
    stop: StopArgs = "stop";
    supervise: SuperviseArgs = "supervise";
    train: TrainArgs = "train", TrainerArgs = "trainer";
}

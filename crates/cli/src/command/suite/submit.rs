//! `tonnage suite submit`: what is missing of a suite, to SLURM.

use std::path::Path;

use clap::Args;
use clap::builder::PossibleValuesParser;
use tonnage_run::secrets::Secrets;
use tonnage_run::store::Store;
use tonnage_suite::file::{Elsewhere, Limits};
use tonnage_suite::folder::SuiteFolder;
use tonnage_suite::plan::Plan;
use tonnage_suite::slurm::follow::{follow_jobs, has_open};
use tonnage_suite::slurm::records::Recorded;
use tonnage_suite::slurm::submit::{Problem, Sent, Submission, hours_of};
use tonnage_suite::slurm::{Client, Poll, View};

use super::render::with_rendering;
use super::run::unwritable_folder;
use super::source::{Source, Suite};
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage suite submit examples/suites/lr-scan.toml --engine slurm --test-only
  tonnage suite submit examples/suites/lr-scan.toml --engine slurm --partition gpu --throttle 8
  tonnage suite submit examples/suites/lr-scan.toml --engine slurm    # again: what is missing

Every array is tried by `sbatch --test-only` before the first is sent. What waits, runs or is done is not sent again; `suite status` says \
where runs are, `suite stop` cancels them, `suite retry` sends failed ones again. The suite's folder must be one that nodes see.";

/// Sends what is missing of a suite to SLURM: arrays, chains, requeueing
#[derive(Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::SUITE_SUBMIT))]
pub struct SubmitArgs {
    #[command(flatten)]
    source: Source,

    /// To whom
    #[arg(long, value_name = "ENGINE", default_value = "slurm", value_parser = PossibleValuesParser::new(["slurm"]))]
    engine: String,

    /// Only asks whether SLURM would take it
    #[arg(long)]
    test_only: bool,

    #[command(flatten)]
    there: There,
}

/// How a suite is sent to SLURM: these win over [slurm] in its file.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "SLURM")]
pub struct There {
    /// Whose account is charged
    #[arg(long, value_name = "NAME")]
    account: Option<String>,

    /// Where jobs run
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,

    /// Their quality of service
    #[arg(long, value_name = "NAME")]
    qos: Option<String>,

    /// Features that nodes must have
    #[arg(long, value_name = "LIST")]
    constraint: Option<String>,

    /// Tasks of an array at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    throttle: Option<u32>,

    /// A further option of sbatch, as `--directive=--exclude=n7`
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    directive: Vec<String>,
}

impl SubmitArgs {
    /// Sends it.
    ///
    /// # Errors
    /// When the suite cannot be read, or SLURM does not answer.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let suite = self.source.read_suite()?;
        let plan = suite.make_plan(terminal)?;
        send_suite(&suite, &plan, &self.there, &[], self.test_only, terminal)
    }
}

/// Sends what is missing of `plan`, and those of `retried` again.
///
/// # Errors
/// When another process has the suite, its folder cannot be written, or SLURM does not answer.
pub fn send_suite(
    suite: &Suite,
    plan: &Plan,
    there: &There,
    retried: &[String],
    is_test: bool,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let (store, client) = (Store::of_user(), Client::default());
    let folder = SuiteFolder::new(store.root(), &suite.name);
    let Some(_held) = folder.lock_folder().map_err(unwritable_folder)? else {
        return Err(Failure::bad_input(format!("suite {} is run, or sent, by another process", suite.name))
            .with_hint(format!("`tonnage suite status {}` tells where it is", suite.name)));
    };
    plan.twin_names().iter().for_each(|twins| terminal.say(twins));
    let elsewhere = there.over_file(&suite.file.elsewhere);
    let own = suite.file.limits.hours;
    let of_partition = hours_of(&client, elsewhere.partition.as_deref());
    let hours = own.into_iter().chain(of_partition).min_by(f64::total_cmp);
    let limits = Limits { hours, ..suite.file.limits.clone() };
    let readable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let environment: Vec<(String, String)> = std::env::vars_os().filter_map(readable).collect();
    let text = Secrets::found_in(&suite.file.command, environment.iter().cloned()).hide_in_job(&suite.file.text);
    let say = |text: &str| terminal.say(text);
    with_rendering(suite, plan, &elsewhere, &limits, Some(&folder.path), &mut |rendering| {
        if !is_test {
            folder.keep_plan(plan)?;
        }
        let submission = Submission {
            client: &client,
            root: store.root(),
            folder: &folder,
            rendering,
            options: &there.sbatch_options(),
            retried: retried.iter().map(String::as_str).collect(),
            record: Recorded {
                text: &text,
                environment: &environment,
                metrics: &suite.file.metrics,
                shares_data_order: suite.file.shares_data_order,
            },
            say: &say,
        };
        answer_sent(submission.send_arrays(is_test), suite, is_test, terminal)
    })
}

fn answer_sent(
    sent: Result<Sent, Problem>,
    suite: &Suite,
    is_test: bool,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let name = &suite.name;
    match sent {
        Ok(_) if is_test => {
            terminal.say(&format!("suite {name}: SLURM would take it; nothing was sent"));
            Ok(Exit::Done)
        }
        Ok(sent) => {
            terminal.say(&sent_summary(name, &sent));
            Ok(if sent.unfit + sent.unheard + sent.failed == 0 { Exit::Done } else { Exit::No })
        }
        Err(Problem::Refused(words)) => {
            let problem = format!("SLURM does not take suite {name}: {words}");
            Err(Failure { exit: Exit::No, ..Failure::bad_input(problem).with_hint(hint_for(&words)) })
        }
        Err(Problem::Silent(why)) => {
            let hint = "nothing was sent; what was sent before is where it is";
            let failure = Failure::bad_input(format!("SLURM does not answer: {why}")).with_hint(hint);
            Err(Failure { exit: Exit::No, ..failure })
        }
        Err(Problem::Suite(problem)) => Err(Failure::bad_input(format!("{}: {problem}", suite.path.display()))),
        Err(Problem::Run(error)) => Err(error.into()),
    }
}

/// The way out, by what `sbatch` says.
fn hint_for(words: &str) -> &'static str {
    let known = [
        (
            "Requested node configuration is not available",
            "no node has that: [slurm] gpus_per_node spreads a run over several",
        ),
        ("nvalid account", "`sacctmgr show associations user=$USER` lists accounts: --account NAME"),
        ("nvalid partition", "`sinfo` lists partitions: --partition NAME"),
        ("nvalid qos", "`sacctmgr show qos` lists them: --qos NAME"),
        ("time limit", "[limits] hours says how long a job may take; longer runs go on in the next"),
        ("ubmitLimit", "what was sent is in the queue: submit again once some of it is done, or set [slurm] throttle"),
        ("there is no `sbatch`", "submit where SLURM's programs are; `suite render` writes the scripts anywhere"),
    ];
    known.iter().find(|(word, _)| words.contains(word)).map_or("`suite render` prints the scripts", |(_, hint)| hint)
}

fn sent_summary(name: &str, sent: &Sent) -> String {
    let mut parts = vec![format!("{} sent", sent.sent)];
    let counted = [
        (sent.open, "in the queue or running"),
        (sent.unknown, "of these not known where"),
        (sent.done, "done"),
        (sent.failed, "failed (`tonnage suite retry`)"),
        (sent.unfit, "that fit no GPU of their job (`tonnage suite plan`)"),
        (sent.unheard, "of which SLURM did not say whether it took them (`tonnage suite status`)"),
    ];
    parts.extend(counted.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    format!("suite {name}: {}", parts.join(", "))
}

impl There {
    /// The file's table, with what was typed over it.
    fn over_file(&self, file: &Elsewhere) -> Elsewhere {
        let typed = |typed: &Option<String>, said: &Option<String>| typed.clone().or_else(|| said.clone());
        Elsewhere {
            account: typed(&self.account, &file.account),
            partition: typed(&self.partition, &file.partition),
            qos: typed(&self.qos, &file.qos),
            constraint: typed(&self.constraint, &file.constraint),
            throttle: self.throttle.map(|throttle| throttle as usize).or(file.throttle),
            directives: file.directives.iter().chain(&self.directive).cloned().collect(),
            ..file.clone()
        }
    }

    /// What was typed, as words: variables like SBATCH_PARTITION win over a script's directives, and these over both.
    fn sbatch_options(&self) -> Vec<String> {
        let named = [
            ("account", &self.account),
            ("partition", &self.partition),
            ("qos", &self.qos),
            ("constraint", &self.constraint),
        ];
        let options = named.iter().filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?)));
        options.chain(self.directive.iter().cloned()).collect()
    }
}

/// Where a suite's runs are that were sent to SLURM, what has ended since written down; `None` where nothing is open of what was sent, or
/// another process has the suite and looks after it.
///
/// # Errors
/// When the suite's folder cannot be written.
pub fn looked_after(folder: &SuiteFolder, root: &Path, plan: &Plan) -> Result<Option<View>, Failure> {
    if !has_open(&folder.journal.read_state()?) {
        return Ok(None);
    }
    // A controller that is slow or silent is waited for before the suite is taken: it holds up nobody else's command.
    let client = Client::default();
    let poll = Poll::take_poll(&client, root);
    let Some(_held) = folder.lock_folder()? else { return Ok(None) };
    Ok(Some(follow_jobs(&client, &poll, root, folder, plan)?))
}

//! What is recorded of a run before it is sent: who it is, and its parameters.

use std::path::Path;

use tonnage_experiment::record::{FORMAT, Identity, Record};
use tonnage_run::RunError;
use tonnage_run::secrets::Secrets;
use tonnage_run::store::{create_private_folder, write_atomically};

use crate::plan::{Plan, PlannedRun};

/// What is recorded of every run of a suite.
#[derive(Clone, Copy)]
pub struct Recorded<'a> {
    /// The file's text, without secrets.
    pub text: &'a str,
    /// Patterns of the command's output that are metrics.
    pub metrics: &'a [String],
    /// The submitter's environment, in which secrets are looked for.
    pub environment: &'a [(String, String)],
    /// Whether runs of one seed see the same data.
    pub shares_data_order: Option<bool>,
}

/// Makes a run's folder, with who it is.
pub(super) fn begin(
    own: &Path,
    plan: &Plan,
    run: &PlannedRun,
    command: &[String],
    gpus: u64,
    recorded: &Recorded<'_>,
) -> Result<(), RunError> {
    create_private_folder(own)?;
    let one = plan.planned_of(run);
    let path = own.join("parameters.json");
    let parameters = serde_json::to_vec_pretty(&one.parameters).map_err(|error| RunError::damaged(&path, error))?;
    write_atomically(&path, &parameters)?;
    let path = own.join("records.jsonl");
    if path.exists() {
        return Ok(());
    }
    let mut parameters = one.parameters.clone();
    parameters.extend(one.changes.iter().map(|(key, value)| (key.clone(), value.clone().into())));
    let versions = [("tonnage", env!("CARGO_PKG_VERSION")), ("git", plan.code.as_str())];
    let identity = Identity {
        format: FORMAT,
        suite: plan.suite.clone(),
        configuration: one.name.clone(),
        seed: Some(run.seed),
        command: Secrets::found_in(command, recorded.environment.iter().cloned()).hide_command(command),
        versions: versions.map(|(name, version)| (name.to_owned(), version.to_owned())).into(),
        gpu: one.predicted.as_ref().map(|predicted| predicted.gpu.clone()),
        gpus: Some(gpus),
        parameters,
        shares_data_order: recorded.shares_data_order,
        suite_file: Some(recorded.text.to_owned()),
        ..Identity::default()
    };
    write_atomically(&path, Record::Run(Box::new(identity)).line().as_bytes())
}

//! Forms of `squeue`, by version, and what is none of them.

use super::*;

/// The shape of `squeue --json` of 21.08 and 22.05, as a 22.05.8 wrote it, cut to what is read.
const OF_22_05: &str = r#"{"meta": {"Slurm": {"release": "22.05.8"}}, "errors": [], "jobs": [
  {"array_job_id": 1, "array_task_id": 0, "array_task_string": "", "job_id": 7, "job_state": "RUNNING", "name": "s.abc", "nodes": "n1",
   "state_reason": "None"},
  {"array_job_id": 0, "array_task_id": null, "array_task_string": "", "job_id": 2, "job_state": "PENDING", "name": "one; $(x)", "nodes": "",
   "state_reason": "Resources"},
  {"array_job_id": 1, "array_task_id": null, "array_task_string": "2-5,9%2", "job_id": 1, "job_state": "PENDING", "name": "s.abc",
   "nodes": "", "state_reason": "JobArrayTaskLimit"}]}"#;

/// Of 23.02 (data_parser v0.0.39): numbers say whether they are set, states are words still.
const OF_23_02: &str = r#"{"meta": {"Slurm": {"release": "23.02.7"}}, "errors": [], "warnings": [], "jobs": [
  {"array_job_id": {"set": true, "infinite": false, "number": 1}, "array_task_id": {"set": true, "infinite": false, "number": 4},
   "array_task_string": "", "job_id": 8, "job_state": "COMPLETING", "name": "s.abc", "nodes": "n2", "state_reason": "None"},
  {"array_job_id": {"set": true, "infinite": false, "number": 0}, "array_task_id": {"set": false, "infinite": false, "number": 0},
   "array_task_string": "", "job_id": 2, "job_state": "PENDING", "name": "x", "nodes": "", "state_reason": "Priority"}]}"#;

/// Of 23.11 and 24.05 (v0.0.40, v0.0.41): states are lists, the base state first.
const OF_24_05: &str = r#"{"meta": {"slurm": {"release": "24.05.3", "version": {"major": "24"}}}, "errors": [], "warnings": [],
  "last_update": {"set": true, "infinite": false, "number": 1795361108}, "jobs": [
  {"array_job_id": {"set": true, "infinite": false, "number": 1}, "array_task_id": {"set": true, "infinite": false, "number": 4},
   "array_task_string": "", "job_id": 8, "job_state": ["FAILED", "COMPLETING"], "name": "s.abc", "nodes": "n2", "state_reason": "None"},
  {"array_job_id": {"set": true, "infinite": false, "number": 1}, "array_task_id": {"set": false, "infinite": false, "number": 0},
   "array_task_string": "5-6", "job_id": 1, "job_state": ["PENDING"], "name": "s.abc", "nodes": "", "state_reason": "Dependency"},
  {"array_job_id": {"set": true, "infinite": false, "number": 1}, "array_task_id": {"set": true, "infinite": false, "number": 0},
   "array_task_string": "", "job_id": 3, "job_state": ["COMPLETED"], "name": "s.abc", "nodes": "n1", "state_reason": "None"}]}"#;

fn seen(found: &[Queued]) -> Vec<(u64, &[u64], JobState)> {
    found.iter().map(|one| (one.job, one.tasks.as_slice(), one.state)).collect()
}

#[test]
fn json_of_several_versions_is_read() {
    let found = of_json(OF_22_05).unwrap();
    let expected: [(u64, &[u64], JobState); 3] =
        [(1, &[0], JobState::Running), (2, &[], JobState::Pending), (1, &[2, 3, 4, 5, 9], JobState::Pending)];
    assert_eq!(seen(&found), expected);
    assert_eq!(
        (found[0].nodes.as_str(), found[2].reason.as_str(), found[1].name.as_str()),
        ("n1", "JobArrayTaskLimit", "one; $(x)")
    );
    let found = of_json(OF_23_02).unwrap();
    let expected: [(u64, &[u64], JobState); 2] = [(1, &[4], JobState::Running), (2, &[], JobState::Pending)];
    assert_eq!(seen(&found), expected);
    let found = of_json(OF_24_05).unwrap();
    let expected: [(u64, &[u64], JobState); 3] =
        [(1, &[4], JobState::Running), (1, &[5, 6], JobState::Pending), (1, &[0], JobState::Completed)];
    assert_eq!(seen(&found), expected);
    assert_eq!(of_json(r#"{"jobs": [], "errors": []}"#), Ok(Vec::new()));
}

#[test]
fn what_cannot_be_read_is_an_error_and_never_an_empty_queue() {
    for text in [OF_22_05, OF_23_02, OF_24_05] {
        for cut in (1..text.len()).step_by(7) {
            assert!(of_json(&text[..cut]).is_err(), "cut at {cut}");
        }
    }
    let errors = r#"{"jobs": [], "errors": [{"description": "Unable to query jobs", "error_number": 2}]}"#;
    let unknown = r#"{"jobs": [{"job_id": 1, "job_state": "BAKED", "name": "x"}]}"#;
    let shortened =
        r#"{"jobs": [{"job_id": 1, "array_job_id": 1, "array_task_string": "1-3,...", "job_state": "PENDING"}]}"#;
    for wrong in ["", "{}", "[]", "null", errors, unknown, shortened, r#"{"jobs": [{"job_state": "RUNNING"}]}"#] {
        assert!(of_json(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn text_is_read_as_older_versions_have_it() {
    let text = "Welcome to the cluster\n1|2-5,9%2|PENDING||JobArrayTaskLimit|s.abc\n2|N/A|PENDING||Resources|one|; $(x)\n1|0|RUNNING|n1|None|s.abc\n";
    let found = of_text(text).unwrap();
    let expected: [(u64, &[u64], JobState); 3] =
        [(1, &[2, 3, 4, 5, 9], JobState::Pending), (2, &[], JobState::Pending), (1, &[0], JobState::Running)];
    assert_eq!(seen(&found), expected);
    assert_eq!(found[1].name, "one|; $(x)");
    assert_eq!(of_text(""), Ok(Vec::new()));
    for wrong in [
        "1|0|RUNNING|n1|None|s.ab",
        "1|1-3,...|PENDING||Priority|s.abc\n",
        "1|0|LAUFEND|n1|None|s.abc\n",
        "1|0\n",
        "usage: squeue [OPTIONS]\n",
    ] {
        assert!(of_text(wrong).is_err(), "{wrong}");
    }
}

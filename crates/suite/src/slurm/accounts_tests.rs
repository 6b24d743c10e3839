//! Forms of `sacct` and of jobcomp, by version, and what is none of them.

use super::*;

/// What a job came to: number, task, state.
fn seen(found: &[Past]) -> Vec<(u64, Option<u64>, JobState)> {
    found.iter().map(|past| (past.job, past.task, past.state)).collect()
}

/// The shape of `sacct --json` of 21.08 and 22.05, as a 22.05.8 with slurmdbd wrote it, cut to what is read.
const OF_22_05: &str = r#"{"meta": {"Slurm": {"release": "22.05.8"}}, "errors": [], "jobs": [
  {"job_id": 1, "array": {"job_id": 1, "task": null, "task_id": 3}, "name": "s.abc",
   "state": {"current": "FAILED", "reason": "JobArrayTaskLimit"}, "exit_code": {"status": "ERROR", "return_code": 3}, "time": {"elapsed": 2}},
  {"job_id": 2, "array": {"job_id": 0, "task": null, "task_id": null}, "name": "one; $(x)",
   "state": {"current": "CANCELLED", "reason": "None"}, "time": {"elapsed": 4}},
  {"job_id": 5, "array": {"job_id": 5, "task": "0x2E0", "task_id": null}, "name": "later",
   "state": {"current": "PENDING", "reason": "None"}, "time": {"elapsed": 0}}]}"#;

/// Since 23.11 (data_parser v0.0.40) states are lists, and numbers say whether they are set.
const OF_23_11: &str = r#"{"meta": {"slurm": {"release": "23.11.4"}}, "errors": [], "warnings": [], "jobs": [
  {"job_id": 9, "array": {"job_id": 7, "task": "", "task_id": {"set": true, "infinite": false, "number": 3}}, "name": "s.abc",
   "state": {"current": ["TIMEOUT"], "reason": "None"}, "time": {"elapsed": 61}},
  {"job_id": 10, "array": {"job_id": 0, "task": "", "task_id": {"set": false, "infinite": false, "number": 0}}, "name": "x",
   "state": {"current": ["OUT_OF_MEMORY"], "reason": "OutOfMemory"}, "time": {"elapsed": {"set": true, "infinite": false, "number": 5}}}]}"#;

#[test]
fn json_of_several_versions_is_read() {
    let found = of_json(OF_22_05).unwrap();
    let pending = [5, 6, 7, 9].map(|task| (5, Some(task), JobState::Pending));
    let mut expected = vec![(1, Some(3), JobState::Failed), (2, None, JobState::Cancelled)];
    expected.extend(pending);
    assert_eq!(seen(&found), expected);
    assert_eq!(found[0].seconds, Some(2.0));
    let found = of_json(OF_23_11).unwrap();
    assert_eq!(seen(&found), [(7, Some(3), JobState::TimedOut), (10, None, JobState::OutOfMemory)]);
    assert_eq!((found[0].seconds, found[1].seconds), (Some(61.0), Some(5.0)));
}

#[test]
fn json_that_is_cut_off_or_of_a_later_form_is_an_error_and_never_an_empty_list() {
    for text in [OF_22_05, OF_23_11] {
        for cut in (1..text.len()).step_by(7).filter(|cut| text.is_char_boundary(*cut)) {
            assert!(of_json(&text[..cut]).is_err(), "cut at {cut}");
        }
    }
    for wrong in [
        "{}",
        r#"{"jobs": 3}"#,
        r#"{"jobs": [{"name": "x"}]}"#,
        r#"{"jobs": [{"job_id": 1, "state": {"current": "BAKED"}}]}"#,
    ] {
        assert!(of_json(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn text_is_read_as_older_versions_have_it() {
    let text = "2|CANCELLED by 0|4|one; | $(x)\n1_0|COMPLETED|2|s.abc\n1_[1-2]|PENDING|0|s.abc\nYour quota is low\n";
    let found = of_text(text).unwrap();
    assert_eq!(
        seen(&found),
        [
            (2, None, JobState::Cancelled),
            (1, Some(0), JobState::Completed),
            (1, Some(1), JobState::Pending),
            (1, Some(2), JobState::Pending)
        ]
    );
    assert_eq!(found[0].name, "one; | $(x)");
    assert!(of_text("1_0|COMPLETED|2|s.ab").is_err(), "cut off");
}

/// Lines of jobcomp/filetxt of 22.05.8.
#[test]
fn completed_jobs_are_read_from_their_file() {
    let line = |name: &str, state: &str| {
        format!(
            "JobId=8 UserId=root(0) GroupId=root(0) Name={name} JobState={state} Partition=gpu TimeLimit=525600 \
             StartTime=2026-11-22T15:25:08 EndTime=2026-11-22T15:25:28 NodeList=n1 NodeCnt=1 ProcCnt=1 WorkDir=/tmp \
             ReservationName= Tres=cpu=1,mem=10M,node=1,billing=1 Account= QOS= WcKey= Cluster=unknown \
             SubmitTime=2026-11-22T15:25:07 EligibleTime=2026-11-22T15:25:07 ArrayJobId=1 ArrayTaskId=1 DerivedExitCode=0:0 ExitCode=3:0 "
        )
    };
    let past = completed_line(&line("s.abc", "FAILED")).unwrap();
    assert_eq!((past.job, past.task, past.state, past.name.as_str()), (1, Some(1), JobState::Failed, "s.abc"));
    let hostile = completed_line(&line("s.abc JobState=COMPLETED Partition=x", "NODE_FAIL")).unwrap();
    assert_eq!(hostile.state, JobState::NodeFailed, "a name's own words are no state");
    assert_ne!(hostile.name, "s.abc");
    assert_eq!(completed_line("UserId=root(0) JobState=FAILED"), None);
    assert_eq!(completed_line("JobId=8 UserId=x Name=y"), None, "cut off");
}

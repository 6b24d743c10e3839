//! What a journal comes to, whole or cut anywhere.

use std::fs;

use super::*;

fn started(id: &str) -> Event {
    Event::Started { id: id.to_owned(), run: format!("run-{id}"), gpus: vec!["0".to_owned()], bytes: 5 }
}

fn ended(id: &str, outcome: Outcome) -> Event {
    Event::Ended { id: id.to_owned(), end: Ended { outcome, ..Ended::default() } }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tonnage-journal-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn what_is_done_stays_done_and_what_is_retried_waits() {
    let folder = folder("state");
    let journal = Journal::new(&folder);
    let of = |id: &str| journal.read_state().unwrap().where_is(id) == Where::Waiting(None);
    assert!(of("a"));
    for event in [
        Event::Opened { pid: 7, host: "a".to_owned() },
        started("a"),
        started("b"),
        started("c"),
        ended("a", Outcome::Succeeded),
        ended("b", Outcome::Failed),
        ended("c", Outcome::Stopped),
    ] {
        journal.append_event(event).unwrap();
    }
    let state = journal.read_state().unwrap();
    assert!(matches!(state.where_is("a"), Where::Ended(end) if end.outcome == Outcome::Succeeded));
    assert!(matches!(state.where_is("b"), Where::Ended(_)));
    assert!(matches!(state.where_is("c"), Where::Waiting(Some(run)) if run.run == "run-c"));
    journal.append_event(Event::Retried { ids: vec!["b".to_owned()] }).unwrap();
    assert!(matches!(journal.read_state().unwrap().where_is("b"), Where::Waiting(Some(_))));
    journal.append_event(started("b")).unwrap();
    assert!(matches!(journal.read_state().unwrap().where_is("b"), Where::Started(_)));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_was_sent_is_neither_waiting_nor_run_here() {
    let folder = folder("sent");
    let journal = Journal::new(&folder);
    let send = |batch: &str, link, ids: &[&str]| {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        let event = Event::Submitting { batch: batch.to_owned(), link, gpus: 1, metrics: Vec::new(), ids };
        journal.append_event(event).unwrap();
    };
    send("x", 1, &["a", "b"]);
    send("x", 2, &[]);
    journal.append_event(Event::Submitted { batch: "x".to_owned(), link: 1, job: 7 }).unwrap();
    let state = journal.read_state().unwrap();
    assert!(matches!(state.where_is("a"), Where::Submitted(run) if run.batch.as_deref() == Some("x")));
    let links: Vec<_> = state.batches["x"].links.iter().map(|link| (link.number, link.job)).collect();
    assert_eq!(links, [(1, Some(7)), (2, None)]);
    journal.append_event(ended("a", Outcome::Succeeded)).unwrap();
    let not_taken = |link| Event::Unsubmitted { batch: "x".to_owned(), link, why: "no".to_owned() };
    journal.append_event(not_taken(2)).unwrap();
    assert!(matches!(journal.read_state().unwrap().where_is("b"), Where::Submitted(_)), "its first link is there");
    journal.append_event(not_taken(1)).unwrap();
    let state = journal.read_state().unwrap();
    assert!(matches!(state.where_is("a"), Where::Ended(_)) && matches!(state.where_is("b"), Where::Waiting(Some(_))));
    fs::remove_dir_all(&folder).unwrap();
}

/// What SLURM refuses is what it was before; what it took and did not start is counted.
#[test]
fn what_was_not_taken_is_what_it_was_before() {
    let folder = folder("refused");
    let journal = Journal::new(&folder);
    let send = |batch: &str| {
        let (batch, ids) = (batch.to_owned(), vec!["a".to_owned(), "b".to_owned()]);
        journal.append_event(Event::Submitting { batch, link: 1, gpus: 1, metrics: Vec::new(), ids }).unwrap();
    };
    journal.append_all(vec![started("a"), ended("a", Outcome::Failed)]).unwrap();
    send("x");
    journal.append_event(Event::Unsubmitted { batch: "x".to_owned(), link: 1, why: "no".to_owned() }).unwrap();
    let state = journal.read_state().unwrap();
    assert!(matches!(state.where_is("a"), Where::Ended(end) if end.outcome == Outcome::Failed), "it is failed still");
    assert_eq!((state.runs["a"].run.as_str(), &state.runs["a"].batch), ("run-a", &None));
    assert!(matches!(state.where_is("b"), Where::Waiting(_)));
    let wanted = ["a"].into();
    assert!(matches!(state.of_retried("a", &wanted), Where::Waiting(_)));
    let refused = |id: &str, outcome| {
        let class = Some(FailureClass::NotStarted.name().to_owned());
        journal
            .append_event(Event::Ended { id: id.to_owned(), end: Ended { outcome, class, ..Ended::default() } })
            .unwrap();
    };
    for (batch, refusals) in [("y", 1), ("z", 2)] {
        send(batch);
        refused("a", Outcome::Stopped);
        assert_eq!(journal.read_state().unwrap().runs["a"].refusals, refusals);
    }
    send("v");
    refused("a", Outcome::Failed);
    send("w");
    assert_eq!(journal.read_state().unwrap().runs["a"].refusals, 0, "who sends again what failed counts anew");
    fs::remove_dir_all(&folder).unwrap();
}

/// Power loss: cut anywhere, only the line that was cut is lost, and what is added later is whole.
#[test]
fn a_journal_cut_at_any_byte_loses_one_line() {
    let folder = folder("cut");
    let journal = Journal::new(&folder);
    journal.append_event(started("a")).unwrap();
    journal.append_event(ended("a", Outcome::Succeeded)).unwrap();
    let whole = fs::read(folder.join("journal.log")).unwrap();
    journal.append_event(started("b")).unwrap();
    let longer = fs::read(folder.join("journal.log")).unwrap();
    for cut in whole.len()..longer.len() {
        fs::write(folder.join("journal.log"), &longer[..cut]).unwrap();
        journal.append_event(started("c")).unwrap();
        let state = journal.read_state().unwrap();
        assert!(matches!(state.where_is("a"), Where::Ended(_)), "cut at {cut}");
        assert!(matches!(state.where_is("c"), Where::Started(_)), "cut at {cut}");
        assert_eq!(state.unreadable, usize::from(cut > whole.len() && cut < longer.len() - 1), "cut at {cut}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

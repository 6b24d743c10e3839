//! Screens, drawn into a buffer: of recordings, at several sizes, with readings that are absent, without colour. A screen
//! is compared with a file in `screens`; `TONNAGE_BLESS=1 cargo test -p tonnage-watch --test screens` writes them anew.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use similar::TextDiff;
use tonnage_core::record::{SuiteRun, SuiteSummary};
use tonnage_watch::record::Recording;
use tonnage_watch::screen::{Action, App, Palette, Theme, draw_screen};
use tonnage_watch::{Board, PredictedPhase, Prediction, Sampler, observe_sample};

const GIB: u64 = 1 << 30;

fn board(script: &str, until: f64, prediction: Option<Prediction>) -> Board {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/nvml").join(format!("{script}.jsonl"));
    let mut recording = Recording::parse(std::fs::read_to_string(path).unwrap()).unwrap();
    let mut board = Board::new(prediction);
    while recording.next_time().is_some_and(|time| time <= until) {
        observe_sample(&mut board, recording.sample().unwrap());
    }
    board
}

fn prediction() -> Prediction {
    let advice = Arc::<std::sync::OnceLock<String>>::default();
    advice.set("set micro_batch_size = 4: saves 3100 MiB".to_owned()).unwrap();
    Prediction {
        job: "gpt2".to_owned(),
        peak_bytes: 15 * GIB,
        range: (14 * GIB, 15 * GIB),
        phases: vec![
            PredictedPhase { name: "forward".to_owned(), low: 9 * GIB, high: 13 * GIB },
            PredictedPhase { name: "backward".to_owned(), low: 14 * GIB, high: 15 * GIB },
        ],
        advice,
    }
}

fn picture(board: &Board, app: &App, (width, height): (u16, u16)) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw_screen(frame, board, app)).unwrap();
    terminal
}

fn text(terminal: &Terminal<TestBackend>) -> String {
    let buffer = terminal.backend().buffer();
    let row = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(|y| row(y).trim_end().to_owned() + "\n").collect()
}

fn check(name: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/screens").join(format!("{name}.txt"));
    if std::env::var_os("TONNAGE_BLESS").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let diff = TextDiff::from_lines(expected.as_str(), found);
    assert!(
        found == expected,
        "{}",
        diff.unified_diff().context_radius(2).header(&path.display().to_string(), "found")
    );
}

fn keys(app: &mut App, board: &Board, keys: &str) -> Action {
    let code = |key| match key {
        '\n' => KeyCode::Enter,
        '\u{1b}' => KeyCode::Esc,
        key => KeyCode::Char(key),
    };
    keys.chars().map(|key| app.key(KeyEvent::new(code(key), KeyModifiers::NONE), board)).last().unwrap()
}

#[test]
fn a_node_at_several_sizes() {
    let board = board("node", 5.0, None);
    for size in [(40, 12), (80, 24), (120, 40)] {
        check(&format!("node_{}x{}", size.0, size.1), &text(&picture(&board, &App::default(), size)));
    }
}

#[test]
fn a_job_beside_its_prediction() {
    let board = board("leak", 500.0, Some(prediction()));
    check("leak_100x30", &text(&picture(&board, &App::default(), (100, 30))));
    let mut app = App::default();
    keys(&mut app, &board, "j\n");
    check("leak_detail_80x24", &text(&picture(&board, &app, (80, 24))));
}

#[test]
fn what_is_absent_is_no_zero() {
    let lost = board("lost", 50.0, None);
    check("lost_100x24", &text(&picture(&lost, &App::default(), (100, 24))));
    let mig = board("mig", 5.0, None);
    check("mig_80x14", &text(&picture(&mig, &App::default(), (80, 14))));
}

#[test]
fn nodes_of_one_job_and_a_neighbour() {
    let swarm = board("swarm", 5.0, None);
    let mut app = App::default();
    keys(&mut app, &swarm, "..,");
    check("swarm_by_memory_80x12", &text(&picture(&swarm, &app, (80, 12))));
    let neighbour = board("neighbour", 130.0, None);
    check("neighbour_80x24", &text(&picture(&neighbour, &App::default(), (80, 24))));
}

#[test]
fn without_colour_and_without_unicode() {
    let board = board("leak", 500.0, Some(prediction()));
    let app = App { theme: Theme { palette: Palette::Mono, ascii: true }, ..App::default() };
    let terminal = picture(&board, &app, (80, 24));
    let found = text(&terminal);
    assert!(found.is_ascii(), "{found}");
    let cells = &terminal.backend().buffer().content;
    assert!(cells.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    check("leak_ascii_80x24", &found);
}

#[test]
fn any_size_can_be_drawn() {
    for script in ["node", "mig", "lost", "leak", "swarm", "neighbour", "growing"] {
        let board = board(script, 100.0, Some(prediction()));
        let mut app = App::default();
        for presses in ["f", "c", "a", "j", "\n", "e", "h", "h"] {
            keys(&mut app, &board, presses);
            for width in [1, 7, 30, 80, 200] {
                for height in [1, 2, 5, 13, 24, 60] {
                    picture(&board, &app, (width, height));
                }
            }
        }
    }
}

#[test]
fn signals_ask_first_and_a_switch_forbids_them() {
    let mut board = board("swarm", 5.0, None);
    for process in board.sample.devices[0].processes.as_mut().unwrap() {
        process.host.started = Some(7);
    }
    let mut app = App::default();
    assert_eq!(keys(&mut app, &board, "jT"), Action::Draw);
    check("swarm_signal_80x12", &text(&picture(&board, &app, (80, 12))));
    assert_eq!(keys(&mut app.clone(), &board, "n"), Action::Draw);
    let Action::Send(asked) = keys(&mut app, &board, "y") else { panic!("it was confirmed") };
    assert_eq!(asked.targets, [(65000, Some(7))]);
    keys(&mut app, &board, " j K");
    assert_eq!(app.asked.as_ref().unwrap().targets.len(), 2);
    let mut app = App { read_only: true, ..App::default() };
    keys(&mut app, &board, "jK");
    assert!(app.asked.is_none() && app.message.is_some());
    assert_eq!(keys(&mut app, &board, "q"), Action::Quit);
}

#[test]
fn a_hostile_command_reaches_no_terminal() {
    let mut board = board("swarm", 5.0, None);
    let hostile = "\u{1b}]0;owned\u{7}\u{202e}python\u{9b}2J\r\n";
    board.sample.devices[0].name = Ok(hostile.to_owned());
    for process in board.sample.devices[0].processes.as_mut().unwrap() {
        process.host.command = tonnage_watch::host::Command::Known(hostile.to_owned());
        process.host.job = Some(hostile.to_owned());
    }
    let mut app = App::default();
    for presses in ["a", "j", "\n"] {
        keys(&mut app, &board, presses);
        let found = text(&picture(&board, &app, (120, 24)));
        assert!(!found.contains(|each: char| each != '\n' && (each.is_control() || each == '\u{202e}')), "{found}");
    }
    let plain = tonnage_watch::format::plain_table(&board, 200);
    assert!(!plain.contains(|each: char| each != '\n' && (each.is_control() || each == '\u{202e}')), "{plain}");
}

/// Suites below the devices: how far each is, which run is where, what is next; never more than a quarter of the screen.
#[test]
fn suites_stand_below_the_devices() {
    let mut board = board("neighbour", 10.0, None);
    let run = |name: &str, gpu: &str| SuiteRun {
        name: name.to_owned(),
        run: "20261121-120000".to_owned(),
        gpus: vec![gpu.to_owned()],
        nodes: None,
        seconds: Some(340.0),
    };
    let search = SuiteSummary {
        name: "lr-search".to_owned(),
        is_run: true,
        succeeded: 3,
        failed: 1,
        waiting: 14,
        seconds_left: Some(2000.0),
        running: vec![run("warm learning_rate=0.001 seed 2", "0"), run("cold seed 0", "0")],
        next: vec!["cold seed 1".to_owned(), "cold seed 2".to_owned()],
        ..SuiteSummary::default()
    };
    let paused = SuiteSummary {
        name: "bad\u{1b}[2J".to_owned(),
        failed: 3,
        waiting: 5,
        paused: Some("3 runs failed alike at their start".to_owned()),
        ..SuiteSummary::default()
    };
    board.suites = vec![search, paused];
    check("suites_90x24", &text(&picture(&board, &App::default(), (90, 24))));
    check("suites_60x12", &text(&picture(&board, &App::default(), (60, 12))));
}

//! The loop of the screen, and the threads that feed it.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use ratatui::crossterm::event::{self, Event as TerminalEvent, KeyEvent};

use super::app::{Action, App, Asked};
use super::draw::draw_screen;
use crate::board::Board;
use crate::host::Kernel;
use crate::os;
use crate::watcher::{Watcher, lock_board};

/// All that can happen.
enum Event {
    Sampled,
    Key(KeyEvent),
    Resized,
    /// The keys cannot be read any more, or a file cannot be written.
    Failed(io::Error),
}

/// Shows `watcher`'s board until somebody quits.
///
/// # Errors
/// When the terminal cannot be used, or a file of the watcher cannot be written.
pub fn run(mut watcher: Watcher, mut app: App) -> io::Result<()> {
    watcher.step()?;
    let board = watcher.board();
    let mut terminal = ratatui::try_init()?;
    let (events, received) = channel();
    let (refresh, refreshed) = channel();
    let keys = events.clone();
    thread::spawn(move || read_keys(&keys));
    thread::spawn(move || sample_board(watcher, &events, &refreshed));
    let result = show_screen(&mut terminal, &board, &mut app, &received, &refresh);
    ratatui::restore();
    result
}

fn show_screen(
    terminal: &mut ratatui::DefaultTerminal,
    board: &Arc<Mutex<Board>>,
    app: &mut App,
    received: &Receiver<Event>,
    refresh: &Sender<()>,
) -> io::Result<()> {
    loop {
        terminal.draw(|frame| draw_screen(frame, &lock_board(board), app))?;
        let action = match received.recv() {
            Ok(Event::Sampled | Event::Resized) => continue,
            Ok(Event::Key(key)) => app.key(key, &lock_board(board)),
            Ok(Event::Failed(error)) => return Err(error),
            Err(_) => return Ok(()),
        };
        match action {
            Action::Draw => {}
            Action::Quit => return Ok(()),
            // When sampling has ended, as a replay does, there is nothing to hurry.
            Action::Refresh => drop(refresh.send(())),
            Action::Send(asked) => app.message = Some(send_asked(&asked)),
        }
    }
}

fn read_keys(events: &Sender<Event>) {
    loop {
        let event = match event::read() {
            Ok(TerminalEvent::Key(key)) => Event::Key(key),
            Ok(TerminalEvent::Resize(..)) => Event::Resized,
            Ok(_) => continue,
            Err(error) => Event::Failed(error),
        };
        let failed = matches!(event, Event::Failed(_));
        if events.send(event).is_err() || failed {
            return;
        }
    }
}

fn sample_board(mut watcher: Watcher, events: &Sender<Event>, refreshed: &Receiver<()>) {
    loop {
        let Some(wait) = watcher.wait() else { return };
        // A message is a wish for a sample now; without one the wait ends by itself.
        let _early = refreshed.recv_timeout(wait);
        let event = match watcher.step() {
            Ok(true) => Event::Sampled,
            Ok(false) => return,
            Err(error) => Event::Failed(error),
        };
        if events.send(event).is_err() {
            return;
        }
    }
}

/// Sends a signal that was confirmed to those processes that are still the same.
fn send_asked(asked: &Asked) -> String {
    let mut kernel = Kernel::of_this_machine();
    let one = |(pid, started): &(u32, Option<u64>)| {
        let host = kernel.look_up(*pid);
        if host.started.is_none() || host.started != *started {
            return format!("{pid} has ended");
        }
        match os::send_signal(*pid, asked.signal) {
            Ok(()) => format!("{} sent to {pid}", asked.signal.word()),
            Err(problem) => format!("{pid}: {problem}"),
        }
    };
    asked.targets.iter().map(one).collect::<Vec<_>>().join("; ")
}

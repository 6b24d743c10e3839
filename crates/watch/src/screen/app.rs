//! [`App`]: what the person at the screen chose. Keys change it and nothing else; drawing only reads it.

use std::collections::BTreeSet;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::rows::{Row, rows};
use super::theme::Theme;
use crate::board::Board;
use crate::host::Command;
use crate::os::Signal;

/// The screen's state.
#[derive(Clone, Debug, Default)]
pub struct App {
    /// Colours and characters.
    pub theme: Theme,
    pub read_only: bool,
    pub view: View,
    /// The process that is selected, by device and id.
    pub selected: Option<(String, u32)>,
    /// Processes that are tagged.
    pub tagged: BTreeSet<u32>,
    /// The order of processes.
    pub sort: Sort,
    /// The other way round.
    pub reverse: bool,
    /// Children below their parents.
    pub tree: bool,
    /// The size of what is shown.
    pub layout: Layout,
    /// From which parts of memory on a bar is worth a look, and near the end.
    pub levels: Levels,
    /// A signal that waits for a yes.
    pub asked: Option<Asked>,
    /// What the last action did.
    pub message: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// Devices, plot, processes.
    #[default]
    Main,
    Help,
    Detail,
    /// The environment of one process.
    Environment,
}

/// Orders of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// By device, then memory.
    #[default]
    Device,
    /// The most memory first.
    Memory,
    /// The busiest first.
    Sm,
    Pid,
    User,
    /// By job and rank.
    Job,
}

impl Sort {
    const ALL: [Self; 6] = [Self::Device, Self::Memory, Self::Sm, Self::Pid, Self::User, Self::Job];

    pub fn word(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Memory => "memory",
            Self::Sm => "sm",
            Self::Pid => "pid",
            Self::User => "user",
            Self::Job => "job",
        }
    }

    fn step(self, by: usize) -> Self {
        let place = Self::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Self::ALL[(place + by) % Self::ALL.len()]
    }
}

/// Parts of memory at which a bar changes its colour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Levels {
    /// Worth a look.
    pub middle: f64,
    /// Near the end.
    pub high: f64,
}

impl Default for Levels {
    fn default() -> Self {
        Self { middle: 0.80, high: 0.95 }
    }
}

/// How much is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// As much as there is room for.
    #[default]
    Auto,
    /// Everything, however small.
    Full,
    /// A line a device, no plot.
    Compact,
}

/// A question before a signal is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub signal: Signal,
    /// To whom: the id, and when it started, so that a process that took over the id is not hit.
    pub targets: Vec<(u32, Option<u64>)>,
}

/// What a key asks of the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing but another picture.
    Draw,
    Quit,
    /// A sample now.
    Refresh,
    /// The signal that was confirmed.
    Send(Asked),
}

impl App {
    /// Takes a key.
    pub fn key(&mut self, key: KeyEvent, board: &Board) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Draw;
        }
        self.message = None;
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Action::Quit;
        }
        if let Some(asked) = self.asked.take() {
            return match key.code {
                KeyCode::Char('y' | 'Y') => Action::Send(asked),
                _ => Action::Draw,
            };
        }
        match key.code {
            KeyCode::Char('q') if self.view == View::Main => return Action::Quit,
            KeyCode::Char('q') | KeyCode::Esc if self.view != View::Main => self.view = View::Main,
            KeyCode::Esc => self.clear(),
            KeyCode::Char('r') | KeyCode::F(5) => return Action::Refresh,
            code => self.choose(code, board),
        }
        Action::Draw
    }

    fn clear(&mut self) {
        self.selected = None;
        self.tagged.clear();
    }

    fn choose(&mut self, code: KeyCode, board: &Board) {
        match code {
            KeyCode::Char('h' | '?') => self.view = if self.view == View::Help { View::Main } else { View::Help },
            KeyCode::Up | KeyCode::Char('k') => self.select(board, -1),
            KeyCode::Down | KeyCode::Char('j') => self.select(board, 1),
            KeyCode::PageUp => self.select(board, -10),
            KeyCode::PageDown => self.select(board, 10),
            KeyCode::Home | KeyCode::Char('g') => self.select(board, isize::MIN / 2),
            KeyCode::End | KeyCode::Char('G') => self.select(board, isize::MAX / 2),
            KeyCode::Enter => self.open(View::Detail, board),
            KeyCode::Char('e') => self.open(View::Environment, board),
            KeyCode::Char(' ') => self.tag(),
            KeyCode::Char('t') => self.tree = !self.tree,
            KeyCode::Char('.') | KeyCode::F(6) => self.sort = self.sort.step(1),
            KeyCode::Char(',') => self.sort = self.sort.step(Sort::ALL.len() - 1),
            KeyCode::Char('/') => self.reverse = !self.reverse,
            KeyCode::Char('a') => self.layout = Layout::Auto,
            KeyCode::Char('f') => self.layout = Layout::Full,
            KeyCode::Char('c') => self.layout = Layout::Compact,
            KeyCode::Char('I') => self.ask(Signal::Interrupt, board),
            KeyCode::Char('T') => self.ask(Signal::Terminate, board),
            KeyCode::Char('K') => self.ask(Signal::Kill, board),
            _ => {}
        }
    }

    fn select(&mut self, board: &Board, by: isize) {
        let rows = rows(board, self);
        let Some(last) = rows.len().checked_sub(1) else { return };
        let place = match self.place(&rows) {
            Some(place) => place.saturating_add_signed(by).min(last),
            None if by < 0 => last,
            None => 0,
        };
        self.selected = Some(rows[place].key());
    }

    /// The place of the selected process among `rows`.
    pub fn place(&self, rows: &[Row<'_>]) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        rows.iter().position(|row| row.key() == *selected)
    }

    fn open(&mut self, view: View, board: &Board) {
        if self.selected.is_none() {
            self.select(board, 1);
        }
        if self.selected.is_some() {
            self.view = if self.view == view { View::Main } else { view };
        }
    }

    fn tag(&mut self) {
        if let Some((_, pid)) = &self.selected
            && !self.tagged.remove(pid)
        {
            self.tagged.insert(*pid);
        }
    }

    /// Asks before a signal is sent to the tagged processes, or else the selected one.
    fn ask(&mut self, signal: Signal, board: &Board) {
        if self.read_only {
            self.message = Some("read-only: no signals".to_owned());
            return;
        }
        let chosen = |pid: u32| match &self.selected {
            _ if !self.tagged.is_empty() => self.tagged.contains(&pid),
            Some((_, selected)) => *selected == pid,
            None => false,
        };
        let rows = rows(board, self);
        let reachable = rows.iter().filter(|row| matches!(row.process.host.command, Command::Known(_)));
        let mut targets: Vec<_> = reachable
            .filter(|row| chosen(row.process.pid))
            .map(|row| (row.process.pid, row.process.host.started))
            .collect();
        targets.sort_unstable();
        targets.dedup();
        if targets.is_empty() {
            self.message = Some("no process is selected that could be reached from here".to_owned());
        } else {
            self.asked = Some(Asked { signal, targets });
        }
    }
}

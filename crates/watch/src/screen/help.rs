//! The keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Text};

use super::app::App;

const KEYS: &[(&str, &str)] = &[
    ("q, Ctrl-C", "quit"),
    ("h, ?", "this page"),
    ("j k, arrows", "select a process; g and G the first and the last"),
    ("Enter", "all about the process"),
    ("e", "its environment, secrets hidden"),
    ("Space", "tag it; Esc untags all"),
    ("t", "tree of parents and children"),
    (", . F6", "sort by another column; / turns the order"),
    ("a f c", "layout: automatic, full, compact"),
    ("r, F5", "sample now"),
    ("I T K", "SIGINT, SIGTERM, SIGKILL to the tagged or selected; asks first"),
];

/// Draws the page.
pub(super) fn draw_help(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let mut lines = vec![Line::styled("keys", app.theme.bold())];
    let shown = KEYS.iter().filter(|(keys, _)| !(app.read_only && *keys == "I T K"));
    lines.extend(shown.map(|(keys, what)| Line::raw(format!("  {keys:<12} {what}"))));
    lines.push(Line::raw(""));
    lines.push(Line::raw("signs before a process: * tagged, g draws, m is a client of the MPS"));
    lines.push(Line::raw("in place of a figure: - it cannot be read"));
    frame.render_widget(Text::from(lines), area);
}

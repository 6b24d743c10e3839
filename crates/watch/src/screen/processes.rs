//! The table of processes.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Text};

use super::app::App;
use super::devices::label_width;
use super::rows::{Row, rows};
use crate::absent::Reading;
use crate::amount::mib_text;
use crate::board::Board;
use crate::format::process_label;
use crate::sample::ProcessKind;

/// Draws the table, scrolled to the selected process.
pub(super) fn draw_processes(frame: &mut Frame<'_>, area: Rect, board: &Board, app: &App) {
    if area.height == 0 {
        return;
    }
    let rows = rows(board, app);
    let width = usize::from(area.width);
    let room = usize::from(area.height) - 1;
    let first = app.place(&rows).map_or(0, |place| (place + 1).saturating_sub(room));
    let widest = label_width(board);
    let mut lines = vec![Line::styled(heading_text(board, (width, widest)), app.theme.bold())];
    if rows.is_empty() {
        lines.push(Line::styled("no process", app.theme.dim()));
    }
    for row in rows.iter().skip(first).take(room) {
        let style = if app.selected == Some(row.key()) { app.theme.selected() } else { Default::default() };
        lines.push(Line::styled(process_line(board, row, app, (width, widest)), style));
    }
    frame.render_widget(Text::from(lines), area);
}

fn heading_text(board: &Board, (width, widest): (usize, usize)) -> String {
    let predicted =
        if board.prediction.is_some() && width >= 72 { format!("{:>9} ", "PREDICTED") } else { String::new() };
    let trend = if width >= 90 { format!("{:>13} ", "TREND") } else { String::new() };
    format!(" {:<widest$} {:>8} {:>9} {predicted}{trend}{:>4} {}", "GPU", "PID", "MEMORY", "SM", "JOB AND COMMAND")
}

fn process_line(board: &Board, row: &Row<'_>, app: &App, (width, widest): (usize, usize)) -> String {
    let process = row.process;
    let tag = if app.tagged.contains(&process.pid) { '*' } else { kind_sign(process.kind) };
    let mut text = format!(
        "{tag}{:<widest$} {:>8} {:>9} ",
        board.label(row.device),
        process.pid,
        or_dash(&process.memory, |bytes| mib_text(*bytes))
    );
    if let Some(prediction) = board.prediction.as_ref().filter(|_| width >= 72) {
        let predicted = if board.is_of_job(process) { mib_text(prediction.peak_bytes) } else { String::new() };
        text += &format!("{predicted:>9} ");
    }
    if width >= 90 {
        let trend = board.trend_of_process(row.device, process.pid);
        let trend = trend.map(|trend| format!("+{}/min", mib_text((trend.bytes_per_second * 60.0) as u64)));
        text += &format!("{:>13} ", trend.unwrap_or_default());
    }
    let indent = "  ".repeat(row.depth);
    text += &format!(
        "{:>4} {indent}{}",
        or_dash(&process.sm, |percent| format!("{percent}%")),
        app.theme.text(&process_label(process))
    );
    text.chars().take(width).collect()
}

/// Those who draw, or compute through the multi-process service, are marked.
fn kind_sign(kind: ProcessKind) -> char {
    match kind {
        ProcessKind::Compute => ' ',
        ProcessKind::Graphics => 'g',
        ProcessKind::Mps => 'm',
    }
}

fn or_dash<T>(reading: &Reading<T>, show: impl Fn(&T) -> String) -> String {
    reading.as_ref().map_or_else(|_| "-".to_owned(), show)
}

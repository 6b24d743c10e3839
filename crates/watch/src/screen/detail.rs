//! One process: all that is known of it, its memory over time, the phases that were predicted; and its environment.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Text};
use tonnage_secrets::hide_in_variable;

use super::app::App;
use super::draw::split_area;
use super::plot;
use super::rows::{Row, rows};
use crate::amount::{mib_text, minutes_text};
use crate::board::Board;
use crate::format::{kind_word, process_label};

/// Draws the process that is selected.
pub(super) fn draw_detail(frame: &mut Frame<'_>, area: Rect, board: &Board, app: &App) {
    let rows = rows(board, app);
    let Some(row) = app.place(&rows).map(|place| rows[place]) else {
        frame.render_widget(Line::raw("the process has ended"), area);
        return;
    };
    let lines = detail_lines(board, &row, app);
    let [top, rest] = split_area(area, lines.len() as u16);
    frame.render_widget(Text::from(lines), top);
    if rest.height >= 5 {
        let series = board.series(row.device, Some(row.process.pid));
        let points = series.map(|series| series.history.all()).unwrap_or_default();
        let predicted = board.prediction.as_ref().filter(|_| board.is_of_job(row.process));
        plot::draw_points(frame, rest, app, (&points, predicted.map(|each| each.peak_bytes)), " memory ");
    }
}

fn detail_lines(board: &Board, row: &Row<'_>, app: &App) -> Vec<Line<'static>> {
    let process = row.process;
    let title = format!("process {} on {}, {}", process.pid, board.label(row.device), kind_word(process.kind));
    let mut lines = vec![Line::styled(title, app.theme.bold()), Line::raw(app.theme.text(&process_label(process)))];
    let memory = process.memory.map_or_else(|why| why.reason().to_owned(), mib_text);
    let series = board.series(row.device, Some(process.pid));
    let peak = series.map_or_else(|| "-".to_owned(), |series| mib_text(series.history.peak()));
    lines.push(Line::raw(format!("memory {memory}, peak {peak}")));
    if let Some(host) = process.host.host_memory {
        lines.push(Line::raw(format!("host memory {}", mib_text(host))));
    }
    if let Some(trend) = series.and_then(|series| series.trend) {
        let (rate, span) = (mib_text((trend.bytes_per_second * 60.0) as u64), minutes_text(trend.seconds));
        lines.push(Line::raw(format!("grows by {rate} a minute, over {span}")));
    }
    if let Some(prediction) = board.prediction.as_ref().filter(|_| board.is_of_job(process)) {
        let (low, high) = prediction.range;
        lines.push(Line::raw(format!(
            "predicted {} ({} to {})",
            mib_text(prediction.peak_bytes),
            mib_text(low),
            mib_text(high)
        )));
        let now = process.memory.ok().and_then(|bytes| prediction.phase_of(bytes));
        lines.extend(prediction.phases.iter().map(|phase| {
            let sign = if now == Some(phase) { '>' } else { ' ' };
            Line::raw(format!(
                " {sign} {:<12} {:>9} to {}",
                app.theme.text(&phase.name),
                mib_text(phase.low),
                mib_text(phase.high)
            ))
        }));
    }
    lines
}

/// Draws the environment of the process that is selected, as far as this user may read it.
pub(super) fn draw_environment(frame: &mut Frame<'_>, area: Rect, board: &Board, app: &App) {
    let rows = rows(board, app);
    let process = app.place(&rows).map(|place| rows[place].process);
    let Some(process) = process.filter(|process| process.host.started.is_some()) else {
        frame.render_widget(Line::raw("the process cannot be seen from here"), area);
        return;
    };
    let text = std::fs::read(format!("/proc/{}/environ", process.pid));
    let lines = match text {
        Ok(bytes) => environment_lines(&String::from_utf8_lossy(&bytes), app),
        Err(error) => vec![Line::raw(format!("its environment cannot be read: {error}"))],
    };
    frame.render_widget(Text::from(lines), area);
}

fn environment_lines(text: &str, app: &App) -> Vec<Line<'static>> {
    let mut pairs: Vec<&str> = text.split('\0').filter(|pair| !pair.is_empty()).collect();
    pairs.sort_unstable();
    pairs.into_iter().map(|pair| Line::raw(app.theme.text(&hide_value(pair)))).collect()
}

fn hide_value(pair: &str) -> String {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    format!("{name}={}", hide_in_variable(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden() {
        assert_eq!(hide_value("WANDB_API_KEY=abc=d"), "WANDB_API_KEY=(hidden)");
        assert_eq!(hide_value("hf_token=x"), "hf_token=(hidden)");
        assert_eq!(hide_value("DB_URL=postgres://u:pw@h/x"), "DB_URL=postgres://u:(hidden)@h/x");
        assert_eq!(hide_value("RANK=3"), "RANK=3");
    }
}

//! One picture of a board: which parts there is room for, and where.

use ratatui::Frame;
use ratatui::buffer::Cell;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::app::{App, Asked, Layout, View};
use super::theme::Level;
use super::{detail, devices, help, plot, processes};
use crate::amount::mib_text;
use crate::board::Board;
use crate::suites::{suite_headline, suite_run_lines};

/// A plot needs so many rows, and a screen with one so many more.
const PLOT_ROWS: u16 = 9;
const ROWS_WITH_PLOT: u16 = 18;
/// A screen that names the columns of devices.
const ROWS_WITH_HEADING: u16 = 12;
/// Suites take at most one of so many rows.
const SUITE_SHARE: u16 = 4;
/// Alerts that are shown at once.
const MOST_ALERTS: usize = 3;

pub fn draw_screen(frame: &mut Frame<'_>, board: &Board, app: &App) {
    let area = frame.area();
    let [body, footer] = split_area(area, area.height.saturating_sub(1));
    match app.view {
        View::Main => main(frame, body, board, app),
        View::Help => help::draw_help(frame, body, app),
        View::Detail => detail::draw_detail(frame, body, board, app),
        View::Environment => detail::draw_environment(frame, body, board, app),
    }
    frame.render_widget(bottom_line(app), footer);
    if app.theme.ascii {
        frame.buffer_mut().content.iter_mut().for_each(plain_cell);
    }
}

/// Lines that widgets draw, in ASCII.
fn plain_cell(cell: &mut Cell) {
    let sign = match cell.symbol() {
        symbol if symbol.is_ascii() => return,
        "│" => '|',
        "─" => '-',
        "└" | "┌" | "┐" | "┘" | "┼" => '+',
        _ => '?',
    };
    cell.set_char(sign);
}

/// The first `rows` of an area, and the rest.
pub(super) fn split_area(area: Rect, rows: u16) -> [Rect; 2] {
    let rows = rows.min(area.height);
    [Rect { height: rows, ..area }, Rect { y: area.y + rows, height: area.height - rows, ..area }]
}

fn main(frame: &mut Frame<'_>, area: Rect, board: &Board, app: &App) {
    let [top, area] = split_area(area, 1);
    frame.render_widget(header_line(board, app), top);
    let alerts = alert_lines(board, app, usize::from(area.width));
    let [area, bottom] = split_area(area, area.height.saturating_sub(alerts.len() as u16));
    frame.render_widget(ratatui::text::Text::from(alerts), bottom);
    let suites = suite_lines(board, app, usize::from(area.height / SUITE_SHARE));
    let [area, bottom] = split_area(area, area.height.saturating_sub(suites.len() as u16));
    frame.render_widget(ratatui::text::Text::from(suites), bottom);
    let mut lines = devices::device_lines(board, app, usize::from(area.width));
    if area.height >= ROWS_WITH_HEADING && !board.sample.devices.is_empty() {
        lines.insert(0, devices::heading_line(board, app, usize::from(area.width)));
    }
    let with_plot = match app.layout {
        Layout::Auto => area.height >= ROWS_WITH_PLOT && area.width >= 60,
        Layout::Full => area.height >= PLOT_ROWS + 4,
        Layout::Compact => false,
    };
    let most = if with_plot { area.height.saturating_sub(PLOT_ROWS + 4) } else { area.height.saturating_sub(3) };
    let hidden = lines.len().saturating_sub(usize::from(most.max(1)));
    let [top, area] = split_area(area, (lines.len() - hidden) as u16);
    frame.render_widget(ratatui::text::Text::from(lines), top);
    let area = if with_plot {
        let [middle, rest] = split_area(area, PLOT_ROWS.max(area.height / 3));
        plot::draw_plot(frame, middle, board, app);
        rest
    } else {
        area
    };
    processes::draw_processes(frame, area, board, app);
}

fn header_line(board: &Board, app: &App) -> Line<'static> {
    let sample = &board.sample;
    let dot = app.theme.dot();
    let mut parts = vec![Span::styled("tonnage watch", app.theme.bold())];
    let mut add = |text: String| parts.push(Span::styled(format!(" {dot} {text}"), app.theme.dim()));
    if let Ok(driver) = &sample.driver {
        add(format!("driver {}", app.theme.text(driver)));
    }
    if let Ok(cuda) = sample.cuda {
        add(format!("CUDA {}.{}", cuda / 1000, cuda % 1000 / 10));
    }
    if let Some(prediction) = &board.prediction {
        add(format!("{} predicted: {}", app.theme.text(&prediction.job), mib_text(prediction.peak_bytes)));
    }
    if let Some(why) = sample.problem {
        let text = format!(" {dot} GPUs cannot be counted: {}", why.reason());
        parts.push(Span::styled(text, app.theme.level(Level::High)));
    }
    Line::from(parts)
}

/// The gravest alerts; what to do about one stands on a line of its own where there is no room beside it.
fn alert_lines(board: &Board, app: &App, width: usize) -> Vec<Line<'static>> {
    let alerts = board.alerts.active();
    let mut lines = Vec::new();
    for alert in alerts.iter().take(MOST_ALERTS) {
        let (text, advice) = (format!("! {}", app.theme.text(&alert.text)), app.theme.text(&alert.advice));
        let both = text.chars().count() + advice.chars().count() + 2 <= width;
        let text = Span::styled(text, app.theme.level(Level::High));
        let advice = Span::styled(format!("  {advice}"), app.theme.dim());
        if both {
            lines.push(Line::from(vec![text, advice]));
        } else {
            lines.extend([Line::from(text), Line::from(advice)]);
        }
    }
    if alerts.len() > MOST_ALERTS {
        let more = format!("! and {} more", alerts.len() - MOST_ALERTS);
        lines.push(Line::styled(more, app.theme.level(Level::High)));
    }
    lines
}

/// Suites that live, in so many rows: how far each is, then which run is where.
fn suite_lines(board: &Board, app: &App, rows: usize) -> Vec<Line<'static>> {
    let heads = board.suites.len().min(rows);
    let suites = &board.suites[..heads];
    let shares =
        share_rows(&suites.iter().map(|suite| suite_run_lines(suite, rows).len()).collect::<Vec<_>>(), rows - heads);
    let mut lines = Vec::new();
    for (suite, share) in suites.iter().zip(shares) {
        lines.push(Line::styled(app.theme.text(&suite_headline(suite)), app.theme.bold()));
        lines.extend(suite_run_lines(suite, share).iter().map(|line| Line::raw(format!("  {}", app.theme.text(line)))));
    }
    lines
}

/// So many rows given out in turn, to each as many as it has lines.
fn share_rows(needs: &[usize], mut rows: usize) -> Vec<usize> {
    let mut shares = vec![0; needs.len()];
    while rows > 0 && shares != needs {
        for (share, need) in shares.iter_mut().zip(needs) {
            let more = usize::from(*share < *need && rows > 0);
            (*share, rows) = (*share + more, rows - more);
        }
    }
    shares
}

fn bottom_line(app: &App) -> Line<'static> {
    if let Some(asked) = &app.asked {
        return Line::styled(question_text(asked), app.theme.level(Level::High));
    }
    if let Some(message) = &app.message {
        return Line::styled(app.theme.text(message), app.theme.level(Level::Middle));
    }
    let signals = if app.read_only { "" } else { "  I/T/K signal" };
    let order = if app.reverse { " reversed" } else { "" };
    let keys =
        format!("q quit  h help  j/k select  Enter detail  t tree  ,/. sort: {}{order}{signals}", app.sort.word());
    Line::styled(keys, app.theme.dim())
}

fn question_text(asked: &Asked) -> String {
    let pids: Vec<String> = asked.targets.iter().map(|(pid, _)| pid.to_string()).collect();
    format!("send {} to {}? y / n", asked.signal.word(), pids.join(", "))
}

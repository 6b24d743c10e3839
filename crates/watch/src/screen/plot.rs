//! Memory over time: of the selected process, or of the fullest device, with what was predicted as a line.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Borders, Chart, Dataset, GraphType};

use super::app::App;
use crate::amount::mib_text;
use crate::board::Board;
use crate::history::Point;
use crate::sample::DeviceSample;

/// What is plotted.
struct Subject<'a> {
    device: &'a DeviceSample,
    pid: Option<u32>,
}

/// Draws the plot.
pub(super) fn draw_plot(frame: &mut Frame<'_>, area: Rect, board: &Board, app: &App) {
    let Some(subject) = plot_subject(board, app) else { return };
    let points = board.series(subject.device, subject.pid).map(|series| series.history.all()).unwrap_or_default();
    let predicted = predicted_bytes(board, &subject);
    let title = plot_title(board, &subject, predicted);
    draw_points(frame, area, app, (&points, predicted), &title);
}

/// The plot of `points` with the line that was predicted.
pub(super) fn draw_points(
    frame: &mut Frame<'_>,
    area: Rect,
    app: &App,
    (points, predicted): (&[Point], Option<u64>),
    title: &str,
) {
    let theme = app.theme;
    let began = points.first().map_or(0.0, |point| point.time);
    let ended = points.last().map_or(1.0, |point| point.time).max(began + 1.0);
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let most = points.iter().map(|point| point.bytes).chain(predicted).max().unwrap_or(0);
    let top = (gib(most) * 1.1).max(0.1);
    let line: Vec<(f64, f64)> = points.iter().map(|point| (point.time - began, gib(point.bytes))).collect();
    let prediction: Vec<(f64, f64)> =
        predicted.map(|bytes| vec![(0.0, gib(bytes)), (ended - began, gib(bytes))]).unwrap_or_default();
    let dataset = |data, number| {
        Dataset::default().data(data).marker(theme.marker()).graph_type(GraphType::Line).style(theme.series(number))
    };
    let mut sets = vec![dataset(line.as_slice(), 0)];
    if !prediction.is_empty() {
        sets.push(dataset(prediction.as_slice(), 1));
    }
    let span = |text: String| Span::styled(text, theme.dim());
    let ago = crate::amount::minutes_text(ended - began);
    let x = Axis::default().bounds([0.0, ended - began]).labels([span(format!("-{ago}")), span("now".to_owned())]);
    let y = Axis::default().bounds([0.0, top]).labels([span("0".to_owned()), span(format!("{top:.1} GiB"))]);
    let block = Block::new().borders(Borders::TOP).border_set(theme.border()).title(Line::raw(theme.text(title)));
    frame.render_widget(Chart::new(sets).block(block).x_axis(x).y_axis(y).legend_position(None), area);
}

fn plot_subject<'a>(board: &'a Board, app: &App) -> Option<Subject<'a>> {
    let mut all = board.sample.all_devices();
    if let Some((id, pid)) = &app.selected
        && let Some(device) = all.find(|device| device.id() == *id)
    {
        return Some(Subject { device, pid: Some(*pid) });
    }
    let used = |device: &&DeviceSample| device.memory.map_or(0, |memory| memory.used);
    // Of equal ones the first.
    let device = board.sample.all_devices().rev_max(used)?;
    Some(Subject { device, pid: None })
}

/// The first of the largest, where `max_by_key` gives the last.
trait RevMax: Iterator + Sized {
    fn rev_max<K: Ord>(self, key: impl Fn(&Self::Item) -> K) -> Option<Self::Item> {
        self.fold(None, |best, next| match best {
            Some(best) if key(&best) >= key(&next) => Some(best),
            _ => Some(next),
        })
    }
}

impl<I: Iterator> RevMax for I {}

/// The predicted peak: of one process, or of all of the job on the device.
fn predicted_bytes(board: &Board, subject: &Subject<'_>) -> Option<u64> {
    let prediction = board.prediction.as_ref()?;
    let of_job = subject.device.running().iter().filter(|process| board.is_of_job(process));
    let count = of_job.filter(|process| subject.pid.is_none_or(|pid| pid == process.pid)).count() as u64;
    (count > 0).then(|| prediction.peak_bytes.saturating_mul(count))
}

fn plot_title(board: &Board, subject: &Subject<'_>, predicted: Option<u64>) -> String {
    let series = board.series(subject.device, subject.pid);
    let mut title = match subject.pid {
        Some(pid) => format!(" memory of process {pid} on {}", board.label(subject.device)),
        None => format!(" memory of {}", board.label(subject.device)),
    };
    if let Some(series) = series {
        title += &format!(", peak {}", mib_text(series.history.peak()));
        if let Some(trend) = series.trend {
            title += &format!(", grows by {} a minute", mib_text((trend.bytes_per_second * 60.0) as u64));
        }
    }
    if let Some(bytes) = predicted {
        title += &format!(", predicted {}", mib_text(bytes));
    }
    title + " "
}

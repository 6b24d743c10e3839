//! [`Site`]: what there is to get: the page with its script and style, its data, the metrics.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};

use crate::board::Board;
use crate::format::{MetricOptions, metrics_text, sample_json, series_json};
use crate::sample::DeviceSample;
use crate::watcher::lock_board;

/// Something to give out.
pub(super) struct Page {
    /// Its media type.
    pub kind: &'static str,
    pub body: Cow<'static, str>,
}

impl Page {
    pub fn text(body: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: "text/plain; charset=utf-8", body: body.into() }
    }
}

/// What a server gives out.
pub struct Site {
    board: Arc<Mutex<Board>>,
    metrics: Option<MetricOptions>,
    page: bool,
}

impl Site {
    /// The metrics alone.
    pub fn of_metrics(board: Arc<Mutex<Board>>, options: MetricOptions) -> Self {
        Self { board, metrics: Some(options), page: false }
    }

    pub fn of_page(board: Arc<Mutex<Board>>) -> Self {
        Self { board, metrics: None, page: true }
    }

    /// What is at `path`; `number` finds a number of the query.
    pub(super) fn page_at(&self, path: &str, number: &dyn Fn(&str) -> Option<f64>) -> Option<Page> {
        let asset = |kind, body: &'static str| Some(Page { kind, body: Cow::Borrowed(body) });
        match (path, self.page, self.metrics) {
            ("/", true, _) => asset("text/html; charset=utf-8", include_str!("page.html")),
            ("/page.js", true, _) => asset("text/javascript; charset=utf-8", include_str!("page.js")),
            ("/page.css", true, _) => asset("text/css; charset=utf-8", include_str!("page.css")),
            ("/data.json", true, _) => {
                let since = number("since").unwrap_or(f64::NEG_INFINITY);
                let body = Cow::Owned(board_data(&lock_board(&self.board), since).to_string());
                Some(Page { kind: "application/json", body })
            }
            ("/metrics", _, Some(options)) => {
                let body = Cow::Owned(metrics_text(&lock_board(&self.board), options));
                Some(Page { kind: "text/plain; version=0.0.4; charset=utf-8", body })
            }
            ("/", false, Some(_)) => Some(Page::text("tonnage watch: the metrics are at /metrics\n")),
            _ => None,
        }
    }
}

/// The newest sample and the points after `since`, by device and by process.
fn board_data(board: &Board, since: f64) -> Value {
    let mut sample = sample_json(board);
    let mut series = Map::new();
    for device in board.sample.all_devices() {
        add_series(&mut series, board, device, None, since);
        device.running().iter().for_each(|process| add_series(&mut series, board, device, Some(process.pid), since));
    }
    if let Some(object) = sample.as_object_mut() {
        object.insert("series".to_owned(), json!(series));
    }
    sample
}

fn add_series(series: &mut Map<String, Value>, board: &Board, device: &DeviceSample, pid: Option<u32>, since: f64) {
    let Some(found) = board.series(device, pid) else { return };
    let points: Vec<_> = found.history.since(since).into_iter().filter(|point| point.time > since).collect();
    let key = pid.map_or_else(|| device.id(), |pid| format!("{} {pid}", device.id()));
    series.insert(key, series_json(&points));
}

//! The timeline as a picture: an area for each category over the events, phase bands, the peak, and the usable line.
//!
//! Written by hand: a path of a few hundred points needs no plotting library.

use std::fmt::Write;

use tonnage_core::estimate::{Estimate, PhaseSpan, Timeline, TimelinePoint};
use tonnage_core::job::JobSpec;
use tonnage_core::trace::{Category, PhaseKind};
use tonnage_core::units::{Bytes, GIB, MIB};

use crate::category::shown_as;

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 214.0;
const TOP: f64 = 72.0;
const BOTTOM: f64 = 54.0;
const FONT: &str = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', sans-serif";

/// What is stacked, from the bottom up: what stays first, what comes and goes last.
const STACK: [Category; 13] = [
    Category::Workspace,
    Category::Parameter,
    Category::Buffer,
    Category::OptimizerState,
    Category::Gradient,
    Category::Input,
    Category::KvCache,
    Category::WeightCast,
    Category::Communication,
    Category::Activation,
    Category::Recompute,
    Category::Temporary,
    Category::OpInternal,
];

/// Draws `timeline`, the course of `job`, with a line at `usable` bytes if its GPU was named.
pub fn timeline_svg(timeline: &Timeline, job: &JobSpec, estimate: &Estimate, usable: Option<u64>) -> String {
    let picture = Picture::new(timeline, job, estimate, usable.unwrap_or(u64::MAX));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" font-family=\"{FONT}\" font-size=\"12\" fill=\"#333\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    picture.draw_title(&mut svg);
    picture.draw_bands(&mut svg);
    picture.draw_grid(&mut svg);
    picture.draw_areas(&mut svg);
    picture.draw_reserved(&mut svg);
    picture.draw_usable(&mut svg);
    picture.draw_peak(&mut svg);
    picture.draw_legend(&mut svg);
    svg.push_str("</svg>\n");
    svg
}

struct Picture<'a> {
    timeline: &'a Timeline,
    job: &'a JobSpec,
    estimate: &'a Estimate,
    /// What the GPU has.
    usable: u64,
    /// Bytes at the upper edge.
    top: u64,
}

impl<'a> Picture<'a> {
    fn new(timeline: &'a Timeline, job: &'a JobSpec, estimate: &'a Estimate, usable: u64) -> Self {
        let highest = estimate.peak_reserved_bytes;
        // The usable line is drawn where it does not squeeze the picture.
        let top = if usable < highest.saturating_mul(2) { highest.max(usable) } else { highest };
        Self { timeline, job, estimate, usable, top: (top + top / 25).max(1) }
    }

    fn x_of(&self, event: usize) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * event as f64 / self.timeline.events.max(1) as f64
    }

    fn y_of(&self, bytes: u64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * bytes as f64 / self.top as f64
    }

    fn draw_title(&self, svg: &mut String) {
        let (job, estimate) = (self.job, self.estimate);
        let name = escaped_text(&job.model.name);
        let shape = format!("micro-batch {} × {} tokens on {}", job.micro_batch_size, job.seq_len, job.gpu.name);
        let figures = format!(
            "peak {} allocated in {}, {} reserved",
            Bytes(estimate.peak_allocated_bytes),
            estimate.peak_phase.label(),
            Bytes(estimate.peak_reserved_bytes)
        );
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"28\" font-size=\"18\" font-weight=\"600\" fill=\"#111\">{name}</text>\n\
             <text x=\"{LEFT}\" y=\"48\" fill=\"#555\">{} · {figures}</text>",
            escaped_text(&shape)
        );
    }

    /// Every other phase is shaded; a name stands where there is room.
    fn draw_bands(&self, svg: &mut String) {
        let (top, bottom) = (TOP, HEIGHT - BOTTOM);
        for (index, span) in self.timeline.phases.iter().enumerate() {
            let (left, right) = (self.x_of(span.begin), self.x_of(span.end));
            if index % 2 == 0 {
                let (width, height) = (right - left, bottom - top);
                let _ = writeln!(
                    svg,
                    "<rect x=\"{left:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{height}\" fill=\"#f4f4f6\"/>"
                );
            }
            let name = phase_name(span);
            if right - left > name.len() as f64 * 6.4 + 6.0 {
                let (middle, y) = ((left + right) / 2.0, bottom + 18.0);
                let _ = writeln!(
                    svg,
                    "<text x=\"{middle:.1}\" y=\"{y}\" text-anchor=\"middle\" font-size=\"11\" fill=\"#555\">{name}</text>"
                );
            }
        }
        self.draw_steps(svg);
    }

    /// A bracket for each step under its phases.
    fn draw_steps(&self, svg: &mut String) {
        let y = HEIGHT - BOTTOM + 26.0;
        let steps = self.timeline.phases.iter().map(|span| span.phase.step).max().unwrap_or(0);
        for step in 1..=steps {
            let mut spans = self.timeline.phases.iter().filter(|span| span.phase.step == step);
            let Some(first) = spans.next() else { continue };
            let last = spans.next_back().unwrap_or(first);
            let (left, right) = (self.x_of(first.begin) + 2.0, self.x_of(last.end) - 2.0);
            let (middle, label) = ((left + right) / 2.0, y + 16.0);
            let _ = writeln!(
                svg,
                "<path d=\"M{left:.1} {y}H{right:.1}\" stroke=\"#999\" fill=\"none\"/>\n\
                 <text x=\"{middle:.1}\" y=\"{label}\" text-anchor=\"middle\" font-weight=\"600\">step {step}</text>"
            );
        }
    }

    fn draw_grid(&self, svg: &mut String) {
        let step = tick_distance(self.top);
        let (left, right) = (LEFT, WIDTH - RIGHT);
        for bytes in (0..=self.top / step).map(|n| n * step) {
            let (y, label) = (self.y_of(bytes), LEFT - 8.0);
            let _ = writeln!(
                svg,
                "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#e2e2e6\"/>\
                 <text x=\"{label}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
                y + 4.0,
                size_label(bytes, step)
            );
        }
    }

    fn draw_areas(&self, svg: &mut String) {
        let mut floor = vec![0u64; self.timeline.points.len()];
        for category in STACK {
            let index = category as usize;
            if self.timeline.points.iter().all(|point| point.by_category[index] == 0) {
                continue;
            }
            let ceiling: Vec<u64> = self
                .timeline
                .points
                .iter()
                .zip(&floor)
                .map(|(point, below)| below + point.by_category[index])
                .collect();
            let path = self.band_path(&floor, &ceiling);
            let _ = writeln!(svg, "<path d=\"{path}\" fill=\"{}\"/>", shown_as(category).color);
            floor = ceiling;
        }
    }

    /// The outline between two step curves.
    fn band_path(&self, floor: &[u64], ceiling: &[u64]) -> String {
        let mut path = String::from("M");
        let edge = |(from, to, bytes): (usize, usize, u64)| {
            let y = self.y_of(bytes);
            (
                format!("{:.1} {y:.1}H{:.1}L", self.x_of(from), self.x_of(to)),
                format!("{:.1} {y:.1}H{:.1}L", self.x_of(to), self.x_of(from)),
            )
        };
        self.level_runs(ceiling).into_iter().for_each(|run| path.push_str(&edge(run).0));
        self.level_runs(floor).into_iter().rev().for_each(|run| path.push_str(&edge(run).1));
        path.pop();
        path.push('Z');
        path
    }

    /// Stretches of events over which the curve stays within a third of a pixel.
    fn level_runs(&self, curve: &[u64]) -> Vec<(usize, usize, u64)> {
        let mut runs: Vec<(usize, usize, u64)> = Vec::new();
        for (point, bytes) in self.timeline.points.iter().zip(curve) {
            match runs.last_mut() {
                Some((_, to, height)) if (self.y_of(*height) - self.y_of(*bytes)).abs() < 0.3 => *to = point.event,
                last => {
                    last.into_iter().for_each(|(_, to, _)| *to = point.event);
                    runs.push((point.event, point.event, *bytes));
                }
            }
        }
        runs.last_mut().into_iter().for_each(|(_, to, _)| *to = self.timeline.events);
        runs
    }

    fn draw_reserved(&self, svg: &mut String) {
        let mut path = String::new();
        let mut last = None;
        for point in &self.timeline.points {
            if last != Some(point.reserved) {
                let (x, y) = (self.x_of(point.event), self.y_of(point.reserved));
                let _ = if last.is_none() { write!(path, "M{x:.1} {y:.1}") } else { write!(path, "H{x:.1}V{y:.1}") };
                last = Some(point.reserved);
            }
        }
        let _ = writeln!(
            svg,
            "<path d=\"{path}H{:.1}\" fill=\"none\" stroke=\"#222\" stroke-width=\"1.2\"/>",
            WIDTH - RIGHT
        );
    }

    fn draw_usable(&self, svg: &mut String) {
        let usable = self.usable;
        if usable > self.top {
            return;
        }
        let (y, left, right) = (self.y_of(usable), LEFT, WIDTH - RIGHT);
        // Above the line, but never into the title.
        let label = if y < TOP + 14.0 { y + 15.0 } else { y - 6.0 };
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#c1121f\" stroke-width=\"1.6\" stroke-dasharray=\"7 4\"/>\n\
             <text x=\"{:.1}\" y=\"{label:.1}\" text-anchor=\"end\" fill=\"#c1121f\" stroke=\"#fff\" stroke-width=\"3\" \
             paint-order=\"stroke\">{} usable</text>",
            right - 8.0,
            Bytes(usable)
        );
    }

    fn draw_peak(&self, svg: &mut String) {
        let Some(TimelinePoint { event, allocated, .. }) = self.timeline.peak() else { return };
        let (x, y) = (self.x_of(*event), self.y_of(*allocated));
        let (anchor, text) = if x > WIDTH / 2.0 { ("end", x - 12.0) } else { ("start", x + 12.0) };
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"#fff\" stroke=\"#111\" stroke-width=\"2\"/>\n\
             <text x=\"{text:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" font-weight=\"600\" fill=\"#111\" stroke=\"#fff\" \
             stroke-width=\"3\" paint-order=\"stroke\">peak {}</text>",
            y + 4.0,
            Bytes(*allocated)
        );
    }

    /// Categories from the top of the stack down, with their bytes at the peak.
    fn draw_legend(&self, svg: &mut String) {
        let x = WIDTH - RIGHT + 12.0;
        let mut y = TOP + 12.0;
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y:.1}\" font-weight=\"600\">at the peak</text>");
        let at_peak = &self.estimate.at_peak.by_category;
        let seen =
            |category: &Category| self.timeline.points.iter().any(|point| point.by_category[*category as usize] > 0);
        for category in STACK.iter().rev().filter(|category| seen(category)) {
            y += 21.0;
            let (shown, bytes) = (shown_as(*category), at_peak[*category as usize]);
            let figure = if bytes == 0 { "–".to_owned() } else { Bytes(bytes).to_string() };
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{:.1}\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{}\"/>\
                 <text x=\"{:.1}\" y=\"{y:.1}\">{}</text>\
                 <text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\" fill=\"#555\">{figure}</text>",
                y - 10.0,
                shown.color,
                x + 19.0,
                shown.title,
                WIDTH - 14.0
            );
        }
        y += 21.0;
        let _ = writeln!(
            svg,
            "<path d=\"M{x} {:.1}h12\" stroke=\"#222\" stroke-width=\"1.6\"/><text x=\"{:.1}\" y=\"{y:.1}\">reserved</text>\
             <text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
            y - 4.0,
            x + 19.0,
            WIDTH - 14.0,
            Bytes(self.estimate.peak_reserved_bytes)
        );
    }
}

fn phase_name(span: &PhaseSpan) -> &'static str {
    match span.phase.kind {
        PhaseKind::End => "",
        kind => kind.name(),
    }
}

/// A round distance between lines of the grid: four to nine of them.
fn tick_distance(top: u64) -> u64 {
    let unit = if top >= 4 * GIB { GIB } else { MIB };
    let mut step = unit;
    for factor in [2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000] {
        if top / step <= 8 {
            break;
        }
        step = unit * factor;
    }
    step
}

/// A size on the scale, in the unit of the step.
fn size_label(bytes: u64, step: u64) -> String {
    if bytes == 0 {
        "0".to_owned()
    } else if step >= GIB {
        format!("{} GiB", bytes / GIB)
    } else {
        format!("{} MiB", bytes / MIB)
    }
}

fn escaped_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

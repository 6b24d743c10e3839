//! A figure as SVG: colours by classes, so that a page's theme holds, and by a style of its own where it stands alone.

use std::fmt::Write;

use super::layout::Layout;
use super::{Figure, Mark};

/// Colours by series: Okabe and Ito's, which who is colour-blind can tell apart; of a dark ground lighter ones.
pub(super) const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a6a00", "#56b4e9", "#8a5a00", "#666666"];
/// On a dark ground.
const LIGHT: [&str; 8] = ["#56b4e9", "#ff9d5c", "#2ec4a0", "#e6a3cc", "#e0d040", "#8fd0ff", "#e6b800", "#aaaaaa"];

/// The style of all figures, in both themes.
pub fn scoped_style(scope: &str) -> String {
    let mut css = String::new();
    let rule = |css: &mut String, colours: &[&str; 8], indent: &str| {
        for (index, colour) in colours.iter().enumerate() {
            let _ = write!(css, "{indent}{scope} .k{index}{{--c:{colour}}}");
        }
    };
    rule(&mut css, &COLOURS, "");
    css.push_str("@media(prefers-color-scheme:dark){");
    rule(&mut css, &LIGHT, "");
    css.push('}');
    let _ = write!(
        css,
        "{scope} .l{{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}}{scope} .t{{stroke-width:1;opacity:.45}}\
         {scope} .b{{fill:var(--c);opacity:.25}}{scope} .f{{opacity:.1}}{scope} .d{{fill:var(--c)}}{scope} .h{{fill:none;stroke:var(--c);stroke-width:1.5}}\
         {scope} .g{{stroke:#8885;stroke-width:1;fill:none}}{scope} .i{{stroke:#888;stroke-dasharray:5 4;fill:none}}\
         {scope} text{{font:12px system-ui,sans-serif;fill:currentColor}}"
    );
    css
}

/// The figure by itself, with its style.
pub fn svg(figure: &Figure) -> String {
    let own = format!(
        "svg{{color:#17202a;background:#fff}}@media(prefers-color-scheme:dark){{svg{{color:#e6e9ee;background:#11151a}}}}{}",
        scoped_style("svg")
    );
    draw_figure(figure, Some(&own))
}

/// The figure as part of a page that has its style.
pub(crate) fn draw_figure(figure: &Figure, own_style: Option<&str>) -> String {
    let layout = Layout::new(figure);
    let (width, height) = (layout.width, layout.height);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escaped_text(&format!("{}. {}", figure.title, figure.described))
    );
    if let Some(style) = own_style {
        let _ = writeln!(svg, "<title>{}</title><style>{style}</style>", escaped_text(&figure.title));
    }
    draw_grid(&layout, &mut svg);
    figure.marks.iter().for_each(|mark| draw_mark(mark, &layout, &mut svg));
    draw_legend(&layout, &mut svg);
    svg.push_str("</svg>\n");
    svg
}

fn draw_grid(layout: &Layout<'_>, svg: &mut String) {
    let (left, right) = (layout.left, layout.width - layout.right);
    let (top, bottom) = (layout.top, layout.height - layout.bottom);
    for (tick, text) in layout.x.ticks(7) {
        let Some(x) = layout.x_pixel(tick) else { continue };
        let _ = writeln!(
            svg,
            "<path class=\"g\" d=\"M{x:.1} {top}V{bottom}\"/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
            bottom + 16.0
        );
    }
    if layout.figure.rows.is_empty() {
        for (tick, text) in layout.y.ticks(6) {
            let Some(y) = layout.y_pixel(tick) else { continue };
            let _ = writeln!(
                svg,
                "<path class=\"g\" d=\"M{left} {y:.1}H{right}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                left - 6.0,
                y + 4.0
            );
        }
    }
    for (y, name) in layout.row_labels() {
        let _ = writeln!(
            svg,
            "<path class=\"g\" d=\"M{left} {y:.1}H{right}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            y + 4.0,
            escaped_text(&name)
        );
    }
    let middle = (left + right) / 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        layout.height - 10.0,
        escaped_text(&layout.figure.x)
    );
    if !layout.figure.y.is_empty() {
        let y = (top + bottom) / 2.0;
        let _ = writeln!(
            svg,
            "<text transform=\"translate(14 {y}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escaped_text(&layout.figure.y)
        );
    }
}

fn draw_legend(layout: &Layout<'_>, svg: &mut String) {
    for (x, y, index, name) in layout.legend_places() {
        let series = index % COLOURS.len();
        let _ = writeln!(
            svg,
            "<rect class=\"k{series} d\" x=\"{x:.0}\" y=\"{:.0}\" width=\"12\" height=\"12\"/><text x=\"{:.0}\" y=\"{y:.0}\">{}</text>",
            y - 10.0,
            x + 18.0,
            escaped_text(&name)
        );
    }
}

fn draw_mark(mark: &Mark, layout: &Layout<'_>, svg: &mut String) {
    let colour = |series: &usize| series % COLOURS.len();
    match mark {
        Mark::Line { series, points, is_thin } => {
            let thin = if *is_thin { " t" } else { "" };
            let _ = writeln!(svg, "<path class=\"k{} l{thin}\" d=\"{}\"/>", colour(series), path_data(layout, points));
        }
        Mark::Band { series, points, is_faint } => {
            let high = points.iter().map(|(x, _, high)| (*x, *high));
            let outline: Vec<(f64, f64)> = high.chain(points.iter().rev().map(|(x, low, _)| (*x, *low))).collect();
            let faint = if *is_faint { " f" } else { "" };
            let _ =
                writeln!(svg, "<path class=\"k{} b{faint}\" d=\"{}Z\"/>", colour(series), path_data(layout, &outline));
        }
        Mark::Dots { series, points, is_hollow } => {
            let class = if *is_hollow { "h" } else { "d" };
            for (x, y) in points.iter().filter_map(|point| layout.point_pixels(*point)) {
                let _ = writeln!(
                    svg,
                    "<circle class=\"k{} {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>",
                    colour(series)
                );
            }
        }
        Mark::Interval { series, y, low, middle, high } => {
            let places = (layout.x_pixel(*low), layout.x_pixel(*middle), layout.x_pixel(*high), layout.y_pixel(*y));
            if let (Some(low), Some(middle), Some(high), Some(y)) = places {
                let class = colour(series);
                let _ = writeln!(
                    svg,
                    "<path class=\"k{class} l\" d=\"M{low:.1} {y:.1}H{high:.1}M{low:.1} {:.1}v10M{high:.1} {:.1}v10\"/><circle class=\"k{class} d\" cx=\"{middle:.1}\" cy=\"{y:.1}\" r=\"5\"/>",
                    y - 5.0,
                    y - 5.0
                );
            }
        }
        Mark::Bar { series, from, to, height } => {
            let places = (layout.x_pixel(*from), layout.x_pixel(*to), layout.y_pixel(*height), layout.y_pixel(0.0));
            if let (Some(from), Some(to), Some(top), Some(bottom)) = places {
                let (width, height) = ((to - from - 1.0).max(0.5), (bottom - top).max(0.0));
                let _ = writeln!(
                    svg,
                    "<rect class=\"k{} b\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>",
                    colour(series)
                );
            }
        }
        Mark::Identity => {
            if let Some((from, to)) = layout.identity_line() {
                let _ = writeln!(svg, "<path class=\"i\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/>", from.0, from.1, to.0, to.1);
            }
        }
        Mark::Vertical { x } => {
            if let Some(x) = layout.x_pixel(*x) {
                let _ =
                    writeln!(svg, "<path class=\"i\" d=\"M{x:.1} {}V{}\"/>", layout.top, layout.height - layout.bottom);
            }
        }
    }
}

/// A path through what can be drawn; what cannot leaves a gap.
fn path_data(layout: &Layout<'_>, points: &[(f64, f64)]) -> String {
    let mut path = String::with_capacity(points.len() * 12);
    let mut is_broken = true;
    for point in points {
        let Some((x, y)) = layout.point_pixels(*point) else {
            is_broken = true;
            continue;
        };
        let _ = write!(path, "{}{x:.1} {y:.1}", if is_broken { "M" } else { "L" });
        is_broken = false;
    }
    path
}

/// Text that no XML or HTML reads more into.
pub fn escaped_text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // XML has no such characters, and those that turn writing round would show what is not there.
            c if c.is_control() && c != '\n' && c != '\t' => {
                let _ = write!(safe, "\\u{:04x}", u32::from(c));
            }
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(safe, "\\u{:04x}", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_of_any_kind_are_drawn_as_text() {
        let evil = "<script>alert('1')</script>&\u{1b}[31m\u{202e}\"";
        let figure = Figure {
            title: evil.to_owned(),
            x: evil.to_owned(),
            series: vec![evil.to_owned()],
            rows: vec![evil.to_owned()],
            marks: vec![
                Mark::Line {
                    series: 9,
                    points: vec![(0.0, f64::NAN), (1.0, 1.0), (f64::INFINITY, 2.0), (3.0, 1e308)],
                    is_thin: false,
                },
                Mark::Interval { series: 0, y: 0.0, low: f64::NEG_INFINITY, middle: 1.0, high: 2.0 },
                Mark::Identity,
            ],
            ..Figure::default()
        };
        let text = svg(&figure);
        assert!(
            !text.contains("<script")
                && !text.contains('\u{1b}')
                && !text.contains('\u{202e}')
                && !text.contains("NaN")
                && !text.contains("inf"),
            "{text}"
        );
    }
}

//! A figure as PNG: the same marks on a grid of pixels, in the colours of a light ground, twice as many pixels as the SVG has units.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::font::glyph_rows;
use super::layout::Layout;
use super::svg::COLOURS;
use super::{Figure, Mark};

/// Pixels of a unit.
const ZOOM: f64 = 2.0;
const INK: [u8; 3] = [0x17, 0x20, 0x2a];
const GRID: [u8; 3] = [0xdd, 0xdd, 0xe2];
const DASH: [u8; 3] = [0x88, 0x88, 0x88];

/// The figure's bytes.
pub fn png(figure: &Figure) -> Vec<u8> {
    let layout = Layout::new(figure);
    let mut canvas = Canvas::new((layout.width * ZOOM) as usize, (layout.height * ZOOM) as usize);
    draw_frame(&layout, &mut canvas);
    figure.marks.iter().for_each(|mark| draw_mark(mark, &layout, &mut canvas));
    for (x, y, index, name) in layout.legend_places() {
        canvas.fill_area((x, y - 10.0), (x + 12.0, y + 2.0), series_colour(index), 1.0);
        canvas.draw_text((x + 18.0, y), &name, 0.0);
    }
    canvas.encoded()
}

fn series_colour(series: usize) -> [u8; 3] {
    let hex = COLOURS[series % COLOURS.len()];
    [1, 3, 5].map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap_or(0))
}

fn draw_frame(layout: &Layout<'_>, canvas: &mut Canvas) {
    let (left, right, bottom) = (layout.left, layout.width - layout.right, layout.height - layout.bottom);
    for (tick, text) in layout.x.ticks(7) {
        let Some(x) = layout.x_pixel(tick) else { continue };
        canvas.draw_line((x, layout.top), (x, bottom), GRID, 1.0, 1.0);
        canvas.draw_text((x, bottom + 16.0), &text, 0.5);
    }
    let ticks = if layout.figure.rows.is_empty() { layout.y.ticks(6) } else { Vec::new() };
    let ticks = ticks.into_iter().filter_map(|(tick, text)| Some((layout.y_pixel(tick)?, text)));
    for (y, text) in ticks.chain(layout.row_labels()) {
        canvas.draw_line((left, y), (right, y), GRID, 1.0, 1.0);
        canvas.draw_text((left - 6.0, y + 4.0), &text, 1.0);
    }
    canvas.draw_text(((left + right) / 2.0, layout.height - 10.0), &layout.figure.x, 0.5);
    canvas.draw_text((4.0, layout.top - 4.0), &layout.figure.y, 0.0);
}

fn draw_mark(mark: &Mark, layout: &Layout<'_>, canvas: &mut Canvas) {
    match mark {
        Mark::Line { series, points, is_thin } => {
            let (width, share) = if *is_thin { (1.0, 0.45) } else { (2.0, 1.0) };
            let places: Vec<Option<(f64, f64)>> = points.iter().map(|point| layout.point_pixels(*point)).collect();
            for pair in places.windows(2) {
                if let [Some(from), Some(to)] = pair {
                    canvas.draw_line(*from, *to, series_colour(*series), width, share);
                }
            }
        }
        Mark::Band { series, points, is_faint } => {
            let place = |(x, low, high): &(f64, f64, f64)| {
                Some((layout.x_pixel(*x)?, layout.y_pixel(*low)?, layout.y_pixel(*high)?))
            };
            let places: Vec<_> = points.iter().filter_map(place).collect();
            for pair in places.windows(2) {
                canvas.fill_quad(pair[0], pair[1], series_colour(*series), if *is_faint { 0.1 } else { 0.25 });
            }
        }
        Mark::Dots { series, points, is_hollow } => {
            for place in points.iter().filter_map(|point| layout.point_pixels(*point)) {
                canvas.draw_dot(place, 3.5, series_colour(*series), if *is_hollow { 0.4 } else { 1.0 });
            }
        }
        Mark::Interval { series, y, low, middle, high } => {
            if let (Some(low), Some(middle), Some(high), Some(y)) =
                (layout.x_pixel(*low), layout.x_pixel(*middle), layout.x_pixel(*high), layout.y_pixel(*y))
            {
                canvas.draw_line((low, y), (high, y), series_colour(*series), 2.0, 1.0);
                [low, high]
                    .into_iter()
                    .for_each(|x| canvas.draw_line((x, y - 5.0), (x, y + 5.0), series_colour(*series), 2.0, 1.0));
                canvas.draw_dot((middle, y), 5.0, series_colour(*series), 1.0);
            }
        }
        Mark::Bar { series, from, to, height } => {
            if let (Some(from), Some(to), Some(top), Some(bottom)) =
                (layout.x_pixel(*from), layout.x_pixel(*to), layout.y_pixel(*height), layout.y_pixel(0.0))
            {
                canvas.fill_area((from, top), (to - 1.0, bottom), series_colour(*series), 0.35);
            }
        }
        Mark::Identity => {
            if let Some((from, to)) = layout.identity_line() {
                canvas.draw_line(from, to, DASH, 1.0, 1.0);
            }
        }
        Mark::Vertical { x } => {
            if let Some(x) = layout.x_pixel(*x) {
                canvas.draw_line((x, layout.top), (x, layout.height - layout.bottom), DASH, 1.0, 1.0);
            }
        }
    }
}

struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<[u8; 3]>,
}

impl Canvas {
    fn new(width: usize, height: usize) -> Self {
        Self { width, height, pixels: vec![[255; 3]; width * height] }
    }

    fn blend_pixel(&mut self, x: f64, y: f64, colour: [u8; 3], share: f64) {
        let inside = x >= 0.0 && y >= 0.0 && (x as usize) < self.width && (y as usize) < self.height;
        if !inside {
            return;
        }
        let pixel = &mut self.pixels[y as usize * self.width + x as usize];
        for (old, new) in pixel.iter_mut().zip(colour) {
            *old = (f64::from(*old) * (1.0 - share) + f64::from(new) * share).round() as u8;
        }
    }

    fn fill_area(&mut self, from: (f64, f64), to: (f64, f64), colour: [u8; 3], share: f64) {
        for y in pixel_range(from.1, to.1, self.height) {
            for x in pixel_range(from.0, to.0, self.width) {
                self.blend_pixel(x as f64, y as f64, colour, share);
            }
        }
    }

    /// A line as a row of discs; each pixel once, so that a faint line stays faint.
    fn draw_line(&mut self, from: (f64, f64), to: (f64, f64), colour: [u8; 3], width: f64, share: f64) {
        let (from, to) = ((from.0 * ZOOM, from.1 * ZOOM), (to.0 * ZOOM, to.1 * ZOOM));
        let length = (to.0 - from.0).abs().max((to.1 - from.1).abs()).min(20_000.0);
        let is_steep = (to.1 - from.1).abs() > (to.0 - from.0).abs();
        let reach = (width * ZOOM / 2.0).round().max(1.0) as i32;
        for step in 0..=length.ceil() as usize {
            let at = step as f64 / length.ceil().max(1.0);
            let (x, y) = (from.0 + (to.0 - from.0) * at, from.1 + (to.1 - from.1) * at);
            for side in -reach / 2..=reach / 2 {
                let side = f64::from(side);
                let (x, y) = if is_steep { (x + side, y) } else { (x, y + side) };
                self.blend_pixel(x, y, colour, share);
            }
        }
    }

    fn draw_dot(&mut self, (x, y): (f64, f64), radius: f64, colour: [u8; 3], share: f64) {
        let (x, y, radius) = (x * ZOOM, y * ZOOM, radius * ZOOM);
        let reach = radius.ceil() as i32;
        for (dx, dy) in (-reach..=reach).flat_map(|dx| (-reach..=reach).map(move |dy| (f64::from(dx), f64::from(dy)))) {
            if dx.hypot(dy) <= radius {
                self.blend_pixel(x + dx, y + dy, colour, share);
            }
        }
    }

    /// The area between two columns, each x, low and high.
    fn fill_quad(&mut self, from: (f64, f64, f64), to: (f64, f64, f64), colour: [u8; 3], share: f64) {
        let (left, right) = (from.0 * ZOOM, to.0 * ZOOM);
        for x in left.max(0.0) as usize..right.clamp(0.0, self.width as f64) as usize {
            let at = (x as f64 - left) / (right - left).max(1e-9);
            let (low, high) = (from.1 + (to.1 - from.1) * at, from.2 + (to.2 - from.2) * at);
            for y in pixel_range(high.min(low), high.max(low), self.height) {
                self.blend_pixel(x as f64, y as f64, colour, share);
            }
        }
    }

    /// Text of a font of five by seven, `align` of its width to the left of `place`.
    fn draw_text(&mut self, place: (f64, f64), text: &str, align: f64) {
        const DOT: f64 = 1.6;
        let width = text.chars().count() as f64 * 6.0 * DOT / ZOOM;
        let (left, top) = ((place.0 - width * align) * ZOOM, (place.1 - 9.0) * ZOOM);
        for (index, c) in text.chars().enumerate() {
            for (column, bits) in glyph_rows(c).into_iter().enumerate() {
                for row in (0..7).filter(|row| bits >> row & 1 == 1) {
                    let (x, y) = (left + (index * 6 + column) as f64 * DOT, top + f64::from(row) * DOT * 1.4);
                    for (dx, dy) in [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.0, 2.0), (1.0, 2.0)] {
                        self.blend_pixel(x + dx, y + dy, INK, 1.0);
                    }
                }
            }
        }
    }

    fn encoded(&self) -> Vec<u8> {
        let mut rows = ZlibEncoder::new(Vec::new(), Compression::default());
        for row in self.pixels.chunks(self.width) {
            // Into memory nothing fails to be written.
            let _ = rows.write_all(&[0]).and_then(|()| rows.write_all(row.as_flattened()));
        }
        let data = rows.finish().unwrap_or_default();
        let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
        let size = [(self.width as u32).to_be_bytes(), (self.height as u32).to_be_bytes()].concat();
        push_chunk(&mut png, b"IHDR", &[size.as_slice(), &[8, 2, 0, 0, 0]].concat());
        push_chunk(&mut png, b"IDAT", &data);
        push_chunk(&mut png, b"IEND", &[]);
        png
    }
}

fn pixel_range(from: f64, to: f64, most: usize) -> std::ops::Range<usize> {
    let place = |value: f64| (value * ZOOM).clamp(0.0, most as f64) as usize;
    place(from)..place(to)
}

fn push_chunk(png: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    png.extend((data.len() as u32).to_be_bytes());
    let body = [kind.as_slice(), data].concat();
    let mut crc = flate2::Crc::new();
    crc.update(&body);
    png.extend(body);
    png.extend(crc.sum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_png_of_the_figures_size() {
        let figure = Figure {
            marks: vec![Mark::Line {
                series: 0,
                points: vec![(0.0, 0.0), (1.0, f64::NAN), (2.0, 1e300)],
                is_thin: false,
            }],
            ..Figure::default()
        };
        let bytes = png(&figure);
        assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n") && bytes.ends_with(&[0xae, 0x42, 0x60, 0x82]));
        assert_eq!(u32::from_be_bytes(bytes[16..20].try_into().unwrap()), 1520);
    }
}

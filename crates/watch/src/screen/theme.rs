//! [`Theme`]: colours and characters. Every screen also reads without colour: what matters has a word or a sign.

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::{Marker, border};

/// Colours by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Palette {
    /// For a dark terminal.
    #[default]
    Dark,
    /// For a light terminal.
    Light,
    /// Blue and orange instead of green and red (Okabe and Ito).
    ColourBlind,
    Mono,
}

/// How the screen looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Theme {
    pub palette: Palette,
    /// Nothing but ASCII.
    pub ascii: bool,
}

/// How bad a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Low,
    /// Worth a look.
    Middle,
    /// Near the end.
    High,
}

const ASCII_BORDER: border::Set<'static> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

impl Theme {
    /// The colour of a level.
    pub fn level(self, level: Level) -> Style {
        let color = match (self.palette, level) {
            (Palette::Mono, Level::High) => return Style::new().add_modifier(Modifier::BOLD),
            (Palette::Mono, _) => return Style::new(),
            (Palette::ColourBlind, Level::Low) => Color::Rgb(0, 114, 178),
            (Palette::ColourBlind, Level::Middle) => Color::Rgb(240, 228, 66),
            (Palette::ColourBlind, Level::High) => Color::Rgb(213, 94, 0),
            (_, Level::Low) => Color::Green,
            (Palette::Light, Level::Middle) => Color::Rgb(160, 110, 0),
            (_, Level::Middle) => Color::Yellow,
            (_, Level::High) => Color::Red,
        };
        Style::new().fg(color)
    }

    /// A line of the plot: memory, then what is predicted.
    pub fn series(self, number: usize) -> Style {
        let color = match (self.palette, number) {
            (Palette::Mono, _) => return Style::new(),
            (Palette::ColourBlind, 0) => Color::Rgb(86, 180, 233),
            (Palette::ColourBlind, _) => Color::Rgb(230, 159, 0),
            (_, 0) => Color::Cyan,
            (_, _) => Color::Magenta,
        };
        Style::new().fg(color)
    }

    pub fn dim(self) -> Style {
        match self.palette {
            Palette::Mono => Style::new(),
            _ => Style::new().add_modifier(Modifier::DIM),
        }
    }

    pub fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The row that is selected.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The points of a plot.
    pub fn marker(self) -> Marker {
        if self.ascii { Marker::Custom('*') } else { Marker::Braille }
    }

    pub fn border(self) -> border::Set<'static> {
        if self.ascii { ASCII_BORDER } else { border::PLAIN }
    }

    /// The sign between two figures.
    pub fn dot(self) -> &'static str {
        if self.ascii { "|" } else { "·" }
    }

    pub fn degrees(self) -> &'static str {
        if self.ascii { "C" } else { "°C" }
    }

    /// Text of others as this theme can show it.
    pub fn text(self, text: &str) -> String {
        let text = crate::format::printable_text(text);
        if self.ascii {
            text.replace('·', "|").chars().map(|each| if each.is_ascii() { each } else { '?' }).collect()
        } else {
            text
        }
    }

    /// A bar of `width` columns, `ratio` of it full.
    pub fn bar(self, ratio: f64, width: usize) -> String {
        let eighths = (ratio.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
        if self.ascii {
            let full = (eighths + 4) / 8;
            return "#".repeat(full) + &".".repeat(width - full);
        }
        let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
        let full = eighths / 8;
        let empty = width - full - usize::from(!part.is_empty());
        "█".repeat(full) + part + &" ".repeat(empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_their_width() {
        for ascii in [false, true] {
            let theme = Theme { ascii, ..Theme::default() };
            for step in 0..=100 {
                let bar = theme.bar(f64::from(step) / 100.0, 13);
                assert_eq!(bar.chars().count(), 13, "{bar}");
            }
        }
        assert_eq!(Theme { ascii: true, ..Theme::default() }.bar(0.5, 4), "##..");
        assert_eq!(Theme::default().bar(2.0, 2), "██");
    }
}

//! What categories are called and which colours they have, in text and in pictures.

use anstyle::{Ansi256Color, Style};
use tonnage_core::trace::Category;

/// A category as people see it.
pub(crate) struct Shown {
    /// The plural for legends.
    pub title: &'static str,
    /// Hex colour, from the palette of Okabe and Ito, safe for colour-blind readers; shades for what belongs together.
    pub color: &'static str,
    /// The nearest colour of a 256-colour terminal.
    pub ansi: u8,
}

/// How `category` is shown.
pub(crate) const fn shown_as(category: Category) -> Shown {
    let (title, color, ansi) = match category {
        Category::Parameter => ("weights", "#0072b2", 25),
        Category::Buffer => ("buffers", "#6aa9d4", 74),
        Category::WeightCast => ("weight casts", "#56b4e9", 74),
        Category::Gradient => ("gradients", "#d55e00", 166),
        Category::OptimizerState => ("optimizer state", "#e69f00", 178),
        Category::Activation => ("activations", "#009e73", 36),
        Category::Recompute => ("recomputed", "#7fd1b9", 115),
        Category::KvCache => ("KV cache", "#2f6f5e", 23),
        Category::Temporary => ("temporaries", "#cc79a7", 175),
        Category::OpInternal => ("inside operators", "#8f4a74", 96),
        Category::Input => ("inputs", "#b8b8b8", 250),
        Category::Communication => ("communication", "#f0e442", 227),
        Category::Workspace => ("workspaces", "#7a7a7a", 243),
    };
    Shown { title, color, ansi }
}

/// The text style of `category`.
pub(crate) const fn category_style(category: Category) -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi256(Ansi256Color(shown_as(category).ansi))))
}

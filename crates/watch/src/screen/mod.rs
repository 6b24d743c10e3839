//! The terminal screen: one loop that owns the state, fed by a thread that samples and one that reads keys.

mod app;
mod detail;
mod devices;
mod draw;
mod help;
mod plot;
mod processes;
mod rows;
mod run;
mod theme;

pub use app::{Action, App, Asked, Layout, Levels, Sort, View};
pub use draw::draw_screen;
pub use run::run;
pub use theme::{Palette, Theme};

pub use crate::os::Signal;

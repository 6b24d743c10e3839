//! Learning curves on every axis that all runs say.

use super::Context;
use crate::document::Block;
use crate::figure::curve_figure;

pub(super) fn section(context: &Context<'_>) -> Vec<Block> {
    let metric = &context.all.metrics[0];
    let figures = context.all.axes.iter().map(|axis| curve_figure(context.all, metric, *axis));
    let figures = figures.filter(|figure| {
        figure.marks.iter().any(|mark| !matches!(mark, crate::figure::Mark::Line { points, .. } if points.len() < 2))
    });
    let mut blocks = vec![Block::Heading("Learning curves".to_owned())];
    blocks.extend(figures.map(|figure| Block::Figure(Box::new(figure))));
    if blocks.len() == 1 { Vec::new() } else { blocks }
}

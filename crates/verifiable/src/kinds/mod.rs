//! The kinds, a file each.

mod addition;
mod arc_1d;
mod base_conversion;
mod basic_arithmetic;
mod bf;
mod binary_matrix;
mod calendar_arithmetic;
mod close_brackets;
mod decimal_arithmetic;
mod fraction_simplification;
mod partition;
mod propositional_logic;
mod sorting;

use crate::kind::Kind;

/// All kinds: the nine of the SAPO paper, then those for models that are trained from nothing.
pub const KINDS: &[&Kind] = &[
    &base_conversion::KIND,
    &basic_arithmetic::KIND,
    &arc_1d::KIND,
    &bf::KIND,
    &propositional_logic::KIND,
    &fraction_simplification::KIND,
    &decimal_arithmetic::KIND,
    &calendar_arithmetic::KIND,
    &binary_matrix::KIND,
    &addition::KIND,
    &sorting::ASCENDING,
    &sorting::DESCENDING,
    &close_brackets::KIND,
    &partition::KIND,
];

/// The kind of a name.
pub fn find_kind(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name).copied()
}

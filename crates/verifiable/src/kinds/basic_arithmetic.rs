//! Expressions of whole numbers with parentheses, whose divisions leave no remainder.

use tonnage_core::random::SplitMix64;

use crate::kind::{Kind, Made, Question, adopt_answer};
use crate::reading::read_integer;

pub(super) const KIND: Kind = Kind {
    name: "basic_arithmetic",
    about: "whole numbers with + - * / and parentheses",
    levels: 5,
    is_terse: false,
    make: make_calculation,
    adopt: adopt_answer,
    check: |question: &Question, answer| {
        read_integer(answer).is_some_and(|number| Some(number) == read_integer(&question.answer))
    },
};

/// How an expression binds: what is looser stands in parentheses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Sum,
    Product,
    Number,
}

struct Expression {
    text: String,
    value: i128,
    binding: Binding,
}

impl Expression {
    fn text_within(&self, at_least: Binding) -> String {
        if self.binding < at_least || self.text.starts_with('-') {
            format!("({})", self.text)
        } else {
            self.text.clone()
        }
    }
}

fn make_calculation(random: &mut SplitMix64, level: u32) -> Made {
    let (terms, digits) = match level {
        1 => (2, 1),
        2 => (2, 2),
        3 => (2 + random.below(2), 2),
        4 => (2 + random.below(3), 3),
        _ => (2 + random.below(5), 4),
    };
    let made = draw_expression(random, terms, digits, level);
    Made::new(format!("Calculate {}.", made.text), made.value.to_string())
}

fn draw_expression(random: &mut SplitMix64, terms: u64, digits: u32, level: u32) -> Expression {
    if terms == 1 {
        return draw_number(random, digits, level);
    }
    let left = 1 + random.below(terms - 1);
    let (a, b) = (draw_expression(random, left, digits, level), draw_expression(random, terms - left, digits, level));
    // Sums alone at the lowest levels; from the third on products, from the fourth on divisions.
    match random.below([2, 2, 3, 4, 4][level as usize - 1]) {
        0 => join_expressions(&a, '+', &b, Binding::Sum, Binding::Sum, a.value + b.value),
        1 => join_expressions(&a, '-', &b, Binding::Sum, Binding::Product, a.value - b.value),
        2 => join_expressions(&a, '*', &b, Binding::Product, Binding::Product, a.value * b.value),
        _ => draw_quotient(random, &a, b),
    }
}

/// The quotient by a divisor of `a`, which takes the place of `b`, so that there is no remainder.
fn draw_quotient(random: &mut SplitMix64, a: &Expression, b: Expression) -> Expression {
    if b.binding == Binding::Number {
        let size = a.value.unsigned_abs();
        let divisors: Vec<i128> = (1..=99).filter(|divisor| size.is_multiple_of(*divisor as u128)).collect();
        let divisor = divisors[random.index_below(divisors.len())];
        let b = Expression { text: divisor.to_string(), value: divisor, binding: Binding::Number };
        return join_expressions(a, '/', &b, Binding::Product, Binding::Number, a.value / divisor);
    }
    join_expressions(a, '+', &b, Binding::Sum, Binding::Sum, a.value + b.value)
}

fn join_expressions(
    a: &Expression,
    sign: char,
    b: &Expression,
    left: Binding,
    right: Binding,
    value: i128,
) -> Expression {
    let binding = if matches!(sign, '+' | '-') { Binding::Sum } else { Binding::Product };
    Expression { text: format!("{} {sign} {}", a.text_within(left), b.text_within(right)), value, binding }
}

fn draw_number(random: &mut SplitMix64, digits: u32, level: u32) -> Expression {
    let digits = 1 + random.below(u64::from(digits)) as u32;
    let value = i128::from(random.below(10_u64.pow(digits)));
    let is_negated = level > 3 && value > 0 && random.below(6) == 0;
    let value = if is_negated { -value } else { value };
    Expression { text: value.to_string(), value, binding: Binding::Number }
}

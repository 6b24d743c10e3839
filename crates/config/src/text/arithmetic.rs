//! `$(( ... ))` of shells: whole numbers, names, `+ - * / %` and parentheses.

/// How deep parentheses may stand in parentheses; a deeper sum is not evaluated.
const MOST_NESTED: usize = 32;

/// What a sum comes to; nothing where a name is not known, a number too large, or the sign another one.
pub fn evaluate(sum: &str, value_of: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
    let mut sum = Sum { rest: sum, value_of };
    let value = sum.terms(0)?;
    sum.rest.trim_start().is_empty().then_some(value)
}

struct Sum<'a> {
    rest: &'a str,
    value_of: &'a dyn Fn(&str) -> Option<i64>,
}

impl Sum<'_> {
    fn take_sign(&mut self, signs: &[char]) -> Option<char> {
        let rest = self.rest.trim_start();
        let sign = rest.chars().next().filter(|sign| signs.contains(sign))?;
        self.rest = rest.get(sign.len_utf8()..)?;
        Some(sign)
    }

    fn terms(&mut self, depth: usize) -> Option<i64> {
        let mut value = self.factors(depth)?;
        while let Some(sign) = self.take_sign(&['+', '-']) {
            let other = self.factors(depth)?;
            value = if sign == '+' { value.checked_add(other)? } else { value.checked_sub(other)? };
        }
        Some(value)
    }

    fn factors(&mut self, depth: usize) -> Option<i64> {
        let mut value = self.operand(depth)?;
        while let Some(sign) = self.take_sign(&['*', '/', '%']) {
            let other = self.operand(depth)?;
            value = match sign {
                '*' => value.checked_mul(other)?,
                '/' => value.checked_div(other)?,
                _ => value.checked_rem(other)?,
            };
        }
        Some(value)
    }

    fn operand(&mut self, depth: usize) -> Option<i64> {
        if self.take_sign(&['(']).is_some() {
            let value = if depth < MOST_NESTED { self.terms(depth + 1)? } else { return None };
            return self.take_sign(&[')']).map(|_| value);
        }
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        self.rest = rest;
        if word.starts_with(|c: char| c.is_ascii_digit()) { word.parse().ok() } else { (self.value_of)(word) }
    }
}

#[cfg(test)]
mod tests {
    use super::evaluate;

    #[test]
    fn sums_are_those_of_shells() {
        let value = |sum: &str| evaluate(sum, &|name| (name == "n").then_some(512));
        for (sum, is) in
            [("1024 * 2", 2048), ("(n + 512)*3", 3072), ("n * 10 / 10", 512), ("(((7)))", 7), ("7 % 4 - 1", 2)]
        {
            assert_eq!(value(sum), Some(is), "{sum}");
        }
        for sum in ["", "1 +", "m * 2", "1 / 0", "9223372036854775807 * 2", "1 2", "(1", "1 << 2", &"(".repeat(1000)] {
            assert_eq!(value(sum), None, "{sum}");
        }
    }
}

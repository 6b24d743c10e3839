//! Student's t, central and not, and the normal distribution: series and continued fractions of the textbooks.

/// Logarithm of the gamma function (Lanczos, g = 7, nine terms; relative error below 1e-14 for x > 0).
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        return (std::f64::consts::PI / (std::f64::consts::PI * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let sum =
        TERMS.iter().enumerate().fold(0.999_999_999_999_809_9, |sum, (i, term)| sum + term / (x + 1.0 + i as f64));
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// Bias correction of a standardized difference with `df` degrees of freedom (Hedges 1981, exact form).
pub(super) fn hedges_correction(df: f64) -> f64 {
    (ln_gamma(df / 2.0) - ln_gamma((df - 1.0) / 2.0)).exp() / (df / 2.0).sqrt()
}

/// Regularized incomplete beta function, by its continued fraction (modified Lentz).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp() / a;
    front * beta_fraction(x, a, b)
}

fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let (mut c, mut fraction) = (1.0, d);
    for m in 1..500 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            fraction *= d * c;
        }
        if (fraction - before).abs() <= 1e-16 * fraction.abs() {
            break;
        }
    }
    fraction
}

/// The probability that Student's t with `df` degrees of freedom is at most `t`.
pub fn t_cdf(t: f64, df: f64) -> f64 {
    if !t.is_finite() {
        return if t > 0.0 { 1.0 } else { 0.0 };
    }
    let tail = 0.5 * incomplete_beta(df / (df + t * t), df / 2.0, 0.5);
    if t > 0.0 { 1.0 - tail } else { tail }
}

/// The two-sided probability of a t as far from zero.
pub(super) fn t_two_sided(t: f64, df: f64) -> f64 {
    if t.is_infinite() { 0.0 } else { incomplete_beta(df / (df + t * t), df / 2.0, 0.5) }
}

/// The t that a share `p` lies below.
pub fn t_quantile(p: f64, df: f64) -> f64 {
    if p <= 0.0 || p >= 1.0 {
        return if p <= 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    if p < 0.5 {
        return -t_quantile(1.0 - p, df);
    }
    let mut high = 1.0;
    while t_cdf(high, df) < p && high < 1e300 {
        high *= 2.0;
    }
    bisect_between(0.0, high, |t| t_cdf(t, df) < p)
}

/// The place between `low` and `high` where `is_below` turns false.
pub(super) fn bisect_between(mut low: f64, mut high: f64, is_below: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..200 {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            break;
        }
        if is_below(middle) { low = middle } else { high = middle }
    }
    low + (high - low) / 2.0
}

/// The zero of a falling function: `reach` beside `middle` is the first guess of how far it is away. By false position, as
/// in the Illinois rule, to twelve digits.
pub(super) fn root_around(middle: f64, reach: f64, falling: impl Fn(f64) -> f64) -> f64 {
    let far = |way: f64, is_wanted: &dyn Fn(f64) -> bool| {
        let places = (0..60).map(|doubled| middle + way * reach * f64::powi(2.0, doubled));
        places.map(|at| (at, falling(at))).find(|(_, value)| is_wanted(*value))
    };
    let (Some(mut low), Some(mut high)) = (far(-1.0, &|value| value >= 0.0), far(1.0, &|value| value <= 0.0)) else {
        return f64::NAN;
    };
    for _ in 0..200 {
        let tolerance = 1e-12 * (low.0.abs() + high.0.abs() + reach);
        if high.0 - low.0 <= tolerance || low.1 == high.1 {
            break;
        }
        let at = (low.0 * high.1 - high.0 * low.1) / (high.1 - low.1);
        let value = falling(at);
        if value.abs() < 1e-14 {
            return at;
        }
        // The other end counts half from now on, or it would stay for good.
        if value > 0.0 {
            (low, high.1) = ((at, value), high.1 / 2.0);
        } else {
            (high, low.1) = ((at, value), low.1 / 2.0);
        }
    }
    low.0.midpoint(high.0)
}

/// The probability that a normal variable is at most `z`: by t with so many degrees of freedom that no digit differs would be
/// slow; this is the series of the error function, and its continued fraction in the tails.
fn normal_cdf(z: f64) -> f64 {
    let x = z.abs();
    let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let tail = if x < 3.0 {
        let (mut term, mut sum, mut n) = (x, x, 1.0);
        while term > 1e-17 * sum && n < 1_000.0 {
            n += 2.0;
            term *= x * x / n;
            sum += term;
        }
        0.5 - density * sum
    } else {
        let fraction = (1..=120).rev().fold(x, |fraction, n| x + f64::from(n) / fraction);
        density / fraction
    };
    if z > 0.0 { 1.0 - tail } else { tail }
}

/// The z that a share `p` of a normal variable lies below.
pub fn normal_quantile(p: f64) -> f64 {
    bisect_between(-40.0, 40.0, |z| normal_cdf(z) < p)
}

/// The probability that a noncentral t is at most `t`.
pub fn nct_cdf(t: f64, df: f64, noncentrality: f64) -> f64 {
    if t < 0.0 {
        return 1.0 - nct_cdf(-t, df, -noncentrality);
    }
    if t == 0.0 {
        return normal_cdf(-noncentrality);
    }
    if noncentrality == 0.0 {
        return t_cdf(t, df);
    }
    // The series has a term for every unit of the noncentrality's square, and far apart they cancel.
    if t * t > 2.0 * df && (t > 30.0 || df >= 30.0) {
        nct_by_normal(t, df, noncentrality)
    } else {
        nct_by_series(t, df, noncentrality)
    }
}

/// Lenth's series (Applied Statistics AS 243), summed from its largest term on, so that a large noncentrality loses nothing.
fn nct_by_series(t: f64, df: f64, noncentrality: f64) -> f64 {
    let (x, half) = (t * t / (t * t + df), noncentrality * noncentrality / 2.0);
    let term = |j: f64| {
        let p = (-half + j * half.ln() - ln_gamma(j + 1.0)).exp();
        let q = noncentrality / std::f64::consts::SQRT_2 * (-half + j * half.ln() - ln_gamma(j + 1.5)).exp();
        p * incomplete_beta(x, j + 0.5, df / 2.0) + q * incomplete_beta(x, j + 1.0, df / 2.0)
    };
    let middle = half.floor();
    let reach = 40.0 + 12.0 * half.sqrt();
    let (from, to) = ((middle - reach).max(0.0) as u64, (middle + reach) as u64);
    let sum: f64 = (from..=to).map(|j| term(j as f64)).sum();
    (normal_cdf(-noncentrality) + sum / 2.0).clamp(0.0, 1.0)
}

/// The mean over the normal variable Z of the chance that `sqrt(chi2 / df)` is at least `(Z + noncentrality) / t`, by the
/// trapezoid rule. For a large t that chance varies slowly with Z, and the rule's error is far below 1e-9; with few degrees of
/// freedom it has a bend at zero, which takes shorter steps.
fn nct_by_normal(t: f64, df: f64, noncentrality: f64) -> f64 {
    let steps = if df < 4.0 { 64 } else { 8 };
    let density = |z: f64| (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let sum: f64 = (-9 * steps..=9 * steps)
        .map(|place| {
            let z = f64::from(place) / f64::from(steps);
            let least = (z + noncentrality) / t;
            density(z) * if least <= 0.0 { 1.0 } else { gamma_above(df / 2.0, least * least * df / 2.0) }
        })
        .sum();
    (sum / f64::from(steps)).clamp(0.0, 1.0)
}

/// The upper regularized incomplete gamma function: its series below `a + 1`, its continued fraction (modified Lentz) above.
fn gamma_above(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    let front = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > 1e-17 * sum {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return 1.0 - front * sum;
    }
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1e300, 1.0 / b);
    let mut fraction = d;
    for i in 1..500 {
        let i = f64::from(i);
        let term = -i * (i - a);
        b += 2.0;
        d = 1.0 / (term * d + b);
        c = b + term / c;
        fraction *= d * c;
        if (d * c - 1.0).abs() < 1e-16 {
            break;
        }
    }
    front * fraction
}

"""Expected values of the statistics in crates/experiment, computed by others: scipy, statsmodels, rliable.

    python testdata/experiment/statistics.py > testdata/experiment/statistics.json

Needs scipy 1.17, statsmodels 0.14, pandas 2, rliable 1.2 (numpy 2); versions are written into the file. The arrays are drawn once from a
fixed generator and rounded, so that the file says all that a test needs.
"""

import json
import sys

import numpy as np
import scipy
import statsmodels
from importlib.metadata import version
from rliable import library as rly
from rliable import metrics
from scipy import special, stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestIndPower, TTestPower

rng = np.random.default_rng(20261122)


def drawn(n, mean, sd):
    return [round(float(x), 4) for x in rng.normal(mean, sd, n)]


PAIRS = {
    "three": ([0.412, 0.399, 0.407], [0.571, 0.522, 0.544]),
    "five": (drawn(5, 0.40, 0.02), drawn(5, 0.43, 0.02)),
    "unequal": (drawn(4, 1.0, 0.5), drawn(9, 1.6, 1.5)),
    "same": (drawn(6, 0.0, 1.0), drawn(6, 0.0, 1.0)),
    "ties": ([1.0, 2.0, 2.0, 3.0], [2.0, 2.0, 4.0, 4.0]),
    "eight": (drawn(8, 10, 3), drawn(8, 13, 3)),
}


def integrated_nct(t, df, nc):
    """P((Z + nc) / sqrt(V / df) <= t) by scipy's adaptive quadrature over Z of the chi-squared tail, for t > 0."""
    from scipy.integrate import quad

    if t < 0:
        return 1 - integrated_nct(-t, df, -nc)
    at = lambda z: stats.norm.pdf(z) * (stats.chi2.sf(((z + nc) / t) ** 2 * df, df) if z + nc > 0 else 1.0)
    # The bend at -nc is an end of the two parts.
    middle = min(max(-nc, -9.0), 9.0)
    parts = [quad(at, low, high, epsabs=1e-12, epsrel=1e-12, limit=500)[0] for low, high in ((-9, middle), (middle, 9))]
    return sum(parts)


def hedges_interval(t, df, scale, correction, level=0.95):
    """Limits of the noncentrality by inversion of the noncentral t, as a standardized difference."""
    from scipy.optimize import brentq

    alpha = (1 - level) / 2
    reach = 30 if abs(t) < 90 else 30 + abs(t) * 40 / np.sqrt(df)
    # A noncentral t with a large noncentrality is beyond scipy's series: there its definition is integrated instead.
    cdf = (lambda nc: stats.nct.cdf(t, df, nc)) if abs(t) < 90 else (lambda nc: integrated_nct(t, df, nc))
    limit = lambda p: brentq(lambda nc: cdf(nc) - p, t - reach, t + reach, xtol=1e-12)
    return [limit(1 - alpha) * scale * correction, limit(alpha) * scale * correction]


def unpaired(a, b):
    a, b = np.array(a), np.array(b)
    n, m = len(a), len(b)
    welch = stats.ttest_ind(b, a, equal_var=False)
    interval = welch.confidence_interval(0.95)
    gap = lambda x, y, axis=-1: np.abs(np.mean(x, axis=axis) - np.mean(y, axis=axis))
    # Rounded as a test that counts ties must be: sums in another order differ in the last bits.
    gap = lambda x, y, axis=-1: np.round(np.abs(np.mean(x, axis=axis) - np.mean(y, axis=axis)), 12)
    permuted = stats.permutation_test((b, a), gap, vectorized=True, n_resamples=np.inf, alternative="greater")
    df = n + m - 2
    pooled = np.sqrt(((n - 1) * a.var(ddof=1) + (m - 1) * b.var(ddof=1)) / df)
    d = (b.mean() - a.mean()) / pooled
    correction = special.gamma(df / 2) / (np.sqrt(df / 2) * special.gamma((df - 1) / 2))
    scale = np.sqrt(1 / n + 1 / m)
    greater = sum(float(y > x) for x in a for y in b)
    less = sum(float(y < x) for x in a for y in b)
    return {
        "welch": {"difference": b.mean() - a.mean(), "t": welch.statistic, "df": welch.df, "p": welch.pvalue, "interval": [interval.low, interval.high]},
        "permutation_p": permuted.pvalue,
        "hedges_g": d * correction,
        "hedges_interval": hedges_interval(d / scale, df, scale, correction),
        "cliffs_delta": (greater - less) / (n * m),
        "improvement": float(metrics.probability_of_improvement(b.reshape(-1, 1), a.reshape(-1, 1))),
    }


def paired(a, b):
    a, b = np.array(a), np.array(b)
    d = b - a
    t = stats.ttest_rel(b, a)
    interval = t.confidence_interval(0.95)
    mean = lambda x, axis=-1: np.round(np.abs(np.mean(x, axis=axis)), 12)
    flipped = stats.permutation_test((d,), mean, vectorized=True, permutation_type="samples", n_resamples=np.inf, alternative="greater")
    df = len(d) - 1
    correction = special.gamma(df / 2) / (np.sqrt(df / 2) * special.gamma((df - 1) / 2))
    scale = 1 / np.sqrt(len(d))
    return {
        "difference": d.mean(), "t": t.statistic, "p": t.pvalue, "interval": [interval.low, interval.high], "permutation_p": flipped.pvalue,
        "hedges_g": d.mean() / d.std(ddof=1) * correction, "hedges_interval": hedges_interval(t.statistic, df, scale, correction),
    }


def many():
    """Effects of more runs than the noncentral t is inverted for: from 30 degrees of freedom on."""
    rng = np.random.default_rng(40)
    rows = []
    for n, m, gap in ((40, 40, 0.3), (20, 60, 1.5), (100, 100, 0.05), (32, 32, 4.0)):
        a, b = rng.normal(0, 1, n).round(3), rng.normal(gap, 1, m).round(3)
        df = n + m - 2
        d = (b.mean() - a.mean()) / np.sqrt(((n - 1) * a.var(ddof=1) + (m - 1) * b.var(ddof=1)) / df)
        correction = np.exp(special.gammaln(df / 2) - special.gammaln((df - 1) / 2)) / np.sqrt(df / 2)
        scale = np.sqrt(1 / n + 1 / m)
        interval = hedges_interval(d / scale, df, scale, correction)
        rows.append({"a": a.tolist(), "b": b.tolist(), "hedges_g": d * correction, "hedges_interval": interval})
    return rows


def far():
    """Effects far beyond the spread, of few runs: |t| from 90 to 100,000."""
    rows = []
    for n, m, gap in ((2, 2, 400.0), (3, 3, 150.0), (3, 4, 20000.0), (5, 5, -90.0), (8, 8, 60.0), (15, 15, 2000.0), (16, 15, 70.0), (20, 20, 500.0)):
        rng = np.random.default_rng(n * 1000 + m)
        a, b = rng.normal(0, 1, n).round(3), rng.normal(gap, 1, m).round(3)
        df = n + m - 2
        d = (b.mean() - a.mean()) / np.sqrt(((n - 1) * a.var(ddof=1) + (m - 1) * b.var(ddof=1)) / df)
        correction = np.exp(special.gammaln(df / 2) - special.gammaln((df - 1) / 2)) / np.sqrt(df / 2)
        scale = np.sqrt(1 / n + 1 / m)
        rows.append({"a": a.tolist(), "b": b.tolist(), "df": df, "t": d / scale, "hedges_g": d * correction,
                     "hedges_interval": hedges_interval(d / scale, df, scale, correction)})
    return rows


def paired_items():
    """The percentile bootstrap of a mean difference over questions."""
    rows = []
    for n, gap in ((30, 0.1), (200, 0.05), (12, 0.3)):
        rng = np.random.default_rng(n)
        values = (rng.binomial(8, 0.4 + gap, n) - rng.binomial(8, 0.4, n)) / 8
        found = stats.bootstrap((values,), np.mean, n_resamples=200_000, method="percentile", rng=np.random.default_rng(7), batch=10_000)
        rows.append({"differences": values.tolist(), "mean": values.mean(), "interval": [found.confidence_interval.low, found.confidence_interval.high]})
    return rows


def summaries():
    rows = []
    for name, (a, b) in PAIRS.items():
        for values in (a, b):
            values = np.array(values)
            rows.append({"name": name, "values": values.tolist(), "mean": values.mean(), "median": np.median(values), "sd": values.std(ddof=1),
                         "iqm": stats.trim_mean(values, 0.25), "interval": list(stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values)))})
    return rows


def rliable_case():
    """Two algorithms, ten seeds, four tasks of other scales: rliable's own functions."""
    tasks = [(0.3, 0.1), (0.5, 0.05), (0.8, 0.2), (0.1, 0.02)]
    make = lambda shift: np.round(np.stack([rng.normal(mean + shift, sd, 10) for mean, sd in tasks], axis=1), 4)
    x, y = make(0.05), make(0.0)
    iqm = lambda scores: np.array([metrics.aggregate_iqm(scores)])
    points, intervals = rly.get_interval_estimates({"x": x, "y": y}, iqm, reps=50000)
    taus = [round(float(tau), 2) for tau in np.linspace(0, 1.2, 13)]
    return {
        "x": x.tolist(), "y": y.tolist(),
        "iqm": {name: float(points[name][0]) for name in points},
        "iqm_interval": {name: [float(v) for v in intervals[name][:, 0]] for name in intervals},
        "mean": {"x": float(metrics.aggregate_mean(x)), "y": float(metrics.aggregate_mean(y))},
        "median": {"x": float(metrics.aggregate_median(x)), "y": float(metrics.aggregate_median(y))},
        "taus": taus, "profile": {"x": [float(rly.run_score_deviation(x, tau)) for tau in taus], "y": [float(rly.run_score_deviation(y, tau)) for tau in taus]},
        "improvement": float(metrics.probability_of_improvement(x, y)),
    }


def power():
    rows = []
    for effect in (0.2, 0.5, 0.8, 1.0, 1.5, 2.5):
        two = TTestIndPower().solve_power(effect, alpha=0.05, power=0.8)
        n = int(np.ceil(two))
        row = {"effect": effect, "n": n, "power": TTestIndPower().power(effect, n, 0.05)}
        one = int(np.ceil(TTestPower().solve_power(effect, alpha=0.05, power=0.8)))
        rows.append({**row, "paired_n": one, "paired_power": TTestPower().power(effect, one, 0.05)})
    return rows


def distributions():
    ts = [(t, df) for t in (-4.0, -1.3, 0.0, 0.5, 2.1, 12.0) for df in (1.0, 2.7, 9.0, 44.0)]
    ncs = [(t, df, nc) for t in (-1.0, 0.7, 2.0, 5.0) for df in (2.0, 8.0, 30.0) for nc in (-1.5, 0.0, 1.0, 4.0)]
    return {
        "t_cdf": [[t, df, stats.t.cdf(t, df)] for t, df in ts],
        "t_quantile": [[p, df, stats.t.ppf(p, df)] for p in (0.005, 0.025, 0.5, 0.9, 0.975) for df in (1.0, 2.7, 9.0, 44.0)],
        "nct_cdf": [[t, df, nc, stats.nct.cdf(t, df, nc)] for t, df, nc in ncs],
    }


def main():
    out = {
        "made_by": {"script": "testdata/experiment/statistics.py", "python": sys.version.split()[0], "numpy": np.__version__, "scipy": scipy.__version__,
                    "statsmodels": statsmodels.__version__, "rliable": version("rliable")},
        "summaries": summaries(),
        "unpaired": [{"name": name, "a": a, "b": b, **unpaired(a, b)} for name, (a, b) in PAIRS.items()],
        "paired": [{"name": name, "a": a, "b": b, **paired(a, b)} for name, (a, b) in PAIRS.items() if len(a) == len(b)],
        "rliable": rliable_case(),
        "holm": [{"p": p, "adjusted": multipletests(p, method="holm")[1].tolist()} for p in ([0.01, 0.04, 0.03, 0.005], [0.5, 0.9], [0.02, 0.02, 0.02], [0.001])],
        "power": power(),
        "mcnemar": [{"only_a": b, "only_b": c, "p": mcnemar([[50, b], [c, 20]], exact=True).pvalue} for b, c in ((10, 2), (5, 5), (1, 0), (30, 12), (7, 19))],
        # 1 - C(n-c,k)/C(n,k) and C(c,k)/C(n,k) with whole numbers.
        "pass": [{"n": n, "c": c, "k": k, "pass_at": 1 - special.comb(n - c, k, exact=True) / special.comb(n, k, exact=True), "pass_all": special.comb(c, k, exact=True) / special.comb(n, k, exact=True)}
                 for n, c, k in ((4, 1, 4), (200, 13, 1), (200, 13, 10), (200, 13, 100), (10, 0, 5), (10, 10, 5), (8, 3, 2))],
        "distributions": distributions(),
        "many": many(),
        "far": far(),
        "paired_items": paired_items(),
    }
    json.dump(out, sys.stdout, indent=1, default=float)
    print()


main()

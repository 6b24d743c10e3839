//! What GPUs cost to rent: rows of `prices.toml`, dated, and a user's own price in their place.

use crate::small_sort::SmallSort;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

static PRICES: LazyLock<Vec<PriceRow>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        price: Vec<PriceRow>,
    }
    // The text is part of the program and a test reads it, so the empty list never happens.
    toml::from_str::<File>(include_str!("prices.toml")).map_or_else(|_| Vec::new(), |file| file.price)
});

/// A price that somebody asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceRow {
    /// Id of the GPU in the catalog.
    pub gpu: String,
    /// Who asks it.
    pub provider: String,
    /// For one GPU.
    pub dollars_per_hour: f64,
    /// What is bought.
    pub kind: PriceKind,
    /// Year and month of the price.
    pub date: String,
    /// Where it was read.
    pub source: String,
}

/// What is bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriceKind {
    /// Kept until it is given back.
    OnDemand,
    /// May be taken away at any moment.
    Spot,
}

/// The price that a plan reckons with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Price {
    /// For one GPU.
    pub dollars_per_gpu_hour: f64,
    /// Whose it is, in words.
    pub source: String,
}

/// Prices of one GPU, of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    /// The rows, cheapest first; never empty.
    rows: Vec<&'static PriceRow>,
}

impl Price {
    /// A user's own price; `None` if it is no price.
    pub fn own(dollars_per_gpu_hour: f64) -> Option<Self> {
        let is_price = dollars_per_gpu_hour.is_finite() && dollars_per_gpu_hour >= 0.0;
        is_price.then(|| Self { dollars_per_gpu_hour, source: "given by you".to_owned() })
    }

    fn from_row(row: &PriceRow) -> Self {
        let kind = match row.kind {
            PriceKind::OnDemand => "on demand",
            PriceKind::Spot => "spot",
        };
        Self { dollars_per_gpu_hour: row.dollars_per_hour, source: format!("{}, {kind}, {}", row.provider, row.date) }
    }
}

impl Prices {
    /// The rows, cheapest first.
    pub fn rows(&self) -> &[&'static PriceRow] {
        &self.rows
    }

    /// The offer with the fewest dollars an hour.
    pub fn lowest(&self) -> Option<Price> {
        self.rows.first().map(|row| Price::from_row(row))
    }

    /// The one in the middle; of two, the dearer.
    pub fn median(&self) -> Option<Price> {
        self.rows.get(self.rows.len() / 2).map(|row| Price::from_row(row))
    }
}

/// All prices, in the order of the file.
pub fn price_rows() -> &'static [PriceRow] {
    &PRICES
}

/// The prices of a GPU of the catalog; `None` where nobody's is known. A slice of a GPU has none: providers price slices as
/// they like.
pub fn prices_of(gpu: &str, kind: PriceKind) -> Option<Prices> {
    let mut rows: Vec<_> = price_rows().iter().filter(|row| row.gpu == gpu && row.kind == kind).collect();
    rows.small_sort_by(|a, b| a.dollars_per_hour.total_cmp(&b.dollars_per_hour));
    (!rows.is_empty()).then_some(Prices { rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_names_a_gpu_a_provider_a_date_and_a_source() {
        assert!(toml::from_str::<toml::Value>(include_str!("prices.toml")).is_ok());
        assert!(price_rows().len() > 30);
        for row in price_rows() {
            assert_eq!(super::super::find_gpu(&row.gpu).unwrap().id, row.gpu);
            assert!((0.1..10.0).contains(&row.dollars_per_hour), "{row:?}");
            assert!(row.date.starts_with("2026-") && row.date.len() == 7, "{row:?}");
            assert!(!row.provider.is_empty() && !row.source.is_empty());
            let same = price_rows()
                .iter()
                .filter(|other| (&other.gpu, &other.provider, other.kind) == (&row.gpu, &row.provider, row.kind));
            assert_eq!(same.count(), 1, "{row:?}");
        }
    }

    #[test]
    fn lowest_and_median_are_of_one_kind() {
        let h100 = prices_of("h100", PriceKind::OnDemand).unwrap();
        assert_eq!(h100.lowest().unwrap().source, "Verda, on demand, 2026-11");
        assert_eq!(h100.median().map(|price| price.dollars_per_gpu_hour), Some(2.95));
        assert_eq!(prices_of("h200", PriceKind::Spot).unwrap().median().unwrap().dollars_per_gpu_hour, 1.45);
        assert_eq!(prices_of("h100:1g.10gb", PriceKind::OnDemand), None);
        assert_eq!(prices_of("a10", PriceKind::OnDemand), None);
    }

    #[test]
    fn a_price_is_a_number_from_zero_up() {
        assert_eq!(Price::own(1.5).unwrap().source, "given by you");
        assert_eq!(Price::own(0.0).map(|price| price.dollars_per_gpu_hour), Some(0.0));
        assert!([-1.0, f64::NAN, f64::INFINITY].into_iter().all(|price| Price::own(price).is_none()));
    }
}

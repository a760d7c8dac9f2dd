//! The data of the embedded API: market-like records with known flaws.
//!
//! A record has `id`, `ts`, `symbol` (8 values), `venue` (6 values, two of them rare), `price`,
//! `volume` (lognormal, some of it from a Pareto tail), `trades`, `spread`, `book: {bid, ask,
//! depth: {bid_size, ask_size}}`, `momentum`, `volatility`, `sentiment`, `flags` and the target
//! `next_return` in percent:
//!
//! ```text
//! next_return = 0.9 tanh(1.2 momentum) + 0.7 momentum sentiment + 0.8 imbalance - 0.5 ln(volatility / 0.02)
//!             + effect(symbol) + 0.5 N(0, 1),   imbalance = (bid_size - ask_size) / (bid_size + ask_size)
//! ```
//!
//! so that a model of all features can explain about 70 percent of its variance.
//!
//! | flaw | fraction |
//! |---|---|
//! | exact duplicate of one of the about 150 records before | 2 % |
//! | text instead of a record, or `price: "n/a"` | 0.1 % each |
//! | missing, one half null and one half absent: `sentiment` | 10 % |
//! | ... `momentum`, `ask_size` | 3 % |
//! | ... `price`, `volume`, `volatility` | 2 % |
//! | ... `next_return` | 0.5 % |
//!
//! With drift, from record `rows / 2` on: no `spread`; `trades` is text (`"123"`, in 0.3 %
//! `"1.2k"`); and there is a new object `meta: {region, latency: {ms}}`. Every record is a pure
//! function of seed, row and (for the drift) `rows`.

use std::f64::consts::TAU;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Symbol, typical price, effect on the target.
const SYMBOLS: [(&str, f64, f64); 8] = [
    ("AMBR", 42.0, -0.7),
    ("BOLT", 180.0, 0.6),
    ("CRUX", 12.5, 0.1),
    ("DUNE", 310.0, -0.4),
    ("ECHO", 75.0, 0.8),
    ("FLUX", 5.2, -0.2),
    ("GALE", 96.0, 0.4),
    ("HALO", 640.0, -0.6),
];
/// Venue and the share of records up to and with it.
const VENUES: [(&str, f64); 6] = [
    ("XNYS", 0.45),
    ("XNAS", 0.83),
    ("ARCX", 0.94),
    ("XLON", 0.99),
    ("XTKS", 0.997),
    ("DARK", 1.0),
];
const FLAGS: [(&str, f64); 4] = [
    ("odd_lot", 0.3),
    ("block", 0.1),
    ("auction", 0.05),
    ("halted", 0.01),
];
const REGIONS: [&str; 3] = ["us", "eu", "apac"];
/// Greatest distance between a duplicate and its original. It exceeds the default page size, so
/// that some duplicates cross a page boundary.
const COPY_REACH: usize = 150;

/// A seeded generator of one row's draws, each a hash of (row, number of the draw).
#[derive(Debug)]
pub(super) struct Dice {
    seed: u64,
    row: u64,
    draws: u64,
}

impl Dice {
    pub(super) fn new(seed: u64, row: u64) -> Self {
        Self {
            seed,
            row,
            draws: 0,
        }
    }

    fn hash(&mut self) -> u64 {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.row.to_le_bytes());
        key[8..].copy_from_slice(&self.draws.to_le_bytes());
        self.draws += 1;
        xxh3_64_with_seed(&key, self.seed)
    }

    /// Uniform in the open interval (0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        ((self.hash() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Standard normal (Box-Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (TAU * self.unit()).cos()
    }

    fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        median * (sigma * self.normal()).exp()
    }

    /// One of 0 to `choices` - 1.
    fn pick(&mut self, choices: usize) -> usize {
        usize::try_from(self.hash() % choices as u64).expect("less than a usize")
    }
}

/// All records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Market {
    pub seed: u64,
    pub rows: u64,
    pub drift: bool,
}

impl Market {
    /// The record at `row`, possibly damaged.
    pub(super) fn record(&self, row: u64) -> Value {
        let row = self.copied_from(row).unwrap_or(row);
        let mut record = self.clean(row);
        match self.fault(row) {
            Some(Fault::Text) => {
                return Value::String(format!("ERR feed handler lost record {row}"));
            }
            Some(Fault::Price) => {
                record.insert("price".into(), "n/a".into());
            }
            None => {}
        }
        Value::Object(record)
    }

    /// Row that `row` duplicates, if it is a duplicate. Only rows that are neither duplicates nor
    /// faulty are repeated.
    fn copied_from(&self, row: u64) -> Option<u64> {
        let back = self.copy_distance(row)?;
        let is_good = |row: &u64| self.copy_distance(*row).is_none() && self.fault(*row).is_none();
        (0..=row.checked_sub(back)?).rev().find(is_good)
    }

    fn copy_distance(&self, row: u64) -> Option<u64> {
        let mut dice = Dice::new(self.seed ^ 0x636f_7079, row);
        let is_copy = dice.unit() < 0.02;
        let back = 1 + dice.pick(COPY_REACH) as u64;
        (is_copy && back <= row).then_some(back)
    }

    fn fault(&self, row: u64) -> Option<Fault> {
        match Dice::new(self.seed ^ 0x6661_756c, row).unit() {
            roll if roll < 0.001 => Some(Fault::Text),
            roll if roll < 0.002 => Some(Fault::Price),
            _ => None,
        }
    }

    fn clean(&self, row: u64) -> Map<String, Value> {
        let quote = Quote::draw(self.seed, row);
        let mut holes = Dice::new(self.seed ^ 0x686f_6c65, row);
        let mut hole = |share: f64, value: Value| {
            let roll = holes.unit() / share;
            if roll < 0.5 {
                None
            } else if roll < 1.0 {
                Some(Value::Null)
            } else {
                Some(value)
            }
        };
        let mut depth = Map::new();
        depth.insert("bid_size".into(), rounded(quote.bid_size, 1.0));
        put(
            &mut depth,
            "ask_size",
            hole(0.03, rounded(quote.ask_size, 1.0)),
        );
        let book = json!({
            "bid": rounded(quote.price - quote.spread / 2.0, 1e4),
            "ask": rounded(quote.price + quote.spread / 2.0, 1e4),
            "depth": depth,
        });
        let mut record = Map::new();
        record.insert("id".into(), format!("q{row:09}").into());
        record.insert("ts".into(), timestamp(row).into());
        record.insert("symbol".into(), SYMBOLS[quote.symbol].0.into());
        record.insert("venue".into(), quote.venue.into());
        put(&mut record, "price", hole(0.02, rounded(quote.price, 1e4)));
        put(
            &mut record,
            "volume",
            hole(0.02, rounded(quote.volume, 1.0)),
        );
        record.insert("book".into(), book);
        put(
            &mut record,
            "momentum",
            hole(0.03, rounded(quote.momentum, 1e6)),
        );
        put(
            &mut record,
            "volatility",
            hole(0.02, rounded(quote.volatility, 1e6)),
        );
        put(
            &mut record,
            "sentiment",
            hole(0.10, rounded(quote.sentiment, 1e6)),
        );
        record.insert("flags".into(), json!(quote.flags));
        put(
            &mut record,
            "next_return",
            hole(0.005, rounded(quote.next_return, 1e6)),
        );
        self.shape(row, &quote, &mut record);
        record
    }

    /// The fields that drift.
    fn shape(&self, row: u64, quote: &Quote, record: &mut Map<String, Value>) {
        if !self.drift || row < self.rows / 2 {
            record.insert("spread".into(), rounded(quote.spread, 1e6));
            record.insert("trades".into(), quote.trades.into());
            return;
        }
        let mut dice = Dice::new(self.seed ^ 0x6d65_7461, row);
        let is_short = dice.unit() < 0.003;
        let thousands = quote.trades as f64 / 1e3;
        let trades = if is_short {
            format!("{thousands:.1}k")
        } else {
            quote.trades.to_string()
        };
        record.insert("trades".into(), trades.into());
        let region = REGIONS[dice.pick(REGIONS.len())];
        let ms = rounded(dice.lognormal(18.0, 0.6), 10.0);
        record.insert(
            "meta".into(),
            json!({ "region": region, "latency": { "ms": ms } }),
        );
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Text,
    Price,
}

/// One record without flaws. Draws are in a fixed order, none depends on another's outcome.
#[derive(Debug)]
struct Quote {
    symbol: usize,
    venue: &'static str,
    price: f64,
    spread: f64,
    volume: f64,
    trades: u64,
    bid_size: f64,
    ask_size: f64,
    momentum: f64,
    volatility: f64,
    sentiment: f64,
    flags: Vec<&'static str>,
    next_return: f64,
}

impl Quote {
    fn draw(seed: u64, row: u64) -> Self {
        let mut dice = Dice::new(seed, row);
        let symbol = dice.pick(SYMBOLS.len());
        let (_, typical_price, effect) = SYMBOLS[symbol];
        let roll = dice.unit();
        let venue = VENUES
            .iter()
            .find(|(_, upto)| roll < *upto)
            .map_or("DARK", |(name, _)| name);
        let price = dice.lognormal(typical_price, 0.15);
        let spread = price * dice.lognormal(4e-4, 0.5);
        let (body, is_tail, tail) = (
            dice.lognormal(3_000.0, 1.2),
            dice.unit() < 0.015,
            dice.unit(),
        );
        // A Pareto tail with exponent 1.1 has a mean but no variance.
        let volume = if is_tail {
            (50_000.0 * tail.powf(-1.0 / 1.1)).min(1e12)
        } else {
            body
        };
        let trades = 1.0 + (volume.sqrt() * dice.lognormal(1.0, 0.3)).floor();
        let (bid_size, ask_size) = (dice.lognormal(800.0, 0.5), dice.lognormal(800.0, 0.5));
        let (momentum, volatility) = (dice.normal(), dice.lognormal(0.02, 0.5));
        let sentiment = (0.9 * dice.normal()).tanh();
        let rolls = FLAGS.map(|flag| (flag, dice.unit()));
        let flags = rolls
            .iter()
            .filter(|((_, share), roll)| roll < share)
            .map(|((name, _), _)| *name)
            .collect();
        let imbalance = (bid_size - ask_size) / (bid_size + ask_size);
        let signal = 0.9 * (1.2 * momentum).tanh() + 0.7 * momentum * sentiment + 0.8 * imbalance
            - 0.5 * (volatility / 0.02).ln()
            + effect;
        let next_return = signal + 0.5 * dice.normal();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and 10^8"
        )]
        let trades = trades as u64;
        Self {
            symbol,
            venue,
            price,
            spread,
            volume,
            trades,
            bid_size,
            ask_size,
            momentum,
            volatility,
            sentiment,
            flags,
            next_return,
        }
    }
}

fn put(object: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        object.insert(key.into(), value);
    }
}

/// `value` rounded to a multiple of `1 / scale`, as a float; as an integer when `scale` is 1.
fn rounded(value: f64, scale: f64) -> Value {
    let steps = (value * scale).round();
    if scale <= 1.0 {
        #[expect(clippy::cast_possible_truncation, reason = "sizes stay far below 2^63")]
        return Value::from(steps as i64);
    }
    Value::from(steps / scale)
}

/// One record every 37 seconds from the second of January 2024 on.
fn timestamp(row: u64) -> String {
    let start = Timestamp::constant(1_704_153_600, 0);
    let seconds = i64::try_from(row).unwrap_or_default() * 37;
    (start + SignedDuration::from_secs(seconds)).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const ROWS: u64 = 20_000;

    fn market() -> Market {
        Market {
            seed: 7,
            rows: ROWS,
            drift: true,
        }
    }

    fn records() -> Vec<Value> {
        (0..ROWS).map(|row| market().record(row)).collect()
    }

    fn near(share: usize, wanted: f64) {
        let share = share as f64 / ROWS as f64;
        assert!(
            (share - wanted).abs() < 0.25 * wanted + 0.0005,
            "{share} is not about {wanted}"
        );
    }

    #[test]
    fn a_record_depends_on_seed_and_row_alone() {
        let longer = Market {
            rows: 2 * ROWS,
            ..market()
        };
        assert_eq!(market().record(17), longer.record(17));
        assert_ne!(
            market().record(17),
            Market {
                seed: 8,
                ..market()
            }
            .record(17)
        );
        let first = market().record(0).to_string();
        assert!(
            first.contains("\"id\":\"q000000000\"")
                && first.contains("\"ts\":\"2024-01-02T00:00:00Z\""),
            "{first}"
        );
    }

    #[test]
    fn copies_and_faults_have_their_shares() {
        let records = records();
        let mut seen = HashSet::new();
        let copies: Vec<usize> = (0..records.len())
            .filter(|&i| !seen.insert(records[i].to_string()))
            .collect();
        near(copies.len(), 0.02);
        let page_of = |id: &Value| id.as_str().unwrap()[1..].parse::<usize>().unwrap() / 100;
        assert!(
            copies.iter().any(|&i| page_of(&records[i]["id"]) < i / 100),
            "no duplicate crosses a page boundary"
        );
        near(
            records.iter().filter(|record| record.is_string()).count(),
            0.001,
        );
        near(
            records
                .iter()
                .filter(|record| record["price"] == "n/a")
                .count(),
            0.001,
        );
    }

    #[test]
    fn values_are_missing_as_null_and_as_nothing() {
        let records = records();
        let near_missing = |pointer: &str, share: f64| {
            let at = |record: &Value| record.pointer(pointer).cloned();
            let records = || records.iter().filter(|record| record.is_object());
            near(
                records()
                    .filter(|record| at(record) == Some(Value::Null))
                    .count(),
                share / 2.0,
            );
            near(
                records().filter(|record| at(record).is_none()).count(),
                share / 2.0,
            );
        };
        near_missing("/sentiment", 0.10);
        near_missing("/momentum", 0.03);
        near_missing("/book/depth/ask_size", 0.03);
        near_missing("/price", 0.02);
        near_missing("/next_return", 0.005);
    }

    #[test]
    fn the_shape_drifts_half_way() {
        let records = records();
        let (before, after) = records.split_at(10_000);
        let objects = |half: &[Value]| {
            half.iter()
                .filter(|record| record.is_object())
                .cloned()
                .collect::<Vec<_>>()
        };
        for record in objects(before) {
            assert!(
                record["spread"].is_f64()
                    && record["trades"].is_u64()
                    && record.get("meta").is_none()
            );
        }
        // Right after the drift, duplicates may still have the old shape.
        for record in objects(&after[500..]) {
            assert!(record.get("spread").is_none() && record["trades"].is_string());
            assert!(
                record["meta"]["latency"]["ms"].is_f64() && record["meta"]["region"].is_string()
            );
        }
        let short = after.iter().filter(|record| {
            record["trades"]
                .as_str()
                .is_some_and(|text| text.ends_with('k'))
        });
        near(short.count(), 0.0015);
        let steady = Market {
            drift: false,
            ..market()
        };
        assert!(steady.record(ROWS - 1).get("meta").is_none());
    }

    #[test]
    fn tails_are_heavy_and_categories_have_rare_values() {
        let records = records();
        let mut volumes: Vec<f64> = records
            .iter()
            .filter_map(|record| record["volume"].as_f64())
            .collect();
        volumes.sort_by(f64::total_cmp);
        assert!(volumes[volumes.len() - 1] > 500.0 * volumes[volumes.len() / 2]);
        let dark = records
            .iter()
            .filter(|record| record["venue"] == "DARK")
            .count();
        assert!((10..200).contains(&dark), "{dark}");
        let symbols: HashSet<_> = records
            .iter()
            .filter_map(|record| record["symbol"].as_str())
            .collect();
        assert_eq!(symbols.len(), SYMBOLS.len());
    }

    /// Applies the formula of the module's documentation to a parsed record. A missing value counts
    /// as its centre.
    fn best_guess(record: &Value) -> f64 {
        let number = |pointer: &str, missing: f64| {
            record
                .pointer(pointer)
                .and_then(Value::as_f64)
                .unwrap_or(missing)
        };
        let effect = SYMBOLS
            .iter()
            .find(|(name, ..)| record["symbol"] == *name)
            .unwrap()
            .2;
        let (bid, ask) = (
            number("/book/depth/bid_size", 800.0),
            number("/book/depth/ask_size", 800.0),
        );
        let momentum = number("/momentum", 0.0);
        0.9 * (1.2 * momentum).tanh()
            + 0.7 * momentum * number("/sentiment", 0.0)
            + 0.8 * (bid - ask) / (bid + ask)
            - 0.5 * (number("/volatility", 0.02) / 0.02).ln()
            + effect
    }

    #[test]
    fn about_seventy_percent_of_the_target_can_be_explained() {
        let records = records();
        let pairs: Vec<(f64, f64)> = records
            .iter()
            .filter(|record| record.is_object())
            .filter_map(|record| Some((record["next_return"].as_f64()?, best_guess(record))))
            .collect();
        let count = pairs.len() as f64;
        let mean = pairs.iter().map(|(y, _)| y).sum::<f64>() / count;
        let total: f64 = pairs.iter().map(|(y, _)| (y - mean).powi(2)).sum();
        let left: f64 = pairs.iter().map(|(y, guess)| (y - guess).powi(2)).sum();
        let r2 = 1.0 - left / total;
        assert!((0.68..0.8).contains(&r2), "R2 = {r2}");
    }
}

//! Pages of HTML that need nothing but themselves: the reports of datasets, runs and searches.
//!
//! A page is [`document`] around sections that its author joins as text: paragraphs, [`table`]s, a
//! [`Chart`] of curves, a [`Histogram`] or [`bars`]. All of them share one style, for light and dark
//! screens and for paper. Data is escaped by whatever takes it as text; cells and bodies that are
//! HTML already say so. Each drawing has a description in words.
//!
//! ```
//! use feedline_report::{Chart, ChartSeries, document, table};
//!
//! let rows = [vec!["<rmse>".to_owned(), "0.5".to_owned()]];
//! let loss = ChartSeries::new("train", vec![(1.0, 0.9), (2.0, 0.5)]);
//! let chart = Chart::of_steps("Loss", "loss", vec![loss]);
//! let body = table("Metrics of the test split.", &["metric", "value"], 1.., &rows) + &chart.figure();
//! let page = document("Run a", &body);
//! assert!(page.contains("&lt;rmse&gt;") && page.contains("train: from 0.9 to 0.5."));
//! ```

mod bars;
mod chart;
mod document;
mod figure;
mod histogram;
mod table;
mod text;
mod ticks;

pub use crate::{
    bars::bars,
    chart::{AxisX, Chart, ChartSeries, Points, some_steps},
    document::document,
    histogram::Histogram,
    table::{TableRow, foldable, link, table, table_of},
    text::{escape, number, percent, significant},
};

//! Ticks of the axes of a chart: round values with labels that differ.

use crate::text::{exact_len, number, shortened};

/// Characters of a name on an axis.
const NAME_MAX: usize = 16;

/// Names on an axis.
const NAMES_MAX: usize = 20;

/// Powers of ten on an axis.
const DECADES_MAX: usize = 6;

/// Digits behind the point of a label.
const DIGITS_MAX: usize = 12;

/// About `count` round values inside the span.
fn ticks((low, high): (f64, f64), count: usize) -> Vec<f64> {
    let rough = (high - low) / exact_len(count);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough)
        .unwrap_or(10.0 * power);
    let first = (low / step).ceil();
    (0..=2 * count)
        .map(|i| (first + exact_len(i)) * step)
        .take_while(|value| *value <= high + step * 1e-9)
        .collect()
}

/// Round values inside the span with labels that differ.
pub(crate) fn linear_ticks(span: (f64, f64)) -> Vec<(f64, String)> {
    let values = ticks(span, 5);
    let labels = labels(&values);
    values.into_iter().zip(labels).collect()
}

/// Powers of ten inside a span of logarithms, or with their double and fivefold where there are few.
pub(crate) fn log_ticks((low, high): (f64, f64)) -> Vec<(f64, String)> {
    let is_inside = |d: f64| (low - 1e-9..=high + 1e-9).contains(&d);
    let decades = |every: f64| {
        let first = (low / every).floor();
        let places = (0..=DECADES_MAX + 1).map(|i| (first + exact_len(i)) * every);
        places.filter(|d| is_inside(*d)).collect::<Vec<f64>>()
    };
    let span = high - low;
    let every = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0];
    let every = every
        .into_iter()
        .find(|e| span / e <= exact_len(DECADES_MAX));
    let whole = decades(every.unwrap_or(100.0));
    if whole.len() > 2 {
        let plain = low > -3.5 && high < 5.0;
        let label = |decade: f64| {
            if plain {
                number(10_f64.powf(decade))
            } else {
                format!("10{}", superscript(decade))
            }
        };
        let tick = |decade: f64| (10_f64.powf(decade), label(decade));
        return whole.into_iter().map(tick).collect();
    }
    let mut values = Vec::new();
    let mut decade = low.floor();
    while decade <= high {
        values.extend([1.0, 2.0, 5.0].map(|factor| factor * 10_f64.powf(decade)));
        decade += 1.0;
    }
    values.retain(|value| is_inside(value.log10()));
    if values.len() < 2 {
        // Narrower than from one to the next: the ends, with as many digits as they need.
        values = ticks((10_f64.powf(low), 10_f64.powf(high)), 4);
    }
    let labels = labels(&values);
    values.into_iter().zip(labels).collect()
}

/// Places of a list and their names; of many, some of them.
pub(crate) fn named_ticks(names: &[String]) -> Vec<(f64, String)> {
    let every = names.len().div_ceil(NAMES_MAX).max(1);
    let places = names.iter().enumerate().step_by(every);
    places
        .map(|(i, name)| (exact_len(i), shortened(name, NAME_MAX)))
        .collect()
}

/// A whole number in raised digits.
fn superscript(value: f64) -> String {
    let raised = |c| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        '9' => '⁹',
        _ => '⁰',
    };
    format!("{value:.0}").chars().map(raised).collect()
}

/// Labels of ticks: as short as [`number`] makes them where that is exact enough, else with one
/// unit and as many digits as make them differ.
fn labels(values: &[f64]) -> Vec<String> {
    let steps = values.windows(2).map(|pair| (pair[1] - pair[0]).abs());
    let step = steps.fold(f64::INFINITY, f64::min);
    let most = values.iter().fold(0.0_f64, |most, v| most.max(v.abs()));
    let is_exact = |labels: &[String]| {
        let pairs = labels.iter().zip(values);
        pairs.into_iter().all(|(label, value)| {
            let read = value_of(label);
            read.is_some_and(|read| (read - value).abs() <= step * 0.01)
        })
    };
    let short: Vec<String> = values.iter().map(|value| number(*value)).collect();
    if is_exact(&short) {
        return short;
    }
    let (unit, sign) = match most {
        m if !(1e-3..1e9).contains(&m) => (0.0, ""),
        m if m >= 1e6 => (1e6, "M"),
        m if m >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let label = |value: f64, digits: usize| {
        if unit > 0.0 {
            format!("{:.digits$}{sign}", value / unit)
        } else {
            format!("{value:.digits$e}")
        }
    };
    let labels = |digits| values.iter().map(|v| label(*v, digits)).collect::<Vec<_>>();
    let exact = (0..DIGITS_MAX).map(labels).find(|labels| is_exact(labels));
    exact.unwrap_or(short)
}

/// The number of a label.
fn value_of(label: &str) -> Option<f64> {
    let (digits, unit) = match label.strip_suffix('M') {
        Some(digits) => (digits, 1e6),
        None => label.strip_suffix('k').map_or((label, 1.0), |d| (d, 1e3)),
    };
    Some(digits.parse::<f64>().ok()? * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks((0.0, 10.0), 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks((3.0, 47.0), 4), [20.0, 40.0]);
        assert_eq!(ticks((-1.0, 1.0), 4), [-1.0, -0.5, 0.0, 0.5, 1.0]);
    }

    #[test]
    fn labels_have_as_many_digits_as_tell_ticks_apart() {
        for (span, expected) in [
            ((20_455.0, 20_545.0), "20.46k 20.48k 20.50k 20.52k 20.54k"),
            ((0.0, 10.0), "0 2 4 6 8 10"),
            ((0.0, 40_000.0), "0 10k 20k 30k 40k"),
            (
                (1_000_001.0, 1_000_009.0),
                "1.000002M 1.000004M 1.000006M 1.000008M",
            ),
            ((0.123_405, 0.123_445), "0.12341 0.12342 0.12343 0.12344"),
            (
                (1.996e-5, 2.044e-5),
                "2.00e-5 2.01e-5 2.02e-5 2.03e-5 2.04e-5",
            ),
            ((-0.5, 0.5), "-0.4 -0.2 0 0.2 0.4"),
        ] {
            let found: Vec<String> = linear_ticks(span).into_iter().map(|t| t.1).collect();
            assert_eq!(found.join(" "), expected, "{span:?}");
        }
    }

    #[test]
    fn logarithmic_axes_have_powers_or_round_values() {
        let found = |low: f64, high: f64| {
            let ticks = log_ticks((low.log10(), high.log10()));
            let labels: Vec<String> = ticks.into_iter().map(|t| t.1).collect();
            labels.join(" ")
        };
        assert_eq!(found(1e-6, 1e-1), "10⁻⁶ 10⁻⁵ 10⁻⁴ 10⁻³ 10⁻² 10⁻¹");
        assert_eq!(found(0.01, 100.0), "0.01 0.1 1 10 100");
        assert_eq!(found(9e-4, 0.02), "0.001 0.002 0.005 0.01 0.02");
        assert_eq!(found(2.1, 2.9), "2.2 2.4 2.6 2.8");
        assert!(found(1e-12, 1e12).split(' ').count() <= 7);
    }

    #[test]
    fn of_many_names_some_are_shown() {
        assert_eq!(named_ticks(&vec!["a".to_owned(); 90]).len(), 18);
    }
}

//! Entities with long steps that are counted, and those over closed days, which are not.

use super::*;

const HOUR: i64 = 3_600_000_000;

fn counts(entities: &[Vec<i64>]) -> LongStepCounts {
    let mut counter = StepCounter::new(TimeZone::UTC);
    for steps in entities {
        let mut before = 0_i64;
        for step in steps {
            let time = before.checked_add(*step);
            counter.add(time.map_or(0, |_| before), time.unwrap_or(*step));
            before = time.unwrap_or(*step);
        }
        counter.end_entity();
    }
    counter.finish()
}

#[test]
fn steps_over_missing_rows_are_counted_by_the_rate_of_each_entity() {
    let mut hourly = vec![HOUR; 99];
    hourly.push(60 * HOUR);
    let mut quarterly = vec![HOUR / 4; 195];
    quarterly.extend([HOUR / 2; 5]);
    let expected = LongStepCounts {
        entities: 3,
        with_long: 2,
        steps: 400,
        long: 6,
        longest: 60 * HOUR,
        usual: HOUR,
        longest_usual: HOUR,
        shortest_usual: HOUR / 4,
        ..LongStepCounts::default()
    };
    let regular = vec![HOUR / 2; 100];
    assert_eq!(counts(&[hourly, quarterly, regular]), expected);
}

#[test]
fn closed_days_are_not_missing_rows() {
    let day = 24 * HOUR;
    let weeks: Vec<i64> = (0..50)
        .flat_map(|_| [day, day, day, day, 3 * day])
        .collect();
    assert_eq!(counts(&[weeks]).long, 0);
    let months: Vec<i64> = (0..48).map(|month| (28 + month % 4) * day).collect();
    assert_eq!(counts(&[months]).long, 0);
    // An exchange of four hours a day, with a holiday every tenth week.
    let sessions: Vec<i64> = (0..250)
        .flat_map(|day| {
            let closed = match day % 5 {
                4 => 69,
                _ if day % 50 == 12 => 45,
                _ => 21,
            };
            [HOUR, HOUR, HOUR, closed * HOUR]
        })
        .collect();
    assert_eq!(counts(&[sessions]).long, 0);
    let few = vec![HOUR, HOUR, 60 * HOUR];
    assert_eq!(counts(&[few]).long, 0);
    // A share that was listed two weeks ago, with two weekends and with one.
    let two = [1, 3, 1, 1, 1, 1, 3, 1, 1, 1].map(|days| days * day);
    let one = [1, 1, 1, 1, 3, 1, 1, 1].map(|days| days * day);
    for share in [&two[..], &two[..8], &one] {
        assert_eq!(counts(&[share.to_vec()]).long, 0, "{share:?}");
    }
    assert_eq!(counts(&[vec![i64::MAX; 20]]).long, 0);
}

#[test]
fn weekends_are_not_counted_with_the_missing_days_of_a_market() {
    let day = 24 * HOUR;
    // From a Thursday on; of four weeks one lacks a Tuesday, one a Wednesday and one a Monday.
    let weeks = (0..48).flat_map(|week| match week % 4 {
        0 => vec![1, 3, 1, 1, 1],
        1 => vec![1, 3, 2, 1],
        2 => vec![1, 3, 1, 2],
        _ => vec![1, 4, 1, 1],
    });
    let found = counts(&[weeks.map(|days| days * day).collect()]);
    assert_eq!((found.long, found.over_closed), (36, 36));
    assert_eq!(found.longest_closed, 3 * day);
    assert_eq!((found.longest, found.usual), (4 * day, day));
    assert_eq!((found.closing, found.closes), (0, None));
}

#[test]
fn a_hole_is_counted_beside_steps_that_recur() {
    let day = 24 * HOUR;
    let weeks: Vec<i64> = (0..250)
        .map(|i| day * if i % 5 == 1 { 3 } else { 1 })
        .collect();
    let with_hole = |steps: &[i64], length: i64| {
        let mut steps = steps.to_vec();
        steps[101] = length;
        counts(&[steps])
    };
    // A week of holidays, and four weeks without rows.
    assert_eq!(with_hole(&weeks, 10 * day).long, 0);
    let found = with_hole(&weeks, 31 * day);
    assert_eq!((found.long, found.longest), (1, 31 * day));
    assert_eq!((found.over_closed, found.are_holes), (49, true));
    let nights: Vec<i64> = (0..400)
        .map(|i| HOUR * if i % 4 == 1 { 21 } else { 1 })
        .collect();
    assert_eq!(with_hole(&nights, 69 * HOUR).long, 0);
    // It ends at the same time of day as the nights.
    let found = with_hole(&nights, 60 * day - 3 * HOUR);
    assert_eq!((found.long, found.longest), (100, 60 * day - 3 * HOUR));
    assert_eq!((found.closing, found.are_holes), (100, false));
}

/// Steps between the hours that are left if the given percentage of 3,000 is missing.
fn with_missing(percentage: u64) -> Vec<i64> {
    let mut random = 1_u64;
    let hours = (0..3_000_i64).filter(|_| {
        random = random * 16_807 % 2_147_483_647;
        random / 7 % 100 >= percentage
    });
    let hours: Vec<i64> = hours.collect();
    let steps = hours.windows(2).map(|pair| (pair[1] - pair[0]) * HOUR);
    steps.collect()
}

#[test]
fn rows_that_are_missing_at_random_are_counted_however_many_they_are() {
    for percentage in [2, 5, 10, 15, 25, 40] {
        let steps = with_missing(percentage);
        let expected = steps.iter().filter(|step| **step > HOUR).count() as u64;
        let found = counts(&[steps]);
        assert_eq!(found.long, expected, "{percentage}");
        assert_eq!((found.usual, found.uneven), (HOUR, 0), "{percentage}");
        assert_eq!((found.closing, found.closes), (0, None), "{percentage}");
    }
}

#[test]
fn entities_with_few_long_steps_are_judged_together() {
    // Three nights of an exchange of four hours a day.
    let closed = |hours: i64| [HOUR, HOUR, HOUR, hours * HOUR];
    let nights: Vec<i64> = [21, 21, 69].into_iter().flat_map(closed).collect();
    let exchange = vec![nights; 20];
    assert_eq!(counts(&exchange).long, 0);
    // Sensors with a few hours each, some of them missing.
    let hours = with_missing(15);
    let sensors: Vec<Vec<i64>> = hours.chunks(20).map(<[i64]>::to_vec).collect();
    let found = counts(&sensors);
    let expected = hours.iter().filter(|step| **step > HOUR).count() as u64;
    assert!(found.long * 10 > expected * 9, "{found:?} {expected}");
    // One of them is too short to see a pattern.
    let sensor = vec![HOUR, HOUR, 2 * HOUR, HOUR, HOUR, HOUR, 3 * HOUR, HOUR, HOUR];
    assert_eq!(counts(std::slice::from_ref(&sensor)).long, 0);
    assert_eq!(counts(&[vec![HOUR; 30], sensor]).long, 0);
    // Daily rows with every weekday have no closed days.
    let day = 24 * HOUR;
    let steps = [1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 1].map(|days| days * day);
    assert_eq!(counts(&[steps.to_vec()]).long, 2);
}

#[test]
fn nights_of_many_rows_a_day_are_marked_as_closing_times() {
    const MINUTE: i64 = HOUR / 60;
    // Rows every 10 minutes for 6.5 hours; weekends are closed, and one row is missing on two days.
    let days = (0..50).flat_map(|day| {
        let mut session = vec![10 * MINUTE; 39];
        if [7, 23].contains(&day) {
            let further = session.remove(21);
            session[20] += further;
        }
        let days = if day % 5 == 4 { 3 } else { 1 };
        session.push(days * 24 * HOUR - 390 * MINUTE);
        session
    });
    let found = counts(&[days.collect()]);
    assert_eq!((found.long, found.closing), (52, 50));
    assert_eq!(found.closes, Some(ClosingTime::Daily(390)));
}

#[test]
fn entities_with_few_rows_are_compared_together() {
    let minutes = |steps: [i64; 4]| steps.map(|step| step * HOUR / 60).to_vec();
    let uneven = minutes([3, 90, 17, 400]);
    let found = counts(&vec![uneven.clone(); 7]);
    assert_eq!((found.uneven, found.uneven_together), (7, 7));
    assert_eq!(found.uneven_steps, Some([HOUR / 20, 400 * HOUR / 60]));
    // Steps beside the medians are too few here.
    assert_eq!(counts(&vec![uneven; 6]).uneven, 0);
    // One row of each is missing.
    assert_eq!(counts(&vec![minutes([5, 5, 10, 5]); 20]).uneven, 0);
}

#[test]
fn times_without_a_usual_step_are_uneven() {
    let trades: Vec<i64> = (1..200).map(|i| i * i * 7 % 1_000 * 1_000).collect();
    let found = counts(&[trades, vec![HOUR; 20], with_missing(70)]);
    assert_eq!((found.long, found.uneven, found.entities), (0, 2, 3));
    let [shortest, longest] = found.uneven_steps.unwrap();
    assert!(shortest < 1_000_000 && longest > 5 * HOUR, "{found:?}");
    assert_eq!(counts(&[vec![HOUR; 20]]).uneven_steps, None);
}

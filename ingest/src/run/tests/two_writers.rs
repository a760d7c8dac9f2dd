//! Two runs on one source whose commits lose their responses.

use super::*;
use crate::landed_file;

/// Commits whose response is lost, by default; `FEEDLINE_LOST_COMMITS` overrides it.
const LOST: u64 = 100;

/// Rules for some of the next creations of log entries, drawn from `seed`: half of the entries land
/// without a response, a quarter do not land, and a quarter get a late response. Also returns the
/// number of lost responses.
fn rules(seed: u64) -> (Vec<Rule>, u64) {
    let (mut rules, mut lost) = (Vec::new(), 0);
    for call in 0..12 {
        let effect = match feedline_schemas::ids::Hash128::of(format!("{seed} {call}").as_bytes())
            .short()
            .as_bytes()[0]
        {
            b'0'..=b'7' => Effect::FailAfter,
            b'8' | b'9' | b'a' | b'b' => Effect::FailBefore,
            _ => Effect::Delay(std::time::Duration::from_millis(20)),
        };
        lost += u64::from(effect == Effect::FailAfter);
        rules.push(rule(Operation::Create, "log/", effect, 0, 1));
    }
    (rules, lost)
}

/// Runs the source to its end, with restarts whenever another writer was quicker or the store
/// failed.
async fn until_done(root: &Store) -> Result<(), Error> {
    loop {
        let landed = landed(root, &Name::new("s").unwrap()).await?;
        let last = landed.and_then(|landed| landed.entries.last().cloned());
        if last.is_some_and(|last| matches!(last.state.position, Position::Done { .. })) {
            return Ok(());
        }
        match run(root, &config(), &mut scripted()).await {
            Ok(()) | Err(Error::Fenced { .. } | Error::Storage(_)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Number of occurrences of each row in the files that the entries name, even if the entries make
/// no valid log.
async fn rows(root: &Store) -> BTreeMap<String, u64> {
    let landing = root.child("landing/s");
    let mut rows = BTreeMap::new();
    for file in landing.list("log").await.unwrap() {
        let bytes = landing.get(&file.path).await.unwrap();
        let entry: CommitEntry = decode(&file.path, &bytes).unwrap();
        for file in &entry.files {
            let columns: Vec<&str> = entry
                .schema
                .columns
                .iter()
                .map(|c| c.name.as_str())
                .collect();
            for batch in landed_file::read(&landing, file, &columns, None)
                .await
                .unwrap()
            {
                for row in 0..batch.num_rows() {
                    let row = format!("{:?}", batch.slice(row, 1).columns());
                    *rows.entry(row).or_default() += 1;
                }
            }
        }
    }
    rows
}

/// Result of a round of two writers.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    /// The bytes of a run that nothing disturbed.
    Whole,
    /// A violation: numbers of lost and doubled rows.
    Broken { lost: u64, doubled: u64 },
}

/// Runs two writers at once, with the rules of the seeds `2 * round` and `2 * round + 1`. `faults`
/// makes a store's faults of rules. Returns the result, and the number of commits that lost their
/// responses.
async fn round(round: u64, faults: fn(Vec<Rule>) -> Arc<Faults>) -> (Left, u64) {
    let root = Store::memory();
    let [(a, lost_a), (b, lost_b)] = [rules(2 * round), rules(2 * round + 1)];
    let (a, b) = (root.with_faults(faults(a)), root.with_faults(faults(b)));
    let (ended_a, ended_b) = tokio::join!(until_done(&a), until_done(&b));
    let is_whole =
        ended_a.is_ok() && ended_b.is_ok() && snapshot(&root).await == undisturbed().await;
    let left = if is_whole {
        Left::Whole
    } else {
        let undisturbed = Store::memory();
        run(&undisturbed, &config(), &mut scripted()).await.unwrap();
        let (expected, found) = (rows(&undisturbed).await, rows(&root).await);
        let more = |of: &BTreeMap<String, u64>, than: &BTreeMap<String, u64>| -> u64 {
            let times = |row: &String| than.get(row).copied().unwrap_or(0);
            of.iter()
                .map(|(row, count)| count.saturating_sub(times(row)))
                .sum()
        };
        Left::Broken {
            lost: more(&expected, &found),
            doubled: more(&found, &expected),
        }
    };
    (left, lost_a + lost_b)
}

#[tokio::test(start_paused = true)]
async fn fault_04_lost_answers_of_two_writers_land_every_row_once() {
    let asked = std::env::var_os("FEEDLINE_LOST_COMMITS");
    let wanted = asked.map_or(LOST, |text| text.to_str().unwrap().parse().unwrap());
    let (mut lost, mut rounds) = (0, 0);
    while lost < wanted {
        let (left, more) = Box::pin(round(rounds, Faults::new)).await;
        assert_eq!(left, Left::Whole, "round {rounds}");
        lost += more;
        rounds += 1;
    }
    eprintln!(
        "{lost} commits without a response in {rounds} rounds of two writers: every row once"
    );
}

/// The rounds above can fail: without the read-back, the same ones do.
#[tokio::test(start_paused = true)]
async fn fault_04_the_same_rounds_find_out_writers_that_do_not_read_back() {
    const ROUNDS: u64 = 20;
    let (mut found, mut rows) = (0, 0);
    for number in 0..ROUNDS {
        let (left, _) = Box::pin(round(number, Faults::without_read_back)).await;
        if let Left::Broken { lost, doubled } = left {
            found += 1;
            rows += lost + doubled;
        }
    }
    eprintln!(
        "{found} of {ROUNDS} rounds without read-back are broken, {rows} rows lost or doubled"
    );
    assert!(found > ROUNDS / 2, "{found} of {ROUNDS}");
    assert!(rows > 0);
}

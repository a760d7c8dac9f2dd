//! Two runs on one source whose commits lose their answers.

use super::*;

/// Commits whose answer is lost, by default; `FEEDLINE_LOST_COMMITS` says otherwise.
const LOST: u64 = 100;

/// Faults for some of the next creations of log entries, drawn from `seed`: half of the entries land without an answer, a
/// quarter do not land, and a quarter are answered late.
fn faults(seed: u64) -> (Arc<Faults>, u64) {
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
    (Faults::new(rules), lost)
}

/// Runs the source until everything is there, beginning again whenever another writer was quicker or the store failed.
async fn until_done(root: &Store) {
    let is_done = async || {
        let landed = landed(root, &Name::new("s").unwrap()).await.unwrap();
        let last = landed.and_then(|landed| landed.entries.last().cloned());
        last.is_some_and(|last| matches!(last.state.position, Position::Done { .. }))
    };
    while !is_done().await {
        match run(root, &config(), &mut scripted()).await {
            Ok(()) | Err(Error::Fenced { .. } | Error::Storage(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fault_04_lost_answers_of_two_writers_land_every_row_once() {
    let asked = std::env::var_os("FEEDLINE_LOST_COMMITS");
    let wanted = asked.map_or(LOST, |text| text.to_str().unwrap().parse().unwrap());
    let expected = undisturbed().await;
    let (mut lost, mut rounds) = (0, 0);
    while lost < wanted {
        let root = Store::memory();
        let [(a, lost_a), (b, lost_b)] = [faults(2 * rounds), faults(2 * rounds + 1)];
        let (a, b) = (root.with_faults(a), root.with_faults(b));
        tokio::join!(until_done(&a), until_done(&b));
        assert_eq!(snapshot(&root).await, expected, "round {rounds}");
        lost += lost_a + lost_b;
        rounds += 1;
    }
    eprintln!("{lost} commits without an answer in {rounds} rounds of two writers: every row once");
}

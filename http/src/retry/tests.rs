use feedline_schemas::config::Bounded;
use std::collections::VecDeque;

use super::*;
use crate::testing;

fn retry(settings: RetryConfig) -> Retry {
    Retry::new("quotes", &settings, &testing::context())
}

fn failure(again: Again) -> Failure {
    let error = Error::Http {
        url: "http://api.example/".into(),
        cause: HttpCause::Other,
        what: "it failed".into(),
        advice: "mend it".into(),
    };
    Failure {
        error: Box::new(error),
        again,
    }
}

/// Runs tries with the given failures, then success. Returns the outcome, the number of tries and
/// the total wait.
async fn tried(retry: &mut Retry, failures: &[Again]) -> (Result<(), Error>, u32, Duration) {
    let begin = Instant::now();
    let mut tries = 0;
    let mut script: VecDeque<Again> = failures.iter().copied().collect();
    let outcome = retry
        .run(|| {
            tries += 1;
            let next = script.pop_front();
            async move { next.map_or(Ok(()), |again| Err(failure(again))) }
        })
        .await;
    (outcome, tries, begin.elapsed())
}

#[tokio::test(start_paused = true)]
async fn transient_failures_are_tried_again_with_bounded_backoff() {
    let mut retry = retry(RetryConfig {
        base_ms: 1_000,
        cap_ms: 3_000,
        ..RetryConfig::default()
    });
    let (outcome, tries, waited) = tried(&mut retry, &[Again::Backoff; 5]).await;
    assert!(outcome.is_ok());
    assert_eq!((tries, retry.retries()), (6, 5));
    assert!(
        waited > Duration::ZERO && waited <= Duration::from_millis(1_000 + 2_000 + 3 * 3_000 + 5),
        "{waited:?}"
    );
}

/// Fails one try in this way. Returns the wait that the meter shows before the next try, and its
/// cause as the meter has counted it.
async fn wait_before_retry(
    what: &str,
    cause: HttpCause,
    again: Again,
    base_ms: u64,
) -> (String, Cause) {
    let context = testing::context();
    let settings = RetryConfig {
        base_ms,
        ..RetryConfig::default()
    };
    let mut retry = Retry::new("quotes", &settings, &context);
    let failed = || Failure {
        error: Box::new(Error::Http {
            url: "http://api.example:81/v1?q=1".into(),
            cause,
            what: what.to_owned(),
            advice: "wait".into(),
        }),
        again,
    };
    let mut tries = 0;
    let run = retry.run(|| {
        tries += 1;
        let done = if tries == 1 { Err(failed()) } else { Ok(()) };
        std::future::ready(done)
    });
    let mut run = std::pin::pin!(run);
    assert!(futures::poll!(&mut run).is_pending());
    let meter = &context.meter;
    let waits_for = meter.read().waits_for.unwrap();
    run.await.unwrap();
    let reading = meter.read();
    assert_eq!((reading.waits_for, reading.retries), (None, 1));
    let cause = reading.waited.into_iter().find(|(_, time)| !time.is_zero());
    (waits_for, cause.unwrap().0)
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_a_server_asked_for_is_shown_with_its_end() {
    let check = async |what: &str, cause: HttpCause, expected: &str| {
        let minute = Again::After(Duration::from_secs(60));
        let shown = wait_before_retry(what, cause, minute, 0).await;
        assert_eq!(shown, (expected.to_owned(), Cause::Asked));
    };
    check(
        "the server answered 429 Too Many Requests: `slow down`",
        HttpCause::Status(429),
        "429 until 08:50:37 UTC",
    )
    .await;
    check(
        "its host asked for a wait in an earlier response",
        HttpCause::Other,
        "api.example:81 asked for a delay until 08:50:37 UTC",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_backoff_is_shown_with_its_reason_and_the_next_try() {
    let check = async |what: &str, cause: HttpCause, begin: &str, expected: Cause| {
        let (shown, cause) = wait_before_retry(what, cause, Again::Backoff, 60_000).await;
        assert!(
            shown.starts_with(begin) && shown.ends_with(" s (try 2 of 8)"),
            "{shown}"
        );
        assert_eq!(cause, expected);
    };
    check(
        "the server answered 503 Service Unavailable",
        HttpCause::Status(503),
        "backoff after 503: ",
        Cause::Backoff,
    )
    .await;
    check(
        "its host failed 10 times in a row",
        HttpCause::CircuitOpen,
        "circuit of api.example:81 open: ",
        Cause::Circuit,
    )
    .await;
    check(
        "the connection failed",
        HttpCause::Other,
        "backoff after a failure: ",
        Cause::Backoff,
    )
    .await;
}

#[test]
fn backoff_uses_the_whole_range_and_repeats_with_its_seed() {
    let draws = |seed| {
        let mut jitter = Jitter::new(seed);
        (0..1_000).map(|_| jitter.up_to(9)).collect::<Vec<_>>()
    };
    assert_eq!(draws(7), draws(7));
    assert_ne!(draws(7), draws(8));
    for value in 0..=9 {
        let share = draws(7).iter().filter(|&&d| d == value).count();
        assert!(
            (60..140).contains(&share),
            "{value} came {share} times of 1000"
        );
    }
    assert!((0..100).all(|_| Jitter::new(1).up_to(0) == 0));
    let mut huge = retry(RetryConfig {
        base_ms: u64::MAX,
        cap_ms: 10,
        ..RetryConfig::default()
    });
    assert!(huge.backoff(99) <= Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn tries_run_out_and_the_message_says_so() {
    let mut retry = retry(RetryConfig {
        max_tries: Bounded::literal::<3>(),
        ..RetryConfig::default()
    });
    let (outcome, tries, _) = tried(&mut retry, &[Again::Backoff; 9]).await;
    assert_eq!(tries, 3);
    let message = outcome.unwrap_err().to_string();
    assert_eq!(
        message,
        "cannot fetch `http://api.example/`: it failed (the last of 3 tries); mend it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_terminal_failure_is_not_tried_again() {
    let (outcome, tries, waited) = tried(&mut retry(RetryConfig::default()), &[Again::Never]).await;
    assert_eq!((tries, waited), (1, Duration::ZERO));
    assert!(!outcome.unwrap_err().to_string().contains("tries"));
}

#[tokio::test(start_paused = true)]
async fn fault_13_an_asked_wait_is_never_shortened() {
    let settings = RetryConfig {
        base_ms: 100,
        cap_ms: 200,
        ..RetryConfig::default()
    };
    let asked = Duration::from_secs(250);
    let (outcome, _, waited) = tried(&mut retry(settings), &[Again::After(asked)]).await;
    assert!(outcome.is_ok());
    assert!(
        waited >= asked && waited <= asked + Duration::from_millis(102),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn fault_14_a_wait_over_the_limit_defers_without_waiting() {
    // One far off is capped by `retry.max_deferral_s`.
    for (seconds, until) in [(301, 301), (u64::MAX, 86_400)] {
        let asked = Again::After(Duration::from_secs(seconds));
        let (outcome, tries, waited) = tried(&mut retry(RetryConfig::default()), &[asked]).await;
        assert_eq!((tries, waited), (1, Duration::ZERO));
        let Err(Error::Deferred { until_unix_s, .. }) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(until_unix_s, 784_111_777 + until + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_tries_of_a_request_have_a_budget_of_time() {
    let settings = RetryConfig {
        base_ms: 40_000,
        cap_ms: 40_000,
        max_tries: Bounded::literal::<100>(),
        max_elapsed_s: Bounded::literal::<120>(),
        ..RetryConfig::default()
    };
    let mut retry = retry(settings);
    let (outcome, tries, waited) = tried(&mut retry, &[Again::Backoff; 99]).await;
    assert!((3..50).contains(&tries), "{tries}");
    assert!(waited <= Duration::from_secs(120), "{waited:?}");
    let message = outcome.unwrap_err().to_string();
    let end = format!("(the last of {tries} tries, `retry.max_elapsed_s` is over); mend it");
    assert!(message.ends_with(&end), "{message}");
    // A later run waits for the time that a server named.
    let asked = Again::After(Duration::from_secs(121));
    let (outcome, tries, waited) = tried(&mut retry, &[asked]).await;
    assert_eq!((tries, waited), (1, Duration::ZERO));
    let message = outcome.unwrap_err().to_string();
    assert!(
        message.contains("longer than is left of `retry.max_elapsed_s` = 120"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn fault_53_a_stop_ends_waits_and_tries_at_once() {
    for hangs_in_try in [false, true] {
        let (stop, cancel) = watch::channel(false);
        let context = RequestContext {
            cancel,
            ..testing::context()
        };
        let mut retry = Retry::new("quotes", &RetryConfig::default(), &context);
        let begin = Instant::now();
        let run = retry.run(|| async move {
            if hangs_in_try {
                std::future::pending::<()>().await;
            }
            Err::<(), _>(failure(Again::After(Duration::from_secs(300))))
        });
        let stopper = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            stop.send(true).unwrap();
        };
        let (outcome, ()) = tokio::join!(run, stopper);
        assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}");
        assert!(begin.elapsed() < Duration::from_secs(2));
    }
}

use feedline_schemas::config::{Bounded, LimitsConfig, Real, RetryConfig};
use url::Url;

use super::*;
use crate::{error::Error, http_cause::HttpCause};

/// No mark: a page that is needed.
fn certain() -> Speculation {
    Speculation::default()
}

fn host() -> Arc<Host> {
    let origin = Url::parse("http://a.example/").unwrap().origin();
    Hosts::default().of(&origin, 0)
}

fn pacing(limits: LimitsConfig, retry: RetryConfig) -> Pacing {
    Pacing::new(&limits, &retry, 7)
}

fn plain() -> Pacing {
    pacing(LimitsConfig::default(), RetryConfig::default())
}

fn failure(again: Again) -> Result<(), Failure> {
    let error = Error::Http {
        url: "http://a.example/".into(),
        cause: HttpCause::Other,
        what: "it failed".into(),
        advice: "mend it".into(),
    };
    Err(Failure {
        error: Box::new(error),
        again,
    })
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn what_a_host_is_waited_for_is_told() {
    let hosts = Hosts::default();
    let origin = Url::parse("http://api.example/x").unwrap().origin();
    let meter = Arc::new(RequestMeter::default());
    let limits = LimitsConfig {
        requests_per_s: Some(Real::literal(0.25)),
        ..LimitsConfig::default()
    };
    let pacing = pacing(limits, RetryConfig::default()).metered(Arc::clone(&meter));
    let free = plain().metered(Arc::clone(&meter));
    let [slow, asking] = [0, 1].map(|credential| hosts.of(&origin, credential));
    let told = async |host: &Arc<Host>, pacing: &Pacing| {
        let speculation = certain();
        let mut turn = std::pin::pin!(host.turn(pacing, &speculation));
        assert!(futures::poll!(&mut turn).is_pending());
        let told = meter.read().waits_for.unwrap();
        drop(turn.await.unwrap());
        told
    };
    drop(slow.turn(&pacing, &certain()).await.unwrap());
    assert_eq!(told(&slow, &pacing).await, "budget of api.example: 4 s");
    let asked = failure(Again::After(seconds(7)));
    let turn = asking.turn(&free, &certain()).await.unwrap();
    assert!(turn.settle(asked).is_err());
    assert_eq!(told(&asking, &free).await, "api.example asked for 7 s");
    let reading = meter.read();
    assert_eq!(reading.waits_for, None);
    assert_eq!(
        reading.waited,
        std::collections::BTreeMap::from([(Cause::Asked, seconds(7)), (Cause::Budget, seconds(4))])
    );
}

#[tokio::test(start_paused = true)]
async fn requests_keep_to_their_rate_whoever_makes_them() {
    let limits = LimitsConfig {
        requests_per_s: Some(Real::literal(2.0)),
        burst: Some(Bounded::literal::<5>()),
        ..LimitsConfig::default()
    };
    let pacing = pacing(limits, RetryConfig::default());
    let hosts = Arc::new(Hosts::default());
    let origin = Url::parse("http://a.example/").unwrap().origin();
    let begin = Instant::now();
    let askers = (0..4).map(|_| {
        let (host, pacing) = (hosts.of(&origin, 0), pacing.clone());
        tokio::spawn(async move {
            let mut times = Vec::new();
            for _ in 0..6 {
                drop(host.turn(&pacing, &certain()).await.unwrap());
                times.push(begin.elapsed());
            }
            times
        })
    });
    let mut times: Vec<Duration> = Vec::new();
    for asker in askers.collect::<Vec<_>>() {
        times.extend(asker.await.unwrap());
    }
    times.sort();
    // Five at once, then one in half a second: 24 requests take (24 - 5) / 2 s.
    assert_eq!(times[4], Duration::ZERO);
    assert!((seconds(9)..seconds(10)).contains(&times[23]), "{times:?}");
    for (i, time) in times.iter().enumerate().skip(5) {
        let least = Duration::from_millis(500 * (i as u64 - 4));
        assert!(*time >= least, "{i}: {times:?}");
    }
    // Another user of the same server has a budget of its own.
    let begin = Instant::now();
    drop(
        hosts
            .of(&origin, 1)
            .turn(&pacing, &certain())
            .await
            .unwrap(),
    );
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn fault_13_a_host_that_asked_for_time_is_left_alone_and_others_are_not() {
    let (slow, other) = (host(), host());
    let first = slow.turn(&plain(), &certain()).await.unwrap();
    let late = slow.turn(&plain(), &certain()).await.unwrap();
    first.settle(failure(Again::After(seconds(7)))).unwrap_err();
    assert!(late.is_over());
    // The shorter wish does not shorten the longer one.
    late.settle(failure(Again::After(seconds(3)))).unwrap_err();
    let begin = Instant::now();
    drop(other.turn(&plain(), &certain()).await.unwrap());
    assert_eq!(begin.elapsed(), Duration::ZERO);
    drop(slow.turn(&plain(), &certain()).await.unwrap());
    assert!((seconds(7)..seconds(8)).contains(&begin.elapsed()));
    drop(slow.turn(&plain(), &certain()).await.unwrap());
    assert!(begin.elapsed() < seconds(8));
}

#[tokio::test(start_paused = true)]
async fn fault_14_a_host_that_asked_for_long_refuses_those_that_come_after() {
    let host = host();
    let turn = host.turn(&plain(), &certain()).await.unwrap();
    turn.settle(failure(Again::After(Duration::MAX)))
        .unwrap_err();
    let begin = Instant::now();
    assert!(matches!(
        host.turn(&plain(), &certain()).await,
        Err(Refused::Wait(left)) if left > seconds(300)
    ));
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn fault_15_a_storm_of_429_halves_the_requests_on_their_way_and_keeps_the_budget() {
    let limits = LimitsConfig {
        requests_per_s: Some(Real::literal(10.0)),
        concurrency: Some(Bounded::literal::<32>()),
        ..LimitsConfig::default()
    };
    let pacing = pacing(limits, RetryConfig::default());
    let host = host();
    let slots = |host: &Host| host.state().slots.allowed(32);
    assert_eq!(slots(&host), 32);
    let begin = Instant::now();
    let mut asked = 0;
    for expected in [16, 8, 4, 2, 1, 1] {
        // All of them get 429: that is one signal, not many.
        let mut turns = Vec::new();
        while turns.len() < slots(&host) as usize {
            turns.push(host.turn(&pacing, &certain()).await.unwrap());
        }
        asked += turns.len() as u64;
        // No more may be on their way.
        let more = tokio::time::timeout(seconds(5), host.turn(&pacing, &certain())).await;
        assert!(more.is_err(), "{} slots", turns.len());
        for mut turn in turns {
            turn.answered(StatusCode::TOO_MANY_REQUESTS, None);
            turn.settle(failure(Again::Backoff)).unwrap_err();
        }
        assert_eq!(slots(&host), expected);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let budget = begin.elapsed().as_millis() / 100 + 1;
    assert!(
        u128::from(asked) <= budget,
        "{asked} in {:?}",
        begin.elapsed()
    );
    // A limited host is up.
    assert!(host.state().circuit.is_closed());
    // One more slot after as many successes as there are slots.
    for _ in 0..3 {
        host.turn(&pacing, &certain())
            .await
            .unwrap()
            .settle(Ok(()))
            .unwrap();
    }
    assert_eq!(slots(&host), 2);
}

#[tokio::test(start_paused = true)]
async fn fault_16_a_quota_that_is_used_up_is_waited_for() {
    let host = host();
    let begin = Instant::now();
    let mut turn = host.turn(&plain(), &certain()).await.unwrap();
    turn.answered(
        StatusCode::OK,
        Some(Quota {
            left: 2,
            reset: seconds(30),
        }),
    );
    turn.settle(Ok(())).unwrap();
    for _ in 0..2 {
        drop(host.turn(&plain(), &certain()).await.unwrap());
        assert_eq!(begin.elapsed(), Duration::ZERO);
    }
    drop(host.turn(&plain(), &certain()).await.unwrap());
    assert!((seconds(30)..seconds(31)).contains(&begin.elapsed()));
    // Longer than `retry.max_wait_s`: a later run.
    let mut turn = host.turn(&plain(), &certain()).await.unwrap();
    turn.answered(
        StatusCode::OK,
        Some(Quota {
            left: 0,
            reset: seconds(3_600),
        }),
    );
    drop(turn);
    assert!(matches!(
        host.turn(&plain(), &certain()).await,
        Err(Refused::Wait(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn failures_of_pages_that_may_not_exist_are_no_evidence_against_a_host() {
    let retry = RetryConfig {
        circuit_failures: Bounded::literal::<2>(),
        ..RetryConfig::default()
    };
    let (host, pacing) = (host(), pacing(LimitsConfig::default(), retry));
    let speculation = Speculation::new(true);
    let fail = async |speculation: &Speculation| {
        let turn = host.turn(&pacing, speculation).await?;
        turn.settle(failure(Again::Backoff)).unwrap_err();
        Ok::<_, Refused>(())
    };
    for _ in 0..5 {
        fail(&speculation).await.unwrap();
    }
    assert!(host.state().circuit.is_closed());
    // A page that turns out to be needed counts from there on, also on its way.
    let turn = host.turn(&pacing, &speculation).await.unwrap();
    speculation.set(false);
    turn.settle(failure(Again::Backoff)).unwrap_err();
    assert!(!host.state().circuit.is_closed());
    fail(&certain()).await.unwrap();
    assert!(matches!(fail(&certain()).await, Err(Refused::Down(2, _))));
    // When a probe is due, it is that of a needed page.
    tokio::time::advance(seconds(60)).await;
    let speculation = Speculation::new(true);
    assert_eq!(
        fail(&speculation).await,
        Err(Refused::Down(2, Duration::ZERO))
    );
    host.turn(&pacing, &certain())
        .await
        .unwrap()
        .settle(Ok(()))
        .unwrap();
    assert!(host.state().circuit.is_closed());
}

/// Times of the requests that were sent, tried every 20 s, and when the circuit closed again.
async fn outage(retry: RetryConfig, lasts: Duration) -> Vec<Duration> {
    let (host, pacing) = (host(), pacing(LimitsConfig::default(), retry));
    let (begin, mut sent) = (Instant::now(), Vec::new());
    loop {
        if let Ok(turn) = host.turn(&pacing, &certain()).await {
            let now = begin.elapsed();
            sent.push(now);
            if now >= lasts {
                turn.settle(Ok(())).unwrap();
                break;
            }
            turn.settle(failure(Again::Backoff)).unwrap_err();
        }
        tokio::time::sleep(seconds(20)).await;
    }
    assert!(host.state().circuit.is_closed());
    sent
}

#[tokio::test(start_paused = true)]
async fn fault_17_an_outage_of_half_an_hour_sees_one_probe_per_interval_and_ends_by_itself() {
    let sent = outage(RetryConfig::default(), seconds(1_800)).await;
    // Ten failures, then probes after 30 s, 60 s, 120 s ... 600 s and at most a quarter more, at
    // the next try.
    let opened = sent[9];
    assert_eq!(opened, seconds(180));
    let gaps = sent[9..]
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs());
    let least = [30, 60, 120, 240, 480, 600];
    let mut probes = 0;
    for (gap, least) in gaps.zip(least) {
        assert!((least..=least * 5 / 4 + 20).contains(&gap), "{sent:?}");
        probes += 1;
    }
    assert_eq!(sent.len(), 10 + probes, "{sent:?}");
    assert!((5..=6).contains(&probes), "{sent:?}");
    // Without the circuit, every try is sent.
    let never = RetryConfig {
        circuit_failures: Bounded::literal::<0>(),
        ..RetryConfig::default()
    };
    assert_eq!(outage(never, seconds(1_800)).await.len(), 91);
}

#[tokio::test(start_paused = true)]
async fn a_half_open_circuit_lets_one_request_through() {
    let retry = RetryConfig {
        circuit_failures: Bounded::literal::<2>(),
        ..RetryConfig::default()
    };
    let (host, pacing) = (host(), pacing(LimitsConfig::default(), retry));
    for _ in 0..2 {
        let turn = host.turn(&pacing, &certain()).await.unwrap();
        turn.settle(failure(Again::Backoff)).unwrap_err();
    }
    assert!(matches!(
        host.turn(&pacing, &certain()).await,
        Err(Refused::Down(2, _))
    ));
    tokio::time::sleep(seconds(40)).await;
    let probe = host.turn(&pacing, &certain()).await.unwrap();
    let other = host.turn(&pacing, &certain()).await;
    assert!(matches!(other, Err(Refused::Down(2, Duration::ZERO))));
    // A dropped turn changes nothing.
    drop(probe);
    let probe = host.turn(&pacing, &certain()).await.unwrap();
    probe.settle(failure(Again::Never)).unwrap_err();
    assert!(host.state().circuit.is_closed());
    drop(host.turn(&pacing, &certain()).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn hosts_about_which_there_is_nothing_to_say_are_forgotten() {
    let hosts = Hosts::default();
    let of = |number: usize| {
        let url = Url::parse(&format!("http://h{number}.example/")).unwrap();
        hosts.of(&url.origin(), 0)
    };
    let held = of(0).turn(&plain(), &certain()).await.unwrap();
    held.settle(failure(Again::After(seconds(90)))).unwrap_err();
    let used = of(1);
    (2..MANY + 10).for_each(|number| drop(of(number)));
    let known = hosts.0.lock().unwrap().len();
    assert!(known < 20, "{known}");
    assert!(Arc::ptr_eq(&used, &of(1)));
    assert!(of(0).state().held.is_some());
}

//! Holding the lease of a source: see [`feedline_schemas::lease`].

use std::{sync::Arc, time::Duration};

use feedline_schemas::{
    decode, encode,
    format::LEASE,
    ids::Name,
    lease::{LastRun, LeaseEntry},
};
use feedline_storage::{PutNew, Store, clock::Clock};

use crate::error::Error;

/// Times that another may be quicker before we come back later.
const TRIES: u32 = 5;

/// The lease of a source as this program sees it.
#[derive(Debug)]
pub(super) struct Lease {
    landing: Store,
    source: Name,
    holder: String,
    ttl: Duration,
    clock: Arc<dyn Clock>,
    newest: Option<LeaseEntry>,
    /// An object of another holder, and when we saw it first, by our clock that never jumps.
    seen: Option<(u64, Duration)>,
}

/// What came of asking for the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is ours.
    Ours,
    /// This one has it.
    By(String),
}

impl Lease {
    pub(super) fn new(
        landing: Store,
        source: &Name,
        holder: &str,
        ttl: Duration,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        Self {
            landing,
            source: source.clone(),
            holder: holder.to_owned(),
            ttl,
            clock: Arc::clone(clock),
            newest: None,
            seen: None,
        }
    }

    /// How long it holds without being renewed.
    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The last run that ended, as the newest object says.
    ///
    /// # Errors
    /// [`Error::Storage`], and [`Error::Contract`] for an object that cannot be read.
    pub(super) async fn last(&mut self) -> Result<Option<LastRun>, Error> {
        self.read().await?;
        Ok(self.newest.as_ref().and_then(|entry| entry.last.clone()))
    }

    /// Takes it if nobody holds it, or if who holds it has not been heard of for its whole time.
    ///
    /// # Errors
    /// As [`Self::last`].
    pub(super) async fn take(&mut self) -> Result<Taken, Error> {
        for _ in 0..TRIES {
            self.read().await?;
            let other = self.newest.as_ref();
            let other = other.filter(|entry| entry.held && entry.holder != self.holder);
            if let Some((holder, sequence, ttl_s)) =
                other.map(|entry| (entry.holder.clone(), entry.sequence, entry.ttl_s))
                && !self.is_forsaken(sequence, ttl_s)
            {
                return Ok(Taken::By(holder));
            }
            if self.write(true, None).await? {
                return Ok(Taken::Ours);
            }
        }
        Ok(Taken::By("others that are quicker".to_owned()))
    }

    /// Says that we are still there; false when another has taken it over.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(super) async fn renew(&mut self) -> Result<bool, Error> {
        self.write(true, None).await
    }

    /// Gives it back, and tells what was done.
    ///
    /// # Errors
    /// [`Error::Storage`]; the lease then ends by itself.
    pub(super) async fn give_back(&mut self, last: LastRun) -> Result<(), Error> {
        if !self.write(false, Some(last)).await? {
            tracing::warn!(source = %self.source, "another program took the lease over before this run ended");
        }
        Ok(())
    }

    /// Whether the object with this number has not been followed by another for `ttl_s` since we saw it first.
    fn is_forsaken(&mut self, sequence: u64, ttl_s: u64) -> bool {
        let now = self.clock.monotonic();
        match self.seen {
            Some((seen, since)) if seen == sequence => {
                now.saturating_sub(since) >= Duration::from_secs(ttl_s)
            }
            _ => {
                self.seen = Some((sequence, now));
                false
            }
        }
    }

    async fn read(&mut self) -> Result<(), Error> {
        if let Some(newest) = newest(&self.landing).await? {
            self.newest = newest;
        }
        Ok(())
    }

    /// Creates the object after the newest one that we know; false when somebody else did.
    async fn write(&mut self, held: bool, last: Option<LastRun>) -> Result<bool, Error> {
        let known = self.newest.as_ref();
        let entry = LeaseEntry {
            format: LEASE.format.to_owned(),
            version: LEASE.version,
            source: self.source.clone(),
            sequence: known.map_or(0, |entry| entry.sequence + 1),
            holder: self.holder.clone(),
            held,
            ttl_s: self.ttl.as_secs(),
            last: last.or_else(|| known.and_then(|entry| entry.last.clone())),
        };
        let created = self
            .landing
            .put_new(&path(entry.sequence), encode(&entry).into())
            .await?;
        if let PutNew::Taken(_) = created {
            return Ok(false);
        }
        if let Some(before) = entry.sequence.checked_sub(1)
            && let Err(error) = self.landing.delete(&path(before)).await
        {
            // Only the newest object counts; the next writer's listing shows it again.
            tracing::debug!(source = %self.source, %error, "an old lease object stays");
        }
        self.newest = Some(entry);
        Ok(true)
    }
}

/// The newest object beside a log: `Some(None)` where there is none, and `None` where others were quicker each time.
async fn newest(landing: &Store) -> Result<Option<Option<LeaseEntry>>, Error> {
    // What is listed may be followed by another and deleted before it is read.
    for _ in 0..TRIES {
        let listed = landing.list("lease").await?;
        let Some(newest) = listed.last() else {
            return Ok(Some(None));
        };
        if let Some(bytes) = landing.get_opt(&newest.path).await? {
            let entry: LeaseEntry = decode(&landing.url_of(&newest.path), &bytes)?;
            return Ok(Some(Some(entry)));
        }
    }
    Ok(None)
}

/// The newest lease of the source that has landed at `landing`.
///
/// # Errors
/// [`Error::Storage`], and [`Error::Contract`] for an object that cannot be read.
pub(crate) async fn lease(landing: &Store) -> Result<Option<LeaseEntry>, Error> {
    Ok(newest(landing).await?.flatten())
}

fn path(sequence: u64) -> String {
    format!("lease/{sequence:020}.json")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use feedline_schemas::lease::RunOutcome;
    use feedline_storage::{Effect, Faults, Operation, Rule};

    use super::*;

    /// A clock set by hand, whose wall time may jump.
    #[derive(Debug, Default)]
    struct ByHand(Mutex<(Duration, Duration)>);

    impl Clock for ByHand {
        fn monotonic(&self) -> Duration {
            self.0.lock().unwrap().0
        }
        fn unix(&self) -> Duration {
            self.0.lock().unwrap().1
        }
    }

    fn lease(root: &Store, holder: &str, clock: &Arc<ByHand>) -> Lease {
        let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
        let name = Name::new("s").unwrap();
        Lease::new(root.clone(), &name, holder, Duration::from_secs(60), &clock)
    }

    fn ended(due_unix_s: i64) -> LastRun {
        LastRun {
            due_unix_s,
            began_unix_s: due_unix_s,
            ended_unix_s: due_unix_s + 1,
            outcome: RunOutcome::Complete,
            reason: None,
            until_unix_s: None,
        }
    }

    #[tokio::test]
    async fn fault_06_one_program_holds_it_and_the_next_hears_what_was_done() {
        let (root, clock) = (Store::memory(), Arc::new(ByHand::default()));
        let (mut a, mut b) = (lease(&root, "a", &clock), lease(&root, "b", &clock));
        assert_eq!(a.last().await.unwrap(), None);
        assert_eq!(a.take().await.unwrap(), Taken::Ours);
        assert_eq!(b.take().await.unwrap(), Taken::By("a".into()));
        assert!(a.renew().await.unwrap());
        a.give_back(ended(900)).await.unwrap();
        assert_eq!(b.last().await.unwrap(), Some(ended(900)));
        assert_eq!(b.take().await.unwrap(), Taken::Ours);
        assert!(!a.renew().await.unwrap(), "it is b's");
        assert_eq!(
            b.last().await.unwrap(),
            Some(ended(900)),
            "kept while it runs"
        );
        assert_eq!(
            root.list("lease").await.unwrap().len(),
            1,
            "old ones are gone"
        );
    }

    #[tokio::test]
    async fn fault_52_a_holder_that_died_is_followed_after_its_time_whatever_the_clocks_say() {
        let (root, clock) = (Store::memory(), Arc::new(ByHand::default()));
        let (mut a, mut b) = (lease(&root, "a", &clock), lease(&root, "b", &clock));
        assert_eq!(a.take().await.unwrap(), Taken::Ours);
        let by_a = Taken::By("a".into());
        assert_eq!(b.take().await.unwrap(), by_a);
        // The wall clock jumps a day ahead and back: it is not looked at.
        for unix in [86_400, 0] {
            clock.0.lock().unwrap().1 = Duration::from_secs(unix);
            assert_eq!(b.take().await.unwrap(), by_a);
        }
        clock.0.lock().unwrap().0 = Duration::from_secs(59);
        assert_eq!(b.take().await.unwrap(), by_a);
        assert!(a.renew().await.unwrap());
        clock.0.lock().unwrap().0 = Duration::from_secs(61);
        assert_eq!(b.take().await.unwrap(), by_a, "heard of a second ago");
        clock.0.lock().unwrap().0 = Duration::from_secs(121);
        assert_eq!(b.take().await.unwrap(), Taken::Ours);
        assert!(!a.renew().await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_that_ask_at_once_one_gets_it() {
        let clock = Arc::new(ByHand::default());
        // All have looked before the first has written.
        let slow = Faults::new(vec![Rule {
            operation: Operation::Create,
            path_contains: "lease/".into(),
            skip: 0,
            times: 99,
            effect: Effect::Delay(Duration::from_secs(1)),
        }]);
        let root = Store::memory().with_faults(slow);
        let asked = (0..20).map(|i| {
            let mut lease = lease(&root, &format!("h{i}"), &clock);
            tokio::spawn(async move { lease.take().await.unwrap() })
        });
        let asked: Vec<_> = asked.collect();
        let mut ours = 0;
        for one in asked {
            ours += usize::from(one.await.unwrap() == Taken::Ours);
        }
        assert_eq!(ours, 1);
    }
}

//! Holding the lease of a source: see [`feedline_schemas::lease`].

use std::{fs::File, sync::Arc, time::Duration};

use feedline_schemas::{
    decode, encode,
    format::LEASE,
    ids::Name,
    lease::{LastRun, LeaseEntry},
};
use feedline_storage::{PutNew, Store, clock::Clock};

use crate::{context::Context, error::Error};

/// Time that a lease holds without being renewed.
pub(super) const TTL: Duration = Duration::from_secs(60);
/// Number of lost races for an object before a later retry.
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
    /// Time when we wrote our newest object, by our clock that also counts suspended time.
    written: Option<Duration>,
    /// On a local disk: the lock that ends with this process.
    lock: Option<File>,
}

/// Outcome of a request for the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// This program holds it.
    Ours,
    /// Another holder has it.
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
            written: None,
            lock: None,
        }
    }

    /// Time that it holds without being renewed.
    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Returns the last run that ended, from the newest object.
    ///
    /// # Errors
    /// [`Error::Storage`], and [`Error::Contract`] for an object that cannot be read.
    pub(super) async fn last(&mut self) -> Result<Option<LastRun>, Error> {
        self.read().await?;
        Ok(self.newest.as_ref().and_then(|entry| entry.last.clone()))
    }

    /// Takes the lease if it is free, or if its holder has died or has not renewed it in time.
    ///
    /// # Errors
    /// Like [`Self::last`].
    pub(super) async fn take(&mut self) -> Result<Taken, Error> {
        for _ in 0..TRIES {
            self.read().await?;
            let other = self.newest.as_ref();
            let other = other.filter(|entry| entry.held && entry.holder != self.holder);
            if let Some(other) = other.cloned()
                && !self.has_died(&other)
                && !self.is_forsaken(other.sequence, other.ttl_s).await?
            {
                return Ok(Taken::By(other.holder));
            }
            self.lock();
            if self.write(true, None).await? {
                return Ok(Taken::Ours);
            }
        }
        Ok(Taken::By("others that are quicker".to_owned()))
    }

    /// Renews the lease; false if another holder has taken it over.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(super) async fn renew(&mut self) -> Result<bool, Error> {
        let is_ours = self.write(true, None).await?;
        if !is_ours {
            self.lock = None;
        }
        Ok(is_ours)
    }

    /// Returns true if the lease was not renewed in time: others may have taken it.
    pub(super) fn is_expired(&self) -> bool {
        let since = self.written.map(|at| self.clock.boot().saturating_sub(at));
        since.is_some_and(|since| since >= self.ttl)
    }

    /// Locks the folder of the lease on a local disk. Without the lock the lease works too, but
    /// others wait for it to expire when this process dies.
    fn lock(&mut self) {
        if self.lock.is_some() {
            return;
        }
        let locked = self.landing.local_path().and_then(|landing| {
            let folder = landing.join("lease");
            std::fs::create_dir_all(&folder).ok()?;
            let folder = File::open(folder).ok()?;
            folder.try_lock().is_ok().then_some(folder)
        });
        self.lock = locked;
    }

    /// Returns true if the holder of `entry` ran on this machine and no longer holds its lock.
    fn has_died(&mut self, entry: &LeaseEntry) -> bool {
        if entry.locked_on.is_none() || entry.locked_on != boot_id() {
            return false;
        }
        self.lock();
        self.lock.is_some()
    }

    /// Releases the lease and records the last run.
    ///
    /// # Errors
    /// [`Error::Storage`]; the lease then expires.
    pub(super) async fn give_back(&mut self, last: LastRun) -> Result<(), Error> {
        let written = self.write(false, Some(last)).await;
        (self.lock, self.written) = (None, None);
        if !written? {
            tracing::warn!(source = %self.source, "another program took the lease over before this run ended");
        }
        Ok(())
    }

    /// Like [`take`](Self::take), but waits for a holder that may be dead. `By` means that the
    /// holder has renewed it meanwhile.
    ///
    /// # Errors
    /// Like [`Self::last`].
    async fn take_over(&mut self) -> Result<Taken, Error> {
        let mut seen = None;
        loop {
            let taken = self.take().await?;
            let Taken::By(holder) = &taken else {
                return Ok(taken);
            };
            let now = self.newest.as_ref().map(|entry| entry.sequence);
            if seen.is_some_and(|seen| seen != now) {
                return Ok(taken);
            }
            if seen.is_none() {
                tracing::warn!(source = %self.source, holder, "its lease is held; waiting up to {} s for a heartbeat of its holder", self.ttl.as_secs());
            }
            seen = Some(now);
            tokio::time::sleep(self.ttl / 12).await;
        }
    }

    /// Releases the lease without a run of the source.
    async fn release(&mut self) -> Result<(), Error> {
        self.write(false, None).await.map(drop)
    }

    /// Returns true if no other object has followed the object with this number for `ttl_s`. The
    /// time counts from when we first saw it, or from its writing by the store's own clock, if it
    /// has one.
    async fn is_forsaken(&mut self, sequence: u64, ttl_s: u64) -> Result<bool, Error> {
        let (now, ttl) = (self.clock.boot(), Duration::from_secs(ttl_s));
        match self.seen {
            Some((seen, since)) if seen == sequence => Ok(now.saturating_sub(since) >= ttl),
            _ => {
                self.seen = Some((sequence, now));
                Ok(self.age(sequence).await?.is_some_and(|age| age >= ttl))
            }
        }
    }

    /// Age of the object with this number, by the clock of the store alone. None on a local disk:
    /// its clock is the machine's and may jump.
    async fn age(&self, sequence: u64) -> Result<Option<Duration>, Error> {
        if self.landing.local_path().is_some() {
            return Ok(None);
        }
        let written = match self.landing.modified(&path(sequence)).await {
            Err(error) if error.is_not_found() => return Ok(None),
            written => written?,
        };
        let probe = format!("lease-now/{}", self.holder);
        self.landing.put(&probe, self.holder.clone().into()).await?;
        let now = self.landing.modified(&probe).await;
        self.landing.delete(&probe).await?;
        Ok(Some(now?.saturating_sub(written)))
    }

    async fn read(&mut self) -> Result<(), Error> {
        if let Some(newest) = newest(&self.landing).await? {
            self.newest = newest;
        }
        Ok(())
    }

    /// Creates the object after the newest known one; false if another program did.
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
            locked_on: self.lock.as_ref().and_then(|_| boot_id()),
            last: last.or_else(|| known.and_then(|entry| entry.last.clone())),
        };
        let created = self
            .landing
            .put_new(&path(entry.sequence), encode(&entry).into())
            .await?;
        if let PutNew::Taken(_) = created {
            return Ok(false);
        }
        // Others may have continued from the known object and deleted it: an old number is free
        // again.
        let ours = path(entry.sequence);
        let listed = self.landing.list("lease").await?;
        if listed.last().is_some_and(|newest| newest.path > ours) {
            self.landing.delete(&ours).await?;
            return Ok(false);
        }
        self.written = Some(self.clock.boot());
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

/// A lease that is held during changes of a source's log.
#[derive(Debug)]
pub(crate) struct Holding {
    lease: Lease,
}

impl Holding {
    /// Prepares the lease of `source`, which has landed at `landing`, without taking it.
    pub(crate) fn of(landing: &Store, source: &Name, context: &Context) -> Self {
        let (landing, holder) = (landing.clone(), &context.run_id);
        Self {
            lease: Lease::new(landing, source, holder, TTL, &context.clock),
        }
    }

    /// Runs `work` with the lease held and renewed. A lease that was never taken is not begun if
    /// there is no log.
    ///
    /// # Errors
    /// [`Error::Running`] if another live program holds it, or took it over meanwhile; the error of
    /// `work`.
    pub(crate) async fn during<T>(
        mut self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let running = |source: &Name, holder: String| Error::Running {
            source: source.to_string(),
            holder,
        };
        if let Taken::By(holder) = self.lease.take_over().await? {
            return Err(running(&self.lease.source, holder));
        }
        let third = self.lease.ttl / 3;
        let mut heartbeat = tokio::time::interval_at(tokio::time::Instant::now() + third, third);
        let mut work = Box::pin(work);
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                _ = heartbeat.tick() => if !self.lease.renew().await? {
                    return Err(running(&self.lease.source, "another program".to_owned()));
                },
            }
        };
        if let Err(error) = self.lease.release().await {
            tracing::warn!(source = %self.lease.source, %error, "its lease could not be given back; it ends by itself");
        }
        done
    }
}

/// Reads the newest object beside a log: `Some(None)` if there is none, and `None` after only lost
/// races.
async fn newest(landing: &Store) -> Result<Option<Option<LeaseEntry>>, Error> {
    // A listed object may be followed by another and deleted before it is read.
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

/// Identity of the running kernel, which all containers of a machine share; `None` except on Linux.
fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
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

    /// A manually set clock, whose wall time may jump.
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
            failures: 0,
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
        // The wall clock jumps a day ahead and back: it is not used.
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

    #[tokio::test]
    async fn a_holder_that_comes_back_after_its_time_does_not_renew_what_it_has_lost() {
        let (root, clock) = (Store::memory(), Arc::new(ByHand::default()));
        let (mut a, mut b) = (lease(&root, "a", &clock), lease(&root, "b", &clock));
        assert_eq!(a.take().await.unwrap(), Taken::Ours);
        assert!(a.renew().await.unwrap());
        assert_eq!(b.take().await.unwrap(), Taken::By("a".into()));
        // a cannot reach the store for two minutes.
        clock.0.lock().unwrap().0 = Duration::from_secs(118);
        assert!(a.is_expired());
        assert_eq!(b.take().await.unwrap(), Taken::Ours);
        for _ in 0..3 {
            assert!(b.renew().await.unwrap());
        }
        // The number after the newest one known to `a` is free again, since `b` has deleted its old
        // ones.
        assert!(!a.renew().await.unwrap(), "it is b's");
        assert!(b.renew().await.unwrap());
        let listed = root.list("lease").await.unwrap();
        assert_eq!(listed.len(), 1, "nothing of a stays: {listed:?}");
    }

    #[tokio::test]
    async fn on_a_local_disk_a_holder_that_died_is_followed_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let root = Store::open(&folder.path().display().to_string(), &Default::default()).unwrap();
        let clock = Arc::new(ByHand::default());
        let mut a = lease(&root, "a", &clock);
        assert_eq!(a.take().await.unwrap(), Taken::Ours);
        let mut b = lease(&root, "b", &clock);
        assert_eq!(b.take().await.unwrap(), Taken::By("a".into()), "it lives");
        // A killed process leaves its object and loses its lock; another one begins each time.
        drop(a);
        for restart in 0..3 {
            let mut c = lease(&root, &format!("c{restart}"), &clock);
            assert_eq!(c.take().await.unwrap(), Taken::Ours, "restart {restart}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_that_ask_at_once_one_gets_it() {
        let clock = Arc::new(ByHand::default());
        // All have read before the first has written.
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

//! SIGINT and SIGTERM: the first asks the stages to stop where they can resume, a later one ends
//! the process.

use std::{
    pin::pin,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::sleep,
};

/// Signals that follow the first one within this time are the same request: `timeout`, shells and
/// supervisors send one to the process and one to its group, at once.
const SAME_REQUEST: Duration = Duration::from_millis(250);

/// Asks the stages to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    /// Stop signal for stages on the runtime.
    pub(crate) watch: watch::Receiver<bool>,
    /// Stop signal for stages on threads of their own.
    pub(crate) flag: Arc<AtomicBool>,
    /// True if the first signal was SIGTERM: a supervisor expects success then. A person who
    /// interrupts does not want the commands after this one to run.
    is_term: Arc<AtomicBool>,
}

impl Stop {
    /// Starts listening. Must be called on a runtime. Under a launcher, the launcher decides when
    /// to end at once: a terminal sends its signal to both.
    pub(crate) fn on_signals(launched: bool) -> std::io::Result<Self> {
        let (sender, watch) = watch::channel(false);
        let flag = Arc::new(AtomicBool::new(false));
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let is_term = Arc::new(AtomicBool::new(false));
        let (stop, term) = (Arc::clone(&flag), Arc::clone(&is_term));
        tokio::spawn(async move {
            loop {
                let is_term = either(&mut interrupt, &mut terminate).await;
                let again = stop.swap(true, Ordering::SeqCst);
                if launched {
                    continue;
                }
                if again {
                    process::exit(130);
                }
                tracing::warn!(
                    "stopping at the next safe point; committed work stays, a second signal stops at once"
                );
                term.store(is_term, Ordering::SeqCst);
                sender.send_replace(true);
                let mut window = pin!(sleep(SAME_REQUEST));
                loop {
                    tokio::select! {
                        biased;
                        _ = either(&mut interrupt, &mut terminate) => {}
                        () = &mut window => break,
                    }
                }
            }
        });
        Ok(Self {
            watch,
            flag,
            is_term,
        })
    }

    /// Returns true if SIGTERM was the signal that asked for it.
    pub(crate) fn is_terminated(&self) -> bool {
        self.is_term.load(Ordering::SeqCst)
    }

    /// Fails after a signal, for loops on threads of their own that have nothing to save.
    ///
    /// # Errors
    /// A signal came.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.flag.load(Ordering::SeqCst), "interrupted");
        Ok(())
    }

    /// Runs `work`, which may be dropped at any await, until it ends or a signal comes.
    ///
    /// # Errors
    /// A signal came first.
    pub(crate) async fn unless_stopped<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> anyhow::Result<T> {
        let mut watch = self.watch.clone();
        tokio::select! {
            done = work => Ok(done),
            _ = watch.wait_for(|stop| *stop) => {
                anyhow::bail!("interrupted; nothing of this step was published, rerun the same command")
            }
        }
    }
}

/// Waits for a signal; true if it is SIGTERM.
async fn either(interrupt: &mut Signal, terminate: &mut Signal) -> bool {
    tokio::select! {
        _ = interrupt.recv() => false,
        _ = terminate.recv() => true,
    }
}

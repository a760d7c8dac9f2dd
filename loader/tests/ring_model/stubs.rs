//! Parts of the loader that the files under test use.

pub(crate) mod deliver {
    /// A batch, whose rows all hold its number.
    pub(crate) mod batch {
        use feedline_schemas::loader_state::LoaderState;

        use crate::assembly::{
            fill::Filled,
            mixup_plan::MixupPlan,
            ring::{Ring, SlabLease},
        };

        /// Position of rows among those of all ranks; empty, since there are no other ranks here.
        pub(crate) type Place = ();

        #[derive(Debug)]
        pub(crate) struct BatchParts {
            pub(crate) lease: SlabLease,
            pub(crate) kind: (),
            pub(crate) target: (),
            pub(crate) rows: usize,
            pub(crate) row_bytes: (),
            pub(crate) mixing: Option<MixupPlan>,
            pub(crate) padding: usize,
            pub(crate) place: Place,
            pub(crate) state: LoaderState,
            pub(crate) filled: Vec<Filled>,
        }

        #[derive(Debug)]
        pub(crate) struct Batch(BatchParts);

        impl Batch {
            pub(crate) fn new(parts: BatchParts) -> Self {
                Self(parts)
            }

            pub(crate) fn hand_out(&mut self, ring: &Ring) {
                ring.hand_out(&mut self.0.lease);
            }

            pub(crate) fn bytes(&self) -> &[u8] {
                let BatchParts {
                    kind: (),
                    target: (),
                    row_bytes: (),
                    mixing: None,
                    padding: 0,
                    place: (),
                    ..
                } = self.0
                else {
                    panic!("it has no padding")
                };
                assert!(self.0.filled.is_sorted_by_key(Filled::first));
                assert_eq!(self.0.state.batch.get(), 0);
                &self.0.lease.slab().column(0)[..self.0.rows]
            }
        }
    }
}

pub(crate) mod block_types {
    use std::{ops::Range, sync::Arc};

    /// Rows of a batch, by the number of the batch.
    pub(crate) struct LoadedRun {
        pub(crate) window: Arc<u64>,
        pub(crate) positions: Range<u64>,
    }
}

pub(crate) mod mixup_plan {
    /// Nothing is mixed.
    #[derive(Clone, Debug)]
    pub(crate) enum MixupPlan {}
}

pub(crate) mod fill {
    use crate::{
        Error,
        assembly::{block_types::LoadedRun, mixup_plan::MixupPlan, slab::SlabPiece},
        sync::thread,
    };

    #[derive(Default)]
    pub(crate) struct FillScratch(());

    #[derive(Debug, Default)]
    pub(crate) struct Filled(usize);

    impl Filled {
        pub(crate) fn first(&self) -> usize {
            self.0
        }
    }

    /// Writes the batch's number into each row, and lets other threads run in between.
    pub(crate) struct Filler {
        pub(crate) kind: (),
        pub(crate) target: (),
        /// Batch and first row at which it panics.
        pub(crate) panics_at: Option<(u64, usize)>,
    }

    impl Filler {
        pub(crate) fn row_bytes(&self) {}

        pub(crate) fn fill(
            &self,
            piece: &mut SlabPiece,
            runs: Vec<LoadedRun>,
            _: Option<&MixupPlan>,
            _: &mut FillScratch,
        ) -> Result<Filled, Error> {
            let rows: u64 = runs
                .iter()
                .map(|run| run.positions.end - run.positions.start)
                .sum();
            assert_eq!(rows, piece.rows as u64, "a piece has the runs of its rows");
            let number = *runs[0].window;
            for row in 0..piece.rows {
                thread::yield_now();
                piece.columns()[0][row] = number.to_le_bytes()[0];
                assert!(
                    self.panics_at != Some((number, piece.first + row)),
                    "a sample that breaks the filler"
                );
            }
            Ok(Filled(piece.first))
        }
    }
}

pub(crate) mod metrics {
    use std::time::Duration;

    pub(crate) struct Timer;

    impl Timer {
        pub(crate) fn add(&self, _: Duration) {}
    }

    pub(crate) struct Meters {
        pub(crate) decode_busy: Timer,
        pub(crate) decode_starved: Timer,
    }

    impl Meters {
        pub(crate) fn now(&self) -> Duration {
            Duration::ZERO
        }

        pub(crate) fn since(&self, _: Duration) -> Duration {
            Duration::ZERO
        }
    }
}

pub(crate) mod source_block {
    pub(crate) type SourceBlock = u32;
}

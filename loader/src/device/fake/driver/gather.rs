//! Gathering, when the test lets it run.

use std::ops::Range;

use super::{Arc, DeviceFault, DriverWork, Fake, FakeDriver, FakeMemory};
use crate::{
    Error,
    device::{ColumnLayout, Gather, Part, RowPlace, TokenPiece, gather_rows, gather_tokens},
};

/// A kernel that builds a part of a batch.
#[derive(Debug)]
pub(super) struct Gathering {
    window: usize,
    column: ColumnLayout,
    places: (usize, Range<usize>),
    /// Of tokens.
    pad: Option<u32>,
    out: (usize, Range<usize>),
}

impl Gathering {
    pub(super) fn uses(&self, memory: usize) -> bool {
        [self.window, self.places.0, self.out.0].contains(&memory)
    }

    pub(super) fn run(self, memories: &mut [Option<Vec<u8>>]) {
        let of = |memory: usize| memories[memory].as_ref().expect("it is not freed");
        let places = &of(self.places.0)[self.places.1];
        let window = of(self.window);
        let mut out = of(self.out.0)[self.out.1.clone()].to_vec();
        match self.pad {
            None => {
                let places: Vec<RowPlace> = bytemuck::pod_collect_to_vec(places);
                gather_rows(window, &self.column, &places, &mut out);
            }
            Some(pad) => {
                let pieces: Vec<TokenPiece> = bytemuck::pod_collect_to_vec(places);
                let mut ids: Vec<u32> = bytemuck::pod_collect_to_vec(&out);
                gather_tokens(window, &self.column, &pieces, pad, &mut ids);
                out.copy_from_slice(bytemuck::cast_slice(&ids));
            }
        }
        let memory = memories[self.out.0].as_mut().expect("it is not freed");
        memory[self.out.1].copy_from_slice(&out);
    }
}

impl FakeDriver {
    fn gather(
        &self,
        stream: usize,
        window: &FakeMemory,
        column: &ColumnLayout,
        pad: Option<u32>,
        [places, out]: [Part<'_, FakeMemory>; 2],
    ) -> Result<(), DeviceFault> {
        let mut world = self.call()?;
        assert!(column.end().is_some(), "{column:?}");
        world.streams[stream]
            .queue
            .push_back(DriverWork::Gather(Gathering {
                window: window.index,
                column: *column,
                places: (places.0.index, places.1),
                pad,
                out: (out.0.index, out.1),
            }));
        Ok(())
    }
}

impl Gather for Fake {
    type Kernels = Arc<FakeDriver>;

    fn load_kernels(&self) -> Result<Arc<FakeDriver>, Error> {
        drop(self.0.call()?);
        Ok(Arc::clone(&self.0))
    }

    fn gather_rows(
        kernels: &Arc<FakeDriver>,
        stream: &usize,
        window: &FakeMemory,
        column: &ColumnLayout,
        places: Part<'_, FakeMemory>,
        out: Part<'_, FakeMemory>,
    ) -> Result<(), Error> {
        Ok(kernels.gather(*stream, window, column, None, [places, out])?)
    }

    fn gather_tokens(
        kernels: &Arc<FakeDriver>,
        stream: &usize,
        window: &FakeMemory,
        column: &ColumnLayout,
        pieces: Part<'_, FakeMemory>,
        pad: u32,
        out: Part<'_, FakeMemory>,
    ) -> Result<(), Error> {
        Ok(kernels.gather(*stream, window, column, Some(pad), [pieces, out])?)
    }
}

//! The two sides of the window, each by itself.

use crossbeam_channel::unbounded;
use feedline_schemas::manifest::TokenType;

use super::*;
use crate::{
    assembly::block_types::LoadedBlock,
    device::{
        copies::CopyStream,
        fake::driver::{Fake, FakeDriver, FaultPlan},
        fault::Health,
        feed::DeviceColumns,
        slots::Upload,
        staging::Staging,
    },
    fetch::budget::Budget,
    input::block_rows::{BlockRows, TokenIds, TokenRows},
};

const COMPUTE: usize = 0;

fn window(slots: u32) -> (Arc<FakeDriver>, Arc<Fake>, Arc<DeviceWindow<Fake>>) {
    let driver = Arc::new(FakeDriver::default());
    assert_eq!(driver.stream(), COMPUTE);
    let fake = Arc::new(Fake(Arc::clone(&driver)));
    let window = DeviceWindow::new(&fake, slots, [40].into_iter()).unwrap();
    (driver, fake, Arc::new(window))
}

#[test]
fn a_slot_is_freed_behind_its_last_batch_and_when_its_upload_is_known() {
    let (_driver, _fake, window) = window(2);
    let (landed_in, landed) = unbounded();
    let (leaves_in, leaves) = unbounded();
    let (freed_in, freed) = unbounded();
    let mut reader = WindowReader::new(window, COMPUTE, landed, leaves, freed_in);
    let leave = |batch, slot, upload| {
        let leave = Leave {
            batch,
            slot,
            upload,
        };
        leaves_in.send(leave).unwrap();
    };
    leave(0, 1, 1);
    leave(1, 0, 2);
    reader.let_go(1).unwrap();
    assert!(freed.is_empty(), "nothing has come yet");
    landed_in.send(Ok(1)).unwrap();
    landed_in.send(Ok(0)).unwrap();
    reader.await_uploads(1).unwrap();
    assert_eq!(freed.try_iter().collect::<Vec<_>>(), [1]);
    reader.await_uploads(2).unwrap();
    assert!(freed.is_empty(), "batch 1 still reads it");
    reader.let_go(2).unwrap();
    assert_eq!(freed.try_iter().collect::<Vec<_>>(), [0]);
}

#[test]
fn slots_are_not_freed_under_kernels_when_a_pass_ends_early() {
    let (driver, fake, window) = window(1);
    let (landed_in, landed) = unbounded();
    let (freed_in, _freed) = unbounded();
    let mut reader = WindowReader::new(
        Arc::clone(&window),
        COMPUTE,
        landed,
        unbounded().1,
        freed_in,
    );
    landed_in.send(Ok(0)).unwrap();
    reader.await_uploads(1).unwrap();
    let part = 0..40;
    driver.kernel(COMPUTE, 7, window.memory().unwrap(), &[part]);
    drop((window, reader, fake));
    assert_eq!(driver.world().seen.len(), 1, "the kernel ran first");
    assert!(driver.world().violations.is_empty());
}

#[tokio::test]
async fn fault_30_an_error_of_the_upload_thread_is_known_before_its_block_is_needed() {
    let (driver, fake, window) = window(1);
    let rows = TokenRows {
        ids: TokenIds::U32(vec![1, 2, 3].into()),
        offsets: vec![0, 3].into(),
        keys: vec![0].into(),
        origins: vec![0].into(),
        bad: Vec::new(),
    };
    let block = LoadedBlock {
        rows: BlockRows::Tokens(rows),
        source: 0,
        block: 0,
        by_class: None,
        _permit: Arc::new(Budget::new(0, 0)).take(0, 0).await,
    };
    let (uploads_in, uploads) = unbounded();
    let (landed_in, landed) = unbounded();
    let (_freed_in, freed) = unbounded();
    let (slot, block) = (0, Arc::new(block));
    uploads_in.send(Upload { slot, block }).unwrap();
    drop(uploads_in);
    let health = Health::default();
    let copy = driver.stream();
    driver.world().plan = FaultPlan {
        call: Some(driver.calls() + 2),
        sticky: true,
        ..FaultPlan::default()
    };
    Feeder {
        window,
        copies: CopyStream::new(&fake, copy),
        staging: Staging::new(1, 40, None),
        columns: DeviceColumns::Tokens(TokenType::U32),
        uploads,
        freed,
        landed: landed_in,
        health: health.clone(),
        bytes: Arc::default(),
    }
    .run();
    assert!(matches!(health.check(), Err(Error::Device { .. })));
    let landed: Vec<_> = landed.try_iter().collect();
    assert!(
        matches!(&landed[..], [Err(Error::Device { .. })]),
        "{landed:?}"
    );
}

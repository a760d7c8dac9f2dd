use std::{
    sync::{
        Weak,
        atomic::{AtomicUsize, Ordering},
        mpsc::channel,
    },
    time::Duration,
};

use super::*;
use crate::{
    data::samples::{Data as _, ModelInputs, Targets},
    device::{Backend, is_processor},
    model::{
        input::{self, Normalisation},
        layers::check::adapter,
    },
    testing,
};

/// The processor in the place of a device, and an adapter where there is one.
fn devices() -> Vec<Backend> {
    let all = [Some(Backend::stand_in()), adapter()];
    all.into_iter().flatten().collect()
}

fn on_processor() -> ModelEngine {
    testing::engine(&testing::plan(&testing::config(), &testing::regression(8)))
}

fn engine(backend: Backend) -> ModelEngine {
    on_processor().on(backend)
}

/// Two rows of two numbers that follow from the number of their batch.
#[derive(Debug)]
struct Numbered {
    x: [f32; 4],
    y: [f32; 2],
    state: LoaderState,
    locked: bool,
}

impl RankBatch for Numbered {
    fn samples(&self) -> Samples<'_> {
        let inputs = ModelInputs {
            x: &self.x,
            features: 2,
            ..ModelInputs::default()
        };
        Samples::new(2, inputs, Targets::Numbers(&self.y))
    }
    fn keys(&self) -> &[u64] {
        &[1, 2]
    }
    fn origins(&self) -> &[u64] {
        &[3, 4]
    }
    fn state(&self) -> &LoaderState {
        &self.state
    }
    fn is_page_locked(&self, bytes: &[u8]) -> bool {
        self.locked && bytes.len() == 16
    }
}

#[expect(clippy::cast_precision_loss, reason = "there are few")]
fn numbered(number: u64) -> Numbered {
    let first = number as f32;
    Numbered {
        x: [first, first + 0.25, first + 0.5, first + 0.75],
        y: [first, -first],
        state: testing::regression(8).start(),
        locked: false,
    }
}

fn numbers<const D: usize>(tensor: burn::tensor::Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec().unwrap()
}

#[test]
fn batches_come_in_order_with_their_numbers_on_the_device() {
    for backend in devices() {
        let device = backend.device.clone();
        let engine = engine(backend);
        for ahead in [1, 2, 7] {
            let batches = Box::new((0..20).map(|number| Ok(numbered(number))));
            let fed = DeviceFeed::new(&engine, ahead).feed(batches, |batches| {
                let mut found = Vec::new();
                for batch in batches {
                    let batch = batch?;
                    let samples = batch.samples();
                    assert!(samples.uploaded.is_some());
                    let input =
                        input::tensors(samples.slice(1..2), &Normalisation::default(), &device);
                    let x = numbers(input.rows().clone());
                    let targets = samples.slice(1..2).uploaded.unwrap().targets(1, &device);
                    let input::TargetTensor::Numbers(y) = targets.unwrap().own else {
                        panic!("the targets are numbers")
                    };
                    found.push((x, numbers(y)));
                }
                Ok(found)
            });
            let expected: Vec<_> = (0..20)
                .map(numbered)
                .map(|batch| (batch.x[2..].to_vec(), batch.y[1..].to_vec()))
                .collect();
            assert_eq!(fed.unwrap(), expected);
        }
    }
}

#[test]
fn no_more_batches_are_taken_ahead_than_configured_and_none_after_the_last_wanted() {
    let engine = engine(Backend::stand_in());
    for ahead in [1, 3] {
        let (say, taken) = channel();
        let batches = Box::new((0..1000).map(move |number| {
            say.send(number).unwrap();
            Ok(numbered(number))
        }));
        let most = DeviceFeed::new(&engine, ahead).feed(batches, |batches| {
            let mut most = 0;
            for used in 1..=5 {
                drop(batches.next().unwrap()?);
                // As many as it may take, and then no more for a while.
                while most < used + u64::from(ahead) {
                    most = 1 + taken.recv_timeout(Duration::from_secs(60)).unwrap();
                }
                taken.recv_timeout(Duration::from_millis(30)).unwrap_err();
            }
            Ok(most)
        });
        assert_eq!(most.unwrap(), 5 + u64::from(ahead));
        assert_eq!(taken.try_iter().count(), 0);
    }
}

#[test]
fn an_error_comes_in_its_place_and_ends_the_feed() {
    for backend in devices() {
        let engine = engine(backend);
        let batches = Box::new((0..20).map(|number| match number {
            3 => Err(Error::Device {
                reason: "the third".to_owned(),
            }),
            _ => Ok(numbered(number)),
        }));
        let found = DeviceFeed::new(&engine, 2).feed(batches, |batches| {
            let results: Vec<String> = batches
                .map(|batch| match batch {
                    Ok(batch) => batch.samples().inputs.x[0].to_string(),
                    Err(error) => error.to_string(),
                })
                .collect();
            Ok(results)
        });
        let found = found.unwrap();
        assert_eq!(found[..3], ["0", "1", "2"]);
        assert!(found[3].contains("the third"), "{found:?}");
        assert_eq!(found.len(), 4);
    }
}

#[test]
fn a_panic_while_copying_is_an_error_of_the_device() {
    let engine = engine(Backend::stand_in());
    /// Rows that are not there.
    #[derive(Debug)]
    struct Broken(Numbered);
    impl RankBatch for Broken {
        fn samples(&self) -> Samples<'_> {
            panic!("the device is lost")
        }
        fn keys(&self) -> &[u64] {
            self.0.keys()
        }
        fn origins(&self) -> &[u64] {
            self.0.origins()
        }
        fn state(&self) -> &LoaderState {
            self.0.state()
        }
    }
    let batches = Box::new((0..3).map(|number| Ok(Broken(numbered(number)))));
    let found = DeviceFeed::new(&engine, 1).feed(batches, |batches| {
        let error = batches.next().unwrap().unwrap_err();
        assert!(batches.next().is_none());
        Ok(error)
    });
    let error = found.unwrap();
    assert!(
        matches!(&error, Error::Device { reason } if reason == "the device is lost"),
        "{error}"
    );
}

#[test]
fn host_memory_is_given_back_once_it_is_copied() {
    for backend in devices() {
        let engine = engine(backend.clone());
        let batches = Box::new((0..50).map(|number| Ok(numbered(number))));
        let held = DeviceFeed::new(&engine, 2).feed(batches, |batches| {
            let mut seen: Vec<Weak<CountedBatch<Numbered>>> = Vec::new();
            for batch in batches {
                let batch = batch?;
                seen.push(Arc::downgrade(&batch.batch));
                let held = seen.iter().filter(|batch| batch.strong_count() > 0).count();
                assert_eq!(held, 1, "{}: only the batch of this step", backend.name);
                // A tensor of the processor is the lent memory itself.
                if !is_processor(&backend.device) {
                    assert_eq!(seen.last().unwrap().strong_count(), 1, "{}", backend.name);
                }
            }
            Ok(seen.len())
        });
        assert_eq!(held.unwrap(), 50);
    }
}

#[test]
fn page_locked_columns_are_lent_as_such() {
    use crate::model::input::{ColumnBytes as _, LentColumns};

    for locked in [false, true] {
        let batch = Arc::new(Numbered {
            locked,
            ..numbered(7)
        });
        let lent = LentColumns(&batch);
        let x = lent.bytes(|samples| bytemuck::cast_slice(samples.inputs.x));
        // Only all of a column can be copied from directly.
        let y = lent.bytes(|samples| match samples.targets {
            Targets::Numbers(y) => bytemuck::cast_slice(y),
            _ => &[],
        });
        let is_pinned = |bytes: &burn::tensor::Bytes| {
            matches!(bytes.property(), burn::tensor::AllocationProperty::Pinned)
        };
        assert_eq!([is_pinned(&x), is_pinned(&y)], [locked, false]);
        // No copy was made.
        assert_eq!(x.as_ptr(), batch.x.as_ptr().cast());
        assert_eq!(&*x, bytemuck::cast_slice::<f32, u8>(&batch.x));
        assert_eq!(Arc::strong_count(&batch), 3);
        drop((x, y));
        assert_eq!(Arc::strong_count(&batch), 1);
    }
}

#[test]
fn bytes_of_copies_are_those_of_the_thread_that_trains() {
    let engine = engine(Backend::stand_in());
    take_bus_bytes();
    let batches = Box::new((0..4).map(|number| Ok(numbered(number))));
    let counted = DeviceFeed::new(&engine, 2).feed(batches, |batches| {
        Ok(batches
            .map(|_| take_bus_bytes().uploaded)
            .collect::<Vec<_>>())
    });
    // Two rows of two numbers and their targets.
    assert_eq!(counted.unwrap(), [24; 4]);
}

#[test]
fn nothing_is_fed_to_the_processor_or_without_batches_ahead() {
    let processor = on_processor();
    let device = engine(Backend::stand_in());
    for (engine, ahead) in [(&processor, 2), (&device, 0)] {
        let batches = Box::new((0..4).map(|number| Ok(numbered(number))));
        let count = DeviceFeed::new(engine, ahead).feed(batches, |batches| {
            let in_host = |batch: Result<FedBatch<Numbered>, Error>| {
                batch.unwrap().samples().uploaded.is_none()
            };
            Ok(batches.map(in_host).filter(|in_host| *in_host).count())
        });
        assert_eq!(count.unwrap(), 4);
    }
}

#[test]
fn a_loader_with_fewer_batches_is_asked_again_once_one_is_used_up() {
    let engine = engine(Backend::stand_in());
    // Two batches at a time, as if little memory could be page-locked.
    let mut made: Vec<Weak<()>> = Vec::new();
    let mut number = 0;
    let batches = std::iter::from_fn(move || {
        made.retain(|batch| batch.strong_count() > 0);
        if made.len() >= 2 {
            let held = feedline_loader::Error::BatchesHeld { slabs: 2 };
            return Some(Err(held.into()));
        }
        let lease = Arc::new(());
        made.push(Arc::downgrade(&lease));
        number += 1;
        (number <= 30).then(|| Ok(Leased(numbered(number), lease)))
    });
    let used = DeviceFeed::new(&engine, 5).feed(Box::new(batches), |batches| {
        let mut used = 0;
        for batch in batches {
            let batch = batch?;
            used += u64::from(!batch.keys().is_empty());
        }
        Ok(used)
    });
    assert_eq!(used.unwrap(), 30);
}

/// The memory of a batch may be used up, or be on its way back, just when the loader says that all of it is in use.
#[test]
fn memory_that_comes_back_while_the_loader_is_asked_is_asked_for_again() {
    let mut in_use = Some(Arc::new(()));
    let mut held = in_use.iter().map(Arc::downgrade).collect();
    let mut batches: Batches<'_, u8> = Box::new(std::iter::from_fn(move || {
        if in_use.take().is_some() {
            let held = feedline_loader::Error::BatchesHeld { slabs: 1 };
            return Some(Err(held.into()));
        }
        Some(Ok(7))
    }));
    let batch = next_batch(&mut batches, &mut held);
    assert!(matches!(batch, Some(Ok(7))), "{batch:?}");
}

#[test]
fn a_batch_is_in_use_until_its_memory_was_given_back() {
    /// Counts how often it is in use while it is given back.
    struct Memory(Weak<()>, Arc<AtomicUsize>);
    impl Drop for Memory {
        fn drop(&mut self) {
            self.1.store(self.0.strong_count(), Ordering::Relaxed);
        }
    }
    let in_use = Arc::new(());
    let seen = Arc::default();
    drop(CountedBatch {
        batch: Memory(Arc::downgrade(&in_use), Arc::clone(&seen)),
        _in_use: in_use,
    });
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

#[test]
fn a_loader_that_says_so_without_any_batch_in_use_ends_the_feed() {
    let engine = engine(Backend::stand_in());
    let held = || Err(feedline_loader::Error::BatchesHeld { slabs: 2 }.into());
    let batches = Box::new(std::iter::from_fn(move || Some(held())));
    let found = DeviceFeed::new(&engine, 2).feed::<Numbered, _>(batches, |batches| {
        let error = batches.next().unwrap().unwrap_err();
        Ok((error, batches.next().is_none()))
    });
    let (error, ended) = found.unwrap();
    assert!(matches!(error, Error::Loader(_)) && ended, "{error}");
}

/// A batch in memory of a loader.
#[derive(Debug)]
struct Leased(
    Numbered,
    #[expect(dead_code, reason = "held like the loader's memory")] Arc<()>,
);

impl RankBatch for Leased {
    fn samples(&self) -> Samples<'_> {
        self.0.samples()
    }
    fn keys(&self) -> &[u64] {
        self.0.keys()
    }
    fn origins(&self) -> &[u64] {
        self.0.origins()
    }
    fn state(&self) -> &LoaderState {
        self.0.state()
    }
}

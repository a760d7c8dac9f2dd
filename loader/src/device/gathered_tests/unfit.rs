//! Batches that cannot be built on the device.

use super::*;
use crate::device::fake::warnings;

/// Batches come all the same, with one word of warning, or the pass is refused.
fn check_unfit(layout: Layout, config: &LoaderConfig, window_bytes: u64, why: &str) {
    let loader = open(layout, config);
    let expected = of_the_processor(&loader, loader.start_state());
    let driver = Arc::new(HostDriver);
    let device = DeviceConfig {
        window_bytes,
        ..DeviceConfig::default()
    };
    let start = || loader.device_epoch(loader.start_state(), &driver, (), &device);
    let (batches, warnings) = warnings(start);
    let batches = batches.unwrap();
    let BuiltOn::Processor { reason } = batches.built_on() else {
        panic!("{batches:?}")
    };
    assert!(reason.contains(why), "{reason}");
    let is_loud = |warning: &String| {
        warning.contains(why) && warning.contains("BATCHES ARE BUILT ON THE PROCESSOR")
    };
    assert_eq!(
        warnings.iter().filter(|w| is_loud(w)).count(),
        1,
        "{warnings:?}"
    );
    for (batch, expected) in batches.zip(&expected) {
        let batch = batch.unwrap();
        let part = |part: &Range<usize>| batch.memory().to_vec(part.clone());
        let parts: Vec<_> = batch.parts().iter().map(part).collect();
        assert_eq!(
            (parts, &batch.info().state),
            (expected.0.clone(), &expected.3)
        );
    }
    let device = DeviceConfig {
        unfit: Unfit::Refuse,
        ..device
    };
    let refused = loader.device_epoch(loader.start_state(), &driver, (), &device);
    let error = refused.unwrap_err().to_string();
    assert!(
        error.contains("`device.window_bytes`") && error.contains(why),
        "{error}"
    );
}

#[test]
fn what_cannot_be_built_on_the_device_is_said_loudly_and_copied() {
    check_unfit(ROWS, &config(50), 1024, "a batch needs `");
    let packed = with_tokens(40, TokenLayout::Packed);
    check_unfit(tokens(TokenType::U16), &packed, 1 << 20, "packed rows");
    let short = with_tokens(7, TokenLayout::Documents);
    check_unfit(
        tokens(TokenType::U16),
        &short,
        1 << 20,
        "as large as themselves",
    );
}

#[test]
fn a_window_that_just_fits_is_used_and_one_slot_less_is_not() {
    let loader = open(ROWS, &config(50));
    let expected = of_the_processor(&loader, loader.start_state());
    let least = least_window(&loader, &loader.start_state());
    let device = |window_bytes| DeviceConfig {
        window_bytes,
        ..DeviceConfig::default()
    };
    let found = of_the_twin(&loader, loader.start_state(), &device(least));
    assert!(found == expected);
    let driver = Arc::new(HostDriver);
    let less = loader
        .device_batches(&driver, (), &device(least - 1))
        .unwrap();
    assert!(matches!(less.built_on(), BuiltOn::Processor { .. }));
    let window_bytes = device(0);
    let (off, warnings) = warnings(|| loader.device_batches(&driver, (), &window_bytes));
    assert!(matches!(off.unwrap().built_on(), BuiltOn::Processor { .. }));
    assert!(warnings.is_empty(), "it was asked for: {warnings:?}");
}

#[test]
fn settings_out_of_range_are_named() {
    let loader = open(ROWS, &config(50));
    let refused = |config: DeviceConfig| {
        let batches = loader.device_batches(&Arc::new(HostDriver), (), &config);
        batches.unwrap_err().to_string()
    };
    let buffers = DeviceConfig {
        buffers: 0,
        ..DeviceConfig::default()
    };
    assert!(refused(buffers).contains("`device.buffers`: it is `0`, use `1` to `64`"));
    let staging_blocks = DeviceConfig {
        staging_blocks: 1025,
        ..DeviceConfig::default()
    };
    assert!(refused(staging_blocks).contains("`device.staging_blocks`: it is `1025`"));
}

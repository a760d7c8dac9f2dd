#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(init: feedline_fuzz::report_panics(), |data: &[u8]| {
    feedline_http::fuzzing::retry_after(data);
});

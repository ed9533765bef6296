#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| warmline_fuzz::record(input));

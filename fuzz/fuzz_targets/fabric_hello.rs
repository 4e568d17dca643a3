//! Reads any text as the key of a hello, and any bytes as a hello: what is read is what was
//! written.

#![no_main]

use barograph_fabric::transport::Hello;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(hello) = Hello::read(input) {
        assert!(input.starts_with(&hello.write()));
    }
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    for key in [text, &format!("barograph/node/1/rack/{text}")] {
        if let Some((hello, proof)) = Hello::of_key(key) {
            assert_eq!(hello.key(proof.as_deref()), *key);
        }
    }
});

//! Reads any text as the token of an invitation.

#![no_main]

use barograph_membership::Token;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for text in [text, &format!("baro1.{text}")] {
        if let Ok(token) = Token::read(text) {
            let again = Token::read(&token.text());
            assert_eq!(again.ok(), Some(token));
        }
    }
});

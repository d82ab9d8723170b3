//! A seed that is replayed tells the same history, to the last line.
#![allow(clippy::unwrap_used)] // test code: a panic is a failed test

use std::process::Command;

#[test]
fn one_seed_is_one_history() {
    let told = || {
        let program = env!("CARGO_BIN_EXE_sim");
        let output = Command::new(program).args(["--seed", "4"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (one, other) = (told(), told());
    assert!(one.lines().count() > 20, "{one}");
    let differs = one.lines().zip(other.lines()).find(|(one, other)| one != other);
    assert_eq!(differs, None);
    assert_eq!(one.len(), other.len());
}

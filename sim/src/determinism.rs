//! Takes the two sources of chance away that a process has below its own code: the kernel's random numbers, from which
//! every `HashMap` gets its order, and the clocks. On a thread that called [`enter`], both come from the simulation;
//! other threads keep the real ones. This is the only file of the workspace with `unsafe`: the C library's functions are
//! replaced by functions of the same name, which the linker prefers.
#![allow(unsafe_code)]

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// The simulated wall clock starts here: 2026-01-01T00:00:00Z, in seconds.
const EPOCH: i64 = 1_767_225_600;
/// The simulated monotonic clock starts here, in seconds: far enough from zero that nothing underflows.
const MONOTONIC: i64 = 1_000_000;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static SKEW: Cell<i64> = const { Cell::new(0) };
    static ENTROPY: Cell<u64> = const { Cell::new(0) };
    /// What tokio's clocks count from; set while a machine runs, whose own clock then tells the time.
    static BASE: Cell<Option<Instant>> = const { Cell::new(None) };
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Makes this thread deterministic from here on: random numbers follow from `seed`, the clocks stand at the epoch.
pub fn enter(seed: u64) {
    INSIDE.set(true);
    NOW.set(Duration::ZERO);
    SKEW.set(0);
    ENTROPY.set(seed);
    RUNNING.set(false);
    BASE.set(Some(Instant::now()));
}

/// Runs `work` of a machine: meanwhile the clocks follow that of its runtime.
pub fn on_machine<T>(work: impl FnOnce() -> T) -> T {
    RUNNING.set(true);
    let done = work();
    RUNNING.set(false);
    done
}

/// The time on the machine that runs, or of the world between machines.
fn present() -> Duration {
    if RUNNING.replace(false) {
        let base = BASE.get();
        // Of a paused clock: no call of the C library in it.
        let now = tokio::time::Instant::now().into_std();
        RUNNING.set(true);
        if let Some(base) = base {
            return now.saturating_duration_since(base);
        }
    }
    NOW.get()
}

/// Sets the simulated time of this thread.
pub fn set_now(now: Duration) {
    NOW.set(now);
}

/// The simulated time of this thread.
pub fn now() -> Duration {
    present()
}

/// Sets how far the wall clock of the next machine is ahead of the true time, in milliseconds.
pub fn set_skew(millis: i64) {
    SKEW.set(millis);
}

fn next_random() -> u64 {
    // splitmix64
    let state = ENTROPY.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    ENTROPY.set(state);
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanos: i64,
}

const SYS_GETRANDOM: i64 = if cfg!(target_arch = "aarch64") { 278 } else { 318 };
const SYS_CLOCK_GETTIME: i64 = if cfg!(target_arch = "aarch64") { 113 } else { 228 };
const CLOCK_REALTIME: i32 = 0;

unsafe extern "C" {
    fn syscall(number: i64, ...) -> i64;
}

/// Replaces the C library's `getrandom`.
///
/// # Safety
/// `buffer` points to `length` writable bytes, as the C function demands.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, flags: u32) -> isize {
    if !INSIDE.try_with(Cell::get).unwrap_or(false) {
        // SAFETY: the arguments are handed on as they came.
        let got = unsafe { syscall(SYS_GETRANDOM, buffer, length, u64::from(flags)) };
        return isize::try_from(got).unwrap_or(-1);
    }
    let mut at = 0;
    while at < length {
        let bytes = next_random().to_ne_bytes();
        let part = (length - at).min(bytes.len());
        // SAFETY: `at + part` is at most `length`, which the caller guarantees to be writable.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.add(at), part) };
        at += part;
    }
    isize::try_from(length).unwrap_or(-1)
}

/// Replaces the C library's `clock_gettime`.
///
/// # Safety
/// `time` points to a writable `timespec`, as the C function demands.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: i32, time: *mut Timespec) -> i32 {
    if !INSIDE.try_with(Cell::get).unwrap_or(false) {
        // SAFETY: the arguments are handed on as they came.
        let done = unsafe { syscall(SYS_CLOCK_GETTIME, i64::from(clock), time) };
        return i32::try_from(done).unwrap_or(-1);
    }
    let now = present();
    let (base, skew) = if clock == CLOCK_REALTIME {
        (EPOCH, SKEW.get())
    } else {
        (MONOTONIC, 0)
    };
    let nanos = i128::from(base) * 1_000_000_000
        + i128::try_from(now.as_nanos()).unwrap_or(0)
        + i128::from(skew) * 1_000_000;
    let whole = Timespec {
        seconds: i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(0),
        nanos: i64::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0),
    };
    // SAFETY: the caller guarantees that `time` can be written.
    unsafe { time.write(whole) };
    0
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, time::SystemTime};

    use super::*;

    fn order(seed: u64) -> Vec<u32> {
        std::thread::spawn(move || {
            enter(seed);
            (0..100).collect::<HashSet<u32>>().into_iter().collect()
        })
        .join()
        .unwrap()
    }

    #[test]
    fn one_seed_gives_one_order_of_a_hash_set() {
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn clocks_stand_until_they_are_set() {
        std::thread::spawn(|| {
            enter(1);
            let (instant, wall) = (Instant::now(), SystemTime::now());
            assert_eq!(instant, Instant::now());
            set_now(Duration::from_secs(7));
            set_skew(-2_000);
            assert_eq!(instant.elapsed(), Duration::from_secs(7));
            assert_eq!(wall.elapsed().unwrap(), Duration::from_secs(5));
        })
        .join()
        .unwrap();
        // Other threads have the real ones.
        assert!(
            SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap()
                .as_secs()
                > 0
        );
    }
}

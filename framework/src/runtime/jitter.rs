//! Jitter and back-off: small, seedable, without a dependency. Not for secrets.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// No wait is longer, whatever was asked for: "never" is looked at again now and then, and sums with the present moment stay
/// in range.
pub const LONGEST_WAIT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// A source of jitter. The same seed gives the same sequence.
#[derive(Debug)]
pub struct Jitter(AtomicU64);

impl Jitter {
    /// A reproducible sequence.
    pub fn seeded(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A sequence of its own per process and call.
    pub fn random() -> Self {
        Self::seeded(RandomState::new().hash_one(0_u8))
    }

    /// The next value in `0.0..1.0`.
    pub fn unit(&self) -> f64 {
        // splitmix64
        let mut z = self
            .0
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
            .wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // 53 bits fit a f64 exactly
        (z >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// `duration`, but no more than [`LONGEST_WAIT`], plus or minus up to `fraction` of it (at most the whole).
    pub fn around(&self, duration: Duration, fraction: f64) -> Duration {
        let fraction = fraction.clamp(0.0, 1.0);
        duration
            .min(LONGEST_WAIT)
            .mul_f64((1.0 + fraction * (2.0 * self.unit() - 1.0)).max(0.0))
    }
}

/// Doubling waits with ±20 % jitter, up to a limit.
#[derive(Debug)]
pub struct Backoff {
    base: Duration,
    limit: Duration,
    failures: u32,
    jitter: Jitter,
}

impl Backoff {
    /// First wait `base`, doubling up to `limit`.
    pub fn new(base: Duration, limit: Duration, jitter: Jitter) -> Self {
        Self {
            base,
            limit,
            failures: 0,
            jitter,
        }
    }

    /// How long to wait after one more failure.
    pub fn next_wait(&mut self) -> Duration {
        self.next_wait_up_to(self.limit)
    }

    /// The same with another limit for this once.
    pub fn next_wait_up_to(&mut self, limit: Duration) -> Duration {
        let wait = doubled(self.base, limit, self.failures);
        self.failures = self.failures.saturating_add(1);
        self.jitter.around(wait, 0.2)
    }

    /// It works again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// `base`, doubled `times` times, no more than `limit`.
pub fn doubled(base: Duration, limit: Duration, times: u32) -> Duration {
    base.saturating_mul(1_u32.checked_shl(times.min(30)).unwrap_or(u32::MAX))
        .min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_reproducible_and_stays_in_its_range() {
        let (a, b) = (Jitter::seeded(7), Jitter::seeded(7));
        for _ in 0..1_000 {
            let wait = a.around(Duration::from_secs(100), 0.1);
            assert_eq!(wait, b.around(Duration::from_secs(100), 0.1));
            assert!(
                (Duration::from_secs(90)..=Duration::from_secs(110)).contains(&wait),
                "{wait:?}"
            );
        }
    }

    #[test]
    fn a_wait_without_end_has_one() {
        let jitter = Jitter::seeded(7);
        for _ in 0..100 {
            let wait = jitter.around(Duration::MAX, 0.1);
            assert!(wait > LONGEST_WAIT / 2 && wait < LONGEST_WAIT * 2, "{wait:?}");
        }
        let mut backoff = Backoff::new(Duration::MAX, Duration::MAX, Jitter::seeded(1));
        assert!(backoff.next_wait() < LONGEST_WAIT * 2);
    }

    #[test]
    fn backoff_doubles_up_to_its_limit_and_starts_over() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), Jitter::seeded(1));
        let waits: Vec<_> = (0..40).map(|_| backoff.next_wait().as_secs_f64()).collect();
        assert!((0.8..=1.2).contains(&waits[0]));
        assert!((6.4..=9.6).contains(&waits[3]), "{waits:?}");
        assert!(waits[10..].iter().all(|w| (48.0..=72.0).contains(w)));
        backoff.reset();
        assert!((0.8..=1.2).contains(&backoff.next_wait().as_secs_f64()));
    }
}

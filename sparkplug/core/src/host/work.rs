//! Steps that are counted in tests, so that growth can be tested without a clock. Nothing otherwise.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// So many steps were taken: comparisons, look-ups, values moved.
#[inline(always)]
#[cfg_attr(not(test), expect(clippy::missing_const_for_fn, reason = "it counts in tests"))]
pub(super) fn count(steps: usize) {
    #[cfg(test)]
    STEPS.set(STEPS.get() + steps as u64);
    #[cfg(not(test))]
    let _ = steps;
}

/// Steps taken on this thread while `work` runs.
#[cfg(test)]
pub(super) fn during(work: impl FnOnce()) -> u64 {
    let before = STEPS.get();
    work();
    STEPS.get() - before
}

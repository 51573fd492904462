//! Counts what is asked of the system's allocator. The only `unsafe` there is: a global allocator cannot be written without.
#![allow(
    unsafe_code,
    reason = "GlobalAlloc is an unsafe trait; every call is passed to the system's allocator unchanged"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The program has one thread, so nothing gets lost between reading and writing; a locked addition would cost those who allocate much a measurable time.
fn count(bytes: usize) {
    COUNT.store(COUNT.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    BYTES.store(BYTES.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
}

// SAFETY: each function passes its arguments on to `System` unchanged, which keeps the contract; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Allocations and reallocations, and their bytes, while `work` runs.
pub fn during(work: impl FnOnce()) -> (u64, u64) {
    let before = (COUNT.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    work();
    (COUNT.load(Ordering::Relaxed) - before.0, BYTES.load(Ordering::Relaxed) - before.1)
}

//! Counts what is asked of the system's allocator, and what is held. The only `unsafe` there is: a global allocator cannot be written without.
#![allow(
    unsafe_code,
    reason = "GlobalAlloc is an unsafe trait; every call is passed to the system's allocator unchanged"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);
static HELD: AtomicI64 = AtomicI64::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A contender has one thread, so nothing gets lost between reading and writing; a locked addition would cost those who allocate much a measurable time.
fn count(calls: u64, bytes: i64) {
    COUNT.store(COUNT.load(Ordering::Relaxed) + calls, Ordering::Relaxed);
    HELD.store(HELD.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
}

// SAFETY: each function passes its arguments on to `System` unchanged, which keeps the contract; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Allocations and reallocations so far, and bytes that are held.
pub fn so_far() -> (u64, i64) {
    (COUNT.load(Ordering::Relaxed), HELD.load(Ordering::Relaxed))
}

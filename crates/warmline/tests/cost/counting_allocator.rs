//! An allocator that counts, for each thread, what is allocated on it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Allocations so far.
    pub(crate) static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that are allocated now; below zero where other threads' were freed here.
    pub(crate) static HELD: Cell<i64> = const { Cell::new(0) };
}

fn count(grown: usize, shrunk: usize) {
    let by = i64::try_from(grown).unwrap_or(0) - i64::try_from(shrunk).unwrap_or(0);
    HELD.with(|held| held.set(held.get() + by));
}

#[expect(unsafe_code, reason = "counting allocations needs a global allocator")]
// SAFETY: every method passes its arguments unchanged to the system allocator; counting touches
// only a thread-local without a destructor, so it cannot allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        count(layout.size(), 0);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(0, layout.size());
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        count(size, layout.size());
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

//! Lock-free stack with many producers and one consumer that takes all elements at once.
//!
//! Reference: R. K. Treiber, "Systems programming: coping with parallelism", IBM RJ 5118, 1986.
//! Producers push with one compare-and-swap. The consumer drains the whole stack, so no element is
//! removed from the middle, and a head that returns to an old value (ABA) does no harm. Memory
//! order: each push releases, also on behalf of the elements that it links to, and the drain
//! acquires. So everything that a producer stored before its push is visible to the consumer.
//!
//! The atomic type is a parameter, so that loom runs the same code through all interleavings (tests
//! below).

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use talea_core::mutate;

/// End of the list.
const END: u32 = u32::MAX;

/// An integer that threads share.
pub(crate) trait AtomicInt<N = u32> {
    fn new(value: N) -> Self;
    fn load(&self, order: Ordering) -> N;
    fn store(&self, value: N, order: Ordering);
    fn swap(&self, value: N, order: Ordering) -> N;
    fn add(&self, value: N, order: Ordering);
    /// Sets `bits` and returns the previous value.
    fn or(&self, bits: N, order: Ordering) -> N;
    /// Clears all bits but `bits` and returns the previous value.
    fn and(&self, bits: N, order: Ordering) -> N;
    fn compare_exchange_weak(
        &self,
        from: N,
        to: N,
        success: Ordering,
        failure: Ordering,
    ) -> Result<N, N>;
}

macro_rules! word {
    ($atomic:ty, $number:ty) => {
        impl AtomicInt<$number> for $atomic {
            fn new(value: $number) -> Self {
                <$atomic>::new(value)
            }

            fn load(&self, order: Ordering) -> $number {
                <$atomic>::load(self, order)
            }

            fn store(&self, value: $number, order: Ordering) {
                <$atomic>::store(self, value, order);
            }

            fn swap(&self, value: $number, order: Ordering) -> $number {
                <$atomic>::swap(self, value, order)
            }

            fn add(&self, value: $number, order: Ordering) {
                <$atomic>::fetch_add(self, value, order);
            }

            fn or(&self, bits: $number, order: Ordering) -> $number {
                <$atomic>::fetch_or(self, bits, order)
            }

            fn and(&self, bits: $number, order: Ordering) -> $number {
                <$atomic>::fetch_and(self, bits, order)
            }

            fn compare_exchange_weak(
                &self,
                from: $number,
                to: $number,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$number, $number> {
                <$atomic>::compare_exchange_weak(self, from, to, success, failure)
            }
        }
    };
}

word!(AtomicU8, u8);
word!(AtomicU32, u32);
word!(AtomicU64, u64);

/// Stack of numbers. The link of each element belongs to the producer.
#[derive(Debug)]
pub(crate) struct MpscStack<W = AtomicU32> {
    head: W,
}

impl<W: AtomicInt> MpscStack<W> {
    pub(crate) fn new() -> MpscStack<W> {
        MpscStack { head: W::new(END) }
    }

    /// Pushes `task`, which must not be in the stack; `next` is its link.
    pub(crate) fn push(&self, task: u32, next: &W) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            next.store(head, Ordering::Relaxed);
            match self.head.compare_exchange_weak(
                head,
                task,
                mutate!("exec-letters", Ordering::Release, Ordering::Relaxed),
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(other) => head = other,
            }
        }
    }

    /// Drains the stack and calls `each` for each element, the last pushed one first. `next`
    /// returns the link of an element.
    pub(crate) fn drain<'a>(&self, next: impl Fn(u32) -> &'a W, mut each: impl FnMut(u32))
    where
        W: 'a,
    {
        let mut at = self.head.swap(END, Ordering::Acquire);
        while at != END {
            // Read before the call: the producer may push the element again after it.
            let following = next(at).load(Ordering::Relaxed);
            each(at);
            at = following;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    word!(loom::sync::atomic::AtomicU8, u8);
    word!(loom::sync::atomic::AtomicU32, u32);
    word!(loom::sync::atomic::AtomicU64, u64);
    type Shared = loom::sync::atomic::AtomicU32;

    const WRITERS: usize = 2;

    /// Futex-based event count in loom's terms: a waiter sleeps exactly while the value is
    /// unchanged.
    #[derive(Debug)]
    pub(crate) struct EventCount {
        word: Shared,
        sleepers: Mutex<()>,
        woken: Condvar,
    }

    impl Default for EventCount {
        fn default() -> EventCount {
            EventCount { word: Shared::new(0), sleepers: Mutex::new(()), woken: Condvar::new() }
        }
    }

    impl EventCount {
        pub(crate) fn key(&self) -> u32 {
            self.word.load(Ordering::Acquire)
        }

        pub(crate) fn notify(&self) {
            self.word.fetch_add(1, Ordering::Release);
            drop(self.sleepers.lock().unwrap());
            self.woken.notify_all();
        }

        pub(crate) fn wait(&self, key: u32) {
            let mut guard = self.sleepers.lock().unwrap();
            while self.key() == key {
                guard = self.woken.wait(guard).unwrap();
            }
        }
    }

    struct TestMailbox {
        stack: MpscStack<Shared>,
        links: [Shared; WRITERS],
        /// Written before the push, read after the drain.
        contents: [Shared; WRITERS],
        event_count: EventCount,
    }

    fn mailbox() -> Arc<TestMailbox> {
        let word = || Shared::new(0);
        Arc::new(TestMailbox {
            stack: MpscStack::new(),
            links: [word(), word()],
            contents: [word(), word()],
            event_count: EventCount::default(),
        })
    }

    #[test]
    fn in_every_interleaving_each_element_is_drained_once_with_its_content() {
        loom::model(|| {
            let mailbox = mailbox();
            let writers: Vec<_> = (0..WRITERS)
                .map(|task| {
                    let mailbox = Arc::clone(&mailbox);
                    thread::spawn(move || {
                        mailbox.contents[task].store(7 + task as u32, Ordering::Relaxed);
                        mailbox.stack.push(task as u32, &mailbox.links[task]);
                    })
                })
                .collect();
            let mut found = Vec::new();
            let mut take = || {
                mailbox.stack.drain(
                    |task| &mailbox.links[task as usize],
                    |task| {
                        assert_eq!(
                            mailbox.contents[task as usize].load(Ordering::Relaxed),
                            7 + task
                        );
                        found.push(task);
                    },
                );
            };
            take();
            for writer in writers {
                writer.join().unwrap();
            }
            take();
            found.sort_unstable();
            assert_eq!(found, [0, 1]);
        });
    }

    /// Waits as a dispatcher does: read the key, drain, wait with the key. A lost wake-up is a
    /// deadlock, which loom reports.
    fn wait_for(writers: usize) {
        let mailbox = mailbox();
        for task in 0..writers {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || {
                mailbox.stack.push(task as u32, &mailbox.links[task]);
                mailbox.event_count.notify();
            });
        }
        let mut found = 0;
        while found < writers {
            let key = mailbox.event_count.key();
            let before = found;
            mailbox.stack.drain(|task| &mailbox.links[task as usize], |_| found += 1);
            if found == before {
                mailbox.event_count.wait(key);
            }
        }
    }

    #[test]
    fn in_every_interleaving_a_reader_that_reads_the_key_first_misses_nothing() {
        loom::model(|| wait_for(1));
        // Two producers have too many interleavings; few bugs need more than two preemptions
        // (Musuvathi and Qadeer, PLDI 2007).
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| wait_for(2));
    }
}

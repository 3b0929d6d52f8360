//! A list that many write to and one empties: who has something to say.
//!
//! R. K. Treiber, "Systems programming: coping with parallelism", IBM RJ 5118, 1986: writers put
//! themselves in front with one compare-and-swap. The reader takes all at once, so that nothing is
//! ever taken from the middle and a head that comes back (ABA) does no harm. What a writer did
//! before is visible to whoever finds it in the list: each put releases, also on behalf of those
//! whose head it replaced, and the taking acquires.
//!
//! The words are a parameter, so that a model checker runs the same code through all interleavings
//! (the tests below).

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use talea_core::mutate;

/// Nobody.
const END: u32 = u32::MAX;

/// A word that threads share.
pub(crate) trait Word<N = u32> {
    fn new(value: N) -> Self;
    fn load(&self, order: Ordering) -> N;
    fn store(&self, value: N, order: Ordering);
    fn swap(&self, value: N, order: Ordering) -> N;
    fn add(&self, value: N, order: Ordering);
    /// What was there before.
    fn or(&self, bits: N, order: Ordering) -> N;
    /// What was there before.
    fn and(&self, bits: N, order: Ordering) -> N;
    fn replace(&self, from: N, to: N, success: Ordering, failure: Ordering) -> Result<N, N>;
}

macro_rules! word {
    ($atomic:ty, $number:ty) => {
        impl Word<$number> for $atomic {
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

            fn replace(
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

/// The list; the links are the writers' own.
#[derive(Debug)]
pub(crate) struct Letters<W = AtomicU32> {
    head: W,
}

impl<W: Word> Letters<W> {
    pub(crate) fn new() -> Letters<W> {
        Letters { head: W::new(END) }
    }

    /// Puts `who` in front, who is not in the list; `next` is its link.
    pub(crate) fn put(&self, who: u32, next: &W) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            next.store(head, Ordering::Relaxed);
            match self.head.replace(
                head,
                who,
                mutate!("exec-letters", Ordering::Release, Ordering::Relaxed),
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(other) => head = other,
            }
        }
    }

    /// Takes all, the last one first, and passes them on; `next` finds their links.
    pub(crate) fn take<'a>(&self, next: impl Fn(u32) -> &'a W, mut each: impl FnMut(u32))
    where
        W: 'a,
    {
        let mut at = self.head.swap(END, Ordering::Acquire);
        while at != END {
            // Read before it is passed on: then its writer may use it again.
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

    /// What a futex does, in terms of the model checker: who waits for a value is asleep exactly
    /// while it stands.
    #[derive(Debug)]
    pub(crate) struct Bell {
        word: Shared,
        sleepers: Mutex<()>,
        woken: Condvar,
    }

    impl Default for Bell {
        fn default() -> Bell {
            Bell { word: Shared::new(0), sleepers: Mutex::new(()), woken: Condvar::new() }
        }
    }

    impl Bell {
        pub(crate) fn heard(&self) -> u32 {
            self.word.load(Ordering::Acquire)
        }

        pub(crate) fn ring(&self) {
            self.word.fetch_add(1, Ordering::Release);
            drop(self.sleepers.lock().unwrap());
            self.woken.notify_all();
        }

        pub(crate) fn wait(&self, heard: u32) {
            let mut guard = self.sleepers.lock().unwrap();
            while self.heard() == heard {
                guard = self.woken.wait(guard).unwrap();
            }
        }
    }

    struct Desk {
        letters: Letters<Shared>,
        links: [Shared; WRITERS],
        /// Written before a letter, read after it.
        contents: [Shared; WRITERS],
        bell: Bell,
    }

    fn desk() -> Arc<Desk> {
        let word = || Shared::new(0);
        Arc::new(Desk {
            letters: Letters::new(),
            links: [word(), word()],
            contents: [word(), word()],
            bell: Bell::default(),
        })
    }

    #[test]
    fn in_every_interleaving_each_letter_is_found_once_with_its_content() {
        loom::model(|| {
            let desk = desk();
            let writers: Vec<_> = (0..WRITERS)
                .map(|who| {
                    let desk = Arc::clone(&desk);
                    thread::spawn(move || {
                        desk.contents[who].store(7 + who as u32, Ordering::Relaxed);
                        desk.letters.put(who as u32, &desk.links[who]);
                    })
                })
                .collect();
            let mut found = Vec::new();
            let mut take = || {
                desk.letters.take(
                    |who| &desk.links[who as usize],
                    |who| {
                        assert_eq!(desk.contents[who as usize].load(Ordering::Relaxed), 7 + who);
                        found.push(who);
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

    /// As a dispatcher does: hear, take, sleep over what was heard. A lost wake-up is a deadlock,
    /// which is found.
    fn listen(writers: usize) {
        let desk = desk();
        for who in 0..writers {
            let desk = Arc::clone(&desk);
            thread::spawn(move || {
                desk.letters.put(who as u32, &desk.links[who]);
                desk.bell.ring();
            });
        }
        let mut found = 0;
        while found < writers {
            let heard = desk.bell.heard();
            let before = found;
            desk.letters.take(|who| &desk.links[who as usize], |_| found += 1);
            if found == before {
                desk.bell.wait(heard);
            }
        }
    }

    #[test]
    fn in_every_interleaving_a_reader_that_listens_first_sleeps_over_nothing() {
        loom::model(|| listen(1));
        // With two there are too many; few bugs need more than two preemptions (Musuvathi and
        // Qadeer, PLDI 2007).
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| listen(2));
    }
}

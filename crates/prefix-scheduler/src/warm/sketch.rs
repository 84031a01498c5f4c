//! How often a key was seen recently: a count-min sketch with decay (TinyLFU; Einziger, Friedman and Manes, 2017).
//!
//! Every key has a counter in each of four rows; its estimate is the smallest of them. An estimate is never too low, and
//! too high only if other keys share all four counters. After every sample of keys, all counters are halved.

use super::Key;

const ROWS: usize = 4;
/// Counters of a row.
const WIDTH: usize = 1 << 16;
/// The counters; 256 KiB.
pub(super) struct Sketch {
    counters: Vec<u8>,
    counted: usize,
}

impl Sketch {
    pub fn new() -> Self {
        Self { counters: vec![0; ROWS * WIDTH], counted: 0 }
    }

    /// Places of a key's counters. The bytes of a key are a hash already.
    fn places(key: &Key) -> [usize; ROWS] {
        let bytes = &key.hash[if key.scored { 16 } else { 0 }..];
        std::array::from_fn(|row| row * WIDTH + usize::from(u16::from_le_bytes([bytes[2 * row], bytes[2 * row + 1]])))
    }

    /// Counts a key. Only its smallest counters grow, which keeps the others' estimates low. Returns true if the counters
    /// were halved, because `sample` keys were counted.
    pub fn add(&mut self, key: &Key, sample: usize) -> bool {
        let least = self.estimate(key);
        for place in Self::places(key) {
            if self.counters[place] == least {
                self.counters[place] = least.saturating_add(1);
            }
        }
        self.counted += 1;
        let full = self.counted >= sample;
        if full {
            self.counters.iter_mut().for_each(|counter| *counter /= 2);
            self.counted /= 2;
        }
        full
    }

    /// Estimate of how often a key was counted; at most 255.
    pub fn estimate(&self, key: &Key) -> u8 {
        Self::places(key).into_iter().map(|place| self.counters[place]).min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key::of_generator(&number.to_string())
    }

    #[test]
    fn estimates_are_the_counts_and_halve_with_time() {
        let mut sketch = Sketch::new();
        for number in 0..100 {
            for _ in 0..=number {
                assert!(!sketch.add(&key(number), 10_000));
            }
        }
        for number in 0..100_u8 {
            assert_eq!(sketch.estimate(&key(number.into())), number + 1);
        }
        assert_eq!(sketch.estimate(&key(1_000)), 0);
        assert!((0..400).all(|_| !sketch.add(&key(7), 10_000)));
        assert_eq!(sketch.estimate(&key(7)), 255, "counters do not overflow");
        assert!(sketch.add(&key(8), 5_050 + 400 + 1));
        assert_eq!((sketch.counted, sketch.estimate(&key(7))), (2_725, 127));
        assert_eq!(sketch.estimate(&key(99)), 50);
    }
}

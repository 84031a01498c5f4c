//! Long computations that decode or encode a message, outside of [`Call::compute`](super::Call::compute).

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};

/// A larger message blocks the reactor's thread for more than a millisecond.
pub const LARGE: usize = 256 << 10;

/// Runs the work for a large message. It runs one at a time, so that many large messages leave cores to other work,
/// and on a thread that the reactor gives up, so that small requests and health checks do not wait.
pub fn beside_the_reactor<T>(work: impl FnOnce() -> T) -> T {
    static ONE: Mutex<()> = Mutex::new(());
    let one_at_a_time = || {
        let _one = ONE.lock();
        work()
    };
    // A single-threaded reactor, as in tests, has no other thread.
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(one_at_a_time),
        _ => one_at_a_time(),
    }
}

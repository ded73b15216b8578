//! Waiting for what must happen, and failing if it does not.

use std::{future::Future, time::Duration};

/// Long enough for anything that will happen at all, on a busy machine too.
pub const DEADLINE: Duration = Duration::from_mins(1);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// The outcome of `what`, which must come before the deadline.
///
/// # Panics
/// If it does not come.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(DEADLINE, what).await;
    outcome.unwrap_or_else(|_| panic!("nothing came within {DEADLINE:?}"))
}

/// Looks again and again until `look` finds something, and gives that.
///
/// # Panics
/// If the deadline passes; `what` names what did not happen.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        let mut looks = tokio::time::interval(LOOK);
        loop {
            looks.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    };
    let found = tokio::time::timeout(DEADLINE, looking).await;
    found.unwrap_or_else(|_| panic!("did not happen within {DEADLINE:?}: {what}"))
}

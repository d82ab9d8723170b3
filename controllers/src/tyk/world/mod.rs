//! The living model: watches feed it, controllers ask it. Here: asking. Nothing is decided and nothing is written.

use super::objects::{Key, Kind};

/// What is known about an object's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer<T> {
    /// It is not there, or nothing of ours.
    None,
    /// It hangs on an object that was announced and whose content has not been read yet. Nothing may be concluded.
    Pending(Kind, Key),
    /// The answer.
    Known(T),
}

//! The read path: point look-ups and the stack of iterators.

pub mod internal;

//! A list of names.

use std::ffi::{CStr, CString};

/// Names, in an order that whoever gives them says. Usable from all threads at once.
pub struct Names(Vec<CString>);

impl Names {
    pub(crate) fn new(names: Vec<String>) -> Names {
        // A keyspace's name has no control characters.
        Names(names.into_iter().filter_map(|name| CString::new(name).ok()).collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Name number `at`, if there is one.
    pub fn name(&self, at: usize) -> Option<&CStr> {
        self.0.get(at).map(CString::as_c_str)
    }
}

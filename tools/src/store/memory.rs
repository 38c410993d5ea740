//! A store on an ordered map, for tests. It can fail at a chosen write, and counts its calls.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use dialsm_core::{Error, ErrorKind, Options, Result};
use dialsm_io::{Fs, OsFs};

use super::{Cursor, Op, OpenMode, Opener, Range, StatsForm, Store, Verified};

pub(crate) type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) map: RefCell<Map>,
    pub(crate) exists: Cell<bool>,
    pub(crate) writes: Cell<u64>,
    pub(crate) synced_writes: Cell<u64>,
    pub(crate) flushes: Cell<u64>,
    pub(crate) closes: Cell<u64>,
    pub(crate) fail_write: Cell<Option<u64>>,
    pub(crate) compacted: RefCell<Vec<Range>>,
    pub(crate) damage: RefCell<Option<Error>>,
    pub(crate) options: RefCell<Option<Options>>,
}

/// One database, whatever the path.
#[derive(Clone, Default)]
pub(crate) struct Memory(pub(crate) Rc<State>);

impl Opener for Memory {
    fn open(&self, path: &Path, options: Options, mode: OpenMode) -> Result<Box<dyn Store>> {
        if mode != OpenMode::CreateIfMissing && !self.0.exists.get() {
            return Err(Error::new(ErrorKind::NotFound, "no database").at_path(path));
        }
        self.0.exists.set(true);
        *self.0.options.borrow_mut() = Some(options);
        Ok(Box::new(self.clone()))
    }

    fn saved_options(&self, path: &Path) -> Result<Options> {
        let missing = || Error::new(ErrorKind::NotFound, "no options").at_path(path);
        self.0.options.borrow().clone().ok_or_else(missing)
    }

    fn fs(&self) -> Arc<dyn Fs> {
        OsFs::new()
    }
}

impl Store for Memory {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.map.borrow().get(key).cloned())
    }

    fn write(&self, ops: Vec<Op>, sync: bool) -> Result<()> {
        self.0.writes.set(self.0.writes.get() + 1);
        self.0.synced_writes.set(self.0.synced_writes.get() + u64::from(sync));
        if self.0.fail_write.get() == Some(self.0.writes.get()) {
            return Err(Error::new(ErrorKind::NoSpace, "the test's device is full"));
        }
        let mut map = self.0.map.borrow_mut();
        for op in ops {
            match op {
                Op::Put(key, value) => map.insert(key, value),
                Op::Delete(key) => map.remove(&key),
            };
        }
        Ok(())
    }

    fn scan(&self, range: &Range) -> Result<Box<dyn Cursor>> {
        let lower = range.lower.clone().map_or(Bound::Unbounded, Bound::Included);
        let upper = range.upper.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let empty = matches!((&range.lower, &range.upper), (Some(l), Some(u)) if l >= u);
        let mut entries: Vec<_> = if empty {
            Vec::new()
        } else {
            self.0.map.borrow().range((lower, upper)).map(|(k, v)| (k.clone(), v.clone())).collect()
        };
        // Taken from the end.
        if !range.reverse {
            entries.reverse();
        }
        Ok(Box::new(MemoryCursor { entries, now: Default::default() }))
    }

    fn flush(&self) -> Result<()> {
        self.0.flushes.set(self.0.flushes.get() + 1);
        Ok(())
    }

    fn compact(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<()> {
        let (lower, upper) = (lower.map(<[u8]>::to_vec), upper.map(<[u8]>::to_vec));
        self.0.compacted.borrow_mut().push(Range { lower, upper, reverse: false });
        Ok(())
    }

    fn stats(&self, form: StatsForm) -> Result<String> {
        let text = match form {
            StatsForm::Text => "writes 1",
            StatsForm::Json => "{\"writes\":1}",
            StatsForm::Prometheus => "dialsm_writes_total 1\n",
        };
        Ok(text.into())
    }

    fn property(&self, name: &str) -> Result<Option<String>> {
        Ok((name == "known").then(|| "7".into()))
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified> {
        progress(1, 2);
        match &*self.0.damage.borrow() {
            Some(error) => Err(error.clone()),
            None => Ok(Verified { tables: 1, entries: self.0.map.borrow().len() as u64, bytes: 2 }),
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.0.closes.set(self.0.closes.get() + 1);
        Ok(())
    }
}

struct MemoryCursor {
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    now: (Vec<u8>, Vec<u8>),
}

impl Cursor for MemoryCursor {
    fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match self.entries.pop() {
            Some(entry) => {
                self.now = entry;
                Ok(Some((&self.now.0, &self.now.1)))
            }
            None => Ok(None),
        }
    }
}

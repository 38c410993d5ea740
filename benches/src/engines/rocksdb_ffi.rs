//! RocksDB's C interface, loaded at run time and wrapped so that its users need no `unsafe`.
//!
//! INVARIANTS: the library is never unloaded, because its threads may outlive a database; handles
//! are destroyed once, by `Drop`, the database last of all; a pointer the library returned is read
//! only until the call that the interface says ends it.
//!
//! Absent on purpose: everything the benchmark does not call.

use anyhow::{Result, anyhow, bail};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

type Handle = *mut c_void;
type Chars = *const c_char;
type ErrorOut = *mut *mut c_char;

macro_rules! api {
    ($($name:ident($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// The functions by their names without `rocksdb_`.
        #[allow(non_snake_case)] // One of the names has capitals.
        pub(super) struct Api {
            $($name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            cache_create_hyper_clock: Option<unsafe extern "C" fn(usize, usize) -> Handle>,
        }

        impl Api {
            fn from_library(library: &Library) -> Result<Api> {
                Ok(Api {
                    $($name: {
                        let symbol = concat!("rocksdb_", stringify!($name));
                        // SAFETY: the type is the one that c.h declares for this name; it is the
                        // same in all releases from 7 to 11.
                        *unsafe { library.get::<unsafe extern "C" fn($($arg),*) $(-> $ret)?>(symbol) }
                            .map_err(|_| anyhow!("the library has no {symbol}"))?
                    },)*
                    // SAFETY: as above; releases before 8 do not have it.
                    cache_create_hyper_clock: unsafe { library.get("rocksdb_cache_create_hyper_clock") }
                        .ok()
                        .map(|symbol| *symbol),
                })
            }
        }
    };
}

api! {
    free(Handle);
    options_create() -> Handle;
    options_destroy(Handle);
    options_set_create_if_missing(Handle, c_uchar);
    options_set_write_buffer_size(Handle, usize);
    options_get_write_buffer_size(Handle) -> usize;
    options_set_max_write_buffer_number(Handle, c_int);
    options_get_max_write_buffer_number(Handle) -> c_int;
    options_set_min_write_buffer_number_to_merge(Handle, c_int);
    options_set_level0_file_num_compaction_trigger(Handle, c_int);
    options_get_level0_file_num_compaction_trigger(Handle) -> c_int;
    options_set_level0_slowdown_writes_trigger(Handle, c_int);
    options_get_level0_slowdown_writes_trigger(Handle) -> c_int;
    options_set_level0_stop_writes_trigger(Handle, c_int);
    options_get_level0_stop_writes_trigger(Handle) -> c_int;
    options_set_max_background_jobs(Handle, c_int);
    options_get_max_background_jobs(Handle) -> c_int;
    options_set_max_subcompactions(Handle, u32);
    options_get_max_subcompactions(Handle) -> u32;
    options_set_compression(Handle, c_int);
    options_get_compression(Handle) -> c_int;
    options_set_target_file_size_base(Handle, u64);
    options_get_target_file_size_base(Handle) -> u64;
    options_set_max_bytes_for_level_base(Handle, u64);
    options_get_max_bytes_for_level_base(Handle) -> u64;
    options_set_max_open_files(Handle, c_int);
    options_get_max_open_files(Handle) -> c_int;
    options_set_enable_pipelined_write(Handle, c_uchar);
    options_get_enable_pipelined_write(Handle) -> c_uchar;
    options_set_level_compaction_dynamic_level_bytes(Handle, c_uchar);
    options_get_level_compaction_dynamic_level_bytes(Handle) -> c_uchar;
    get_options_from_string(Handle, Chars, Handle, ErrorOut);
    options_set_block_based_table_factory(Handle, Handle);
    block_based_options_create() -> Handle;
    block_based_options_destroy(Handle);
    block_based_options_set_block_size(Handle, usize);
    block_based_options_set_block_cache(Handle, Handle);
    block_based_options_set_no_block_cache(Handle, c_uchar);
    block_based_options_set_cache_index_and_filter_blocks(Handle, c_uchar);
    block_based_options_set_filter_policy(Handle, Handle);
    filterpolicy_create_bloom_full(f64) -> Handle;
    cache_create_lru(usize) -> Handle;
    cache_destroy(Handle);
    open_column_families(Handle, Chars, c_int, *const Chars, *const Handle, *mut Handle, ErrorOut) -> Handle;
    create_column_family(Handle, Handle, Chars, ErrorOut) -> Handle;
    column_family_handle_destroy(Handle);
    close(Handle);
    put(Handle, Handle, Chars, usize, Chars, usize, ErrorOut);
    put_cf(Handle, Handle, Handle, Chars, usize, Chars, usize, ErrorOut);
    delete(Handle, Handle, Chars, usize, ErrorOut);
    delete_range_cf(Handle, Handle, Handle, Chars, usize, Chars, usize, ErrorOut);
    write(Handle, Handle, Handle, ErrorOut);
    get_pinned(Handle, Handle, Chars, usize, ErrorOut) -> Handle;
    batched_multi_get_cf(Handle, Handle, Handle, usize, *const Chars, *const usize, *mut Handle, ErrorOut, bool);
    pinnableslice_value(Handle, *mut usize) -> Chars;
    pinnableslice_destroy(Handle);
    writebatch_create() -> Handle;
    writebatch_destroy(Handle);
    writebatch_clear(Handle);
    writebatch_put(Handle, Chars, usize, Chars, usize);
    writebatch_delete(Handle, Chars, usize);
    readoptions_create() -> Handle;
    readoptions_destroy(Handle);
    writeoptions_create() -> Handle;
    writeoptions_destroy(Handle);
    writeoptions_set_sync(Handle, c_uchar);
    writeoptions_disable_WAL(Handle, c_int);
    flushoptions_create() -> Handle;
    flushoptions_destroy(Handle);
    flush(Handle, Handle, ErrorOut);
    create_iterator(Handle, Handle) -> Handle;
    iter_destroy(Handle);
    iter_valid(Handle) -> c_uchar;
    iter_seek_to_first(Handle);
    iter_seek_to_last(Handle);
    iter_seek(Handle, Chars, usize);
    iter_next(Handle);
    iter_prev(Handle);
    iter_key(Handle, *mut usize) -> Chars;
    iter_value(Handle, *mut usize) -> Chars;
    iter_get_error(Handle, ErrorOut);
    property_value(Handle, Chars) -> *mut c_char;
    property_int(Handle, Chars, *mut u64) -> c_int;
}

impl Api {
    /// Loads a library, for the life of the process.
    ///
    /// # Errors
    /// It is not there, or it lacks a function.
    pub(super) fn load(path: &Path) -> Result<&'static Api> {
        // SAFETY: running a library's initialisers is what loading is for; RocksDB's touch nothing of
        // this program.
        let library = unsafe { Library::new(path) }?;
        let api = Api::from_library(&library)?;
        std::mem::forget(library);
        Ok(Box::leak(Box::new(api)))
    }

    pub(super) fn has_hyper_clock_cache(&self) -> bool {
        self.cache_create_hyper_clock.is_some()
    }

    /// Turns the library's error into one of ours and frees it.
    fn check(&self, error: *mut c_char) -> Result<()> {
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: the library wrote a terminated string there, which is now ours to free.
        let text = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
        // SAFETY: as above, and it is not used after.
        unsafe { (self.free)(error.cast()) };
        bail!("rocksdb: {text}")
    }
}

/// What is set in a database's options; `None` leaves all of it to the library.
pub(super) struct Settings {
    pub(super) write_buffer_size: usize,
    pub(super) max_write_buffer_number: c_int,
    pub(super) min_write_buffer_number_to_merge: c_int,
    pub(super) level0_triggers: [c_int; 3],
    pub(super) max_background_jobs: c_int,
    pub(super) subcompactions: u32,
    pub(super) compression: c_int,
    pub(super) target_file_size_base: u64,
    pub(super) max_bytes_for_level_base: u64,
    pub(super) open_files: c_int,
    pub(super) pipelined_write: bool,
    pub(super) dynamic_level_bytes: Option<bool>,
    pub(super) block_size: usize,
    pub(super) cache_bytes: usize,
    pub(super) hyper_clock: bool,
    pub(super) cache_index_and_filter: bool,
    pub(super) bloom_bits: f64,
}

/// Options, made and destroyed with the database they open.
struct Options {
    api: &'static Api,
    raw: Handle,
}

impl Options {
    fn new(api: &'static Api, settings: Option<&Settings>) -> Options {
        // SAFETY: creates a handle that `Drop` destroys; each setter takes such a handle and a number.
        let raw = unsafe { (api.options_create)() };
        let options = Options { api, raw };
        // SAFETY: as above.
        unsafe { (api.options_set_create_if_missing)(raw, 1) };
        if let Some(settings) = settings {
            options.set(settings);
            options.set_table(settings);
        }
        options
    }

    /// The same, but for what `own` names, as in the library's OPTIONS files.
    fn with_own(self, own: &[(&str, &str)]) -> Result<Options> {
        if own.is_empty() {
            return Ok(self);
        }
        let (api, mut error) = (self.api, null_mut());
        let text: Vec<String> = own.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let text = CString::new(text.join(";"))?;
        // SAFETY: a plain constructor.
        let changed = Options { api, raw: unsafe { (api.options_create)() } };
        // SAFETY: two live handles, of which the second is changed, and a string that lives through the call.
        unsafe { (api.get_options_from_string)(self.raw, text.as_ptr(), changed.raw, &mut error) };
        api.check(error)?;
        Ok(changed)
    }

    fn set(&self, settings: &Settings) {
        let (api, raw) = (self.api, self.raw);
        let [trigger, slowdown, stop] = settings.level0_triggers;
        // SAFETY: setters of plain numbers on a live handle.
        unsafe {
            (api.options_set_write_buffer_size)(raw, settings.write_buffer_size);
            (api.options_set_max_write_buffer_number)(raw, settings.max_write_buffer_number);
            (api.options_set_min_write_buffer_number_to_merge)(
                raw,
                settings.min_write_buffer_number_to_merge,
            );
            (api.options_set_level0_file_num_compaction_trigger)(raw, trigger);
            (api.options_set_level0_slowdown_writes_trigger)(raw, slowdown);
            (api.options_set_level0_stop_writes_trigger)(raw, stop);
            (api.options_set_max_background_jobs)(raw, settings.max_background_jobs);
            (api.options_set_max_subcompactions)(raw, settings.subcompactions);
            (api.options_set_compression)(raw, settings.compression);
            (api.options_set_target_file_size_base)(raw, settings.target_file_size_base);
            (api.options_set_max_bytes_for_level_base)(raw, settings.max_bytes_for_level_base);
            (api.options_set_max_open_files)(raw, settings.open_files);
            (api.options_set_enable_pipelined_write)(raw, settings.pipelined_write.into());
            if let Some(dynamic) = settings.dynamic_level_bytes {
                (api.options_set_level_compaction_dynamic_level_bytes)(raw, dynamic.into());
            }
        }
    }

    fn set_table(&self, settings: &Settings) {
        let api = self.api;
        // SAFETY: the table options are copied into the options and destroyed here; the filter policy
        // passes to them; the cache is shared, so that our reference to it is destroyed here too.
        unsafe {
            let table = (api.block_based_options_create)();
            (api.block_based_options_set_block_size)(table, settings.block_size);
            let index_in_cache = settings.cache_index_and_filter.into();
            (api.block_based_options_set_cache_index_and_filter_blocks)(table, index_in_cache);
            if settings.bloom_bits > 0.0 {
                let policy = (api.filterpolicy_create_bloom_full)(settings.bloom_bits);
                (api.block_based_options_set_filter_policy)(table, policy);
            }
            if settings.cache_bytes == 0 {
                (api.block_based_options_set_no_block_cache)(table, 1);
            } else {
                let cache = match api.cache_create_hyper_clock {
                    // An entry charge of 0 lets the cache adapt to the entries it gets.
                    Some(create) if settings.hyper_clock => create(settings.cache_bytes, 0),
                    _ => (api.cache_create_lru)(settings.cache_bytes),
                };
                (api.block_based_options_set_block_cache)(table, cache);
                (api.cache_destroy)(cache);
            }
            (api.options_set_block_based_table_factory)(self.raw, table);
            (api.block_based_options_destroy)(table);
        }
    }

    fn text(&self) -> String {
        let (api, raw) = (self.api, self.raw);
        // SAFETY: getters of plain numbers on a live handle.
        unsafe {
            format!(
                "write_buffer_size={} max_write_buffer_number={} level0={}/{}/{} max_background_jobs={} \
                 subcompactions={} compression={} target_file_size_base={} max_bytes_for_level_base={} \
                 open_files={} pipelined_write={} dynamic_level_bytes={}",
                (api.options_get_write_buffer_size)(raw),
                (api.options_get_max_write_buffer_number)(raw),
                (api.options_get_level0_file_num_compaction_trigger)(raw),
                (api.options_get_level0_slowdown_writes_trigger)(raw),
                (api.options_get_level0_stop_writes_trigger)(raw),
                (api.options_get_max_background_jobs)(raw),
                (api.options_get_max_subcompactions)(raw),
                (api.options_get_compression)(raw),
                (api.options_get_target_file_size_base)(raw),
                (api.options_get_max_bytes_for_level_base)(raw),
                (api.options_get_max_open_files)(raw),
                (api.options_get_enable_pipelined_write)(raw),
                (api.options_get_level_compaction_dynamic_level_bytes)(raw),
            )
        }
    }
}

/// Whether the library knows the options of `own` and takes their values.
///
/// # Errors
/// It says why not.
pub(super) fn check_own(api: &'static Api, own: &[(&str, &str)]) -> Result<()> {
    Options::new(api, None).with_own(own).map(|_| ())
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed here only.
        unsafe { (self.api.options_destroy)(self.raw) };
    }
}

/// An open database with its default column family and the option handles of all calls.
pub(super) struct Database {
    api: &'static Api,
    db: Handle,
    family: Handle,
    /// Handles of the other column families.
    others: Mutex<Vec<usize>>,
    read_options: Handle,
    /// By `sync + 2 * disable_wal`.
    write_options: [Handle; 4],
    /// Empty batches to use again, with the room they have grown.
    batches: Mutex<Vec<usize>>,
    options: Options,
}

// SAFETY: RocksDB's database may be used from any thread and from many at once; the option handles
// are only read after they are made, and the batches are behind a lock.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

fn chars(bytes: &[u8]) -> Chars {
    bytes.as_ptr().cast()
}

impl Database {
    /// Opens or makes the database in `dir`, with the column families named beside the default one; what
    /// `own` names is set after `settings`.
    pub(super) fn open(
        api: &'static Api,
        dir: &Path,
        settings: Option<&Settings>,
        own: &[(&str, &str)],
        others: &[String],
    ) -> Result<Database> {
        use std::os::unix::ffi::OsStrExt;
        let options = Options::new(api, settings).with_own(own)?;
        let path = CString::new(dir.as_os_str().as_bytes())?;
        let others = others.iter().map(|name| CString::new(name.as_str())).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<Chars> =
            std::iter::once(c"default".as_ptr()).chain(others.iter().map(|name| name.as_ptr())).collect();
        let each_options = vec![options.raw as *const c_void; names.len()];
        let mut families: Vec<Handle> = vec![null_mut(); names.len()];
        let mut error = null_mut();
        // SAFETY: as many names, options handles and places for family handles as the count says; the
        // strings live through the call. (Opening by families is the one way to get the family's
        // handle, which the batched multi-get wants, in every release.)
        let db = unsafe {
            (api.open_column_families)(
                options.raw,
                path.as_ptr(),
                c_int::try_from(names.len())?,
                names.as_ptr(),
                each_options.as_ptr().cast(),
                families.as_mut_ptr(),
                &mut error,
            )
        };
        api.check(error)?;
        // SAFETY: plain constructors and setters.
        let (read_options, write_options) = unsafe {
            let write_options = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(sync, disable_wal)| {
                let raw = (api.writeoptions_create)();
                (api.writeoptions_set_sync)(raw, sync);
                (api.writeoptions_disable_WAL)(raw, disable_wal);
                raw
            });
            ((api.readoptions_create)(), write_options)
        };
        let family = families.remove(0);
        let others = Mutex::new(families.into_iter().map(|raw| raw as usize).collect());
        let batches = Mutex::default();
        Ok(Database { api, db, family, others, read_options, write_options, batches, options })
    }

    fn write_options(&self, sync: bool, disable_wal: bool) -> Handle {
        self.write_options[usize::from(sync) + 2 * usize::from(disable_wal)]
    }

    pub(super) fn put(&self, key: &[u8], value: &[u8], sync: bool, disable_wal: bool) -> Result<()> {
        let options = self.write_options(sync, disable_wal);
        let mut error = null_mut();
        // SAFETY: live handles; key and value are only read, during the call.
        unsafe {
            (self.api.put)(self.db, options, chars(key), key.len(), chars(value), value.len(), &mut error);
        }
        self.api.check(error)
    }

    pub(super) fn delete(&self, key: &[u8], sync: bool, disable_wal: bool) -> Result<()> {
        let options = self.write_options(sync, disable_wal);
        let mut error = null_mut();
        // SAFETY: as in `put`.
        unsafe { (self.api.delete)(self.db, options, chars(key), key.len(), &mut error) };
        self.api.check(error)
    }

    /// Makes a column family and writes one entry into it.
    pub(super) fn create_family(&self, name: &str, key: &[u8], value: &[u8]) -> Result<()> {
        let name = CString::new(name)?;
        let mut error = null_mut();
        // SAFETY: live handles, and a name that lives through the call.
        let family =
            unsafe { (self.api.create_column_family)(self.db, self.options.raw, name.as_ptr(), &mut error) };
        self.api.check(error)?;
        self.others.lock().unwrap_or_else(PoisonError::into_inner).push(family as usize);
        let (options, mut error) = (self.write_options(false, false), null_mut());
        // SAFETY: as in `put`, into the family just made.
        unsafe {
            (self.api.put_cf)(
                self.db,
                options,
                family,
                chars(key),
                key.len(),
                chars(value),
                value.len(),
                &mut error,
            );
        }
        self.api.check(error)
    }

    pub(super) fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let options = self.write_options(false, false);
        let mut error = null_mut();
        // SAFETY: as in `put`; the family's handle lives as the database does.
        unsafe {
            (self.api.delete_range_cf)(
                self.db,
                options,
                self.family,
                chars(from),
                from.len(),
                chars(to),
                to.len(),
                &mut error,
            );
        }
        self.api.check(error)
    }

    /// Writes a batch that `fill` fills.
    pub(super) fn write(
        &self,
        fill: impl FnOnce(&mut Batch<'_>),
        sync: bool,
        disable_wal: bool,
    ) -> Result<()> {
        let pooled = self.batches.lock().unwrap_or_else(PoisonError::into_inner).pop();
        // SAFETY: a plain constructor.
        let raw = pooled.map_or_else(|| unsafe { (self.api.writebatch_create)() }, |raw| raw as Handle);
        fill(&mut Batch { api: self.api, raw });
        let mut error = null_mut();
        // SAFETY: live handles; the batch is ours alone until it is back in the pool, emptied.
        unsafe {
            (self.api.write)(self.db, self.write_options(sync, disable_wal), raw, &mut error);
            (self.api.writebatch_clear)(raw);
        }
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).push(raw as usize);
        self.api.check(error)
    }

    /// Shows `sink` the value in the library's memory, pinned.
    pub(super) fn get(&self, key: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut error = null_mut();
        // SAFETY: live handles; the key is only read, during the call.
        let slice =
            unsafe { (self.api.get_pinned)(self.db, self.read_options, chars(key), key.len(), &mut error) };
        self.api.check(error)?;
        Ok(self.show_and_free(slice, sink))
    }

    fn show_and_free(&self, slice: Handle, sink: &mut dyn FnMut(&[u8])) -> bool {
        if slice.is_null() {
            return false;
        }
        let mut len = 0;
        // SAFETY: a pinned slice holds its bytes until it is destroyed, after the sink has seen them.
        unsafe {
            let value = (self.api.pinnableslice_value)(slice, &mut len);
            sink(bytes_at(value, len));
            (self.api.pinnableslice_destroy)(slice);
        }
        true
    }

    /// Looks all keys up in one call and shows `sink` the values that there are.
    pub(super) fn multi_get(&self, keys: &[&[u8]], sink: &mut dyn FnMut(&[u8])) -> Result<u64> {
        let pointers: Vec<Chars> = keys.iter().map(|key| chars(key)).collect();
        let sizes: Vec<usize> = keys.iter().map(|key| key.len()).collect();
        let mut slices: Vec<Handle> = vec![null_mut(); keys.len()];
        let mut errors: Vec<*mut c_char> = vec![null_mut(); keys.len()];
        // SAFETY: all four arrays have as many places as there are keys, and outlive the call.
        unsafe {
            (self.api.batched_multi_get_cf)(
                self.db,
                self.read_options,
                self.family,
                keys.len(),
                pointers.as_ptr(),
                sizes.as_ptr(),
                slices.as_mut_ptr(),
                errors.as_mut_ptr(),
                false,
            );
        }
        let found = slices.into_iter().map(|slice| u64::from(self.show_and_free(slice, sink))).sum();
        errors.into_iter().map(|error| self.api.check(error)).fold(Ok(()), Result::and)?;
        Ok(found)
    }

    pub(super) fn iterator(&self) -> Iter<'_> {
        // SAFETY: live handles; the borrow keeps the database open as long as the iterator.
        let raw = unsafe { (self.api.create_iterator)(self.db, self.read_options) };
        Iter { db: self, raw, on_entry: false }
    }

    pub(super) fn flush(&self) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: the flush options live through the call and are destroyed once.
        unsafe {
            let options = (self.api.flushoptions_create)();
            (self.api.flush)(self.db, options, &mut error);
            (self.api.flushoptions_destroy)(options);
        }
        self.api.check(error)
    }

    /// A property that is a number, if there is one of that name.
    pub(super) fn number(&self, property: &CStr) -> Option<u64> {
        let mut value = 0;
        // SAFETY: a terminated name and room for one number.
        let status = unsafe { (self.api.property_int)(self.db, property.as_ptr(), &mut value) };
        (status == 0).then_some(value)
    }

    /// A property that is a text, or nothing.
    pub(super) fn text(&self, property: &CStr) -> String {
        // SAFETY: a terminated name; the answer is null or a terminated string that is ours to free.
        unsafe {
            let raw = (self.api.property_value)(self.db, property.as_ptr());
            if raw.is_null() {
                return String::new();
            }
            let text = CStr::from_ptr(raw).to_string_lossy().into_owned();
            (self.api.free)(raw.cast());
            text
        }
    }

    pub(super) fn options_text(&self) -> String {
        self.options.text()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let api = self.api;
        let batches = std::mem::take(&mut *self.batches.lock().unwrap_or_else(PoisonError::into_inner));
        let others = std::mem::take(&mut *self.others.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: each handle was made by `open`, `create_family` or `write` and is destroyed here only; iterators
        // borrow the database, so none is left.
        unsafe {
            batches.into_iter().for_each(|raw| (api.writebatch_destroy)(raw as Handle));
            others.into_iter().for_each(|raw| (api.column_family_handle_destroy)(raw as Handle));
            (api.column_family_handle_destroy)(self.family);
            (api.close)(self.db);
            (api.readoptions_destroy)(self.read_options);
            self.write_options.iter().for_each(|&raw| (api.writeoptions_destroy)(raw));
        }
    }
}

/// A batch that is being filled.
pub(super) struct Batch<'a> {
    api: &'a Api,
    raw: Handle,
}

impl Batch<'_> {
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        // SAFETY: the batch is live and ours alone; key and value are copied.
        unsafe { (self.api.writebatch_put)(self.raw, chars(key), key.len(), chars(value), value.len()) };
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        // SAFETY: as in `put`.
        unsafe { (self.api.writebatch_delete)(self.raw, chars(key), key.len()) };
    }
}

/// An iterator over a database. The library does not check that it is on an entry before it steps
/// or reads, so the answer after each move is kept: one call a move, as any user of it would make.
pub(super) struct Iter<'a> {
    db: &'a Database,
    raw: Handle,
    on_entry: bool,
}

impl Iter<'_> {
    pub(super) fn valid(&self) -> bool {
        self.on_entry
    }

    fn look(&mut self) {
        // SAFETY: the handle is live until `Drop`, here and in the functions below.
        self.on_entry = unsafe { (self.db.api.iter_valid)(self.raw) != 0 };
    }

    pub(super) fn seek(&mut self, key: &[u8]) {
        // SAFETY: as above; the key is read during the call only.
        unsafe { (self.db.api.iter_seek)(self.raw, chars(key), key.len()) };
        self.look();
    }

    pub(super) fn seek_to_first(&mut self) {
        // SAFETY: as above.
        unsafe { (self.db.api.iter_seek_to_first)(self.raw) };
        self.look();
    }

    pub(super) fn seek_to_last(&mut self) {
        // SAFETY: as above.
        unsafe { (self.db.api.iter_seek_to_last)(self.raw) };
        self.look();
    }

    pub(super) fn next(&mut self) {
        assert!(self.on_entry, "next() on an iterator that is not on an entry");
        // SAFETY: as above, and on an entry.
        unsafe { (self.db.api.iter_next)(self.raw) };
        self.look();
    }

    pub(super) fn prev(&mut self) {
        assert!(self.on_entry, "prev() on an iterator that is not on an entry");
        // SAFETY: as above, and on an entry.
        unsafe { (self.db.api.iter_prev)(self.raw) };
        self.look();
    }

    pub(super) fn key(&self) -> &[u8] {
        assert!(self.on_entry, "key() of an iterator that is not on an entry");
        let mut len = 0;
        // SAFETY: the bytes stay until the iterator moves, which needs a mutable borrow.
        unsafe { bytes_at((self.db.api.iter_key)(self.raw, &mut len), len) }
    }

    pub(super) fn value(&self) -> &[u8] {
        assert!(self.on_entry, "value() of an iterator that is not on an entry");
        let mut len = 0;
        // SAFETY: as in `key`.
        unsafe { bytes_at((self.db.api.iter_value)(self.raw, &mut len), len) }
    }

    /// The error that ended the iteration, if one did.
    pub(super) fn status(&self) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: as above, with room for one string.
        unsafe { (self.db.api.iter_get_error)(self.raw, &mut error) };
        self.db.api.check(error)
    }
}

impl Drop for Iter<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `iterator`, destroyed here only.
        unsafe { (self.db.api.iter_destroy)(self.raw) };
    }
}

/// # Safety
/// `len` bytes at `start` stay readable and unchanged for `'a`, or `len` is 0.
unsafe fn bytes_at<'a>(start: Chars, len: usize) -> &'a [u8] {
    if len == 0 || start.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}

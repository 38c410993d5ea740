//! From C's pointers to Rust's slices. Whatever is wrong with an argument and can be seen is found here.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use dialsm::{Error, ErrorKind, key};

/// The longest text (path, name, value of an option) that is taken, in bytes; a longer one is a wrong length.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// The most keys, or whatever else comes in arrays, in one call.
pub const COUNT_MAX: usize = 1 << 24;

/// What is wrong with an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// NULL where something must be.
    Null(&'static str),
    /// More bytes than any object has.
    Length(&'static str, usize),
    /// More than the bound.
    TooLarge(&'static str, usize, usize),
    /// Text that is not UTF-8.
    NotText(&'static str),
    /// No path: empty, or with a zero byte in it.
    NotPath(&'static str),
}

impl From<Misuse> for Error {
    #[cold]
    fn from(misuse: Misuse) -> Error {
        match misuse {
            Misuse::Null(what) => Error::invalid(format!("{what}: NULL")),
            Misuse::Length(what, len) => Error::invalid(format!("{what}: {len} bytes are no length")),
            Misuse::TooLarge(what, len, max) => {
                Error::new(ErrorKind::TooLarge, format!("{what}: {len}; the bound is {max}"))
            }
            Misuse::NotText(what) => Error::invalid(format!("{what}: not UTF-8")),
            Misuse::NotPath(what) => Error::invalid(format!("{what}: empty, or with a zero byte in it")),
        }
    }
}

type Checked<T> = Result<T, Misuse>;

/// `len` bytes at `data`; NULL is an empty slice where `len` is 0.
///
/// # Errors
/// NULL with another length; a length that no object has.
///
/// # Safety
/// Where neither is so, `len` bytes can be read at `data` for as long as the result is used, and nobody writes
/// them meanwhile.
#[inline]
pub unsafe fn bytes<'a>(data: *const c_void, len: usize, what: &'static str) -> Checked<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Misuse::Null(what));
    }
    if len > isize::MAX as usize {
        return Err(Misuse::Length(what, len));
    }
    // SAFETY: not NULL and no longer than an object may be; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

/// As [`bytes()`], for a key: what is longer than any key is not looked at.
///
/// # Errors
/// As [`bytes()`]; `TooLarge`.
///
/// # Safety
/// As [`bytes()`].
#[inline]
pub unsafe fn key<'a>(data: *const c_void, len: usize) -> Checked<&'a [u8]> {
    if len > key::KEY_BYTES_MAX {
        return Err(Misuse::TooLarge("bytes of a key", len, key::KEY_BYTES_MAX));
    }
    // SAFETY: the same promise.
    unsafe { bytes(data, len, "key") }
}

/// As [`key()`], for an end of a range: NULL is none.
///
/// # Errors
/// As [`key()`].
///
/// # Safety
/// As [`bytes()`].
pub unsafe fn bound<'a>(data: *const c_void, len: usize) -> Checked<Option<&'a [u8]>> {
    if data.is_null() && len == 0 {
        return Ok(None);
    }
    // SAFETY: the same promise.
    unsafe { key(data, len) }.map(Some)
}

/// As [`bytes()`], for a value or operand: what is longer than any is not looked at.
///
/// # Errors
/// As [`bytes()`]; `TooLarge`.
///
/// # Safety
/// As [`bytes()`].
#[inline]
pub unsafe fn value<'a>(data: *const c_void, len: usize) -> Checked<&'a [u8]> {
    if len > key::VALUE_BYTES_MAX {
        return Err(Misuse::TooLarge("bytes of a value", len, key::VALUE_BYTES_MAX));
    }
    // SAFETY: the same promise.
    unsafe { bytes(data, len, "value") }
}

/// As [`bytes()`], for UTF-8 text of at most [`TEXT_BYTES_MAX`] bytes.
///
/// # Errors
/// As [`bytes()`]; too long, or not UTF-8.
///
/// # Safety
/// As [`bytes()`].
pub unsafe fn text<'a>(data: *const c_char, len: usize, what: &'static str) -> Checked<&'a str> {
    if len > TEXT_BYTES_MAX {
        return Err(Misuse::TooLarge(what, len, TEXT_BYTES_MAX));
    }
    // SAFETY: the same promise.
    let bytes = unsafe { bytes(data.cast(), len, what) }?;
    std::str::from_utf8(bytes).map_err(|_| Misuse::NotText(what))
}

/// As [`text`], for the path of a directory.
///
/// # Errors
/// As [`text`]; an empty path, or one with a zero byte in it.
///
/// # Safety
/// As [`bytes()`].
pub unsafe fn path<'a>(data: *const c_char, len: usize, what: &'static str) -> Checked<&'a str> {
    // SAFETY: the same promise.
    let path = unsafe { text(data, len, what) }?;
    if path.is_empty() || path.contains('\0') { Err(Misuse::NotPath(what)) } else { Ok(path) }
}

/// `count` elements at `data`; NULL is an empty slice where `count` is 0.
///
/// # Errors
/// NULL with another count; more than [`COUNT_MAX`].
///
/// # Safety
/// As [`bytes()`], for so many elements.
pub unsafe fn array<'a, T>(data: *const T, count: usize, what: &'static str) -> Checked<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Misuse::Null(what));
    }
    if count > COUNT_MAX {
        return Err(Misuse::TooLarge(what, count, COUNT_MAX));
    }
    // SAFETY: not NULL and of a possible size; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data, count) })
}

/// `count` places for results at `data`, which need not be set.
///
/// # Errors
/// As [`array()`].
///
/// # Safety
/// As [`array()`], for writing.
pub unsafe fn places<'a, T>(
    data: *mut MaybeUninit<T>,
    count: usize,
    what: &'static str,
) -> Checked<&'a mut [MaybeUninit<T>]> {
    if count == 0 {
        return Ok(&mut []);
    }
    if data.is_null() {
        return Err(Misuse::Null(what));
    }
    if count > COUNT_MAX {
        return Err(Misuse::TooLarge(what, count, COUNT_MAX));
    }
    // SAFETY: not NULL and of a possible size; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(data, count) })
}

/// Copies as much of `from` as there is room for to `len` bytes at `to`, which need not be set.
///
/// # Safety
/// So many bytes can be written there, and `from` is not among them. NULL has no room.
#[inline]
pub unsafe fn copy_to(to: *mut c_void, len: usize, from: &[u8]) {
    let count = from.len().min(len);
    if count > 0 && !to.is_null() {
        // SAFETY: no more than either has.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(from.as_ptr(), count) };
    }
}

/// `count` keys whose starts and lengths stand in two arrays.
///
/// # Errors
/// As [`array()`] and [`key()`]; `OutOfMemory`.
///
/// # Safety
/// As [`array()`] for both arrays, as [`bytes()`] for each key.
pub unsafe fn keys<'a>(
    starts: *const *const c_void,
    lens: *const usize,
    count: usize,
) -> dialsm::Result<Vec<&'a [u8]>> {
    // SAFETY: the same promise.
    let (starts, lens) = unsafe { (array(starts, count, "keys")?, array(lens, count, "key_lens")?) };
    let mut keys = Vec::new();
    keys.try_reserve_exact(count).map_err(|_| Error::out_of_memory("the keys of a call"))?;
    for (start, len) in starts.iter().zip(lens) {
        // SAFETY: the same promise.
        keys.push(unsafe { key(*start, *len) }?);
    }
    Ok(keys)
}

/// `count` texts whose starts and lengths stand in two arrays.
///
/// # Errors
/// As [`array()`] and [`text`]; `OutOfMemory`.
///
/// # Safety
/// As [`array()`] for both arrays, as [`bytes()`] for each text.
pub unsafe fn texts<'a>(
    starts: *const *const c_char,
    lens: *const usize,
    count: usize,
    what: &'static str,
) -> dialsm::Result<Vec<&'a str>> {
    // SAFETY: the same promise.
    let (starts, lens) = unsafe { (array(starts, count, what)?, array(lens, count, what)?) };
    let mut texts = Vec::new();
    texts.try_reserve_exact(count).map_err(|_| Error::out_of_memory("the texts of a call"))?;
    for (start, len) in starts.iter().zip(lens) {
        // SAFETY: the same promise.
        texts.push(unsafe { text(*start, *len, what) }?);
    }
    Ok(texts)
}

/// The handle, unless it is NULL.
///
/// # Errors
/// It is.
#[inline]
pub fn given<T>(handle: Option<T>, what: &'static str) -> Checked<T> {
    handle.ok_or(Misuse::Null(what))
}

/// Writes to where C wants a result, if it wants it.
#[inline]
pub fn put<T>(place: Option<&mut MaybeUninit<T>>, value: T) {
    if let Some(place) = place {
        place.write(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{dangling, null};

    #[test]
    fn lengths_that_cannot_be_are_refused_unread() {
        // SAFETY: nothing is read where the length is refused, and nothing where it is 0.
        unsafe {
            assert_eq!(bytes(null(), 0, "a"), Ok(&[][..]));
            assert_eq!(bytes(null(), 1, "a"), Err(Misuse::Null("a")));
            assert_eq!(bytes(dangling(), usize::MAX, "a"), Err(Misuse::Length("a", usize::MAX)));
            assert!(matches!(key(dangling(), 65_536), Err(Misuse::TooLarge(..))));
            assert!(matches!(value(dangling(), (1 << 30) + 1), Err(Misuse::TooLarge(..))));
            assert!(matches!(text(dangling(), TEXT_BYTES_MAX + 1, "t"), Err(Misuse::TooLarge(..))));
            assert!(matches!(array::<u64>(dangling(), COUNT_MAX + 1, "n"), Err(Misuse::TooLarge(..))));
            assert_eq!(bound(null(), 0), Ok(None));
            assert_eq!(bound(dangling(), 0), Ok(Some(&[][..])));
        }
    }

    #[test]
    fn text_is_utf8() {
        let bad = [b'a', 0xff];
        // SAFETY: two bytes stand there.
        assert_eq!(unsafe { text(bad.as_ptr().cast(), 2, "name") }, Err(Misuse::NotText("name")));
    }

    #[test]
    fn a_path_is_text_that_names_something() {
        let bad = b"a\0b";
        // SAFETY: so many bytes stand there.
        unsafe {
            assert_eq!(path(bad.as_ptr().cast(), 1, "path"), Ok("a"));
            assert_eq!(path(bad.as_ptr().cast(), 3, "path"), Err(Misuse::NotPath("path")));
            assert_eq!(path(null(), 0, "path"), Err(Misuse::NotPath("path")));
        }
    }
}

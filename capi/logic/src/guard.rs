//! The boundary: no panic passes it, every error becomes a code and a status.

use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use dialsm::{Error, ErrorKind, Result};

use crate::database::{Database, Shared};
use crate::raw::{Misuse, given, put};
use crate::{Code, Status};

/// Runs a call that concerns no database.
#[inline]
pub fn run(status: Option<&mut Status>, call: impl FnOnce() -> Result<()>) -> Code {
    match caught(call) {
        Ok(Ok(())) => done(status),
        Ok(Err(error)) => failed(status, &error),
        Err(error) => failed(status, &error),
    }
}

/// Runs a call on the database of a handle. If it panics, that database answers nothing any more.
#[inline]
pub fn on<'h, H: Of>(
    handle: Option<&'h H>,
    status: Option<&mut Status>,
    call: impl FnOnce(&'h H) -> Result<()>,
) -> Code {
    let handle = match given(handle, H::NAME) {
        Ok(handle) => handle,
        Err(misuse) => return failed(status, &misuse.into()),
    };
    answer(handle.shared(), status, || call(handle))
}

/// As [`on`], for a handle that the call changes.
#[inline]
pub fn on_mut<'h, H: OfMut>(
    handle: Option<&'h mut H>,
    status: Option<&mut Status>,
    call: impl FnOnce(&'h mut H::Part) -> Result<()>,
) -> Code {
    let (shared, part) = match given(handle, H::NAME) {
        Ok(handle) => handle.parts(),
        Err(misuse) => return failed(status, &misuse.into()),
    };
    answer(shared, status, || call(part))
}

/// Runs a call that makes an object and puts it at `place`; what fails puts NULL there.
pub fn make<T>(
    place: Option<&mut MaybeUninit<Option<Box<T>>>>,
    status: Option<&mut Status>,
    call: impl FnOnce() -> Result<T>,
) -> Code {
    let Some(place) = place else { return failed(status, &Misuse::Null("place for the result").into()) };
    let place = place.write(None);
    run(status, || {
        *place = Some(Box::new(call()?));
        Ok(())
    })
}

/// As [`make`], on the database of a handle.
pub fn make_on<'h, H: Of, T>(
    handle: Option<&'h H>,
    place: Option<&mut MaybeUninit<Option<Box<T>>>>,
    status: Option<&mut Status>,
    call: impl FnOnce(&'h H) -> Result<T>,
) -> Code {
    let Some(place) = place else { return failed(status, &Misuse::Null("place for the result").into()) };
    let place = place.write(None);
    on(handle, status, |handle| {
        *place = Some(Box::new(call(handle)?));
        Ok(())
    })
}

/// As [`on`], with a number for a result: 0 where it fails.
pub fn number_on<'h, H: Of>(
    handle: Option<&'h H>,
    place: Option<&mut MaybeUninit<u64>>,
    status: Option<&mut Status>,
    call: impl FnOnce(&'h H) -> Result<u64>,
) -> Code {
    let mut number = 0;
    let code = on(handle, status, |handle| {
        number = call(handle)?;
        Ok(())
    });
    put(place, number);
    code
}

/// Frees what hangs on a database. In a child of fork() it stays as it is: threads that the child has not got may
/// have held locks in it, and its files are the parent's.
pub fn free_of<T: Opened>(handle: Option<Box<T>>) {
    match handle {
        Some(handle) if handle.is_forked() => std::mem::forget(handle),
        handle => free(handle),
    }
}

/// Drops an object. A panic on the way is swallowed: there is nobody to tell.
pub fn free<T>(handle: Option<Box<T>>) {
    let _ = caught(move || {
        drop(handle);
        Ok(())
    });
}

/// An object that holds something of an open database.
pub trait Opened {
    /// Whether this is a child of the process that opened it.
    fn is_forked(&self) -> bool;
}

/// A handle that belongs to a database.
pub trait Of {
    /// What it is called in messages.
    const NAME: &'static str;
    /// The database it belongs to.
    fn shared(&self) -> &Shared;
}

/// A handle that belongs to a database and changes in its calls.
pub trait OfMut {
    /// What it is called in messages.
    const NAME: &'static str;
    /// What changes.
    type Part;
    /// The database it belongs to, and what changes.
    fn parts(&mut self) -> (&Shared, &mut Self::Part);
}

impl Of for Database {
    const NAME: &'static str = "db";
    #[inline]
    fn shared(&self) -> &Shared {
        self
    }
}

impl Opened for Database {
    fn is_forked(&self) -> bool {
        self.shared().is_forked()
    }
}

#[inline]
fn answer(shared: &Shared, status: Option<&mut Status>, call: impl FnOnce() -> Result<()>) -> Code {
    if !shared.is_usable() {
        return failed(status, &shared.why_unusable());
    }
    match caught(call) {
        Ok(Ok(())) => done(status),
        Ok(Err(error)) => failed(status, &error),
        Err(error) => {
            shared.poison();
            failed(status, &error)
        }
    }
}

/// # Errors
/// The call panicked.
#[inline]
fn caught(call: impl FnOnce() -> Result<()>) -> Result<Result<()>> {
    // What a panic may leave half done belongs to a database, which answers nothing from then on, or to an
    // object of the caller, which keeps its own invariants.
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let text = (payload.downcast_ref::<&str>().copied())
            .or(payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        let error = Error::new(ErrorKind::Internal, format!("the call panicked: {text}"));
        // What was thrown may throw again when it is dropped.
        if let Err(second) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
            std::mem::forget(second);
        }
        error
    })
}

#[inline]
fn done(status: Option<&mut Status>) -> Code {
    if let Some(status) = status {
        status.clear();
    }
    Code::DIALSM_OK
}

#[cold]
fn failed(status: Option<&mut Status>, error: &Error) -> Code {
    if let Some(status) = status {
        status.set(error);
    }
    error.kind().into()
}

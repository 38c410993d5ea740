//! Event listeners in C
//!
//! A database tells its listeners what it does in the background: flushes, compactions, stalls, errors and the like, the
//! same as in its LOG. Each beginning is followed by its end, at closing and after errors, too.
//!
//! The function is called on a thread of the database that does nothing else, one listener after the other in the order
//! in which they were added, one event after the other in the order in which they came about. A listener of several
//! open databases may be called by all of their threads at once. No lock is held meanwhile and nobody waits, so it may
//! use the database like any other thread: read, write, even while the event is that of a stall, and close it. But:
//! - Events wait in a queue while a listener is busy. Of 4096 that wait, later ones are left out, and a beginning
//!   together with its end; an event "events_dropped" then says how many.
//! - dialsm_close(), and freeing the last handle of a database, deliver what waits and so wait for the listeners: one
//!   must not wait for a thread that does this. When it returns, no listener runs, nor will; only if a listener closes the
//!   database itself, what still waits is given up when its call returns.
//! - It must return: neither longjmp() nor an exception may leave it.
//! - In a child of fork() nothing is delivered: there is no such thread.
//!
//! `state` belongs to the listener from the call of dialsm_event_listener_create() on, whether that succeeds or not; NULL
//! is as good as any. `destroy` (NULL: nothing) is called once with it, on any thread, when nothing uses the listener any
//! more: when its handle and all options with it are freed, and all databases opened with them are closed; where the
//! creation fails, within that call. A database that is open at a fork keeps it in the child.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use dialsm_capi_logic::callback::UserState;
use dialsm_capi_logic::event;
use dialsm_capi_logic::guard::{free, make, run};
use dialsm_capi_logic::raw::given;
use dialsm_capi_logic::{Code, EventListenerHandle, EventView, OptionSet, Status};

use crate::callback::Destroy;

/// [`event::OnEvent`], whose words stand in the header, or NULL.
pub type OnEvent = Option<unsafe extern "C" fn(state: *mut c_void, event: *const EventView)>;

/// A listener, for dialsm_options_add_event_listener().
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_event_listener_create(
    state: *mut c_void,
    on_event: OnEvent,
    destroy: Destroy,
    event_listener: Option<&mut MaybeUninit<Option<Box<EventListenerHandle>>>>,
    status: Option<&mut Status>,
) -> Code {
    let state = UserState::new(state, destroy);
    make(event_listener, status, || Ok(event::event_listener(state, given(on_event, "on_event")?)))
}

/// Frees the handle. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_event_listener_free(event_listener: Option<Box<EventListenerHandle>>) {
    free(event_listener);
}

/// Adds a listener behind those that the options of a database have; one that is added twice is called twice. The
/// options keep it: the caller may free its handle. DIALSM_INVALID_ARGUMENT for options of a keyspace.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_add_event_listener(
    options: Option<&mut OptionSet>,
    event_listener: Option<&EventListenerHandle>,
    status: Option<&mut Status>,
) -> Code {
    run(status, || {
        let listener = given(event_listener, "event_listener")?;
        given(options, "options")?.add_event_listener(&listener.0)
    })
}

//! C functions that hear of events, and events as C reads them.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use dialsm::events::Severity;
use dialsm::{Event, EventListener};

use crate::callback::{State, UserState};

/// How much an event matters, by the numbers of dialsm_info_log_level_t.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(non_camel_case_types, reason = "the names stand in the C header as they are here")]
pub enum EventSeverity {
    /// Writes have stopped for good, or a job has failed.
    DIALSM_SEVERITY_ERROR = 1,
    /// Something is out of order, and goes on.
    DIALSM_SEVERITY_WARN = 2,
    /// What happens all the time.
    DIALSM_SEVERITY_INFO = 3,
    /// Single files.
    DIALSM_SEVERITY_DEBUG = 4,
}

impl EventSeverity {
    fn of(severity: Severity) -> EventSeverity {
        match severity {
            Severity::Error => EventSeverity::DIALSM_SEVERITY_ERROR,
            Severity::Warn => EventSeverity::DIALSM_SEVERITY_WARN,
            Severity::Info => EventSeverity::DIALSM_SEVERITY_INFO,
            Severity::Debug => EventSeverity::DIALSM_SEVERITY_DEBUG,
        }
    }
}

/// Something that has happened. It and its texts are valid within the call that it is given to only; the texts are
/// UTF-8 and have a zero byte behind them. Later versions may add names and fields.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EventView {
    /// sizeof of the structure in the library. A program that may run with an older library looks here before it
    /// reads a member that was added later.
    pub size: usize,
    /// How much it matters: a dialsm_severity_t.
    pub severity: u32,
    /// 0.
    pub reserved: u32,
    /// When it happened: microseconds since 1970, of a clock that may be set.
    pub wall_us: u64,
    /// Its name, as in the LOG: "flush_begin".
    pub name: *const c_char,
    /// Its length in bytes.
    pub name_len: usize,
    /// Its fields, as in the LOG: "field=value", a space between two, on one line: "job=7 keyspace=default shard=0".
    /// Text with spaces and the like is in quotes, with a backslash before quotes and backslashes. "" where it has none.
    pub fields: *const c_char,
    /// Their length in bytes.
    pub fields_len: usize,
}

/// Hears of an event.
pub type OnEvent = unsafe extern "C" fn(state: *mut c_void, event: *const EventView);

struct CListener {
    state: State,
    on_event: OnEvent,
}

impl EventListener for CListener {
    fn event(&self, event: &Event, wall_us: u64) {
        let (name, fields) = (event.name(), event.fields());
        // A zero byte behind either; neither holds one.
        let texts = format!("{name}\0{fields}\0");
        let view = EventView {
            size: size_of::<EventView>(),
            severity: EventSeverity::of(event.severity()) as u32,
            reserved: 0,
            wall_us,
            name: texts.as_ptr().cast(),
            name_len: name.len(),
            fields: texts[name.len() + 1..].as_ptr().cast(),
            fields_len: fields.len(),
        };
        // SAFETY: the function was given for this state, and reads the event and its texts within the call only.
        unsafe { (self.on_event)(self.state.state, &raw const view) }
    }
}

/// A listener that options can be given. Usable from all threads at once.
pub struct EventListenerHandle(pub Arc<dyn EventListener>);

/// The listener that a C function is.
pub fn event_listener(state: UserState, on_event: OnEvent) -> EventListenerHandle {
    EventListenerHandle(Arc::new(CListener { state: state.0, on_event }))
}

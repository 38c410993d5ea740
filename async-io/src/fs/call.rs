//! Calls as data: what [`SimFs`](super::sim::SimFs) records and
//! [`FaultFs`](super::fault::FaultFs) counts and fails.

use std::path::PathBuf;

/// Which call of [`Fs`](super::Fs) or [`File`](super::File). Questions about names and
/// the hint `advise` are not among them. Of `start_writeback`, a hint too, it is told who calls it, since
/// it may take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// [`Fs::create`](super::Fs::create)
    Create,
    /// [`Fs::open`](super::Fs::open)
    Open,
    /// [`Fs::rename`](super::Fs::rename)
    Rename,
    /// [`Fs::unlink`](super::Fs::unlink)
    Unlink,
    /// [`Fs::hard_link`](super::Fs::hard_link)
    HardLink,
    /// [`Fs::create_dir_all`](super::Fs::create_dir_all)
    CreateDir,
    /// [`Fs::remove_dir`](super::Fs::remove_dir)
    RemoveDir,
    /// [`Fs::list`](super::Fs::list)
    List,
    /// [`Fs::sync_dir`](super::Fs::sync_dir)
    SyncDir,
    /// [`Fs::lock`](super::Fs::lock)
    Lock,
    /// [`File::read_at`](super::File::read_at)
    Read,
    /// [`File::write_at`](super::File::write_at)
    Write,
    /// [`File::sync_data`](super::File::sync_data)
    Sync,
    /// [`File::allocate`](super::File::allocate)
    Allocate,
    /// [`File::set_len`](super::File::set_len)
    SetLen,
    /// [`File::start_writeback`](super::File::start_writeback); it never fails, so of a fault it is
    /// only held up, left out, or made to panic.
    StartWriteback,
}

impl OpKind {
    /// All of them, in declaration order.
    pub const ALL: [OpKind; 16] = [
        OpKind::Create,
        OpKind::Open,
        OpKind::Rename,
        OpKind::Unlink,
        OpKind::HardLink,
        OpKind::CreateDir,
        OpKind::RemoveDir,
        OpKind::List,
        OpKind::SyncDir,
        OpKind::Lock,
        OpKind::Read,
        OpKind::Write,
        OpKind::Sync,
        OpKind::Allocate,
        OpKind::SetLen,
        OpKind::StartWriteback,
    ];
}

/// One entry of a trace, written when the call had its effect, just before it returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What was called; `None` for a note that a test left in the trace.
    pub op: Option<OpKind>,
    /// The file or directory (of a rename or link: the source), or the text of a note.
    pub path: PathBuf,
    /// The target of a rename or link.
    pub target: Option<PathBuf>,
    /// Where in the file, in bytes; the new length for `SetLen`; otherwise 0.
    pub offset: u64,
    /// How many bytes; otherwise 0.
    pub len: u64,
    /// The name of the calling thread, empty where it has none.
    pub thread: String,
    /// Whether it succeeded.
    pub ok: bool,
}

//! The state of all requests and the steps that move them; see the header of [`durable`](super).

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Pending, Shared};
use crate::env::Nanos;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::File;
use crate::ring::{IoOp, IoTicket};

type RequestNo = u64;

/// A request and what it still waits for.
struct Request {
    pending: Pending,
    dir: Option<PathBuf>,
    files_left: usize,
    first_error: Option<Error>,
}

/// A sync of a file that waits for its turn, and the requests that it will count for.
struct FileSync {
    file: Arc<dyn File>,
    bytes: u64,
    requests: Vec<RequestNo>,
    is_urgent: bool,
}

/// A sync under way.
struct Running {
    path: PathBuf,
    bytes: u64,
    requests: Vec<RequestNo>,
    is_dir: bool,
    ticket: IoTicket,
    since: Nanos,
}

pub(super) struct Work {
    shared: Arc<Shared>,
    numbers: RequestNo,
    requests: BTreeMap<RequestNo, Request>,
    /// Files in the order of their requests, urgent ones first.
    line: VecDeque<FileSync>,
    running: Vec<Running>,
    /// Requests whose files are synced, by the directory they wait for.
    dirs: BTreeMap<PathBuf, Vec<RequestNo>>,
}

impl Work {
    pub(super) fn new(shared: Arc<Shared>) -> Work {
        Work {
            shared,
            numbers: 0,
            requests: BTreeMap::new(),
            line: VecDeque::new(),
            running: Vec::new(),
            dirs: BTreeMap::new(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn take_on(&mut self, mut pending: Pending) {
        self.numbers += 1;
        let number = self.numbers;
        let files = std::mem::take(&mut pending.request.files);
        let dir = pending.request.dir.take();
        let is_urgent = pending.request.is_urgent;
        let request = Request { pending, dir, files_left: files.len(), first_error: None };
        self.requests.insert(number, request);
        for super::DurableFile { file, bytes } in files {
            // One that is not submitted yet covers this request, too, if it goes through the same
            // handle. One that is under way does not.
            match self.line.iter_mut().find(|queued| Arc::ptr_eq(&queued.file, &file)) {
                Some(queued) => {
                    queued.requests.push(number);
                    queued.bytes = queued.bytes.max(bytes);
                }
                None => {
                    let sync = FileSync { file, bytes, requests: vec![number], is_urgent };
                    let urgent = self.line.iter().take_while(|queued| queued.is_urgent).count();
                    self.line.insert(if is_urgent { urgent } else { self.line.len() }, sync);
                }
            }
        }
        self.next_step(number);
    }

    /// Takes in what is done; returns whether anything was.
    pub(super) fn reap(&mut self) -> bool {
        let mut is_progress = false;
        let mut at = 0;
        while at < self.running.len() {
            if self.running[at].ticket.is_done() {
                let done = self.running.remove(at);
                self.settle(done);
                is_progress = true;
            } else {
                at += 1;
            }
        }
        is_progress
    }

    fn settle(&mut self, done: Running) {
        let Running { path, bytes, requests, is_dir, ticket, since } = done;
        let result = ticket.wait().result.map(drop);
        if !is_dir {
            self.shared.file_sync_ns.record(self.shared.env.now().saturating_sub(since));
        }
        self.shared.counts.bytes.fetch_sub(bytes, Relaxed);
        if let Err(e) = &result {
            // What never ran leaves the file as it was.
            if !matches!(e.kind(), ErrorKind::Closed | ErrorKind::Forked) {
                self.shared.failed.lock().entry(path).or_insert_with(|| e.clone());
            }
        }
        for number in requests {
            if is_dir { self.end(number, result.clone()) } else { self.file_done(number, result.clone()) }
        }
    }

    fn file_done(&mut self, number: RequestNo, result: Result<()>) {
        let request = self.requests.get_mut(&number).expect("a request stays until its last file is done");
        request.files_left -= 1;
        if let Err(e) = result {
            request.first_error.get_or_insert(e);
        }
        self.next_step(number);
    }

    /// A request without a file left goes on to its directory, or has ended.
    fn next_step(&mut self, number: RequestNo) {
        let request = self.requests.get_mut(&number).expect("called for requests that are there");
        if request.files_left > 0 {
            return;
        }
        match (request.first_error.take(), request.dir.take()) {
            (Some(e), _) => self.end(number, Err(e)),
            (None, Some(dir)) => self.dirs.entry(dir).or_default().push(number),
            (None, None) => self.end(number, Ok(())),
        }
    }

    fn end(&mut self, number: RequestNo, result: Result<()>) {
        let request = self.requests.remove(&number).expect("a request ends once");
        request.pending.end(result);
    }

    /// Submits what may be submitted.
    pub(super) fn submit(&mut self) {
        self.submit_files();
        self.submit_dirs();
    }

    fn is_running(&self, path: &Path) -> bool {
        self.running.iter().any(|running| running.path == path)
    }

    fn submit_files(&mut self) {
        let mut at = 0;
        while at < self.line.len() {
            let next = &self.line[at];
            let path = next.file.path().to_path_buf();
            // Another sync of the same file: it may get to hear of an error that is this one's.
            if self.is_running(&path) {
                at += 1;
                continue;
            }
            let failed = self.shared.failed.lock().get(&path).cloned();
            if let Some(e) = failed {
                let refused = self.line.remove(at).expect("the index is in range");
                refused.requests.into_iter().for_each(|number| self.file_done(number, Err(e.clone())));
                continue;
            }
            let files = self.running.iter().filter(|running| !running.is_dir);
            let (count, bytes) = files.fold((0, 0u64), |(n, sum), file| (n + 1, sum + file.bytes));
            let options = &self.shared.options;
            let fits = bytes.saturating_add(next.bytes) <= options.in_flight_bytes_max
                && count < options.in_flight_files_max;
            if count > 0 && !fits {
                return;
            }
            let FileSync { file, bytes, requests, .. } = self.line.remove(at).expect("the index is in range");
            self.shared.counts.file_syncs.fetch_add(1, Relaxed);
            self.run(IoOp::SyncData { file }, path, bytes, requests, false);
        }
    }

    fn submit_dirs(&mut self) {
        let dirs: Vec<PathBuf> = self.dirs.keys().filter(|dir| !self.is_running(dir)).cloned().collect();
        for dir in dirs {
            let requests = self.dirs.remove(&dir).expect("the key was just listed");
            let failed = self.shared.failed.lock().get(&dir).cloned();
            if let Some(e) = failed {
                requests.into_iter().for_each(|number| self.end(number, Err(e.clone())));
                continue;
            }
            self.shared.counts.dir_syncs.fetch_add(1, Relaxed);
            self.run(IoOp::SyncDir { dir: dir.clone() }, dir, 0, requests, true);
        }
    }

    fn run(&mut self, op: IoOp, path: PathBuf, bytes: u64, requests: Vec<RequestNo>, is_dir: bool) {
        let counts = &self.shared.counts;
        let now = counts.bytes.fetch_add(bytes, Relaxed) + bytes;
        counts.bytes_peak.fetch_max(now, Relaxed);
        let (event, since) = (Arc::clone(&self.shared.work_event), self.shared.env.now());
        let ticket = self.shared.io.submit_and_notify(op, Some(event));
        self.running.push(Running { path, bytes, requests, is_dir, ticket, since });
    }
}

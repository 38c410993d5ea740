//! What the kernel knows of this process and its files: bytes moved, memory, CPU time, disk space.

use crate::result::KernelBytes;
use crate::sys;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Readings at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) bytes: KernelBytes,
    /// User and system time of this process.
    pub(crate) cpu_seconds: f64,
    /// The system time alone, that of the ring's workers included.
    pub(crate) cpu_system_seconds: f64,
    /// Of all processes and the kernel.
    pub(crate) machine_cpu_seconds: Option<f64>,
    /// Of the kernel's own threads.
    pub(crate) kernel_cpu_seconds: Option<f64>,
}

impl Reading {
    /// # Errors
    /// The kernel keeps no such account.
    pub(crate) fn now() -> Result<Reading> {
        let text = fs::read_to_string("/proc/self/io").context("/proc/self/io")?;
        let bytes = parse_io(&text).context("/proc/self/io has another form")?;
        let (user, system) = sys::cpu_seconds();
        Ok(Reading {
            bytes,
            cpu_seconds: user + system,
            cpu_system_seconds: system,
            machine_cpu_seconds: machine_cpu_seconds(),
            kernel_cpu_seconds: kernel_cpu_seconds(),
        })
    }

    /// The bytes moved since an earlier reading.
    pub(crate) fn bytes_since(&self, before: &Reading) -> KernelBytes {
        KernelBytes {
            read_calls: self.bytes.read_calls.saturating_sub(before.bytes.read_calls),
            write_calls: self.bytes.write_calls.saturating_sub(before.bytes.write_calls),
            read_device: self.bytes.read_device.saturating_sub(before.bytes.read_device),
            write_device: self.bytes.write_device.saturating_sub(before.bytes.write_device),
        }
    }
}

/// The number behind `name:` in one of the kernel's texts.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

fn parse_io(text: &str) -> Option<KernelBytes> {
    Some(KernelBytes {
        read_calls: field(text, "rchar")?,
        write_calls: field(text, "wchar")?,
        read_device: field(text, "read_bytes")?,
        write_device: field(text, "write_bytes")?,
    })
}

/// All but the idle time of all processors.
fn machine_cpu_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    Some(busy_ticks(text.lines().next()?)? as f64 / sys::ticks_per_second())
}

/// The ticks of a line `cpu user nice system idle iowait irq softirq steal guest guest_nice`, without
/// those that are idle, another machine's, or counted in others already.
fn busy_ticks(line: &str) -> Option<u64> {
    let ticks: Vec<u64> =
        line.strip_prefix("cpu ")?.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let busy = [0, 1, 2, 5, 6].map(|at| ticks.get(at).copied());
    busy.into_iter().sum()
}

/// The time of all threads of the kernel: the children of its thread 2. One that ends takes its time along.
fn kernel_cpu_seconds() -> Option<f64> {
    let mut ticks = None;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let is_process = entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        if is_process && let Ok(text) = fs::read_to_string(entry.path().join("stat")) {
            ticks = ticks.into_iter().chain(kernel_thread_ticks(&text)).reduce(|a, b| a + b);
        }
    }
    ticks.map(|ticks| ticks as f64 / sys::ticks_per_second())
}

/// The user and system ticks of a process's line, if it is one of the kernel's threads.
fn kernel_thread_ticks(stat: &str) -> Option<u64> {
    // The name in parentheses may hold anything; behind it the state is field 3, the parent field 4.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at - 3)?.parse::<u64>().ok();
    (*fields.get(1)? == "2").then(|| Some(ticks(14)? + ticks(15)?))?
}

/// Bytes that this process has fetched from devices, and those it has written towards them, since it began.
pub(crate) fn device_bytes() -> Option<(u64, u64)> {
    let bytes = parse_io(&fs::read_to_string("/proc/self/io").ok()?)?;
    Some((bytes.read_device, bytes.write_device))
}

/// The resident memory of now, in bytes; 0 if the kernel does not say.
pub(crate) fn rss_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&text, "VmRSS").unwrap_or(0) * 1024
}

/// The largest resident memory since [`reset_peak_rss`], in bytes; 0 if the kernel does not say.
pub(crate) fn peak_rss_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&text, "VmHWM").unwrap_or(0) * 1024
}

/// Starts the peak anew; where the kernel does not allow it, the peak is that of the whole process.
pub(crate) fn reset_peak_rss() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Bytes that the files below `dir` take on disk.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn disk_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).with_context(|| format!("{}", dir.display()))? {
        let entry = entry?;
        // A file that background work removes between the two calls takes nothing.
        let Ok(meta) = entry.metadata() else { continue };
        bytes += if meta.is_dir() { disk_bytes(&entry.path())? } else { meta.blocks() * 512 };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_the_kernel_are_read() {
        let text = "rchar: 10\nwchar: 20\nsyscr: 1\nsyscw: 2\nread_bytes: 30\nwrite_bytes: 40\n\
                    cancelled_write_bytes: 5\n";
        let bytes = parse_io(text).unwrap();
        let expected = KernelBytes { read_calls: 10, write_calls: 20, read_device: 30, write_device: 40 };
        assert_eq!(bytes, expected);
        assert_eq!(parse_io("rchar: x"), None);
        assert_eq!(field("VmHWM:\t    1234 kB\n", "VmHWM"), Some(1234));
    }

    #[test]
    fn the_time_of_the_machine_and_of_the_kernel_is_read() {
        assert_eq!(busy_ticks("cpu  10 20 30 1000 2000 4 5 700 800 900"), Some(69));
        assert_eq!(busy_ticks("cpu0 1 2 3"), None);
        let line = |parent: u32| {
            format!("7 (kworker/u (x) y) I {parent} 0 0 0 -1 69238880 0 0 0 0 11 22 0 0 20 0 1 0")
        };
        assert_eq!(kernel_thread_ticks(&line(2)), Some(33));
        assert_eq!(kernel_thread_ticks(&line(1)), None);
        assert!(machine_cpu_seconds().unwrap() > 0.0);
    }

    #[test]
    fn writes_and_memory_of_this_process_show() {
        let dir = crate::tempdir::TempDir::new().unwrap();
        let before = Reading::now().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/file"), vec![1u8; 300_000]).unwrap();
        let after = Reading::now().unwrap();
        assert!(after.bytes_since(&before).write_calls >= 300_000);
        assert!(after.cpu_seconds >= before.cpu_seconds && after.cpu_seconds > 0.0);
        assert!(peak_rss_bytes() > 1 << 20);
        assert!(disk_bytes(dir.path()).unwrap() >= 300_000);
    }
}

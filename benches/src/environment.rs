//! The machine, the file system and the program that figures were measured with.

use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// What is not known is empty or 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Environment {
    /// When the runs began, in seconds since 1970.
    pub(crate) unix_seconds: u64,
    pub(crate) cpu: String,
    pub(crate) processors: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    /// Type, device and place of what the databases were on.
    pub(crate) file_system: String,
    /// The program's version, and how it was built.
    pub(crate) program: String,
    /// The commit that the sources were at when it was built; changes on top of it do not show.
    pub(crate) revision: String,
    pub(crate) compiler: String,
}

impl Environment {
    /// That of this process, with its databases below `dir`.
    pub(crate) fn of(dir: &Path) -> Environment {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        Environment {
            unix_seconds: since_1970.as_secs(),
            cpu: cpu_model(&text("/proc/cpuinfo")),
            processors: std::thread::available_parallelism().map_or(0, |count| count.get() as u64),
            memory_bytes: memory_bytes(&text("/proc/meminfo")),
            kernel: format!("Linux {}", text("/proc/sys/kernel/osrelease").trim()),
            file_system: fs::canonicalize(dir)
                .map(|dir| file_system(&text("/proc/self/mounts"), &dir))
                .unwrap_or_default(),
            program: format!("dialsm-bench {} ({build} build)", env!("CARGO_PKG_VERSION")),
            revision: env!("DIALSM_BENCH_REVISION").to_owned(),
            compiler: env!("DIALSM_BENCH_COMPILER").to_owned(),
        }
    }
}

fn cpu_model(cpuinfo: &str) -> String {
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned());
    model.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn memory_bytes(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// The mount that `dir` lies in: the longest that is a part of its path, the last of equals.
fn file_system(mounts: &str, dir: &Path) -> String {
    let fields = |line: &str| {
        let mut fields = line.split(' ');
        let (device, place, kind) = (fields.next()?, fields.next()?, fields.next()?);
        dir.starts_with(place).then(|| (place.len(), format!("{kind} on {device}, mounted at {place}")))
    };
    let found = mounts.lines().filter_map(fields).max_by_key(|(length, _)| *length);
    found.map(|(_, text)| text).unwrap_or_default()
}

/// A moment as `2026-12-01 04:20 UTC`.
pub(crate) fn date(unix_seconds: u64) -> String {
    // Days are counted from 1 March of a year that 400 divides, so that leap days end their years.
    let days = unix_seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let minutes = unix_seconds % 86_400 / 60;
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_the_kernel_are_read() {
        assert_eq!(cpu_model("processor : 0\nmodel name\t: A B  C\n"), "A B  C");
        assert_eq!(memory_bytes("MemTotal:       24 kB\n"), 24 << 10);
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmpfs xfs rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/tmp/x")), "tmpfs on tmpfs, mounted at /tmp");
        assert_eq!(file_system(mounts, Path::new("/var/x")), "ext4 on /dev/a, mounted at /");
        assert_eq!(file_system("", Path::new("/")), "");
    }

    #[test]
    fn this_machine_has_something_to_tell() {
        let here = Environment::of(Path::new("/proc"));
        assert!(here.processors > 0 && here.memory_bytes > 1 << 20 && here.unix_seconds > 1_600_000_000);
        assert!(here.kernel.len() > "Linux ".len() && here.file_system.starts_with("proc on "), "{here:?}");
    }

    #[test]
    fn dates_know_leap_years() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_796_098_860, "2026-12-01 04:21 UTC"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }
}

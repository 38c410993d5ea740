//! A memory cgroup for one child, so that its page cache is bounded and reads reach the device.
//!
//! The group is made below the group this process is in, by the parent; the child joins it as its
//! first act, before it has any memory worth counting; the parent removes it when the child is gone.
//! Both versions of the interface are known:
//! ```text
//!   1   /sys/fs/cgroup/memory/<own path>/<new>/memory.limit_in_bytes
//!   2   /sys/fs/cgroup/<own path>/<new>/memory.max, after +memory in the parent's subtree_control
//! ```

use anyhow::{Context, Result, anyhow};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const REMOVE_TRIES: u32 = 50;

/// A group that lasts as long as this.
pub(crate) struct MemoryGroup {
    path: PathBuf,
}

/// Where the memory controller is and how its limit is named.
#[derive(Debug, PartialEq)]
struct Place {
    parent: PathBuf,
    limit_file: &'static str,
    unified: bool,
}

impl MemoryGroup {
    /// Makes a group limited to `bytes`.
    ///
    /// # Errors
    /// There is no memory controller, or this process may not use it.
    pub(crate) fn new(bytes: u64) -> Result<MemoryGroup> {
        let own = fs::read_to_string("/proc/self/cgroup").context("/proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/self/mounts").context("/proc/self/mounts")?;
        let place =
            find(&own, &mounts).ok_or_else(|| anyhow!("--memory_limit: no memory cgroup on this machine"))?;
        if place.unified {
            // Already so on most machines; where it is not and may not be, making the limit fails.
            let _ = fs::write(place.parent.join("cgroup.subtree_control"), "+memory");
        }
        let path = place.parent.join(format!("dialsm-bench-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("--memory_limit: cannot make {}", path.display()))?;
        let group = MemoryGroup { path };
        let limit = group.path.join(place.limit_file);
        fs::write(&limit, bytes.to_string())
            .with_context(|| format!("--memory_limit: {}", limit.display()))?;
        Ok(group)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The kernel may need a moment after the last member is gone.
        for _ in 0..REMOVE_TRIES {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("dialsm-bench: {} cannot be removed", self.path.display());
    }
}

/// Puts this process into a group.
///
/// # Errors
/// The kernel refused it.
pub(crate) fn join(group: &Path) -> Result<()> {
    let file = group.join("cgroup.procs");
    fs::write(&file, std::process::id().to_string()).with_context(|| format!("{}", file.display()))
}

/// Finds this process's group from the kernel's two texts.
fn find(own: &str, mounts: &str) -> Option<Place> {
    let mount_of = |kind: &str, option: Option<&str>| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (path, found_kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            let fits = option.is_none_or(|wanted| options.split(',').any(|have| have == wanted));
            (found_kind == kind && fits).then(|| PathBuf::from(path))
        })
    };
    for line in own.lines() {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let below = path.trim_start_matches('/');
        if controllers.split(',').any(|controller| controller == "memory") {
            let mount = mount_of("cgroup", Some("memory"))?;
            return Some(Place {
                parent: mount.join(below),
                limit_file: "memory.limit_in_bytes",
                unified: false,
            });
        }
        // Where version 1 has the memory controller, version 2 cannot; its line comes last.
        if id == "0" && controllers.is_empty() {
            let mount = mount_of("cgroup2", None)?;
            return Some(Place { parent: mount.join(below), limit_file: "memory.max", unified: true });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found() {
        let own = "9:name=systemd:/\n4:memory:/a/b\n1:cpu:/\n0::/\n";
        let mounts = "cgroup /cg/cpu cgroup rw,cpu 0 0\ncgroup /cg/memory cgroup rw,relatime,memory 0 0\n";
        let place = find(own, mounts).unwrap();
        assert_eq!((place.parent.as_path(), place.unified), (Path::new("/cg/memory/a/b"), false));
        let place = find("0::/user/x\n", "cgroup2 /cg cgroup2 rw,nosuid 0 0\n").unwrap();
        assert_eq!((place.parent.as_path(), place.limit_file), (Path::new("/cg/user/x"), "memory.max"));
        assert_eq!(find("1:cpu:/\n", mounts), None);
        assert_eq!(find(own, "tmpfs /tmp tmpfs rw 0 0\n"), None);
    }
}

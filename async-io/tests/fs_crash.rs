//! What a power cut leaves of the simulated file system.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use dialsm_io::{
    Access, CrashPolicy, ErrorKind, Fault, FaultFs, Fs, LockMode, OpKind, Rule, SimFs, SplitMix64,
};
use parking_lot::Mutex;

fn p(path: &str) -> &Path {
    Path::new(path)
}

fn bytes(fs: &SimFs, path: &str) -> Option<Vec<u8>> {
    let file = fs.open(p(path), Access::Read).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    Some(bytes)
}

/// A file system whose root holds a file `a` with synced bytes and a synced name.
fn with_synced_file(content: &[u8]) -> Arc<SimFs> {
    let fs = SimFs::new(3);
    let file = fs.create(p("/a")).unwrap();
    file.write_at(content, 0).unwrap();
    file.sync_data().unwrap();
    fs.sync_dir(p("/")).unwrap();
    fs
}

#[test]
fn bytes_need_sync_data_and_names_need_sync_dir() {
    let fs = SimFs::new(0);
    let cut = |fs: &SimFs| fs.crash_image(CrashPolicy::DropUnsynced);
    let file = fs.create(p("/a")).unwrap();
    file.write_at(b"one", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(bytes(&cut(&fs), "/a"), None, "the name is not durable");
    fs.sync_dir(p("/")).unwrap();
    assert_eq!(bytes(&cut(&fs), "/a").unwrap(), b"one");
    file.write_at(b"two", 3).unwrap();
    file.write_at(b"O", 0).unwrap();
    assert_eq!(bytes(&cut(&fs), "/a").unwrap(), b"one", "neither extension nor overwrite");
    assert_eq!(bytes(&fs, "/a").unwrap(), b"Onetwo", "taking an image changes nothing");
    file.sync_data().unwrap();
    assert_eq!(bytes(&cut(&fs), "/a").unwrap(), b"Onetwo");
    file.set_len(1).unwrap();
    assert_eq!(bytes(&cut(&fs), "/a").unwrap(), b"Onetwo");
    file.sync_data().unwrap();
    assert_eq!(bytes(&cut(&fs), "/a").unwrap(), b"O");
    let other = fs.create(p("/b")).unwrap();
    other.write_at(b"x", 0).unwrap();
    fs.sync_dir(p("/")).unwrap();
    assert_eq!(bytes(&cut(&fs), "/b").unwrap(), b"", "a name is durable without the bytes");
}

#[test]
fn renames_and_unlinks_come_back_until_synced() {
    let fs = with_synced_file(b"old");
    let new = fs.create(p("/tmp")).unwrap();
    new.write_at(b"new", 0).unwrap();
    new.sync_data().unwrap();
    fs.rename(p("/tmp"), p("/a")).unwrap();
    let image = fs.crash_image(CrashPolicy::DropUnsynced);
    assert_eq!(image.list(p("/")).unwrap(), ["a"]);
    assert_eq!(bytes(&image, "/a").unwrap(), b"old");
    fs.sync_dir(p("/")).unwrap();
    let image = fs.crash_image(CrashPolicy::DropUnsynced);
    assert_eq!(image.list(p("/")).unwrap(), ["a"]);
    assert_eq!(bytes(&image, "/a").unwrap(), b"new");
    fs.hard_link(p("/a"), p("/b")).unwrap();
    fs.unlink(p("/a")).unwrap();
    assert_eq!(fs.crash_image(CrashPolicy::DropUnsynced).list(p("/")).unwrap(), ["a"]);
    fs.sync_dir(p("/")).unwrap();
    assert_eq!(fs.crash_image(CrashPolicy::DropUnsynced).list(p("/")).unwrap(), ["b"]);
}

#[test]
fn links_share_their_bytes_in_the_image() {
    let fs = with_synced_file(b"shared");
    fs.hard_link(p("/a"), p("/b")).unwrap();
    fs.sync_dir(p("/")).unwrap();
    for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll, CrashPolicy::Random(1)] {
        let image = fs.crash_image(policy);
        image.open(p("/a"), Access::ReadWrite).unwrap().write_at(b"S", 0).unwrap();
        assert_eq!(bytes(&image, "/b").unwrap(), b"Shared", "{policy:?}");
        assert_eq!(bytes(&fs, "/b").unwrap(), b"shared", "{policy:?}: the original is untouched");
    }
}

#[test]
fn a_lost_directory_takes_its_synced_files_along() {
    let fs = SimFs::new(0);
    fs.create_dir_all(p("/db/deep")).unwrap();
    fs.create(p("/db/deep/f")).unwrap().sync_data().unwrap();
    fs.sync_dir(p("/db/deep")).unwrap();
    fs.sync_dir(p("/db")).unwrap();
    assert!(!fs.crash_image(CrashPolicy::DropUnsynced).exists(p("/db")).unwrap());
    fs.sync_dir(p("/")).unwrap();
    assert!(fs.crash_image(CrashPolicy::DropUnsynced).exists(p("/db/deep/f")).unwrap());
}

#[test]
fn a_killed_process_loses_nothing_but_makes_nothing_durable() {
    let fs = with_synced_file(b"synced");
    fs.open(p("/a"), Access::ReadWrite).unwrap().write_at(b"UN", 0).unwrap();
    fs.create(p("/b")).unwrap();
    let _lock = fs.lock(p("/LOCK"), LockMode::Exclusive).unwrap();
    let killed = fs.crash_image(CrashPolicy::KeepAll);
    assert_eq!(killed.list(p("/")).unwrap(), ["LOCK", "a", "b"]);
    assert_eq!(bytes(&killed, "/a").unwrap(), b"UNnced");
    killed.lock(p("/LOCK"), LockMode::Exclusive).expect("locks die with the process");
    let cut = killed.crash_image(CrashPolicy::DropUnsynced);
    assert_eq!(cut.list(p("/")).unwrap(), ["a"]);
    assert_eq!(bytes(&cut, "/a").unwrap(), b"synced");
}

#[test]
fn what_survived_a_power_cut_is_durable() {
    let fs = with_synced_file(b"synced");
    fs.open(p("/a"), Access::ReadWrite).unwrap().write_at(&[9; 50], 0).unwrap();
    for seed in 0..50 {
        let image = fs.crash_image(CrashPolicy::Random(seed));
        let again = image.crash_image(CrashPolicy::DropUnsynced);
        assert_eq!(bytes(&image, "/a"), bytes(&again, "/a"));
    }
}

#[test]
fn an_overwritten_synced_range_is_kept_lost_and_torn_at_many_places() {
    // A recycled log segment: new records over old ones.
    let fs = with_synced_file(&[1; 10_000]);
    let file = fs.open(p("/a"), Access::ReadWrite).unwrap();
    file.write_at(&[2; 10_000], 0).unwrap();
    let mut tears = BTreeSet::new();
    let (mut kept, mut lost, mut holes) = (0, 0, 0);
    for seed in 0..400 {
        let image = bytes(&fs.crash_image(CrashPolicy::Random(seed)), "/a").unwrap();
        assert_eq!(image.len(), 10_000);
        let new = image.iter().take_while(|b| **b == 2).count();
        match new {
            10_000 => kept += 1,
            _ if image.iter().all(|b| *b == 1) => lost += 1,
            _ if image[new..].iter().all(|b| *b == 1) => drop(tears.insert(new)),
            _ => holes += 1,
        }
    }
    assert!(kept >= 50 && lost >= 50 && holes >= 5, "kept {kept}, lost {lost}, holes {holes}");
    assert!(tears.iter().filter(|at| **at % 512 != 0).count() >= 20, "torn only at {tears:?}");
}

#[test]
fn the_same_seed_makes_the_same_image() {
    let fs = with_synced_file(b"x");
    let file = fs.open(p("/a"), Access::ReadWrite).unwrap();
    for i in 0..40u8 {
        file.write_at(&[i; 100], u64::from(i) * 64).unwrap();
        fs.create(p(&format!("/f{i}"))).unwrap();
    }
    let look = |seed| {
        let image = fs.crash_image(CrashPolicy::Random(seed));
        (image.list(p("/")).unwrap(), bytes(&image, "/a"))
    };
    let mut different = BTreeSet::new();
    for seed in 0..20 {
        assert_eq!(look(seed), look(seed));
        different.insert(look(seed));
    }
    assert!(different.len() >= 10, "{} of 20 images differ", different.len());
}

#[test]
fn a_rename_is_whole_or_not_at_all() {
    let fs = with_synced_file(b"old");
    let tmp = fs.create(p("/tmp")).unwrap();
    tmp.write_at(b"new", 0).unwrap();
    tmp.sync_data().unwrap();
    fs.rename(p("/tmp"), p("/a")).unwrap();
    let mut seen = BTreeMap::<(Vec<String>, Vec<u8>), u32>::new();
    for seed in 0..300 {
        let image = fs.crash_image(CrashPolicy::Random(seed));
        *seen.entry((image.list(p("/")).unwrap(), bytes(&image, "/a").unwrap())).or_default() += 1;
    }
    let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let legal = [
        (names(&["a"]), b"old".to_vec()),
        (names(&["a", "tmp"]), b"old".to_vec()),
        (names(&["a"]), b"new".to_vec()),
    ];
    assert_eq!(seen.keys().cloned().collect::<BTreeSet<_>>(), BTreeSet::from(legal));
    assert!(seen.values().all(|n| *n >= 10), "{seen:?}");
}

#[test]
fn a_renamed_directory_has_one_of_its_names_and_all_that_was_synced_in_it() {
    let fs = SimFs::new(5);
    fs.create_dir_all(p("/tmp")).unwrap();
    let file = fs.create(p("/tmp/f")).unwrap();
    file.write_at(b"bytes", 0).unwrap();
    file.sync_data().unwrap();
    fs.sync_dir(p("/tmp")).unwrap();
    fs.sync_dir(p("/")).unwrap();
    fs.rename(p("/tmp"), p("/done")).unwrap();
    let mut seen = BTreeMap::<Vec<String>, u32>::new();
    for seed in 0..200 {
        let image = fs.crash_image(CrashPolicy::Random(seed));
        let names = image.list(p("/")).unwrap();
        assert_eq!(bytes(&image, &format!("/{}/f", names[0])).unwrap(), b"bytes");
        *seen.entry(names).or_default() += 1;
    }
    assert_eq!(seen.keys().cloned().collect::<Vec<_>>(), [vec!["done".to_owned()], vec!["tmp".to_owned()]]);
    assert!(seen.values().all(|n| *n >= 20), "{seen:?}");
    fs.sync_dir(p("/")).unwrap();
    assert_eq!(fs.crash_image(CrashPolicy::DropUnsynced).list(p("/")).unwrap(), ["done"]);
}

#[test]
fn an_operation_never_survives_without_the_one_it_builds_on() {
    let fs = with_synced_file(b"old");
    let x = fs.create(p("/x")).unwrap();
    x.write_at(b"new", 0).unwrap();
    x.sync_data().unwrap();
    fs.sync_dir(p("/")).unwrap();
    fs.rename(p("/x"), p("/a")).unwrap();
    fs.rename(p("/a"), p("/b")).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let image = fs.crash_image(CrashPolicy::Random(seed));
        let names = image.list(p("/")).unwrap().into_iter();
        let state = names.map(|n| format!("{n}={}", String::from_utf8(bytes(&image, &n).unwrap()).unwrap()));
        seen.insert(state.collect::<Vec<_>>().join(" "));
    }
    let legal = ["a=old x=new", "a=new", "b=new"].map(str::to_owned);
    assert_eq!(seen, BTreeSet::from(legal));
}

#[test]
fn a_rename_between_directories_never_loses_the_file() {
    let fs = with_synced_file(b"precious");
    fs.create_dir_all(p("/d")).unwrap();
    fs.sync_dir(p("/")).unwrap();
    fs.rename(p("/a"), p("/d/a")).unwrap();
    let (mut old, mut new, mut both) = (0, 0, 0);
    for seed in 0..300 {
        let image = fs.crash_image(CrashPolicy::Random(seed));
        match (bytes(&image, "/a"), bytes(&image, "/d/a")) {
            (Some(_), Some(_)) => both += 1,
            (Some(_), None) => old += 1,
            (None, Some(_)) => new += 1,
            (None, None) => panic!("seed {seed} lost the file"),
        }
    }
    assert!(old >= 20 && new >= 20 && both >= 10, "old {old}, new {new}, both {both}");
    fs.sync_dir(p("/")).unwrap();
    let image = fs.crash_image(CrashPolicy::DropUnsynced);
    assert_eq!(bytes(&image, "/a"), None);
    assert_eq!(bytes(&image, "/d/a").unwrap(), b"precious", "the removal's sync takes the link along");
}

#[test]
fn unsynced_creates_survive_in_any_combination() {
    let fs = SimFs::new(0);
    for name in ["/a", "/b", "/c"] {
        fs.create(p(name)).unwrap();
    }
    let images = (0..500).map(|seed| fs.crash_image(CrashPolicy::Random(seed)).list(p("/")).unwrap());
    assert_eq!(images.collect::<BTreeSet<_>>().len(), 8, "all subsets of three names");
}

/// Each byte written is its own position's generation, so that an image shows which write each of
/// its bytes is from: never older than the last sync, never one that was not made.
#[test]
fn images_taken_at_random_moments_hold_all_synced_bytes() {
    const LEN: usize = 9000;
    let mut rng = SplitMix64::new(77);
    let (mut images, mut syncs) = (0, 0);
    for round in 0..20 {
        let fs = with_synced_file(&[0; LEN]);
        let file = fs.open(p("/a"), Access::ReadWrite).unwrap();
        let (mut live, mut synced) = (vec![0u8; LEN], vec![0u8; LEN]);
        for generation in 1..60u8 {
            let from = rng.below(LEN as u64) as usize;
            let to = LEN.min(from + 1 + rng.below(5000) as usize);
            file.write_at(&vec![generation; to - from], from as u64).unwrap();
            live[from..to].fill(generation);
            if rng.chance(1, 5) {
                file.sync_data().unwrap();
                synced.clone_from(&live);
                syncs += 1;
            }
            let image = fs.crash_image(CrashPolicy::Random(rng.next_u64()));
            let image = bytes(&image, "/a").unwrap();
            assert_eq!(image.len(), LEN);
            for (at, byte) in image.iter().enumerate() {
                assert!((synced[at]..=live[at]).contains(byte), "round {round}, byte {at}");
            }
            let dropped = bytes(&fs.crash_image(CrashPolicy::DropUnsynced), "/a").unwrap();
            assert!(dropped == synced, "round {round}: not what was synced");
            images += 1;
        }
    }
    assert!(images >= 1000 && syncs >= 100, "{images} images, {syncs} syncs");
}

/// Random operations on names: an image that drops all unsynced ones equals the model at each
/// directory's last sync, and a random image holds only names that existed since then.
#[test]
fn names_after_a_cut_agree_with_a_model() {
    let mut rng = SplitMix64::new(8);
    let (mut syncs, mut renames, mut extras) = (0, 0, 0);
    for _ in 0..60 {
        let fs = SimFs::new(rng.next_u64());
        let mut synced = BTreeMap::<String, u8>::new();
        let mut since = BTreeMap::<String, BTreeSet<Option<u8>>>::new();
        let mut live = BTreeMap::<String, u8>::new();
        for step in 0..60u8 {
            let (a, b) = (format!("f{}", rng.below(5)), format!("f{}", rng.below(5)));
            let (path_a, path_b) = (format!("/{a}"), format!("/{b}"));
            match rng.below(5) {
                0 | 1 if !live.contains_key(&a) => {
                    let file = fs.create(p(&path_a)).unwrap();
                    file.write_at(&[step], 0).unwrap();
                    file.sync_data().unwrap();
                    live.insert(a.clone(), step);
                }
                2 if a != b && live.contains_key(&a) => {
                    fs.rename(p(&path_a), p(&path_b)).unwrap();
                    let id = live.remove(&a).unwrap();
                    live.insert(b.clone(), id);
                    renames += 1;
                }
                3 if live.remove(&a).is_some() => fs.unlink(p(&path_a)).unwrap(),
                4 if rng.chance(1, 3) => {
                    fs.sync_dir(p("/")).unwrap();
                    synced.clone_from(&live);
                    since.clear();
                    syncs += 1;
                }
                _ => continue,
            }
            for name in [a, b] {
                since.entry(name.clone()).or_default().insert(live.get(&name).copied());
            }
            let look = |policy| -> BTreeMap<String, u8> {
                let image = fs.crash_image(policy);
                let names = image.list(p("/")).unwrap().into_iter();
                names.map(|n| (n.clone(), bytes(&image, &format!("/{n}")).unwrap()[0])).collect()
            };
            assert_eq!(look(CrashPolicy::DropUnsynced), synced);
            assert_eq!(look(CrashPolicy::KeepAll), live);
            let random = look(CrashPolicy::Random(rng.next_u64()));
            for i in 0..5 {
                let name = format!("f{i}");
                let there = random.get(&name).copied();
                let was = synced.get(&name).copied() == there;
                assert!(was || since.get(&name).is_some_and(|s| s.contains(&there)), "{name}: {there:?}");
                extras += u32::from(!was);
            }
        }
    }
    assert!(syncs >= 100 && renames >= 100 && extras >= 200, "{syncs} {renames} {extras}");
}

#[test]
fn the_device_fills_and_empties() {
    let fs = SimFs::new(0);
    fs.set_capacity(10_000);
    let file = fs.create(p("/a")).unwrap();
    file.write_at(&[1; 6000], 0).unwrap();
    assert_eq!(fs.free_bytes(p("/")).unwrap(), 4000);
    file.allocate(0, 8000).unwrap();
    assert_eq!(fs.free_bytes(p("/")).unwrap(), 2000);
    file.write_at(&[2; 2000], 6000).unwrap();
    assert_eq!(fs.free_bytes(p("/")).unwrap(), 2000, "allocated space was there already");
    let full = file.write_at(&[3; 2001], 8000).unwrap_err();
    assert_eq!((full.kind(), full.offset()), (ErrorKind::NoSpace, Some(8000)));
    assert_eq!(file.allocate(0, 10_001).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(file.set_len(10_001).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(file.len().unwrap(), 8000, "a refused write changes nothing");
    let killed = fs.crash_image(CrashPolicy::KeepAll);
    assert_eq!(killed.free_bytes(p("/")).unwrap(), 2000);
    file.set_len(1000).unwrap();
    assert_eq!(fs.free_bytes(p("/")).unwrap(), 9000);
    fs.unlink(p("/a")).unwrap();
    assert_eq!(fs.free_bytes(p("/")).unwrap(), 9000, "an open file keeps its space");
    drop(file);
    assert_eq!(fs.free_bytes(p("/")).unwrap(), 10_000);
    let cut = fs.crash_image(CrashPolicy::DropUnsynced);
    assert_eq!(cut.free_bytes(p("/")).unwrap(), 10_000, "the name was never durable");
}

#[test]
fn the_trace_orders_calls_and_notes() {
    let fs = SimFs::new(0);
    fs.set_tracing(true);
    let file = fs.create(p("/a")).unwrap();
    file.write_at(b"abc", 5).unwrap();
    file.sync_data().unwrap();
    fs.note("acknowledged");
    assert!(fs.open(p("/none"), Access::Read).is_err());
    fs.rename(p("/a"), p("/b")).unwrap();
    let trace = fs.trace();
    let ops: Vec<_> = trace.iter().map(|c| (c.op, c.ok)).collect();
    let expected = [
        (Some(OpKind::Create), true),
        (Some(OpKind::Write), true),
        (Some(OpKind::Sync), true),
        (None, true),
        (Some(OpKind::Open), false),
        (Some(OpKind::Rename), true),
    ];
    assert_eq!(ops, expected);
    assert_eq!((trace[1].offset, trace[1].len, &*trace[1].path), (5, 3, p("/a")));
    assert_eq!(&*trace[3].path, p("acknowledged"));
    assert_eq!(trace[5].target.as_deref(), Some(p("/b")));
    assert_eq!(Some(&*trace[0].thread), std::thread::current().name());
    fs.set_tracing(false);
    assert!(fs.trace().is_empty());
}

#[test]
fn a_hook_can_cut_the_power_before_every_call() {
    let fs = SimFs::new(0);
    let images = Arc::new(Mutex::new(Vec::new()));
    let (weak, taken) = (Arc::downgrade(&fs), Arc::clone(&images));
    fs.add_call_hook(Arc::new(move |_call| {
        let fs = weak.upgrade().expect("the hook is called by it");
        taken.lock().push(fs.crash_image(CrashPolicy::DropUnsynced));
    }));
    let file = fs.create(p("/a")).unwrap();
    file.write_at(b"abc", 0).unwrap();
    fs.sync_dir(p("/")).unwrap();
    file.sync_data().unwrap();
    fs.list(p("/")).unwrap();
    fs.clear_call_hooks();
    fs.list(p("/")).unwrap();
    let found: Vec<_> = images.lock().iter().map(|image| bytes(image, "/a")).collect();
    assert_eq!(found, [None, None, None, Some(vec![]), Some(b"abc".to_vec())]);
}

/// As on Linux: readers see what could not be written back, and no later sync brings it to the disk.
#[test]
fn what_a_failed_sync_lost_stays_lost_though_the_next_one_succeeds() {
    let fs = with_synced_file(b"one");
    let faults = FaultFs::new(fs.clone());
    let disk = fs.clone();
    faults.set_on_failed_sync(Arc::new(move |path| disk.fail_writeback(path)));
    faults.add(Rule::nth(OpKind::Sync, 1, Fault::Errno(5)));
    let file = faults.open(p("/a"), Access::ReadWrite).unwrap();
    file.write_at(b"ONE", 0).unwrap();
    file.write_at(&[b'x'; 9000], 4096).unwrap();
    file.sync_data().unwrap_err();
    file.sync_data().unwrap();
    let cut = |policy| bytes(&fs.crash_image(policy), "/a").unwrap();
    assert_eq!(&cut(CrashPolicy::KeepAll)[..3], b"ONE", "the machine lives");
    assert_eq!(bytes(&fs, "/a").unwrap().len(), 4096 + 9000);
    for policy in [CrashPolicy::DropUnsynced, CrashPolicy::Random(1), CrashPolicy::Random(2)] {
        let left = cut(policy);
        assert_eq!(&left[..3], b"one", "{policy:?}");
        assert!(left[3..].iter().all(|byte| *byte == 0), "{policy:?}");
    }
    // A page that is written once more is written whole; the others stay lost, also behind a cut.
    file.write_at(b"y", 4096).unwrap();
    file.set_len(4096 + 8192).unwrap();
    file.sync_data().unwrap();
    let left = cut(CrashPolicy::DropUnsynced);
    assert_eq!((left.len(), &left[..3], &left[4096..4099]), (4096 + 8192, &b"one"[..], &b"yxx"[..]));
    assert!(left[8192..].iter().all(|byte| *byte == 0));
    fs.fail_writeback(p("/no such file"));
}

#[test]
fn without_power_nothing_changes() {
    let fs = with_synced_file(b"abc");
    let file = fs.open(p("/a"), Access::ReadWrite).unwrap();
    file.write_at(b"X", 0).unwrap();
    fs.power_off();
    assert_eq!(file.sync_data().unwrap_err().kind(), ErrorKind::Io);
    assert!(file.write_at(b"Y", 0).is_err());
    assert!(fs.create(p("/b")).is_err());
    let image = fs.crash_image(CrashPolicy::DropUnsynced);
    assert_eq!(bytes(&image, "/a").unwrap(), b"abc");
}

#[test]
fn a_large_file_with_many_syncs_stays_cheap() {
    // 64 MiB in 64 KiB writes, synced a thousand times, imaged as often: were any of these to copy
    // the file, this would move 64 GiB and never end.
    let fs = SimFs::new(0);
    let file = fs.create(p("/big")).unwrap();
    fs.sync_dir(p("/")).unwrap();
    let chunk = vec![7; 64 << 10];
    for i in 0..1024u64 {
        file.write_at(&chunk, i * (64 << 10)).unwrap();
        file.sync_data().unwrap();
    }
    let image = fs.crash_image(CrashPolicy::Random(0));
    assert_eq!(image.open(p("/big"), Access::Read).unwrap().len().unwrap(), 64 << 20);
}

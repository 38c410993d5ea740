//! Format versions: what a build does with files that a newer one has written, and the upgrade call.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod hostile;

use std::path::Path;

use dialsm_core::checksum;
use dialsm_core::upgrade::FORMAT_VERSION;
use dialsm_core::version::edit::ManifestRecord;
use dialsm_core::version::manifest::{ManifestWriter, read_manifest};
use dialsm_core::{Db, Error, ErrorKind, Options, ReadOptions, Result, UpgradeReport};
use dialsm_io::{Access, Fs};
use hostile::{DIR, Image, by_hand, contents, env_on, fs_of, image_of, kind_of, open_on, put, write_file};

/// A closed database with a table and some log.
fn specimen() -> Image {
    let sim = fs_of(&Image::new());
    let db = open_on(sim.clone(), &by_hand()).expect("open");
    put(&db, b"in a table", b"v");
    db.flush().expect("flush");
    put(&db, b"in the log", b"v");
    db.close().expect("close");
    drop(db);
    image_of(sim.as_ref(), Path::new(DIR))
}

fn name_of(image: &Image, fits: impl Fn(&str) -> bool) -> String {
    image.keys().rev().find(|name| fits(name)).expect("such a file").clone()
}

/// Opens both ways and reads everything.
fn read_all(image: &Image) -> [Result<usize>; 2] {
    let fs = fs_of(image);
    write_file(fs.as_ref(), &Path::new(DIR).join("LOCK"), b"");
    let read = |db: Db| {
        let mut iter = db.iter(&ReadOptions::default())?;
        iter.seek_to_first()?;
        let mut count = 0;
        while iter.valid() {
            count += 1;
            iter.next()?;
        }
        Ok(count)
    };
    let reader = Db::open_read_only(env_on(fs.clone()), Path::new(DIR), by_hand()).and_then(read);
    let before = image_of(fs.as_ref(), Path::new(DIR));
    let writer = open_on(fs.clone(), &by_hand()).and_then(read);
    if writer.is_err() {
        let after = image_of(fs.as_ref(), Path::new(DIR));
        let lost: Vec<_> = before.iter().filter(|(name, bytes)| after.get(*name) != Some(bytes)).collect();
        // All that was found is there still, but for the log's allocated rest.
        assert!(lost.iter().all(|(name, _)| !name.ends_with(".sst")), "{lost:?}");
    }
    [reader, writer]
}

#[track_caller]
fn assert_newer(error: &Error, file: &str, found: u64, known: u64) {
    assert_eq!(error.kind(), ErrorKind::NewerFormat, "{error}");
    assert!(error.path().is_some_and(|path| path.ends_with(file)), "{file}: {error}");
    for number in [found, known] {
        assert!(error.message().contains(&number.to_string()), "{number} in {error}");
    }
}

/// The version in the header of a table, log segment or manifest.
fn with_header_version(image: &Image, name: &str, version: u16) -> Image {
    let mut image = image.clone();
    let bytes = image.get_mut(name).expect("listed");
    bytes[10..12].copy_from_slice(&version.to_le_bytes());
    let crc = checksum::masked(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    image
}

#[test]
fn a_newer_version_in_any_file_is_named() {
    let image = specimen();
    assert_eq!(read_all(&image).map(|read| read.expect("whole")), [2, 2]);
    let mut refused = 0;
    for fits in
        [|n: &str| n.ends_with(".sst"), |n: &str| n.ends_with(".log"), |n: &str| n.starts_with("MANIFEST")]
    {
        let name = name_of(&image, fits);
        let bad = with_header_version(&image, &name, 57);
        for outcome in read_all(&bad) {
            assert_newer(&outcome.expect_err("newer"), &name, 57, 1);
            refused += 1;
        }
        // The same with a feature that must be known.
        let mut bad = image.clone();
        let bytes = bad.get_mut(&name).expect("listed");
        bytes[24] = 0x40;
        let crc = checksum::masked(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        for outcome in read_all(&bad) {
            let error = outcome.expect_err("a feature");
            assert_eq!(error.kind(), ErrorKind::NewerFormat, "{error}");
            assert!(
                error.message().contains("0x40") && error.path().is_some_and(|p| p.ends_with(&name)),
                "{error}"
            );
            refused += 1;
        }
    }
    let mut bad = image.clone();
    bad.insert("CURRENT".into(), b"format 9\nMANIFEST-000002\n".to_vec());
    for outcome in read_all(&bad) {
        assert_newer(&outcome.expect_err("newer"), "CURRENT", 9, 1);
        refused += 1;
    }
    assert_eq!(refused, 14);
}

#[test]
fn a_newer_options_file_is_named_when_it_is_asked_for() {
    let image = specimen();
    let name = name_of(&image, |name| name.starts_with("OPTIONS"));
    let text = String::from_utf8(image[&name].clone()).expect("text");
    let load = |text: String| {
        let fs = fs_of(&Image::from([(name.clone(), text.into_bytes())]));
        Options::load(env_on(fs).as_ref(), Path::new(DIR))
    };
    assert_eq!(load(text.clone()).expect("whole").to_text(), by_hand().to_text());
    assert_newer(&load(text.replace("format = 1", "format = 33")).expect_err("newer"), &name, 33, 1);
    let error = load(format!("{text}of_tomorrow = 1\n")).expect_err("an unknown line");
    assert_eq!(error.kind(), ErrorKind::NewerFormat, "{error}");
    let line = format!("line {}: option \"of_tomorrow\"", text.lines().count() + 1);
    assert!(error.message().contains(&line) && error.path().is_some_and(|p| p.ends_with(&name)), "{error}");
    load(format!("{text}?of_tomorrow = 1\n")).expect("may be passed over");
    // An opening does not read it.
    let mut bad = image.clone();
    bad.insert(name.clone(), b"format = 33\n".to_vec());
    assert_eq!(read_all(&bad).map(|read| read.expect("whole")), [2, 2]);
}

/// The same manifest with another version of the database in its snapshot.
fn with_database_version(image: &Image, version: Option<u32>) -> Image {
    let fs = fs_of(image);
    let name = name_of(image, |name| name.starts_with("MANIFEST"));
    let path = Path::new(DIR).join(&name);
    let mut records: Vec<ManifestRecord> = Vec::new();
    let end = read_manifest(fs.open(&path, Access::Read).expect("open"), &mut |_, record| {
        records.push(record);
        Ok(())
    })
    .expect("intact");
    assert_eq!(records[0].format_version, Some(FORMAT_VERSION), "a snapshot says the version");
    assert!(records[1..].iter().all(|record| record.format_version.is_none()));
    records[0].format_version = version;
    fs.unlink(&path).expect("unlink");
    let file = fs.create(&path).expect("create");
    let mut writer =
        ManifestWriter::create(file, &end.header.db_id, end.header.number, &records[0]).expect("create");
    records[1..].iter().for_each(|record| writer.append(record).expect("append"));
    image_of(fs.as_ref(), Path::new(DIR))
}

#[test]
fn the_version_of_the_database_is_checked_kept_and_raised_by_one_call_only() {
    let image = specimen();
    let newer = with_database_version(&image, Some(FORMAT_VERSION + 1));
    let manifest = name_of(&image, |name| name.starts_with("MANIFEST"));
    for outcome in read_all(&newer) {
        let (found, known) = (u64::from(FORMAT_VERSION) + 1, u64::from(FORMAT_VERSION));
        assert_newer(&outcome.expect_err("newer"), &manifest, found, known);
    }
    let upgrade = |image: &Image| {
        let fs = fs_of(image);
        write_file(fs.as_ref(), &Path::new(DIR).join("LOCK"), b"");
        let outcome = Db::upgrade(env_on(fs.clone()).as_ref(), Path::new(DIR));
        assert_eq!(&image_of(fs.as_ref(), Path::new(DIR)), image, "nothing to do, so nothing is written");
        outcome
    };
    assert_eq!(kind_of(upgrade(&newer)), ErrorKind::NewerFormat);
    assert_eq!(kind_of(upgrade(&with_database_version(&image, Some(0)))), ErrorKind::Corruption);
    let same = UpgradeReport { from: FORMAT_VERSION, to: FORMAT_VERSION };
    assert_eq!(upgrade(&image).expect("up to date"), same);
    // Databases from before the field have the first version.
    let silent = with_database_version(&image, None);
    assert_eq!(upgrade(&silent).expect("up to date"), same);
    assert_eq!(read_all(&silent).map(|read| read.expect("whole")), [2, 2]);
    // An upgraded database, or one that needed none, is what it was.
    let fs = fs_of(&image);
    let db = open_on(fs.clone(), &by_hand()).expect("open");
    assert_eq!(contents(&db).len(), 2);
    assert_eq!(kind_of(Db::upgrade(env_on(fs.clone()).as_ref(), Path::new(DIR))), ErrorKind::Busy);
    drop(db);
    assert_eq!(kind_of(Db::upgrade(env_on(fs).as_ref(), Path::new("/nowhere"))), ErrorKind::NotFound);
}

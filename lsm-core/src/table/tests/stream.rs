//! Tables written through a stream: the same bytes as by plain calls, and errors that are not lost.

use dialsm_io::{
    CreateOptions, Env, Fault, FaultFs, Fs, IoOptions, Landing, OpKind, Rule, SimEnv, StreamOptions,
    StreamWriter,
};

use super::*;
use crate::range_del::RangeTombstone;

fn header() -> FileHeader {
    FileHeader { kind: FileKind::Table, db_id: DB, number: NUMBER }
}

fn fill(mut writer: TableWriter, entries: &Entries, tombstone: bool) -> Result<TableWriter> {
    for (key, value) in entries {
        writer.add(key, value)?;
    }
    if tombstone {
        let (start, end) = (Arc::from(&b"a"[..]), Arc::from(&b"b"[..]));
        writer.add_range_tombstone(&RangeTombstone { start, end, seqno: 9 })?;
    }
    Ok(writer)
}

/// A stream of its own into a new file of a simulation.
fn stream(env: &SimEnv, fs: &dyn Fs, name: &str, direct: bool, buf_bytes: usize) -> StreamWriter {
    let io = env.start_io(&IoOptions::default()).expect("a simulation has threads");
    let file = fs.create_with(Path::new(name), CreateOptions { direct }).expect("a new name");
    let options = StreamOptions { buf_bytes, ..StreamOptions::default() };
    StreamWriter::new(io, file, Some(env.event()), options).expect("options in range")
}

fn contents(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().expect("memory") as usize];
    let n = file.read_at(&mut bytes, 0).expect("memory");
    assert_eq!(n, bytes.len());
    bytes
}

#[test]
fn a_table_through_a_stream_is_the_same_byte_for_byte() {
    let mut rng = Rng(77);
    let (mut under_way, mut large) = (0, 0);
    for round in 0..60 {
        let cmp = Comparator::Bytewise;
        let keys = [0, 1, 30, 300][round % 4];
        let mut entries = random_entries(&mut rng, &cmp, keys);
        if round % 5 == 0
            && let Some(last) = entries.last_mut()
            && last.0.last() != Some(&(Kind::Delete as u8))
        {
            last.1 = vec![3; 400_000];
            large += 1;
        }
        let compression = [Compression::None, Compression::Lz4][round % 2];
        let options = options([500, 4096, 32 << 10][round % 3], compression);
        let tombstone = round % 3 == 0;
        let plain = MemFile::with(Vec::new());
        let writer = TableWriter::new(plain.clone(), header(), cmp.clone(), options.clone()).expect("valid");
        let writer = fill(writer, &entries, tombstone).expect("entries are in order");
        assert_eq!(writer.bytes_in_flight(), 0);
        let (meta, mut landing) = writer.finish_streaming().expect("memory takes all");
        assert!(landing.is_done() && landing.try_take().is_some_and(|landed| landed.is_ok()));

        let env = SimEnv::new(round as u64);
        env.run(|| {
            let stream = stream(&env, &**env.fs(), "/a", round % 2 == 0, [4096, 64 << 10][round % 2]);
            let writer = TableWriter::streaming(stream, header(), cmp.clone(), options.clone());
            let writer = fill(writer.expect("valid"), &entries, tombstone).expect("in order");
            let in_flight = writer.bytes_in_flight();
            let (streamed, landing) = writer.finish_streaming().expect("no error is known");
            assert!(landing.bytes_in_flight() >= in_flight || landing.bytes_in_flight() > 0);
            under_way += usize::from(!landing.is_done());
            assert_eq!(streamed, meta);
            let file = landing.wait().expect("memory takes all");
            let bytes = contents(&*file);
            assert!(bytes == *plain.bytes.read(), "round {round}");
            let blocks = Arc::new(BlockCache::new(1 << 20));
            let opened = TableReader::open(file, &DB, NUMBER, meta.file_bytes, cmp.clone(), blocks);
            opened.expect("an intact table opens").verify_all().expect("intact");
        });
    }
    assert!(under_way >= 50 && large >= 5, "{under_way} {large}");
}

/// Whichever write fails, no table comes out, and none is forgotten by calls that follow.
#[test]
fn a_failed_write_of_a_stream_is_not_forgotten() {
    let entries = plain_entries(3000, 100);
    let (mut in_add, mut in_landing, mut good) = (0, 0, 0);
    for seed in 0..120 {
        let sim = SimEnv::new(seed);
        let fault = FaultFs::new(sim.sim_fs().clone());
        let env = sim.on_fs(sim.sim_fs().clone(), fault.clone());
        sim.run(|| {
            fault.add(Rule::nth(OpKind::Write, 1 + seed, Fault::Errno(libc_eio())));
            let stream = stream(&env, &*fault, "/a", seed % 2 == 0, 4096);
            let options = options(4096, Compression::None);
            let mut writer =
                TableWriter::streaming(stream, header(), Comparator::Bytewise, options).expect("valid");
            let mut outcome = Ok(());
            for (no, (key, value)) in entries.iter().enumerate() {
                // The disk gets on while the merge looks for its next entry.
                if no % 40 == 0 {
                    env.sleep(100_000);
                }
                match writer.add(key, value) {
                    Ok(()) => assert!(outcome.is_ok(), "an entry was taken after a failure"),
                    Err(e) if outcome.is_ok() => outcome = Err(e.kind()),
                    Err(e) => assert_eq!(e.kind(), ErrorKind::Internal),
                }
            }
            let landed = writer.finish_streaming().and_then(|(_, landing): (_, Landing)| landing.wait());
            match (&outcome, &landed) {
                (Err(kind), landed) => {
                    in_add += 1;
                    assert_eq!(*kind, ErrorKind::Io);
                    assert!(landed.is_err());
                }
                (Ok(()), Err(e)) => {
                    in_landing += 1;
                    assert_eq!(e.kind(), ErrorKind::Io);
                }
                (Ok(()), Ok(_)) => good += 1,
            }
            assert_eq!(fault.injected() > 0, landed.is_err(), "seed {seed}");
        });
    }
    assert!(in_add >= 20 && in_landing >= 1 && good >= 5, "{in_add} {in_landing} {good}");
}

/// The number of EIO, the same on every Linux.
fn libc_eio() -> i32 {
    5
}

#[test]
fn a_stream_that_has_bytes_is_refused() {
    let env = SimEnv::new(1);
    env.run(|| {
        let mut stream = stream(&env, &**env.fs(), "/a", false, 4096);
        stream.write(b"x").expect("memory");
        let refused = TableWriter::streaming(stream, header(), Comparator::Bytewise, TableOptions::default());
        assert_eq!(refused.map(|_| ()).expect_err("refused").kind(), ErrorKind::InvalidArgument);
    });
}

//! The program as a process: arguments, pipes and exit codes.

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};

fn dialsm(args: &[&str], stdin: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dialsm"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let mut input = child.stdin.take().expect("piped");
    let stdin = stdin.to_vec();
    let feeder = std::thread::spawn(move || {
        // The program may end before it has read everything.
        let _ = input.write_all(&stdin);
    });
    let output = child.wait_with_output().expect("it ends");
    feeder.join().expect("the feeder only writes");
    output
}

#[test]
fn converts_through_pipes() {
    let mut tsv = Vec::new();
    for n in 0..20_000 {
        writeln!(tsv, "key{n:06}\t\\x00value {n}\\n").expect("a vector");
    }
    let hex = dialsm(&["convert", "--format", "hex"], &tsv);
    assert_eq!(hex.status.code(), Some(0));
    assert!(hex.stdout.starts_with(b"0x6B6579303030303030 ==> 0x0076616C756520300A\n"));
    let back = dialsm(&["convert", "--input", "hex"], &hex.stdout);
    // The writer's own spelling of the zero byte.
    let expected = String::from_utf8(tsv).expect("text").replace("\\x00", "\\0");
    assert!(back.stdout == expected.as_bytes());
    assert!(back.stderr.is_empty(), "no progress line without a terminal");
}

#[test]
fn exit_codes_and_error_texts() {
    let help = dialsm(&["--help"], b"");
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("Commands:"));
    let usage = dialsm(&["convert", "--frob"], b"");
    assert_eq!(usage.status.code(), Some(2));
    assert!(usage.stdout.is_empty() && usage.stderr.starts_with(b"dialsm: no flag --frob"));
    let line = dialsm(&["convert", "--json"], b"a\tb\nbroken\n");
    assert_eq!(line.status.code(), Some(2));
    assert_eq!(line.stdout, b"{\"key\":\"a\",\"value\":\"b\"}\n", "what came before stands");
    let report = String::from_utf8(line.stderr).expect("text");
    assert!(report.starts_with("{\"error\":{") && report.contains("standard input:2:"), "{report}");
    let file = dialsm(&["convert", "no/such/file"], b"");
    assert_eq!(file.status.code(), Some(3));
}

#[test]
fn a_reader_that_leaves_is_no_error_text() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dialsm"))
        .arg("convert")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    drop(child.stdout.take());
    let mut input = child.stdin.take().expect("piped");
    let feeder = std::thread::spawn(move || {
        let line = [b"k\t".as_slice(), &[b'v'; 1000], b"\n"].concat();
        // More than any buffer in between takes; ends with the program.
        while input.write_all(&line).is_ok() {}
    });
    let mut report = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut report).expect("text");
    let code = child.wait().expect("it ends").code();
    feeder.join().expect("the feeder only writes");
    assert_eq!((code, report.as_str()), (Some(80), ""));
}

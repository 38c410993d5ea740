use super::*;

fn parsed(line: &[&str]) -> Result<Invocation, Failure> {
    parse(line.iter().map(OsString::from))
}

fn command(line: &[&str]) -> Command {
    parsed(line).unwrap_or_else(|failure| panic!("{line:?}: {failure:?}")).command
}

fn refused(line: &[&str]) -> String {
    match parsed(line) {
        Err(Failure::Usage(text)) => text,
        other => panic!("{line:?}: {other:?}"),
    }
}

fn db(path: &str) -> Database {
    Database { path: path.into(), ..Database::default() }
}

#[test]
fn each_command_is_understood() {
    let load = command(&["load", "--batch=7", "d", "a", "-", "--format", "hex", "--sync"]);
    let files = vec!["a".into(), "-".into()];
    assert_eq!(load, Command::Load { db: db("d"), files, format: Format::Hex, batch_ops: 7, sync: true });
    let get = command(&["get", "d", "0x6b", "--encoding", "hex"]);
    assert_eq!(get, Command::Get { db: db("d"), key: b"k".into(), encoding: Encoding::Hex });
    let put = command(&["put", "d", "-e", "v"].map(|a| if a == "-e" { "k" } else { a }));
    let value = Some(b"v".to_vec());
    assert_eq!(put, Command::Put { db: db("d"), key: b"k".into(), value, create: false, sync: false });
    let put = command(&["put", "--create", "d", "--", "--json"]);
    assert_eq!(
        put,
        Command::Put { db: db("d"), key: b"--json".into(), value: None, create: true, sync: false }
    );
    let delete = command(&["delete", "d", "YQ==", "--encoding=base64", "--sync"]);
    assert_eq!(delete, Command::Delete { db: db("d"), key: b"a".into(), sync: true });
    let scan = command(&["scan", "d", "--from", "a", "--to", "b", "--reverse", "--limit", "3"]);
    let range = Range { lower: Some(b"a".into()), upper: Some(b"b".into()), reverse: true };
    assert_eq!(scan, Command::Scan { db: db("d"), range, limit: Some(3), format: Format::Tsv });
    let dump = command(&["--json", "dump", "d"]);
    assert_eq!(
        dump,
        Command::Scan { db: db("d"), range: Range::default(), limit: None, format: Format::Json }
    );
    let stats = command(&["stats", "d", "--property", "p"]);
    assert_eq!(stats, Command::Stats { db: db("d"), prometheus: false, property: Some("p".into()) });
    assert_eq!(command(&["verify", "d"]), Command::Verify { db: db("d") });
    assert_eq!(command(&["compact", "d"]), Command::Compact { db: db("d"), range: Range::default() });
    let convert = command(&["convert", "--input", "hex", "--format", "json"]);
    assert_eq!(convert, Command::Convert { files: vec![], input: Format::Hex, output: Format::Json });
    for line in [&["--help"][..], &["-h"], &["get", "--help"], &["scan", "-h", "a", "b", "c"]] {
        assert_eq!(command(line), Command::Help);
    }
    assert_eq!(command(&["-V"]), Command::Version);
}

#[test]
fn prefix_and_settings_become_values() {
    let Command::Compact { range, .. } =
        command(&["compact", "d", "--prefix", "a\\xFF", "--encoding", "escaped"])
    else {
        panic!("another command")
    };
    assert_eq!(range, Range { lower: Some(b"a\xff".into()), upper: Some(b"b".into()), reverse: false });
    for (prefix, end) in
        [(&b""[..], None), (b"\xff\xff", None), (b"a", Some(&b"b"[..])), (b"a\xff\xff", Some(b"b"))]
    {
        assert_eq!(prefix_end(prefix).as_deref(), end);
    }
    let line =
        ["verify", "d", "--options", "o.txt", "--set", "error_if_exists=true", "--set=block_bytes = 8K"];
    let Command::Verify { db } = command(&line) else { panic!("another command") };
    assert_eq!(db.options_file.as_deref(), Some("o.txt".as_ref()));
    let settings = [("error_if_exists", "true"), ("block_bytes", "8K")];
    assert_eq!(db.settings, settings.map(|(name, value)| (name.to_string(), value.to_string())));
}

#[test]
fn wrong_calls_are_named_and_show_no_data() {
    for (line, part) in [
        (&[][..], "no command given"),
        (&["frob"], "no command \"frob\""),
        (&["get", "d"], "usage: dialsm get DB KEY"),
        (&["get", "d", "secret", "x"], "usage: dialsm get DB KEY"),
        (&["get", "d", "k", "--frob"], "no flag --frob"),
        (&["get", "d", "k", "-x"], "no flag -x"),
        (&["get", "d", "k", "--limit", "3"], "get takes no --limit"),
        (&["dump", "d", "--limit", "3"], "dump takes no --limit"),
        (&["scan", "d", "--limit"], "limit"),
        (&["scan", "d", "--limit", "many"], "--limit: want a whole number"),
        (&["scan", "d", "--limit", "-1"], "--limit: want a whole number"),
        (&["scan", "d", "--limit", "1", "--limit", "2"], "--limit is given twice"),
        (&["scan", "d", "--reverse=yes"], "--reverse takes no value"),
        (&["scan", "d", "--format", "xml"], "--format: want tsv, json or hex"),
        (&["scan", "d", "--prefix", "secret", "--from", "b"], "--prefix cannot stand"),
        (&["get", "d", "secret", "--encoding", "hex"], "KEY as hex: a character that is no"),
        (&["scan", "d", "--to", "secre", "--encoding", "base64"], "--to as base64: not base64"),
        (&["get", "d", "k", "--encoding", "rot13"], "--encoding: want raw"),
        (&["load", "d", "--batch", "0"], "--batch: want 1"),
        (&["verify", "d", "--set", "error_if_exists"], "--set: want NAME=VALUE"),
    ] {
        let text = refused(line);
        assert!(text.contains(part), "{line:?}: {part:?} in {text:?}");
        assert!(!text.contains("secre"), "{text}");
    }
}

#[test]
fn tables_and_usage_agree() {
    let text = usage();
    for row in tables::COMMANDS {
        assert!(text.contains(&format!("  {} {}", row.name, row.args)), "{}", row.name);
        for flag in row.flags.iter().chain(tables::COMMON_FLAGS) {
            assert!(tables::FLAGS.iter().any(|known| known.name == *flag), "{} --{flag}", row.name);
        }
        // Every command of the table is one that `into_command` knows.
        let args = vec!["6161"; row.args_min];
        let line: Vec<&str> = std::iter::once(row.name).chain(args).collect();
        assert_ne!(command(&line), Command::Help, "{}", row.name);
    }
    for flag in tables::FLAGS {
        let used = tables::COMMANDS.iter().any(|row| row.flags.contains(&flag.name));
        assert!(used || tables::COMMON_FLAGS.contains(&flag.name), "{}", flag.name);
        assert!(text.contains(&format!("--{} ", flag.name)));
    }
}

#[test]
fn json_is_seen_even_where_the_rest_is_wrong() {
    assert!(wants_json(&["get", "--json", "--frob"]));
    assert!(!wants_json(&["put", "d", "--", "--json"]));
}

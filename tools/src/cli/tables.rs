//! What commands and flags there are.

use std::fmt::Write as _;

/// A command.
pub(super) struct CommandRow {
    pub(super) name: &'static str,
    /// Its arguments, for the usage text.
    pub(super) args: &'static str,
    pub(super) args_min: usize,
    pub(super) args_max: usize,
    /// The flags it takes beside the common ones.
    pub(super) flags: &'static [&'static str],
    pub(super) doc: &'static str,
}

/// A flag.
pub(super) struct FlagRow {
    pub(super) name: &'static str,
    /// What its value is called, if it takes one.
    pub(super) value: Option<&'static str>,
    pub(super) repeats: bool,
    pub(super) doc: &'static str,
}

/// Flags that every command takes.
pub(super) const COMMON_FLAGS: &[&str] = &["json", "quiet", "help", "version"];

const ANY_NUMBER: usize = usize::MAX;

pub(super) const COMMANDS: &[CommandRow] = &[
    CommandRow {
        name: "load",
        args: "DB [FILE..]",
        args_min: 1,
        args_max: ANY_NUMBER,
        flags: &["format", "batch", "sync", "options", "set"],
        doc: "write the entries of files or standard input; creates the database",
    },
    CommandRow {
        name: "get",
        args: "DB KEY",
        args_min: 2,
        args_max: 2,
        flags: &["encoding", "options", "set"],
        doc: "print the value of a key",
    },
    CommandRow {
        name: "put",
        args: "DB KEY [VALUE]",
        args_min: 2,
        args_max: 3,
        flags: &["encoding", "create", "sync", "options", "set"],
        doc: "set the value of a key; without VALUE it is read, as it is, from standard input",
    },
    CommandRow {
        name: "delete",
        args: "DB KEY",
        args_min: 2,
        args_max: 2,
        flags: &["encoding", "sync", "options", "set"],
        doc: "remove a key",
    },
    CommandRow {
        name: "scan",
        args: "DB",
        args_min: 1,
        args_max: 1,
        flags: &["from", "to", "prefix", "reverse", "limit", "encoding", "format", "options", "set"],
        doc: "print entries in key order",
    },
    CommandRow {
        name: "dump",
        args: "DB",
        args_min: 1,
        args_max: 1,
        flags: &["from", "to", "prefix", "encoding", "format", "options", "set"],
        doc: "print all entries, in a form that `load` reads back",
    },
    CommandRow {
        name: "stats",
        args: "DB",
        args_min: 1,
        args_max: 1,
        flags: &["prometheus", "property", "options", "set"],
        doc: "print the engine's metrics, or one of its properties; opens for reading only",
    },
    CommandRow {
        name: "compact",
        args: "DB",
        args_min: 1,
        args_max: 1,
        flags: &["from", "to", "prefix", "encoding", "options", "set"],
        doc: "compact all keys, or a range of them",
    },
    CommandRow {
        name: "verify",
        args: "DB",
        args_min: 1,
        args_max: 1,
        flags: &["options", "set"],
        doc: "check every block, order, bound and count",
    },
    CommandRow {
        name: "dump-table",
        args: "FILE",
        args_min: 1,
        args_max: 1,
        flags: &["summary"],
        doc: "print the properties and entries of a table file (.sst)",
    },
    CommandRow {
        name: "dump-log",
        args: "FILE",
        args_min: 1,
        args_max: 1,
        flags: &["summary"],
        doc: "print the records and operations of a log segment (.log)",
    },
    CommandRow {
        name: "dump-manifest",
        args: "FILE|DB",
        args_min: 1,
        args_max: 1,
        flags: &[],
        doc: "print the records of a manifest file, or of the one in force",
    },
    CommandRow {
        name: "convert",
        args: "[FILE..]",
        args_min: 0,
        args_max: ANY_NUMBER,
        flags: &["input", "format"],
        doc: "turn entries of one format into another; needs no database",
    },
    CommandRow {
        name: "model",
        args: "",
        args_min: 0,
        args_max: 0,
        flags: &[
            "lambda",
            "mu-flush",
            "mu-l0",
            "mu-deep",
            "k",
            "memtable",
            "sst",
            "l0-trigger",
            "l0-stall",
            "pending-limit",
            "pending-drain",
            "record-bytes",
            "service-us",
            "shards",
            "common-cause",
            "subcompactions",
            "parallel-share",
            "literal",
            "db",
            "recording",
            "run",
            "svg",
        ],
        doc: "predict write stalls from rates, and compare with a recording (docs/STALL-MODEL.md)",
    },
];

const fn switch(name: &'static str, doc: &'static str) -> FlagRow {
    FlagRow { name, value: None, repeats: false, doc }
}

const fn valued(name: &'static str, value: &'static str, doc: &'static str) -> FlagRow {
    FlagRow { name, value: Some(value), repeats: false, doc }
}

pub(super) const FLAGS: &[FlagRow] = &[
    valued("from", "KEY", "first key"),
    valued("to", "KEY", "first key no longer wanted"),
    valued("prefix", "KEY", "only keys that start so (bytewise order)"),
    switch("reverse", "from the last key to the first"),
    valued("limit", "N", "at most N entries"),
    valued(
        "encoding",
        "E",
        "of keys and values on the command line and of `get`'s output:\nraw (default), escaped, hex, base64",
    ),
    valued("format", "F", "of entries: tsv (default), json, hex"),
    valued("input", "F", "of entries that `convert` reads: tsv (default), json, hex"),
    valued("batch", "N", "entries of one atomic batch of `load` (default 1000)"),
    switch("sync", "return when the write is on stable storage"),
    switch("create", "create the database if it is missing"),
    switch("summary", "without entries or operations"),
    switch("prometheus", "in the text format that Prometheus scrapes"),
    valued("property", "NAME", "print this property"),
    valued("options", "FILE", "options of the engine, `name = value` lines"),
    FlagRow {
        name: "set",
        value: Some("NAME=VALUE"),
        repeats: true,
        doc: "one option of the engine, after those of --options; may be repeated",
    },
    valued("lambda", "MB/S", "`model`: what arrives; MB are 10^6 bytes"),
    valued("mu-flush", "MB/S", "`model`: flushes"),
    valued("mu-l0", "MB/S", "`model`: compactions out of level 0, with one thread"),
    valued("mu-deep", "MB/S", "`model`: deeper compactions"),
    valued("k", "SHARE", "`model`: of the bytes in level 0, what survives into the next"),
    valued("memtable", "MB", "`model`: size of a memtable"),
    valued("sst", "MB", "`model`: size of a table in level 0"),
    valued("l0-trigger", "N", "`model`: tables in level 0 at which a stall ends"),
    valued("l0-stall", "N", "`model`: tables in level 0 at which it begins"),
    valued("pending-limit", "MB", "`model`: debt of compaction at which writes stop"),
    valued("pending-drain", "MB", "`model`: what has to be paid of it before they go on"),
    valued("record-bytes", "BYTES", "`model`: key and value of a write"),
    valued("service-us", "US", "`model`: time of a write that nothing stalls"),
    valued("shards", "N", "`model`: trees (default 1)"),
    valued("common-cause", "SHARE", "`model`: of stalls, what all shards have in common (default 0)"),
    valued("subcompactions", "N", "`model`: threads of a compaction out of level 0 (default 1)"),
    valued("parallel-share", "SHARE", "`model`: of its work, what they can share"),
    switch("literal", "`model`: the paper's equations to the letter"),
    valued("db", "DIR", "`model`: limits from the options of this database, open or not"),
    FlagRow {
        name: "recording",
        value: Some("FILE"),
        repeats: true,
        doc: "`model`: rates from a report of dialsm-bench, or from two\nof the engine's statistics as JSON, the earlier one first",
    },
    valued("run", "TEXT", "`model`: of a report, the first run with this in `engine/workload`"),
    valued("svg", "FILE", "`model`: draw the curves"),
    switch("json", "results and errors as JSON"),
    switch("quiet", "no progress line"),
    switch("help", "show this text (also -h)"),
    switch("version", "show the version (also -V)"),
];

const NOTES: &str = "
Formats, one entry a line:
  tsv    key TAB value, with the escapes \\t \\n \\r \\0 \\\\ and \\xHH
  json   {\"key\":\"..\",\"value\":\"..\"}; for bytes key_base64, key_hex, value_base64, value_hex
  hex    0xKEY ==> 0xVALUE or 0xKEY : 0xVALUE, as RocksDB's `ldb dump --hex` prints

Exit codes:
  0 done; 1 the key or property is not there; 2 the call is wrong; else the number of the
  error's kind: 3 not found, 4 exists already, 22 busy, 23 no space, 60 corruption,
  61 foreign file, 62 newer format, 80 input/output, 82 internal, ..
";

/// How to use the program.
pub fn usage() -> String {
    let mut out = String::from("dialsm: look at and change a DiaLSM database\n\nCommands:\n");
    for row in COMMANDS {
        let call = format!("{} {}", row.name, row.args);
        writeln!(out, "  {call:<22} {}", row.doc).expect("writing to a string cannot fail");
    }
    out.push_str("\nFlags (after `--` nothing is a flag):\n");
    for flag in FLAGS {
        let call = format!("--{} {}", flag.name, flag.value.unwrap_or_default());
        let doc = flag.doc.replace('\n', &format!("\n{:25}", ""));
        writeln!(out, "  {call:<22} {doc}").expect("writing to a string cannot fail");
    }
    out.push_str(NOTES);
    out
}

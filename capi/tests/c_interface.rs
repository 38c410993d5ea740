//! The C interface as C programs see it: the header, the symbols, the test program in `tests/c`, the examples.
//!
//! Compilers that are not there are skipped with a note, but for `cc`, without which nothing is tested.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Of the package.
fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn root() -> PathBuf {
    here().join("..")
}

/// The libraries that cargo has just built: beside the tests, or one directory up.
fn library(name: &str) -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let places = [deps.clone(), deps.join("..")];
    let found = places.iter().map(|dir| dir.join(name)).filter(|path| path.exists());
    let newest = found.max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.unwrap_or_else(|| panic!("{name} is not in {}", deps.display()))
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}\n{errors}", output.status);
    text
}

fn compilers(candidates: &[&'static str]) -> Vec<&'static str> {
    let works = |name: &&&str| match Command::new(name).arg("--version").output() {
        Ok(output) if output.status.success() => true,
        _ => {
            println!("skipped: no {name} here");
            false
        }
    };
    candidates.iter().filter(works).copied().collect()
}

const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];
/// What the static library asks of the system.
const SYSTEM_LIBRARIES: [&str; 5] = ["-lgcc_s", "-lutil", "-lpthread", "-lm", "-ldl"];

/// Compiles C sources against the static library.
fn compile(compiler: &str, sources: &[PathBuf], program: &Path, flags: &[&str]) {
    let mut command = Command::new(compiler);
    command.args(["-std=c11", "-D_DEFAULT_SOURCE", "-g"]).args(STRICT).args(flags);
    command.arg("-I").arg(root().join("include")).args(sources).arg(library("libdialsm_capi.a"));
    run(command.args(SYSTEM_LIBRARIES).arg("-o").arg(program));
}

fn sources(dir: &str, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(here().join(dir)).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|found| found == ending));
    found.sort();
    assert!(!found.is_empty());
    found
}

/// Names of the header's functions, from the list that the header is checked against.
fn functions() -> BTreeSet<String> {
    let list = std::fs::read_to_string(here().join("abi.txt")).unwrap();
    let declared = list.lines().filter(|line| !line.starts_with("typedef") && !line.starts_with("enum"));
    let names = declared.filter_map(|line| line.split_once('(')?.0.split([' ', '*']).next_back());
    let names: BTreeSet<String> =
        names.filter(|name| name.starts_with("dialsm_")).map(str::to_owned).collect();
    assert!(names.len() > 150, "{}", names.len());
    names
}

#[test]
fn the_header_suits_every_compiler() {
    let header = root().join("include/dialsm.h");
    for (compiler, language, standards) in [
        ("cc", "c", ["-std=c99", "-std=c11", "-std=c17"]),
        ("gcc", "c", ["-std=c99", "-std=c11", "-std=c17"]),
        ("clang", "c", ["-std=c99", "-std=c11", "-std=c17"]),
        ("g++", "c++", ["-std=c++11", "-std=c++17", "-std=c++20"]),
        ("clang++", "c++", ["-std=c++11", "-std=c++17", "-std=c++20"]),
    ] {
        for compiler in compilers(&[compiler]) {
            for standard in standards {
                let mut command = Command::new(compiler);
                run(command.arg(standard).args(STRICT).args(["-fsyntax-only", "-x", language]).arg(&header));
            }
        }
    }
}

/// The C test program does what the engine promises, and calls every function of the header.
#[test]
fn the_test_program_passes() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("test");
    for compiler in compilers(&["gcc", "clang"]) {
        compile(compiler, &sources("tests/c", "c"), &program, &[]);
        let scratch = tempfile::tempdir().unwrap();
        // Where it stands must stay as it is.
        let said = run(Command::new(&program).arg(scratch.path()).current_dir(dir.path()));
        assert!(said.ends_with("all of it passed\n"), "{said}");
    }
}

#[test]
fn the_test_program_misses_no_function() {
    let mut text = String::new();
    for source in sources("tests/c", "c").into_iter().chain(sources("tests/c", "inc")) {
        text.push_str(&without_comments(&std::fs::read_to_string(source).unwrap()));
    }
    let is_called = |name: &&String| {
        // Behind the name of a setter in a list stands a comma.
        text.match_indices(name.as_str()).any(|(at, _)| {
            let before = text[..at].chars().next_back().unwrap_or(' ');
            let after = text[at + name.len()..].chars().next().unwrap_or(' ');
            !before.is_alphanumeric() && before != '_' && "(,;)".contains(after)
        })
    };
    let all = functions();
    let missed: Vec<&String> = all.iter().filter(|name| !is_called(name)).collect();
    assert!(missed.is_empty(), "not called by tests/c: {missed:?}");
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("/*") {
        out.push_str(before);
        rest = behind.split_once("*/").map_or("", |(_, rest)| rest);
    }
    out + rest
}

/// What the shared library exports is what the header declares.
#[test]
fn nothing_else_is_exported() {
    let said = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library("libdialsm_capi.so")));
    let exported: BTreeSet<String> =
        said.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect();
    assert_eq!(exported, functions());
}

/// Each change of the interface is a change of its list, and the list refuses those that need another version.
#[test]
fn the_header_is_up_to_date() {
    let mut command = Command::new(env!("CARGO"));
    command.args(["run", "--quiet", "--locked", "-p", "dialsm-capi-header", "--", "--check"]);
    run(command.current_dir(root()));
}

/// The shared library has the name that programs will ask for.
#[test]
fn the_shared_library_has_a_soname() {
    let said = run(Command::new("objdump").arg("-p").arg(library("libdialsm_capi.so")));
    let version = env!("CARGO_PKG_VERSION").rsplit_once('.').unwrap().0;
    let soname = said.lines().find(|line| line.contains("SONAME")).expect("a soname");
    assert!(soname.ends_with(&format!("libdialsm.so.{version}")), "{soname}");
}

/// The examples compile without a warning, are short, and say what they should.
#[test]
fn the_examples_run() {
    let dir = tempfile::tempdir().unwrap();
    for (name, arguments, last) in [
        ("open_put_get", &["db1"][..], "greeting: hello"),
        ("write_burst", &["db2", "8"], "after a rollback: 0 clues"),
        ("batch_and_keyspaces", &["db3"], "account 7: 120, after +120"),
        ("iterator_and_snapshot", &["db4"], "100 keys of 1100 bytes, with their values"),
        ("merge_and_checkpoint", &["db5", "copy5"], "in the copy: 9"),
    ] {
        let source = here().join(format!("examples/{name}.c"));
        assert!(std::fs::read_to_string(&source).unwrap().lines().count() <= 100, "{name} is too long");
        for compiler in compilers(&["gcc", "clang"]) {
            let program = dir.path().join(format!("{name}-{compiler}"));
            compile(compiler, std::slice::from_ref(&source), &program, &[]);
            let arguments = arguments.iter().map(|name| match name.parse::<u32>() {
                Ok(_) => name.into(),
                Err(_) => dir.path().join(format!("{compiler}-{name}")),
            });
            let said = run(Command::new(&program).args(arguments));
            assert_eq!(said.lines().last(), Some(last), "{name}: {said}");
        }
    }
    assert_eq!(sources("examples", "c").len(), 5, "each example is run");
}

/// What C++ has in another form: options by their names, values as strings or pinned, versions as they are.
const NOT_IN_CPP: [&str; 6] = [
    "dialsm_abi_version",
    "dialsm_entries_view",
    "dialsm_get",
    "dialsm_get_into",
    "dialsm_merge_result_append",
    "dialsm_version",
];

#[test]
fn the_cpp_header_misses_no_function() {
    let header = std::fs::read_to_string(root().join("bindings/cpp/dialsm.hpp")).unwrap();
    let words: BTreeSet<&str> = header.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let all = functions();
    let is_missed = |name: &&String| {
        // Of the setters only those of objects and of text have no name of an option.
        let is_option = name.starts_with("dialsm_options_set_") && !words.contains(name.as_str());
        !is_option && !NOT_IN_CPP.contains(&name.as_str()) && !words.contains(name.as_str())
    };
    let missed: Vec<&String> = all.iter().filter(is_missed).collect();
    assert!(missed.is_empty(), "not in dialsm.hpp: {missed:?}");
}

/// The C++ header: its test, and its example.
#[test]
fn the_cpp_header_works() {
    let dir = tempfile::tempdir().unwrap();
    let cpp = root().join("bindings/cpp");
    let length = std::fs::read_to_string(cpp.join("examples/time_series.cpp")).unwrap().lines().count();
    assert!(length <= 100);
    for compiler in compilers(&["g++", "clang++"]) {
        for (source, standard) in [
            ("tests/test.cpp", "-std=c++17"),
            ("tests/test.cpp", "-std=c++20"),
            ("examples/time_series.cpp", "-std=c++17"),
        ] {
            let program = dir.path().join("program");
            compile_cpp(compiler, standard, &cpp.join(source), &program);
            let scratch = tempfile::tempdir().unwrap();
            let said = run(Command::new(&program).arg(scratch.path()));
            let last = if source.starts_with("tests") { "all of it passed" } else { "outside/0000003599: 9" };
            assert_eq!(said.lines().last(), Some(last), "{said}");
        }
    }
}

/// Compiles a C++ source against the static library.
fn compile_cpp(compiler: &str, standard: &str, source: &Path, program: &Path) {
    let mut command = Command::new(compiler);
    command.args([standard, "-g"]).args(STRICT);
    command.arg("-I").arg(root().join("include")).arg("-I").arg(root().join("bindings/cpp"));
    command.arg(source).arg(library("libdialsm_capi.a")).args(SYSTEM_LIBRARIES);
    run(command.arg("-o").arg(program));
}

/// What the README shows of C and C++ compiles as it stands there, and does what it says.
#[test]
fn the_programs_of_the_readme_run() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for (language, said) in [("c", "apple: red\n"), ("cpp", "apple: red\nbanana: yellow\n")] {
        let text = readme.split(&format!("```{language}\n")).nth(1).expect("one of each language");
        let source = dir.path().join(format!("readme.{language}"));
        std::fs::write(&source, text.split("```").next().unwrap()).unwrap();
        let candidates = if language == "c" { ["gcc", "clang"] } else { ["g++", "clang++"] };
        for compiler in compilers(&candidates) {
            let program = dir.path().join(compiler);
            match language {
                "c" => compile(compiler, std::slice::from_ref(&source), &program, &[]),
                _ => compile_cpp(compiler, "-std=c++17", &source, &program),
            }
            let scratch = tempfile::tempdir().unwrap();
            assert_eq!(run(Command::new(&program).arg(scratch.path())), said, "{compiler}");
        }
    }
}

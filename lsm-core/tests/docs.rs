//! What the documents say exists: files and tests are looked up, so that a renamed one is noticed.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate stands in the workspace").to_path_buf()
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target" && name != ".git") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// What stands between single backticks, code blocks left out.
fn quoted(text: &str) -> Vec<String> {
    let prose: Vec<&str> = text.split("```").step_by(2).collect();
    prose.iter().flat_map(|part| part.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// The targets of links to files of the repository.
fn linked(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.starts_with("http")).map(str::to_owned).collect()
}

#[test]
fn documents_name_files_and_tests_that_exist() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let mut functions = BTreeSet::new();
    for path in &files {
        let text = std::fs::read_to_string(path).expect("source text");
        for rest in text.split("fn ").skip(1) {
            functions.insert(rest.split(['(', '<']).next().unwrap_or_default().to_owned());
        }
    }
    let (mut paths, mut tests, mut links) = (0, 0, 0);
    for document in [
        "README.md",
        "docs/ARCHITECTURE.md",
        "docs/BENCHMARKS.md",
        "docs/STALL-MODEL.md",
        "docs/field-cases.md",
        "docs/protocol-holes.md",
        "docs/formats/README.md",
    ] {
        let path = root().join(document);
        let text = std::fs::read_to_string(&path).expect("the document");
        for target in linked(&text) {
            links += 1;
            assert!(path.with_file_name(&target).exists(), "{document} links to {target}");
        }
        for word in quoted(&text) {
            let is_name = word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            if word.ends_with(".rs") {
                paths += 1;
                let end = format!("/{word}");
                assert!(names.iter().any(|name| name.ends_with(&end)), "{document} names {word}");
            } else if word.contains('/') && word.ends_with(".sh") {
                paths += 1;
                assert!(root().join(&word).exists(), "{document} names {word}");
            } else if is_name && word.matches('_').count() >= 3 {
                // Options have fewer underscores than tests, or are in the table of options.
                if dialsm_core::options::describe().iter().all(|option| option.name != word) {
                    tests += 1;
                    assert!(functions.contains(&word), "{document} names the test {word}");
                }
            }
        }
    }
    println!("{paths} paths, {tests} tests, {links} links");
    assert!(paths > 40 && tests >= 10 && links >= 6, "{paths} paths, {tests} tests, {links} links");
}

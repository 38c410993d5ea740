//! C setters of all options, made of the table of options: cbindgen does not see functions that macros make.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use dialsm::options::{OptionInfo, OptionType, OptionUnit, describe};

/// A type of choices.
struct Choices {
    what: &'static str,
    /// The C enumeration, and what its constants begin with.
    name: &'static str,
    prefix: &'static str,
    /// The words in the order of their numbers, and the constant that holds them.
    words: &'static [&'static str],
    constant: &'static str,
}

const CHOICES: [Choices; 3] = [
    Choices {
        what: "A codec of table blocks.",
        name: "dialsm_compression_t",
        prefix: "DIALSM_COMPRESSION_",
        words: &["none", "lz4", "zstd"],
        constant: "COMPRESSIONS",
    },
    Choices {
        what: "What recovery does with damage in the commit log.",
        name: "dialsm_recovery_mode_t",
        prefix: "DIALSM_RECOVERY_",
        words: &["tolerate_corrupted_tail", "absolute_consistency", "point_in_time", "skip_any_corrupted"],
        constant: "RECOVERY_MODES",
    },
    Choices {
        what: "What the LOG tells.",
        name: "dialsm_info_log_level_t",
        prefix: "DIALSM_INFO_LOG_",
        words: &["off", "error", "warn", "info", "debug"],
        constant: "INFO_LOG_LEVELS",
    },
];

/// The Rust type of the setter's argument, and the call that sets it.
fn argument(info: &OptionInfo) -> Result<(&'static str, String)> {
    let name = info.name;
    Ok(match info.value_type {
        OptionType::Bool => ("bool", format!("set_bool({name:?}, {name})")),
        OptionType::Integer => ("u64", format!("set_integer({name:?}, {name})")),
        OptionType::Number => ("f64", format!("set_number({name:?}, {name})")),
        OptionType::Choice(words) => {
            let Some(choices) = CHOICES.iter().find(|choices| same(choices.words, words)) else {
                bail!("option {name}: a choice without a C enumeration: {words:?}");
            };
            ("u32", format!("set_choice({name:?}, {name}, &{})", choices.constant))
        }
    })
}

fn same(known: &[&str], words: &[&str]) -> bool {
    words.len() == known.len() && words.iter().all(|word| known.contains(word))
}

pub(crate) fn rust_source() -> Result<String> {
    let mut out = String::from(
        "//! A setter for each option\n\
         //!\n\
         //! Made by tools/c-header.sh from the table of options. The default and the range stand behind each. Numbers\n\
         //! out of range give DIALSM_INVALID_ARGUMENT, and change nothing.\n\n\
         use dialsm_capi_logic::guard::run;\n\
         use dialsm_capi_logic::raw::given;\n\
         use dialsm_capi_logic::{Code, OptionSet, Status};\n",
    );
    for Choices { what, name, prefix, words, constant } in CHOICES {
        let _ = write!(
            out,
            "\n/// {what}\n#[repr(u32)]\n#[allow(non_camel_case_types, dead_code, reason = \"the names stand in the C header as they are here\")]\n\
             pub enum {name} {{\n"
        );
        for (number, word) in words.iter().enumerate() {
            let _ = writeln!(out, "    /// `{word}`.\n    {prefix}{} = {number},", word.to_uppercase());
        }
        out.push_str("}\n");
        let list = words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(out, "\nconst {constant}: [&str; {}] = [{list}];", words.len());
    }
    for info in describe() {
        let (value_type, call) = argument(info)?;
        out.push('\n');
        for line in info.doc.lines() {
            let _ = writeln!(out, "///{}", for_c(line));
        }
        let _ = writeln!(out, "/// {}", facts(info));
        let _ = write!(
            out,
            "#[unsafe(no_mangle)]\npub extern \"C\" fn dialsm_options_set_{}(\n    options: Option<&mut OptionSet>,\n    \
             {}: {value_type},\n    status: Option<&mut Status>,\n) -> Code {{\n    \
             run(status, || given(options, \"options\")?.{call})\n}}\n",
            info.name, info.name
        );
    }
    formatted(&out)
}

/// A line of the table's documentation without what only rustdoc understands.
fn for_c(line: &str) -> String {
    let mut text = line.to_owned();
    while let Some(at) = text.find("](") {
        let end = text[at..].find(')').map_or(text.len(), |end| at + end + 1);
        text.replace_range(at..end, "]");
    }
    text.replace(['[', ']'], "").replace("::", " ").trim_end().to_owned()
}

fn facts(info: &OptionInfo) -> String {
    let unit = match info.unit {
        OptionUnit::None | OptionUnit::Number | OptionUnit::Count => String::new(),
        unit => format!(" {}", unit.as_str()),
    };
    let default = match info.value_type {
        OptionType::Choice(_) | OptionType::Bool => info.default.clone(),
        _ => format!("{}{unit}", info.default),
    };
    let range = match info.value_type {
        OptionType::Integer | OptionType::Number => format!(", {} to {}", info.min, info.max),
        _ => String::new(),
    };
    let scope = match info.scope {
        dialsm::options::OptionScope::Database => "of a database",
        dialsm::options::OptionScope::Keyspace => "of a keyspace",
    };
    let live = if info.live { ", live" } else { "" };
    format!("Default: {default}{range}; {scope}{live}.")
}

/// Calls of every setter with the option's default, for the C test; OPTION is a macro of that test.
pub(crate) fn c_calls() -> Result<String> {
    let mut out = String::from(
        "/* Made by tools/c-header.sh from the table of options. OPTION(setter, value, name, text). */\n",
    );
    for info in describe() {
        let value = match info.value_type {
            OptionType::Bool => info.default.clone(),
            OptionType::Choice(words) => {
                let number = CHOICES
                    .iter()
                    .find(|choices| same(choices.words, words))
                    .and_then(|choices| choices.words.iter().position(|word| *word == info.default));
                match number {
                    Some(number) => number.to_string(),
                    None => bail!("option {}: its default is none of its words", info.name),
                }
            }
            _ => plain_number(&info.default),
        };
        let _ = writeln!(
            out,
            "OPTION(dialsm_options_set_{}, {value}, \"{}\", \"{}\")",
            info.name, info.name, info.default
        );
    }
    Ok(out)
}

/// A number with a suffix K, M, G or T as digits alone.
fn plain_number(text: &str) -> String {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        Some(b'T') => (&text[..text.len() - 1], 40),
        _ => return text.to_owned(),
    };
    digits.parse::<u64>().map_or_else(|_| text.to_owned(), |number| (number << shift).to_string())
}

/// As cargo fmt would have it, so that the committed file passes its check.
fn formatted(source: &str) -> Result<String> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--emit", "stdout", "--config-path", root])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(source.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("rustfmt failed");
    }
    Ok(String::from_utf8(output.stdout)?)
}

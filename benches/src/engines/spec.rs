//! What `--engines` names: an engine, and perhaps options of its own that differ from the run's.
//!
//! ```text
//!   lsm-core                                  as the flags say
//!   lsm-core:deferred_sync=false              the same but for one option, by the engine's own name for it
//!   rocksdb:use_direct_reads=true:max_open_files=100
//! ```
//! Each such word is an engine of the run like any other, with turns, a directory and a column of its
//! own, so that two settings of one engine can be compared as two engines are.

use anyhow::{Result, anyhow, bail};

/// A word of `--engines`, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Spec<'a> {
    pub(super) engine: &'a str,
    /// Names and values, in the order of the word.
    pub(super) settings: Vec<(&'a str, &'a str)>,
}

impl<'a> Spec<'a> {
    /// # Errors
    /// A setting is not `name=value`.
    pub(super) fn parse(word: &'a str) -> Result<Spec<'a>> {
        let mut parts = word.split(':');
        let engine = parts.next().unwrap_or_default();
        let pair = |part: &'a str| {
            let pair = part.split_once('=').filter(|(name, _)| !name.is_empty());
            pair.ok_or_else(|| anyhow!("engine '{word}': '{part}' is not an option as name=value"))
        };
        Ok(Spec { engine, settings: parts.map(pair).collect::<Result<_>>()? })
    }

    /// # Errors
    /// There are settings: this engine takes none.
    pub(super) fn refuse_settings(&self) -> Result<()> {
        match self.settings.first() {
            Some((name, _)) => bail!("engine '{}' takes no options of its own, as '{name}'", self.engine),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_apart() {
        let spec = Spec::parse("lsm-core:deferred_sync=false:x=a=b").unwrap();
        assert_eq!(spec.engine, "lsm-core");
        assert_eq!(spec.settings, [("deferred_sync", "false"), ("x", "a=b")]);
        assert!(spec.refuse_settings().is_err());
        let plain = Spec::parse("rocksdb").unwrap();
        assert!(plain.settings.is_empty() && plain.refuse_settings().is_ok());
        for bad in ["rocksdb:", "rocksdb:x", "rocksdb:=1"] {
            assert!(Spec::parse(bad).unwrap_err().to_string().contains("name=value"), "{bad}");
        }
    }
}

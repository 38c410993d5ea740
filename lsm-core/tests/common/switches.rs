//! The defaults that the tests start from. Two variables change them for a whole run, and no test may
//! tell the difference:
//!
//! ```text
//! DIALSM_TEST_OPTIONS=name=value,...   how tables are written and made durable, how many shards there are
//! DIALSM_TEST_REDIRECT=permille        with shards: that share of all values goes to a shard drawn at random
//! ```

use dialsm::router::HashRouter;
use dialsm::testing::ForcedRouter;
use dialsm_core::Options;
use dialsm_core::options::InfoLogLevel;

pub(crate) fn defaults() -> Options {
    // What counts calls counts those that matter; `events.rs` and `sim.rs` have a LOG.
    let mut options = Options { info_log_level: InfoLogLevel::Off, ..Options::default() };
    if let Ok(text) = std::env::var("DIALSM_TEST_OPTIONS") {
        options.apply_text(&text.replace(',', "\n")).expect("options in DIALSM_TEST_OPTIONS");
    }
    if options.shards > 1 {
        let permille = std::env::var("DIALSM_TEST_REDIRECT").map_or(0, |n| n.parse().expect("a number"));
        let forced = || ForcedRouter::object(permille, 1);
        options.router = Some(if permille > 0 { forced() } else { HashRouter::object() });
    }
    options
}

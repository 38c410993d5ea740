//! The defaults that the tests start from. `DIALSM_TEST_OPTIONS=name=value,...` changes them for a whole
//! run: how tables are written and made durable must make no difference to any test.

use dialsm_core::Options;

pub(crate) fn defaults() -> Options {
    let mut options = Options::default();
    if let Ok(text) = std::env::var("DIALSM_TEST_OPTIONS") {
        options.apply_text(&text.replace(',', "\n")).expect("options in DIALSM_TEST_OPTIONS");
    }
    options
}

//! The name that programs linked with the shared library ask for: it changes where the interface may.

fn main() {
    let part = |name: &str| std::env::var(name).expect("cargo sets it");
    let (major, minor) = (part("CARGO_PKG_VERSION_MAJOR"), part("CARGO_PKG_VERSION_MINOR"));
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdialsm.so.{major}.{minor}");
    println!("cargo::rerun-if-changed=build.rs");
}

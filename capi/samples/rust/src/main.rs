//! The Rust crate needs nothing of the C library.

use dialsm::{Db, Options, ReadOptions, WriteOptions};

fn main() -> dialsm::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "hello.db".into());
    let db = Db::open(path, Options::default())?;
    db.put(&WriteOptions::default(), b"hello", b"world")?;
    let value = db.get(&ReadOptions::default(), b"hello")?.unwrap_or_else(|| dialsm::Slice::copy_of(b"nobody"));
    println!("hello {}", String::from_utf8_lossy(&value));
    db.close()
}

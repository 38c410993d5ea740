//! Compaction: what to merge next (`picker`, a pure function over a version and a `strategy`),
//! and which entries of the merge go on (`visibility`).

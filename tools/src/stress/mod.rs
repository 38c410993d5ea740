//! `dialsm-stress`: a random workload beside a model, under power cuts, kills and full speed.
//!
//! ```text
//! args ─┬─ sim   the engine in a simulation (`sim`), its power cut (`cut`)          profile  what a run is like
//!       ├─ kill  child processes on the real file system, killed (`kill`)           user     who writes and reads
//!       └─ soak  full speed for minutes, bounds watched (`soak`)                    workload what a batch holds
//!                                                 tap ─ book ─ ledger ─ check       what was promised, and is it there
//! ```
//! Without a log `signpost` says where values go, and `floors` judges what a cut has left.
//! `durable` watches in the simulation that the durable manifest names durable files only. `report` prints what went wrong and looks for a smaller run that goes wrong as well.

pub mod args;
pub mod book;
pub mod check;
pub mod cut;
pub mod durable;
pub mod floors;
pub mod kill;
pub mod ledger;
pub mod profile;
pub mod report;
pub mod signpost;
pub mod sim;
pub mod soak;
pub mod tap;
pub mod user;
pub mod workload;

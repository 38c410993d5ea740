//! Which shard takes a value whose own is stalled: the paper's strict order (DiaLSM, section III). L0
//! counts by overlap depth, since bytes would never tie and nothing behind them would have a say.

use dialsm_core::routing::ShardState;

/// Of the shards that are open, `primary` aside, the one with the smallest L0, then the lowest memtable
/// usage, then the smallest pending backlog, then the smallest size; of equals the first behind `primary`.
pub(crate) fn choose(primary: u16, shards: &[ShardState]) -> Option<u16> {
    let n = shards.len();
    let behind = (1..n).map(|step| (usize::from(primary) + step) % n).filter(|at| shards[*at].is_open);
    let order =
        |state: &ShardState| (state.l0_runs, state.memtable_bytes, state.pending_bytes, state.table_bytes);
    behind.min_by_key(|at| order(&shards[*at])).map(|at| at as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(l0_runs: usize, memtable_bytes: u64, pending_bytes: u64, table_bytes: u64) -> ShardState {
        ShardState { is_open: true, l0_runs, memtable_bytes, pending_bytes, table_bytes }
    }

    #[test]
    fn criteria_count_in_strict_order() {
        let shards = [state(0, 0, 0, 0), state(2, 1, 1, 1), state(1, 9, 9, 9), state(1, 8, 9, 9)];
        assert_eq!(choose(0, &shards), Some(3), "same depth, less in memory");
        assert_eq!(choose(3, &shards), Some(0));
        let shards = [state(1, 5, 7, 9), state(1, 5, 6, 9), state(1, 5, 6, 8)];
        assert_eq!(choose(0, &shards), Some(2), "the last criterion decides");
        assert_eq!(choose(1, &shards), Some(2));
        let equal = [state(0, 0, 0, 0); 4];
        assert_eq!((choose(0, &equal), choose(3, &equal)), (Some(1), Some(0)), "the next one");
    }

    #[test]
    fn a_shut_shard_is_no_fallback_and_neither_is_the_primary() {
        let shut = ShardState { is_open: false, ..state(0, 0, 0, 0) };
        let shards = [state(0, 0, 0, 0), shut, state(5, 5, 5, 5)];
        assert_eq!(choose(0, &shards), Some(2));
        assert_eq!(choose(2, &shards), Some(0));
        assert_eq!(choose(0, &[state(0, 0, 0, 0), shut]), None);
        assert_eq!(choose(0, &[state(0, 0, 0, 0)]), None);
    }
}

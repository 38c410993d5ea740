//! Write amplification of a random load, on metadata: tables hold uniform keys at a density.

use super::*;

const TOP: f64 = u64::MAX as f64;

/// A table: its key span as fractions, its bytes.
fn span_file(number: &mut u64, epoch: u64, lo: f64, hi: f64, bytes: u64) -> Arc<TableFile> {
    *number += 1;
    let key = |at: f64| ((at * TOP) as u64).to_be_bytes();
    let meta = TableMeta {
        number: FileNumber(*number),
        epoch,
        file_bytes: bytes,
        smallest: internal_key(&key(lo), 1, 7),
        largest: internal_key(&key(hi), 1, 7),
        entries: bytes / 1000,
        ..TableMeta::default()
    };
    TableFile::new(&Comparator::Bytewise, meta)
}

fn fraction(key: &[u8]) -> f64 {
    u64::from_be_bytes(key.try_into().expect("8 bytes")) as f64 / TOP
}

/// The merge of the plan's inputs, cut at the table size. Few keys are overwritten, so bytes add.
fn outputs(plan: &Plan, strategy: &Strategy, number: &mut u64) -> Vec<(u8, Arc<TableFile>)> {
    let spans: Vec<(f64, f64, f64)> = plan
        .files()
        .map(|(_, f)| {
            let (lo, hi) = (fraction(f.smallest_user()), fraction(f.largest_user()));
            (lo, hi, f.file_bytes() as f64 / (hi - lo))
        })
        .collect();
    let mut edges: Vec<f64> = spans.iter().flat_map(|s| [s.0, s.1]).collect();
    edges.sort_by(f64::total_cmp);
    let epsilon = 1e-9;
    let (mut out, mut start, mut filled) = (Vec::new(), edges[0], 0.0);
    let limit = if plan.output_level == 0 { f64::MAX } else { strategy.table_bytes as f64 };
    for pair in edges.windows(2) {
        let density: f64 = spans.iter().filter(|s| s.0 <= pair[0] && s.1 >= pair[1]).map(|s| s.2).sum();
        let mut at = pair[0];
        while filled + (pair[1] - at) * density >= limit && density > 0.0 {
            let cut = at + (limit - filled) / density;
            let epoch = plan.output_epoch.unwrap_or(0);
            out.push((plan.output_level, span_file(number, epoch, start, cut - epsilon, limit as u64)));
            (at, start, filled) = (cut, cut, 0.0);
        }
        filled += (pair[1] - at) * density;
    }
    let end = edges[edges.len() - 1];
    if filled >= 1.0 && end - start > epsilon {
        out.push((
            plan.output_level,
            span_file(number, plan.output_epoch.unwrap_or(0), start, end, filled as u64),
        ));
    }
    out
}

/// Loads `flushes` times 64 MiB; the bytes written for each byte loaded.
fn write_amp(flushes: u64) -> f64 {
    let strategy = Strategy::leveled();
    let mut version = Version::empty(Comparator::Bytewise);
    let (mut number, mut written, mut jobs) = (0, 0u64, 0);
    for epoch in 1..=flushes {
        let file = span_file(&mut number, epoch, 0.0001, 0.9999, 64 * MB);
        written += file.file_bytes();
        version = version.apply(&[], &[(0, file)]).expect("a flush fits");
        while let Some(plan) = pick(&version, &strategy) {
            jobs += 1;
            let added: Vec<_> = if plan.trivial_move {
                plan.files().map(|(_, f)| (plan.output_level, Arc::clone(f))).collect()
            } else {
                written += plan.input_bytes();
                outputs(&plan, &strategy, &mut number)
            };
            version = version.apply(&plan.removed(), &added).expect("legal");
        }
    }
    let amp = written as f64 / (flushes * 64 * MB) as f64;
    let sizes: Vec<u64> = (0..LEVELS).map(|l| version.level_bytes(l) / MB).collect();
    println!("{flushes} flushes: write amplification {amp:.2}, {jobs} jobs, MiB by level {sizes:?}");
    amp
}

#[test]
fn write_amplification_of_a_random_load() {
    let amps = [write_amp(16), write_amp(48), write_amp(160)];
    assert!(amps[1] < 7.0 && amps[2] < 10.0, "{amps:?}");
    assert!(amps.is_sorted(), "more data, more levels: {amps:?}");
}

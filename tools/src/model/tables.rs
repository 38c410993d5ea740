//! A prediction for people and for programs.

use std::fmt::Write as _;

use dialsm::stall_model::balloon::{Knob, further_shards};
use dialsm::stall_model::{Class, Form, Prediction, Spread, StallCause};
use serde_json::{Value, json};

use super::Asked;
use crate::exit::Failure;

/// How many shards are looked at.
const SHARDS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// By how much each knob is turned.
const TURN: u32 = 2;

/// One object; what is infinite is `null`.
pub(super) fn json(asked: &Asked, prediction: &Prediction) -> Value {
    let class = |class: &Class| {
        json!({
            "class": class.cause.as_str(),
            "rate_per_s": class.rate.0,
            "duration_s": class.duration.0,
            "x": class.x,
        })
    };
    let mut value = json!({
        "alpha": prediction.alpha,
        "v_bar_s": prediction.v_bar.0,
        "w_s": prediction.wait().0,
        "eb": prediction.waiting_writes(),
        "classes": prediction.classes.iter().map(class).collect::<Vec<_>>(),
        "shards": prediction.sharding.shards,
        "alpha_all": prediction.alpha_all(),
    });
    if asked.observed.is_some() {
        let class = |pair: &Pair| {
            json!({
                "class": pair.cause.as_str(),
                "predicted_share": pair.predicted.0,
                "predicted_duration_s": pair.predicted.1,
                "share": pair.measured.0,
                "duration_s": pair.measured.1,
            })
        };
        let pairs = pairs(asked, prediction);
        value["measured"] = json!({
            "alpha": pairs.iter().map(|pair| pair.measured.0).sum::<f64>(),
            "classes": pairs.iter().map(class).collect::<Vec<_>>(),
            "mean_absolute_error": mean_error(&pairs),
        });
    }
    value
}

/// All tables.
pub(super) fn text(asked: &Asked, prediction: &Prediction) -> Result<String, Failure> {
    let mut out = String::new();
    let written = write_rates(&mut out, asked)
        .and_then(|()| write_classes(&mut out, asked, prediction))
        .and_then(|()| write_measured(&mut out, asked, prediction));
    written.expect("writing to a string cannot fail");
    write_shards(&mut out, asked)?;
    write_knobs(&mut out, asked)?;
    Ok(out)
}

fn write_rates(out: &mut String, asked: &Asked) -> std::fmt::Result {
    let rates = &asked.model.rates;
    writeln!(
        out,
        "MB/s: arrival {:.1}, flush {:.1}, out of level 0 {:.1}, deep {:.1}; survival share {:.3}",
        rates.arrival.0, rates.flush.0, rates.l0.0, rates.deep.0, rates.survival
    )?;
    let limits = &asked.model.limits;
    writeln!(
        out,
        "MB:   memtable {:.1}, room in level 0 {:.1}, pending limit {:.1}, pending drain {:.1}",
        limits.memtable.0, limits.l0.0, limits.pending.0, limits.pending_drain.0
    )
}

fn write_classes(out: &mut String, asked: &Asked, prediction: &Prediction) -> std::fmt::Result {
    writeln!(
        out,
        "\n{:<10}{:>14}{:>12}{:>12}{:>16}",
        "stalls", "a second up", "seconds", "x", "share of time"
    )?;
    for class in &prediction.classes {
        let (rate, duration, x, share) = (class.rate.0, class.duration.0, class.x, class.share);
        writeln!(out, "{:<10}{rate:>14.6}{duration:>12.4}{x:>12.6}{share:>16.5}", class.cause.as_str())?;
    }
    let (v_bar, alpha) = (prediction.v_bar.0, prediction.alpha);
    writeln!(out, "{:<10}{:>14}{v_bar:>12.4}{:>12}{alpha:>16.5}", "all", "", "")?;
    let rates = &asked.model.rates;
    let law = rates.bottleneck_alpha();
    writeln!(
        out,
        "\nbottleneck law: {law:.5} of the time; {:.1} MB/s are taken of {:.1}",
        rates.accepted().0,
        rates.arrival.0
    )?;
    if asked.model.form == Form::Literal {
        writeln!(out, "the literal share of time is a sum, and no probability unless it is small")?;
    }
    writeln!(
        out,
        "with {} shard(s): all stalled {:.3e} of the time; a write waits {:.4} s, {:.1} of a shard's wait",
        prediction.sharding.shards,
        prediction.alpha_all(),
        prediction.wait().0,
        prediction.waiting_writes()
    )?;
    writeln!(
        out,
        "with 1, long stalls counting by their length: {:.3} s if all of a class are as long, {:.3} s if they differ",
        prediction.wait_met(Spread::Equal).0,
        prediction.wait_met(Spread::Exponential).0
    )?;
    match asked.model.first_pending_stall() {
        Some(time) => writeln!(out, "the first pending stall comes after {:.0} s", time.0),
        None => Ok(()),
    }
}

/// Share of time and seconds of one stall.
struct Pair {
    cause: StallCause,
    predicted: (f64, f64),
    measured: (f64, f64),
}

fn pairs(asked: &Asked, prediction: &Prediction) -> Vec<Pair> {
    let Some(observed) = &asked.observed else { return Vec::new() };
    let pair = |class: &Class| {
        let duration = match class.cause {
            // What an engine counts is each wait for a flush.
            StallCause::Memtable => asked.model.memtable_cycle().map_or(0.0, |(_, seconds)| seconds.0),
            _ => class.duration.0,
        };
        let measured = (observed.share(class.cause), observed.stalls[class.cause as usize].duration().0);
        Pair { cause: class.cause, predicted: (class.share, duration), measured }
    };
    prediction.classes.iter().map(pair).collect()
}

fn mean_error(pairs: &[Pair]) -> f64 {
    let errors: f64 = pairs.iter().map(|pair| (pair.predicted.0 - pair.measured.0).abs()).sum();
    errors / pairs.len() as f64
}

fn write_measured(out: &mut String, asked: &Asked, prediction: &Prediction) -> std::fmt::Result {
    let pairs = pairs(asked, prediction);
    if pairs.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{:<10}{:>26}{:>26}", "", "predicted", "measured")?;
    writeln!(out, "{:<10}{:>14}{:>12}{:>14}{:>12}", "stalls", "share", "seconds", "share", "seconds")?;
    for Pair { cause, predicted, measured } in &pairs {
        writeln!(
            out,
            "{:<10}{:>14.4}{:>12.4}{:>14.4}{:>12.4}",
            cause.as_str(),
            predicted.0,
            predicted.1,
            measured.0,
            measured.1
        )?;
    }
    let sum = |of: fn(&Pair) -> f64| pairs.iter().map(of).sum::<f64>();
    let (predicted, measured) = (sum(|pair| pair.predicted.0), sum(|pair| pair.measured.0));
    writeln!(out, "{:<10}{predicted:>14.4}{:>12}{measured:>14.4}", "all", "")?;
    writeln!(out, "mean absolute error of the three shares: {:.4}", mean_error(&pairs))
}

fn write_shards(out: &mut String, asked: &Asked) -> Result<(), Failure> {
    let mut lines = String::from(
        "\nfurther shards, each as much stalled as one tree; if threads are the limit, each has its own\n",
    );
    lines += &format!(
        "{:<8}{:>14}{:>14}{:>16}{:>16}{:>20}\n",
        "shards", "all stalled", "wait, s", "writes waiting", "redirects/s", "a shard by threads"
    );
    for row in further_shards(&asked.model, &SHARDS)? {
        let prediction = &row.prediction;
        lines += &format!(
            "{:<8}{:>14.3e}{:>14.3e}{:>16.3e}{:>16.1}{:>20.4}\n",
            row.shards,
            prediction.alpha_all(),
            prediction.wait().0,
            prediction.waiting_writes(),
            prediction.redirected() * prediction.writes_per_s.0,
            row.alpha_by_threads
        );
    }
    out.push_str(&lines);
    Ok(())
}

fn write_knobs(out: &mut String, asked: &Asked) -> Result<(), Failure> {
    let mut lines =
        String::from("\nwhich knob moves stalls where: shares of time, and the mean length of a stall\n");
    lines +=
        &format!("{:<22}{:>10}{:>10}{:>10}{:>10}{:>12}\n", "", "memtable", "l0", "pending", "all", "seconds");
    for knob in Knob::ALL {
        let prediction = knob.turned(&asked.model, TURN, asked.parallel_share)?.predict()?;
        let [memtable, l0, pending] = prediction.classes.map(|class| class.share);
        lines += &format!(
            "{:<22}{memtable:>10.4}{l0:>10.4}{pending:>10.4}{:>10.4}{:>12.4}\n",
            knob.as_text(TURN),
            prediction.alpha,
            prediction.v_bar.0
        );
    }
    out.push_str(&lines);
    Ok(())
}

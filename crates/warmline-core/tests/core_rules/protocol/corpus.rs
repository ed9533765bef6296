//! Replays the kept corpora of the fuzz targets, so that what was found once stays found.

#[expect(
    unreachable_pub,
    reason = "the targets reach them in their own workspace"
)]
#[path = "../../../../../fuzz/src/lib.rs"]
mod bodies;

use std::path::Path;

#[expect(
    clippy::disallowed_methods,
    reason = "a test reads its corpus from the tree"
)]
fn replay(target: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut replayed = 0;
    for entry in std::fs::read_dir(&folder).expect("a corpus") {
        let path = entry.expect("an entry").path();
        println!("{}", path.display());
        body(&std::fs::read(path).expect("an input"));
        replayed += 1;
    }
    assert!(replayed > 0, "{target} has no corpus");
}

#[test]
fn envelopes_of_the_corpus_hold() {
    replay("envelope", bodies::envelope);
}

#[test]
fn parameters_of_the_corpus_hold() {
    replay("params_splice", bodies::params_splice);
}

#[test]
fn streams_of_the_corpus_hold() {
    replay("sse", bodies::sse);
}

#[test]
fn lines_of_the_corpus_hold() {
    replay("lines", bodies::lines);
}

#[test]
fn headers_of_the_corpus_hold() {
    replay("headers", bodies::headers);
}

#[test]
fn replies_of_the_corpus_hold() {
    replay("gone_status", bodies::gone_status);
}

#[test]
fn records_of_the_corpus_hold() {
    replay("record", bodies::record);
}

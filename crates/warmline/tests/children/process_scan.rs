//! What runs in a process tree, read from `/proc`.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// The variable that marks a tree.
pub(crate) const MARK: &str = "WARMLINE_TEST_TREE";

/// A mark that no other tree has.
pub(crate) fn fresh_mark() -> String {
    format!("{:016x}", fastrand::u64(..))
}

/// The processes that bear a mark, zombies excepted (their environment is gone).
pub(crate) fn marked(mark: &str) -> Vec<i32> {
    let wanted = format!("{MARK}={mark}");
    let bears = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == wanted.as_bytes())
    };
    all().into_iter().filter(bears).collect()
}

/// All processes.
fn all() -> Vec<i32> {
    numbers_in("/proc")
}

/// The entries of a folder whose names are numbers.
fn numbers_in(folder: &str) -> Vec<i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// This process.
pub(crate) fn own_process() -> i32 {
    i32::try_from(std::process::id()).unwrap_or_default()
}

/// State, parent, group and session of a process.
pub(crate) fn stat(pid: i32) -> Option<(String, i32, i32, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?.to_owned();
    let mut number = || fields.next()?.parse().ok();
    Some((state, number()?, number()?, number()?))
}

/// The children of a process that ended and were not waited for.
pub(crate) fn zombies_of(parent: i32) -> usize {
    let is_zombie =
        |pid: &i32| stat(*pid).is_some_and(|(state, of, ..)| state == "Z" && of == parent);
    all().iter().filter(|pid| is_zombie(pid)).count()
}

/// The numbers of a process's open descriptors.
pub(crate) fn descriptors(pid: i32) -> Vec<i32> {
    numbers_in(&format!("/proc/{pid}/fd"))
}

/// The descriptors this process was started with, whoever asks first.
pub(crate) fn given_to_us() -> &'static [i32] {
    static GIVEN: OnceLock<Vec<i32>> = OnceLock::new();
    GIVEN.get_or_init(|| {
        let mut given = descriptors(own_process());
        // Without the one that was open for looking.
        given.retain(|number| Path::new(&format!("/proc/self/fd/{number}")).exists());
        given
    })
}

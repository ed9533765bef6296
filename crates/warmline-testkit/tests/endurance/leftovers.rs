//! The census finds what is left over, and the cancel sweep finds every await point.
//!
//! In a process of its own: descriptors and children of other tests would count as leftovers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use warmline_testkit::Census;
use warmline_testkit::sweep::{self, DropTiming, TaskTermination};

#[test]
fn the_census_sees_tasks_files_and_processes_come_and_go() {
    crate::play_alone(async {
        // Whatever the runtime opens for its first child is not the test's.
        tokio::process::Command::new("true").status().await.unwrap();
        let before = Census::take();
        let found = before.wait_until_clean(Duration::from_secs(5)).await;
        assert_eq!(found, Ok(()));

        let task = tokio::spawn(std::future::pending::<()>());
        let holds = before.leaks().iter().any(|leak| leak.starts_with("tasks"));
        assert!(holds, "{:?}", before.leaks());
        task.abort();

        // More than the runtimes of the tests beside this one have, which end when they like.
        let mut listeners = Vec::new();
        for _ in 0..32 {
            listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let leaks = before.leaks();
        let sees_it = leaks.iter().any(|leak| leak.starts_with("open socket"));
        assert!(sees_it, "{leaks:?}");
        drop(listeners);

        let mut child = tokio::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert!(before.leaks().iter().any(|leak| leak.contains("sleep")));
        child.kill().await.unwrap();
        drop(child);
        drop(task);
    });
}

#[test]
fn every_await_point_is_met_in_both_ways() {
    crate::play_alone(async {
        let work = || async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            "done"
        };
        let mut points = Vec::new();
        let swept =
            sweep::sweep_future(work, async |point| points.push((point.polls, point.timing))).await;
        assert_eq!(swept.output, Some("done"));
        assert_eq!(swept.points, 4);
        let expected = [0, 1, 1, 2, 2, 3, 3];
        let found = points.iter().map(|point| point.0).collect::<Vec<_>>();
        assert_eq!(found, expected);
        assert_eq!(points[1].1, DropTiming::AfterPoll);
        assert_eq!(points[2].1, DropTiming::OnWake);
    });
}

#[test]
fn a_task_is_aborted_or_panics_at_every_point() {
    crate::play_alone(async {
        for way in [TaskTermination::Abort, TaskTermination::Panic] {
            let dropped = Arc::new(AtomicUsize::new(0));
            let work = || {
                let guard = Guard(Arc::clone(&dropped));
                async move {
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                    drop(guard);
                    1
                }
            };
            let mut after = 0;
            let swept = sweep::sweep_task(way, work, async |_| after += 1).await;
            let found = (swept.points, swept.output, after);
            assert_eq!(found, (3, Some(1), 3), "{way:?}");
            assert_eq!(dropped.load(Ordering::Relaxed), 4);
        }
    });
}

struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A188: flows run on a simulated clock.
#[test]
fn a_sweep_works_with_a_clock_that_stands_still() {
    crate::play_alone(async {
        tokio::time::pause();
        let work = || async {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            tokio::task::yield_now().await;
        };
        let swept = sweep::sweep_future(work, async |_| {}).await;
        assert_eq!(swept.output, Some(()));
    });
}

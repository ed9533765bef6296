//! What the house says about who may use whom, as tables, and the functions that look.

use crate::source::Source;

/// The modules of a crate from the ground up: each may use its own layer and those before it.
#[derive(Debug)]
pub(crate) struct Layers(pub(crate) &'static [&'static [&'static str]]);

/// Decisions and bytes. `protocol` knows nothing of what is made of it.
pub(crate) const CORE: Layers = Layers(&[
    &["delivery", "era", "tick", "key"],
    &["code"],
    &["protocol"],
    &["exchange", "verdict"],
    &["policy"],
    &["budget", "loss", "names", "record", "repeat", "run"],
    &["pool"],
    &["plan"],
]);

/// Carrying them out. The seams stand at the ground; drivers never know where settings come from.
pub(crate) const WARMLINE: Layers = Layers(&[
    &["clock", "net", "private", "sync"],
    &["error", "flight", "seal"],
    &["events", "identity", "metrics", "store"],
    &["pool"],
    &["upstream"],
    &["credentials", "resolve", "tools"],
    &["settings"],
    &["server"],
    &["config", "trust"],
    &[
        "attend", "call", "client", "connect", "engine", "entry", "handle", "keep", "lease",
        "route", "run", "servers",
    ],
]);

/// Modules that never use others beside them: from, to, why.
#[derive(Debug)]
pub(crate) struct Apart {
    pub(crate) parent: &'static str,
    pub(crate) from: &'static [&'static str],
    pub(crate) to: &'static [&'static str],
    pub(crate) why: &'static str,
}

/// Inside `upstream`: transports carry bytes and do not know what they mean.
pub(crate) const UPSTREAM: &[Apart] = &[
    Apart {
        parent: "upstream",
        from: &[
            "environment",
            "path",
            "process",
            "stderr",
            "stdio",
            "warden",
        ],
        to: &[
            "connections",
            "detect",
            "http",
            "legacy",
            "modern",
            "rounds",
            "survey",
            "tls",
        ],
        why: "a child's pipes carry bytes of either era",
    },
    Apart {
        parent: "upstream",
        from: &["connections", "http", "tls"],
        to: &[
            "detect", "legacy", "modern", "pipes", "process", "rounds", "stdio", "survey", "warden",
        ],
        why: "HTTP carries bytes of either era",
    },
    Apart {
        parent: "upstream",
        from: &["legacy"],
        to: &["modern", "detect", "survey"],
        why: "a driver speaks its own era",
    },
    Apart {
        parent: "upstream",
        from: &["modern"],
        to: &["detect", "survey"],
        why: "a driver speaks its own era",
    },
];

/// Paths that only some files of a crate may name.
#[derive(Debug)]
pub(crate) struct OnlyIn {
    pub(crate) paths: &'static [&'static str],
    pub(crate) files: &'static [&'static str],
    pub(crate) why: &'static str,
}

impl OnlyIn {
    /// A name that ends in `/` allows everything in that folder.
    fn allows(&self, file: &str) -> bool {
        self.files
            .iter()
            .any(|one| *one == file || (one.ends_with('/') && file.starts_with(one)))
    }
}

/// The seams of `warmline`.
pub(crate) const SEAMS: &[OnlyIn] = &[
    OnlyIn {
        paths: &[
            "TcpStream",
            "TcpListener",
            "TcpSocket",
            "UdpSocket",
            "ToSocketAddrs",
            "lookup_host",
        ],
        files: &["net.rs"],
        why: "the network is net.rs alone: simulations put theirs there",
    },
    OnlyIn {
        paths: &["UnixStream", "UnixListener", "UnixDatagram"],
        files: &[
            "net.rs",
            "upstream/process.rs",
            "upstream/warden.rs",
            "upstream/warden/",
        ],
        why: "local sockets lead to the warden, or stand in net.rs",
    },
    OnlyIn {
        paths: &[
            "tokio::time",
            "tokio::spawn",
            "tokio::task::spawn",
            "Instant::now",
            "SystemTime",
            "std::time::Instant",
            "thread::sleep",
            "thread::spawn",
        ],
        files: &["clock.rs"],
        why: "time and tasks come from clock.rs alone: a paused clock must move all of it",
    },
    OnlyIn {
        paths: &[
            "parking_lot",
            "std::sync::Mutex",
            "std::sync::RwLock",
            "std::sync::Condvar",
            "tokio::sync::Mutex",
            "tokio::sync::RwLock",
        ],
        files: &["sync.rs"],
        why: "locks come from sync.rs alone: schedule explorers put theirs there",
    },
    OnlyIn {
        paths: &[
            "env::var",
            "env::var_os",
            "env::vars",
            "env::vars_os",
            "env::set_var",
        ],
        files: &[
            "credentials/source.rs",
            "settings/variables.rs",
            "upstream/environment.rs",
        ],
        why: "variables are read where settings and secrets are, and where a child's are chosen",
    },
    OnlyIn {
        paths: PRINTING,
        files: &[],
        why: "a library does not print",
    },
];

/// The command line prints in one place.
pub(crate) const CLI: &[OnlyIn] = &[
    OnlyIn {
        paths: &["println!", "print!", "eprintln!", "eprint!", "anstream"],
        files: &["report.rs", "report/"],
        why: "what people read is written by the reporter alone",
    },
    OnlyIn {
        paths: &["io::stdout"],
        files: &["report.rs", "report/", "command/stdio.rs"],
        why: "stdout belongs to the reporter, and to the protocol where a client holds the other end",
    },
    OnlyIn {
        paths: &["io::stderr"],
        files: &["report.rs", "report/", "log.rs"],
        why: "stderr belongs to the reporter, and to the log",
    },
];

/// The gateway answers in one place.
pub(crate) const GATEWAY: &[OnlyIn] = &[OnlyIn {
    paths: &["Response::new", "Response::builder"],
    files: &["reply.rs", "flow.rs", "ops.rs", "admin/events.rs"],
    why: "reply.rs makes every refusal, with its lines for the log and the audit; others make \
          streams and pages",
}];

/// The core has no doors at all.
pub(crate) const CORE_FENCE: &[OnlyIn] = &[OnlyIn {
    paths: &[
        "std::env",
        "std::fs",
        "std::net",
        "std::process",
        "std::thread",
        "std::sync::Mutex",
        "std::sync::RwLock",
        "Instant::now",
        "SystemTime",
        "std::time::Instant",
        "tokio",
        "fastrand",
        "rand",
        "println!",
        "print!",
        "eprintln!",
        "eprint!",
    ],
    files: &[],
    why: "the core does not wait, spawn, read a clock, roll dice or touch anything outside",
}];

const PRINTING: &[&str] = &[
    "println!",
    "print!",
    "eprintln!",
    "eprint!",
    "io::stdout",
    "io::stderr",
    "anstream",
];

/// Complaints about modules that use what stands above them, or that stand nowhere.
pub(crate) fn against_layers(sources: &[Source], layers: &Layers) -> Vec<String> {
    let height = |module: &str| layers.0.iter().position(|layer| layer.contains(&module));
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| !source.top().is_empty()) {
        let Some(own) = height(source.top()) else {
            complaints.push(format!(
                "{}: give `{}` a place in the layers",
                source.file,
                source.top()
            ));
            continue;
        };
        for (line, path) in source.paths() {
            let Some(used) = used_module(&path, &[]) else {
                continue;
            };
            if height(used).is_some_and(|other| other > own) {
                complaints.push(format!(
                    "{}:{line}: `{}` uses `{used}`, which stands above it",
                    source.file,
                    source.top()
                ));
            }
        }
    }
    complaints
}

/// Complaints about modules that use what they are to know nothing of.
pub(crate) fn against_apart(sources: &[Source], rule: &Apart) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| source.top() == rule.parent) {
        let Some(own) = source
            .module
            .get(1)
            .filter(|own| rule.from.contains(&own.as_str()))
        else {
            continue;
        };
        for (line, path) in source.paths() {
            if let Some(used) =
                used_module(&path, &[rule.parent]).filter(|used| rule.to.contains(used))
            {
                complaints.push(format!(
                    "{}:{line}: `{own}` uses `{used}`: {}",
                    source.file, rule.why
                ));
            }
        }
    }
    complaints
}

/// Complaints about files that name what only others may.
pub(crate) fn against_only_in(sources: &[Source], rule: &OnlyIn) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| !rule.allows(&source.file)) {
        for (line, path) in source.paths() {
            if let Some(named) = rule.paths.iter().find(|named| contains(&path, named)) {
                complaints.push(format!(
                    "{}:{line}: names `{named}`: {}",
                    source.file, rule.why
                ));
            }
        }
    }
    complaints
}

/// The module below `crate::…` that a path leads into.
fn used_module<'a>(path: &'a [String], below: &[&str]) -> Option<&'a str> {
    let rest = path.strip_prefix(&["crate".to_owned()][..])?;
    let matches = rest.iter().zip(below).all(|(name, wanted)| name == wanted);
    rest.get(below.len())
        .filter(|_| matches)
        .map(String::as_str)
}

/// Whether the names of `wanted` stand next to each other in the path.
fn contains(path: &[String], wanted: &str) -> bool {
    let wanted: Vec<&str> = wanted.split("::").collect();
    path.windows(wanted.len()).any(|names| names == wanted)
}

//! Where the real parts are, and how they are started.

use std::path::{Path, PathBuf};

/// A program with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<String>,
}

impl Program {
    /// The same with one more argument.
    pub(crate) fn with(mut self, argument: impl Into<String>) -> Self {
        self.args.push(argument.into());
        self
    }

    /// The program as text.
    pub(crate) fn program(&self) -> String {
        text(&self.path)
    }
}

/// The folder of the real parts.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/parts")
        .canonicalize()
        .unwrap()
}

/// A file of the real parts. A missing one is a failure, never a skipped test.
#[track_caller]
pub(crate) fn part(below: &str) -> PathBuf {
    let path = folder().join(below);
    assert!(
        path.exists(),
        "a real part is missing ({below}); run `make parts`"
    );
    path
}

/// A script under the pinned Node.
#[track_caller]
pub(crate) fn node(script: &str) -> Program {
    let script = text(&part(&format!("node/{script}")));
    Program {
        path: part("node/node_modules/.bin/node"),
        args: vec![script],
    }
}

/// A server of the official collection.
#[track_caller]
pub(crate) fn official(name: &str) -> Program {
    node(&format!(
        "node_modules/@modelcontextprotocol/server-{name}/dist/index.js"
    ))
}

/// The same over HTTP, kept to the loopback interface and to a free port.
#[track_caller]
pub(crate) fn official_http(name: &str, transport: &str) -> Program {
    let loopback = format!("--import={}", text(&part("node/loopback.mjs")));
    let mut program = official(name).with(transport);
    program.args.insert(0, loopback);
    program
}

/// A script in one of the Python environments.
#[track_caller]
pub(crate) fn python(environment: &str, script: &str) -> Program {
    let script = text(&part(&format!("python/{script}")));
    Program {
        path: part(&format!("python/.venv-{environment}/bin/python")),
        args: vec![script],
    }
}

/// A command that a Python package brought along.
#[track_caller]
pub(crate) fn python_command(environment: &str, command: &str) -> Program {
    Program {
        path: part(&format!("python/.venv-{environment}/bin/{command}")),
        args: Vec::new(),
    }
}

/// The Go server, with a cluster that is not there.
#[track_caller]
pub(crate) fn kubernetes() -> Program {
    let name = "kubernetes-mcp-server-linux-amd64";
    Program {
        path: part(&format!("node/node_modules/{name}/bin/{name}")),
        args: Vec::new(),
    }
    .with("--kubeconfig")
    .with(text(&part("kubeconfig.yaml")))
}

/// A path as text.
pub(crate) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

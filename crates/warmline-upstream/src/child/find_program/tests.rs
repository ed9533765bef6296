use super::*;
use crate::target::{ServerTarget, TransportConfig};

/// A folder that is removed at the end of a test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("warmline-path-{:016x}", fastrand::u64(..)));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// A program in a folder below. A link, because a file that was just written cannot be run
    /// while another thread of this process starts a child.
    fn program(&self, folder: &str, name: &str) -> PathBuf {
        let folder = self.0.join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink("/bin/sh", folder.join(name)).unwrap();
        folder.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn reach(program: &str) -> StdioConfig {
    let TransportConfig::Stdio(reach) = ServerTarget::stdio("files", program, [""; 0]).transport
    else {
        panic!("a program is reached over stdio");
    };
    reach
}

fn searching(folders: &[PathBuf]) -> Environment {
    Environment::from([(PATH.into(), std::env::join_paths(folders).unwrap())])
}

/// A37: PATH is searched in its order.
#[tokio::test]
async fn a_name_is_searched_in_the_folders_of_path_in_their_order() {
    let folder = Folder::new();
    folder.program("second", "tool");
    folder.program("third", "tool");
    std::fs::create_dir_all(folder.0.join("first/tool")).unwrap();
    let folders = ["first", "second", "third"].map(|name| folder.0.join(name));
    let program = find_program("files", &reach("tool"), &mut searching(&folders))
        .await
        .unwrap();
    assert_eq!(program.path, folder.0.join("second/tool"));
    assert_eq!(program.source, ProgramSource::Path { index: 1 });
}

#[tokio::test]
async fn a_path_counts_from_the_working_folder() {
    let folder = Folder::new();
    let tool = folder.program("bin", "tool");
    for given in ["bin/tool", "./bin/tool", &tool.display().to_string()] {
        let reach = StdioConfig {
            cwd: Some(folder.0.clone()),
            ..reach(given)
        };
        let program = find_program("files", &reach, &mut Environment::new())
            .await
            .unwrap();
        assert_eq!(program.path, folder.0.join(given), "{given}");
        assert_eq!(program.source, ProgramSource::Explicit);
    }
}

#[tokio::test]
async fn a_path_in_the_configuration_is_the_only_one_searched() {
    let folder = Folder::new();
    let mut reach = reach("no-such-program");
    reach
        .env
        .insert(PATH.to_owned(), folder.0.display().to_string());
    let mut environment = searching(std::slice::from_ref(&folder.0));
    let diagnostic = find_program("files", &reach, &mut environment)
        .await
        .unwrap_err();
    assert_eq!(diagnostic.reason, Reason::ProgramMissing);
    assert_eq!(
        diagnostic.message,
        "the program of `files` was not found: `no-such-program`"
    );
    assert_eq!(
        diagnostic.cause,
        Some(format!("searched PATH {}", folder.0.display()))
    );
}

/// P105: the error says which PATH was searched.
#[tokio::test]
async fn what_cannot_be_started_is_said_before_it_is_tried() {
    let folder = Folder::new();
    std::fs::write(folder.0.join("text"), "no program").unwrap();
    let table = [
        ("./missing", Reason::ProgramMissing, "was not found"),
        ("./text", Reason::Spawn, "may not be executed"),
        ("./.", Reason::ProgramMissing, "is a folder"),
    ];
    for (program, reason, words) in table {
        let reach = StdioConfig {
            cwd: Some(folder.0.clone()),
            ..reach(program)
        };
        let diagnostic = find_program("files", &reach, &mut Environment::new())
            .await
            .unwrap_err();
        assert_eq!(diagnostic.reason, reason, "{program}");
        assert!(diagnostic.message.contains(words), "{}", diagnostic.message);
        assert!(diagnostic.hint.is_some());
    }
    let nowhere = StdioConfig {
        cwd: Some(folder.0.join("nowhere")),
        ..reach("sh")
    };
    let diagnostic = find_program("files", &nowhere, &mut Environment::new())
        .await
        .unwrap_err();
    assert_eq!(diagnostic.reason, Reason::Spawn);
    assert!(
        diagnostic.message.contains("no such folder"),
        "{}",
        diagnostic.message
    );
}

fn home(folder: &Folder, profile: &str) -> Environment {
    std::fs::write(folder.0.join(".profile"), profile).unwrap();
    Environment::from([
        ("HOME".into(), folder.0.clone().into()),
        (PATH.into(), "/bare".into()),
    ])
}

/// A37, P105: the login shell is asked for its PATH.
#[tokio::test]
async fn the_login_shell_is_heard_through_the_noise_of_its_profile() {
    let folder = Folder::new();
    let profile = "echo welcome; echo careful >&2; PATH=/from/profile:$PATH; sleep 1000 & ";
    let path = query_login_shell(Path::new("/bin/sh"), &home(&folder, profile))
        .await
        .unwrap();
    let path = path.to_string_lossy().into_owned();
    // The system's own profile may have set PATH before.
    assert!(path.starts_with("/from/profile:"), "{path}");
    assert!(!path.contains("welcome"), "{path}");
}

#[tokio::test]
async fn a_login_shell_that_fails_or_floods_is_no_answer() {
    let folder = Folder::new();
    for profile in ["exit 1", "while :; do echo flood; done", "PATH="] {
        let path = query_login_shell(Path::new("/bin/sh"), &home(&folder, profile)).await;
        assert_eq!(path, None, "{profile}");
    }
    assert_eq!(
        query_login_shell(Path::new("/no/shell"), &Environment::new()).await,
        None
    );
}

#[tokio::test]
async fn a_login_shell_that_hangs_is_given_up_and_killed() {
    let folder = Folder::new();
    let mark = folder.0.join("pid");
    let profile = format!("echo $$ > {}; trap '' TERM; sleep 1000", mark.display());
    let began = clock::now();
    let path = query_login_shell(Path::new("/bin/sh"), &home(&folder, &profile)).await;
    assert_eq!(path, None);
    assert!(clock::now() - began < SHELL_TIMEOUT + SHELL_EXIT_TIMEOUT);
    let pid: u32 = std::fs::read_to_string(&mark)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(
        !Path::new(&format!("/proc/{pid}")).exists(),
        "it is gone and reaped"
    );
}

/// A37: both are searched.
#[test]
fn the_login_path_comes_first_and_loses_nothing_of_ours() {
    let joined = join_search_paths(OsStr::new("/a:/b"), OsStr::new("/b::/c"));
    assert_eq!(joined, "/a:/b:/c");
}

#[test]
fn fences_must_both_be_there() {
    let table: [(&[u8], Option<&[u8]>); 5] = [
        (b"noise##/bin##noise", Some(b"/bin")),
        (b"####", Some(b"")),
        (b"##/bin", None),
        (b"/bin", None),
        (b"", None),
    ];
    for (text, expected) in table {
        assert_eq!(between_fences(text, b"##"), expected);
    }
}

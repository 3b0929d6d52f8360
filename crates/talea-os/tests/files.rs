//! Checks of trusted files.

mod support;

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use support::{Scratch, is_root, needs};
use talea_os::files::{Problem, check_trusted, open_trusted};

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
}

#[test]
fn r26_files_that_others_can_write_are_refused() {
    let scratch = Scratch::new("trust");
    let below = scratch.join("etc");
    let file = below.join("talead.toml");
    std::fs::create_dir(&below).expect("a directory");
    std::fs::write(&file, "x").expect("a file");
    chmod(&below, 0o755);
    chmod(&file, 0o644);
    check_trusted(&file).expect("trusted");
    assert_eq!(
        std::io::read_to_string(open_trusted(&file).expect("trusted")).expect("its text"),
        "x"
    );
    for mode in [0o664, 0o646, 0o666, 0o620] {
        chmod(&file, mode);
        let refused = check_trusted(&file).expect_err("refused");
        assert_eq!((refused.path.as_path(), refused.mode), (file.as_path(), mode));
        assert!(matches!(refused.problem, Problem::Writable));
        let text = refused.to_string();
        assert!(text.contains(&format!("{mode:04o}")) && text.contains("chmod go-w"), "{text}");
        assert!(open_trusted(&file).is_err());
    }
    chmod(&file, 0o600);
    // A directory that others can write lets them replace what is in it, whatever the file's own
    // mode.
    for mode in [0o775, 0o757, 0o777, 0o1770] {
        chmod(&below, mode);
        let answer = check_trusted(&file);
        if mode & 0o1000 != 0 && is_root() {
            answer.expect("sticky and root's: no user can replace another user's file");
        } else {
            assert_eq!(answer.expect_err("refused").path, below);
        }
    }
}

#[test]
fn r26_files_of_other_users_are_refused() {
    needs!("root", is_root());
    let scratch = Scratch::new("owner");
    let below = scratch.join("etc");
    let file = below.join("plugin.so");
    std::fs::create_dir(&below).expect("a directory");
    std::fs::write(&file, "x").expect("a file");
    chmod(&below, 0o755);
    chmod(&file, 0o644);
    chown(&file, Some(65_534), None).expect("given away");
    let refused = check_trusted(&file).expect_err("refused");
    assert!(matches!(refused.problem, Problem::Owner));
    assert!(
        refused.to_string().contains("65534") && refused.to_string().contains("chown root"),
        "{refused}"
    );
    chown(&file, Some(0), None).expect("taken back");
    check_trusted(&file).expect("trusted");
    chown(&below, Some(65_534), None).expect("given away");
    assert_eq!(check_trusted(&file).expect_err("refused").path, below);
    // Sticky helps only where root owns the directory: its owner may replace anything in it.
    chmod(&below, 0o1777);
    assert_eq!(check_trusted(&file).expect_err("refused").path, below);
}

#[test]
fn r26_links_are_followed_and_every_step_is_checked() {
    let scratch = Scratch::new("links");
    for name in ["good", "bad"] {
        let directory = scratch.join(name);
        std::fs::create_dir(&directory).expect("a directory");
        std::fs::write(directory.join("file"), "x").expect("a file");
        chmod(&directory, 0o755);
        chmod(&directory.join("file"), 0o644);
    }
    symlink("../bad/file", scratch.join("good").join("relative")).expect("a link");
    symlink(scratch.join("good").join("relative"), scratch.join("absolute")).expect("a link");
    symlink("bad", scratch.join("directory")).expect("a link");
    let ways = ["good/relative", "absolute", "directory/file", "good/../bad/file"];
    for way in ways {
        check_trusted(&scratch.join(way)).expect(way);
    }
    chmod(&scratch.join("bad"), 0o777);
    for way in ways {
        assert_eq!(
            check_trusted(&scratch.join(way)).expect_err(way).path,
            scratch.join("bad"),
            "{way}"
        );
    }
    symlink("loop", scratch.join("loop")).expect("a link");
    assert!(matches!(
        check_trusted(&scratch.join("loop")).expect_err("endless").problem,
        Problem::LinkLoop
    ));
    if is_root() {
        chmod(&scratch.join("bad"), 0o755);
        std::os::unix::fs::lchown(scratch.join("absolute"), Some(65_534), None)
            .expect("given away");
        let refused =
            check_trusted(&scratch.join("absolute")).expect_err("its owner may redirect it");
        assert_eq!(refused.path, scratch.join("absolute"));
    }
}

#[test]
fn other_files_than_regular_ones_are_refused() {
    assert!(matches!(
        check_trusted(Path::new("/dev/null")).expect_err("refused").problem,
        Problem::NotAFile
    ));
    assert!(matches!(
        check_trusted(Path::new("/")).err().map(|e| e.problem),
        None | Some(Problem::NotAFile)
    ));
    let missing = check_trusted(Path::new("/no/such/file")).expect_err("refused");
    assert!(matches!(missing.problem, Problem::Os(_)));
    assert_eq!(missing.path, Path::new("/no"));
}

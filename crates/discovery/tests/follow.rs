//! A set follows its file however that is replaced, and survives what is not usable.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::{fs, path::Path, sync::Arc, time::Duration};

use discovery::{Discovery, EndpointSet, Error, FileOptions, Options};
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;

fn file(names: &[&str]) -> String {
    let entry = |name| format!("- {{name: {name}, address: 10.0.0.1, port: 80}}\n");
    "endpoints:\n".to_owned() + &names.iter().map(entry).collect::<String>()
}

fn names(set: &EndpointSet) -> Vec<&str> {
    set.endpoints.iter().map(|endpoint| endpoint.id.name()).collect()
}

fn follow(path: &Path) -> (Discovery, Receiver<Arc<EndpointSet>>) {
    let options = Options::File(FileOptions { path: path.to_path_buf(), watch: true });
    let discovery = discovery::start(&options, &CancellationToken::new()).unwrap();
    let sets = discovery.sets();
    (discovery, sets)
}

/// The next set must be this one: no other may come between.
async fn next_is(sets: &mut Receiver<Arc<EndpointSet>>, want: &[&str]) {
    let changed = tokio::time::timeout(Duration::from_secs(20), sets.changed());
    changed.await.unwrap().unwrap();
    assert_eq!(names(&sets.borrow_and_update()), want);
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

#[tokio::test]
async fn removal_follows_addition_by_atomic_rename() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("endpoints.yaml");
    fs::write(&path, file(&["a"])).unwrap();
    let (discovery, mut sets) = follow(&path);
    assert_eq!(names(&sets.borrow()), ["a"]);
    assert!(discovery.ready());
    for want in [&["a", "b"][..], &["b"], &["b", "c"], &["c"]] {
        replace(&path, &file(want));
        next_is(&mut sets, want).await;
    }
    replace(&path, "endpoints: []");
    next_is(&mut sets, &[]).await;
    assert!(!discovery.ready());
}

#[tokio::test]
async fn a_file_written_in_place_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("endpoints.yaml");
    fs::write(&path, file(&["a"])).unwrap();
    let (_discovery, mut sets) = follow(&path);
    for want in [&["a", "b"][..], &["c"]] {
        fs::write(&path, file(want)).unwrap();
        next_is(&mut sets, want).await;
    }
}

#[tokio::test]
async fn a_file_that_is_deleted_keeps_the_set_until_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("endpoints.yaml");
    fs::write(&path, file(&["a"])).unwrap();
    let (_discovery, mut sets) = follow(&path);
    fs::remove_file(&path).unwrap();
    fs::write(&path, file(&["b"])).unwrap();
    next_is(&mut sets, &["b"]).await;
}

#[tokio::test]
async fn a_folder_that_is_deleted_and_made_again_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("config");
    let path = inner.join("endpoints.yaml");
    fs::create_dir(&inner).unwrap();
    fs::write(&path, file(&["a"])).unwrap();
    let (_discovery, mut sets) = follow(&path);
    for want in ["b", "c"] {
        fs::remove_dir_all(&inner).unwrap();
        fs::create_dir(&inner).unwrap();
        fs::write(&path, file(&[want])).unwrap();
        next_is(&mut sets, &[want]).await;
    }
}

#[tokio::test]
async fn what_is_not_usable_changes_nothing_and_what_follows_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("endpoints.yaml");
    fs::write(&path, file(&["a"])).unwrap();
    let (_discovery, mut sets) = follow(&path);
    for bad in ["endpoints: [", "", "pool: 1", "endpoints: [{name: x}]"] {
        replace(&path, bad);
    }
    replace(&path, &file(&["b"]));
    next_is(&mut sets, &["b"]).await;
    assert!(!sets.has_changed().unwrap());
}

/// A mounted `ConfigMap`: `file -> ..data/file`, `..data -> ..version`, swapped by renaming a new
/// `..data` over the old one, after which the old version is deleted.
#[cfg(unix)]
#[tokio::test]
async fn a_swapped_symlink_is_followed_as_in_a_mounted_configmap() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let version = |number: usize, names: &[&str]| {
        let name = format!("..version_{number}");
        fs::create_dir(folder.path().join(&name)).unwrap();
        fs::write(folder.path().join(&name).join("endpoints.yaml"), file(names)).unwrap();
        symlink(&name, folder.path().join("..data_tmp")).unwrap();
        fs::rename(folder.path().join("..data_tmp"), folder.path().join("..data")).unwrap();
    };
    version(0, &["a"]);
    let path = folder.path().join("endpoints.yaml");
    symlink("..data/endpoints.yaml", &path).unwrap();
    let (_discovery, mut sets) = follow(&path);
    for (number, want) in [(1, &["a", "b"][..]), (2, &["b"]), (3, &["c"])] {
        version(number, want);
        fs::remove_dir_all(folder.path().join(format!("..version_{}", number - 1))).unwrap();
        next_is(&mut sets, want).await;
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_swapped_folder_and_a_write_behind_a_symlink_are_followed() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (release, name) in [("one", "a"), ("two", "b")] {
        fs::create_dir(at(release)).unwrap();
        fs::write(at(release).join("endpoints.yaml"), file(&[name])).unwrap();
    }
    symlink(at("one"), at("current")).unwrap();
    let (_discovery, mut sets) = follow(&at("current").join("endpoints.yaml"));
    symlink(at("two"), at("next")).unwrap();
    fs::rename(at("next"), at("current")).unwrap();
    next_is(&mut sets, &["b"]).await;
    fs::write(at("two").join("endpoints.yaml"), file(&["c"])).unwrap();
    next_is(&mut sets, &["c"]).await;
}

#[tokio::test]
async fn a_file_that_is_missing_or_broken_at_the_start_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("endpoints.yaml");
    let options = Options::File(FileOptions { path: path.clone(), watch: true });
    let start = || discovery::start(&options, &CancellationToken::new());
    assert!(matches!(start(), Err(Error::Read { .. })));
    fs::write(&path, "endpoints: [").unwrap();
    let error = start().unwrap_err().to_string();
    assert!(error.contains("endpoints.yaml:1:12: "), "{error}");
}

#[tokio::test]
async fn the_channel_closes_when_discovery_stops() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("endpoints.yaml");
    fs::write(&path, file(&["a"])).unwrap();
    let file = |watch| Options::File(FileOptions { path: path.clone(), watch });
    for options in [file(true), file(false), Options::default()] {
        let discovery = discovery::start(&options, &CancellationToken::new()).unwrap();
        let sets = discovery.sets();
        assert!(sets.has_changed().is_ok());
        discovery.stop().await;
        assert!(sets.has_changed().is_err());
    }
}

//! Notices that a file may have changed, however it is replaced.
//!
//! Directories are watched, not the file: an editor renames a new file over the old one, Kubernetes
//! swaps the symlink `..data` of a mounted `ConfigMap`, and a deleted file may come back. Every
//! symlink on the way to the file counts, so swapping any of them is seen.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Symlinks followed before a path counts as a loop; the limit of Linux.
const MAX_LINKS: usize = 40;

/// Watches one file; the names it depends on are found anew by [`Watch::renew`].
#[derive(Debug)]
pub(crate) struct Watch {
    path: PathBuf,
    names: Arc<Mutex<BTreeSet<PathBuf>>>,
    folders: BTreeSet<PathBuf>,
    watcher: Option<RecommendedWatcher>,
    touched: Arc<Notify>,
}

impl Watch {
    /// Starts to watch `path`.
    pub(crate) fn start(path: &Path) -> Self {
        let names: Arc<Mutex<BTreeSet<PathBuf>>> = Arc::default();
        let touched = Arc::new(Notify::new());
        let (seen_names, seen) = (Arc::clone(&names), Arc::clone(&touched));
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| matters(&event, &seen_names.lock())) {
                seen.notify_one();
            }
        });
        let watcher = watcher
            .inspect_err(|error| {
                tracing::warn!(path = %path.display(), %error, "file is polled, not watched");
            })
            .ok();
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        Self { path, names, folders: BTreeSet::new(), watcher, touched }
    }

    /// Told, once, after every touch.
    pub(crate) fn touched(&self) -> Arc<Notify> {
        Arc::clone(&self.touched)
    }

    /// Follows the path anew and watches its folders; false if none can be watched, and the file has
    /// to be polled.
    pub(crate) fn renew(&mut self) -> bool {
        let Some(watcher) = &mut self.watcher else { return false };
        let names = names_on_the_way(&self.path);
        let folders: BTreeSet<PathBuf> =
            names.iter().filter_map(|name| name.parent()).map(Path::to_path_buf).collect();
        *self.names.lock() = names;
        for gone in self.folders.difference(&folders) {
            // Removed folders have lost their watch already.
            let _gone = watcher.unwatch(gone);
        }
        // A folder that was deleted and made again needs a new watch under its old name.
        self.folders = folders
            .into_iter()
            .filter(|folder| watcher.watch(folder, RecursiveMode::NonRecursive).is_ok())
            .collect();
        !self.folders.is_empty()
    }
}

/// Whether `event` may mean that the file reads differently. Our own reads do not.
fn matters(event: &Event, names: &BTreeSet<PathBuf>) -> bool {
    let read_only = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        EventKind::Access(_) => true,
        _ => false,
    };
    !read_only && (event.need_rescan() || event.paths.iter().any(|path| names.contains(path)))
}

/// Every symlink that leads to `path`, the file itself and its folder, each as a name in a real
/// folder.
fn names_on_the_way(path: &Path) -> BTreeSet<PathBuf> {
    let mut names = BTreeSet::new();
    let mut ahead: Vec<OsString> = parts(path);
    let mut at = PathBuf::new();
    let mut links = 0;
    while let Some(part) = ahead.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        match fs::read_link(&next) {
            Ok(target) if links < MAX_LINKS => {
                links += 1;
                ahead.extend(parts(&target));
                names.insert(next);
            }
            _ => at = next,
        }
    }
    names.extend(at.parent().filter(|folder| folder.parent().is_some()).map(Path::to_path_buf));
    names.insert(at);
    names
}

/// The parts of `path`, last one first. An absolute path starts with its root.
fn parts(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter(|component| !matches!(component, Component::CurDir))
        .map(|component| component.as_os_str().to_owned())
        .collect()
}

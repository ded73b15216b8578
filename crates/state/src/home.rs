//! The directory of the store: who holds it, which database is current, and moving aside what
//! cannot be used.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use crate::{
    aside::{CORRUPT, Place, schema_label},
    books::Books,
    disk::Disk,
    error::{Error, Fault},
    manifest::{Manifest, Read},
    options::Options,
};

const LOCK: &str = "lock";
const STORE: &str = "store-";

/// What [`crate::Store::open`] came upon.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Found {
    /// Nothing was there.
    Fresh,
    /// What an earlier process left.
    Warm,
    /// Something that cannot be used. It is kept elsewhere, and the store is empty.
    MovedAside {
        /// Where it is now.
        to: PathBuf,
        /// Why it cannot be used.
        why: String,
    },
}

/// A directory that this process holds until the value is dropped.
#[derive(Debug)]
pub(crate) struct Home {
    /// Free of links, so that what a link leads to is renamed and not the link.
    path: PathBuf,
    lock: File,
    schema: u32,
    flush_ms: u64,
}

/// An opened database, its books, and how it was found.
pub(crate) type Holding = (Disk, Books, Found);

/// What is wrong with what lies in the directory.
struct Unfit {
    /// Goes into the name it is kept under.
    label: String,
    why: String,
}

impl Home {
    /// Makes the directory if it is missing, and takes it for this process.
    pub(crate) fn claim(options: &Options, schema: u32) -> Result<Self, Error> {
        let made = fs::create_dir_all(&options.path);
        let path = made.and_then(|()| fs::canonicalize(&options.path));
        let path = path.map_err(|error| Error::io(&options.path, error))?;
        let lock = lock(&path)?;
        Ok(Self { path, lock, schema, flush_ms: options.flush_ms })
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the store that is in `path` for this process, and opens it as it is: nothing is made or
    /// moved.
    pub(crate) fn existing(path: &Path, schema: u32) -> Result<(Self, Disk, Books), Error> {
        let missing = || Error::Missing { path: path.to_owned() };
        let damaged = |why| Error::fault(path, Fault::Manifest(why));
        let number = match Manifest::read(path).map_err(|error| Error::io(path, error))? {
            Read::Missing => return Err(missing()),
            Read::Unreadable => return Err(damaged("unreadable")),
            Read::Is(manifest) if manifest.schema != schema => {
                let found = manifest.schema;
                return Err(Error::Schema { path: path.to_owned(), found, wanted: schema });
            }
            Read::Is(manifest) => manifest.number,
        };
        let options = Options { path: path.to_owned(), ..Options::default() };
        let home = Self::claim(&options, schema)?;
        if !home.folder(number).is_dir() {
            return Err(damaged("naming a database that is gone"));
        }
        let (disk, books) = home.open_store(number)?;
        Ok((home, disk, books))
    }

    /// Opens the current database; one that cannot be used is moved aside for a fresh one.
    pub(crate) fn open(&mut self) -> Result<Holding, Error> {
        let unfit = match self.current() {
            Ok(Some(Ok(number))) => match self.open_store(number) {
                Ok((disk, books)) => return Ok((disk, books, Found::Warm)),
                Err(Error::Broken { source, .. }) => {
                    Unfit { label: CORRUPT.to_owned(), why: source.to_string() }
                }
                Err(error) => return Err(error),
            },
            Ok(Some(Err(unfit))) => unfit,
            Ok(None) => return self.fresh(Found::Fresh),
            Err(error) => return Err(Error::io(&self.path, error)),
        };
        let to = self.move_aside(&unfit.label)?;
        let Unfit { why, .. } = unfit;
        tracing::warn!(
            path = %self.path.display(), kept_as = %to.display(), reason = why,
            "stored state cannot be used, starting empty"
        );
        self.fresh(Found::MovedAside { to, why })
    }

    /// A new database beside the current one, and its number.
    pub(crate) fn make(&self) -> Result<(u64, Disk), Error> {
        let numbers = self.numbers().map_err(|error| Error::io(&self.path, error))?;
        let number = numbers.into_iter().max().unwrap_or(0) + 1;
        match Disk::create(&self.path, &self.folder(number), self.flush_ms) {
            Ok(disk) => Ok((number, disk)),
            Err(error) => {
                self.discard(number);
                Err(error)
            }
        }
    }

    /// Makes the database `number` the current one.
    pub(crate) fn commit(&self, number: u64) -> Result<(), Error> {
        let manifest = Manifest { schema: self.schema, number };
        manifest.write(&self.path).map_err(|error| Error::io(&self.path, error))
    }

    /// Removes the database `number`, a copy that is not current.
    pub(crate) fn discard(&self, number: u64) {
        // What stays is removed at the next start.
        let _ = fs::remove_dir_all(self.folder(number));
    }

    /// Removes every database but `number`, which is current.
    pub(crate) fn keep_only(&self, number: u64) -> io::Result<()> {
        for other in self.numbers()?.into_iter().filter(|other| *other != number) {
            self.discard(other);
        }
        Ok(())
    }

    /// Bytes in files of the store.
    pub(crate) fn size(&self) -> Result<u64, Error> {
        let numbers = self.numbers().map_err(|error| Error::io(&self.path, error))?;
        Ok(numbers.into_iter().map(|number| size(&self.folder(number))).sum())
    }

    fn fresh(&self, found: Found) -> Result<Holding, Error> {
        let (number, disk) = self.make()?;
        match self.commit(number) {
            Ok(()) => Ok((disk, Books::default(), found)),
            Err(error) => {
                drop(disk);
                self.discard(number);
                Err(error)
            }
        }
    }

    fn open_store(&self, number: u64) -> Result<(Disk, Books), Error> {
        let disk = Disk::open(&self.path, &self.folder(number), self.flush_ms)?;
        let books = Books::read(&disk)?;
        Ok((disk, books))
    }

    /// Number of the current database, if there is one and it may be opened.
    fn current(&self) -> io::Result<Option<Result<u64, Unfit>>> {
        let corrupt =
            |why: &str| Ok(Some(Err(Unfit { label: CORRUPT.to_owned(), why: why.to_owned() })));
        match Manifest::read(&self.path)? {
            Read::Missing if self.numbers()?.is_empty() => Ok(None),
            Read::Missing => corrupt("its manifest is missing"),
            Read::Unreadable => corrupt("its manifest is unreadable"),
            Read::Is(Manifest { schema, .. }) if schema != self.schema => {
                let label = schema_label(schema);
                let why = format!("it has schema version {schema}, not {}", self.schema);
                Ok(Some(Err(Unfit { label, why })))
            }
            Read::Is(Manifest { number, .. }) => {
                self.keep_only(number)?;
                Ok(Some(Ok(number)))
            }
        }
    }

    fn folder(&self, number: u64) -> PathBuf {
        self.path.join(format!("{STORE}{number}"))
    }

    /// Numbers of the databases in the directory.
    fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(STORE));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        Ok(numbers)
    }

    /// Removes old stores that were moved aside.
    pub(crate) fn prune_aside(&self) {
        let beside = Place::beside(&self.path);
        for place in beside.into_iter().chain([Place::within(&self.path)]) {
            place.prune();
        }
    }

    /// Renames the directory to the next `<path>.<label>-<n>`, and holds an empty one in its place. A
    /// mount point, or a directory in one that is not ours, cannot be renamed: then what
    /// is in it moves to `<path>/<label>-<n>`.
    fn move_aside(&mut self, label: &str) -> Result<PathBuf, Error> {
        self.rename(label)
            .transpose()
            .unwrap_or_else(|| self.move_within(label))
            .map_err(|error| Error::io(&self.path, error))
    }

    fn rename(&mut self, label: &str) -> io::Result<Option<PathBuf>> {
        let Some(place) = Place::beside(&self.path) else { return Ok(None) };
        let to = place.next(label);
        if fs::rename(&self.path, &to).is_err() {
            return Ok(None);
        }
        fs::create_dir_all(&self.path)?;
        // The old lock went with the directory.
        self.lock = lock_file(&self.path)?;
        match self.lock.try_lock() {
            Ok(()) => Ok(Some(to)),
            Err(TryLockError::Error(error)) => Err(error),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::ResourceBusy.into()),
        }
    }

    fn move_within(&self, label: &str) -> io::Result<PathBuf> {
        let to = Place::within(&self.path).next(label);
        fs::create_dir(&to)?;
        for number in self.numbers()? {
            let from = self.folder(number);
            fs::rename(&from, to.join(from.file_name().unwrap_or_default()))?;
        }
        Manifest::move_to(&self.path, &to)?;
        Ok(to)
    }
}

/// Takes the directory `path`, or says that another has it.
fn lock(path: &Path) -> Result<File, Error> {
    let file = lock_file(path).map_err(|error| Error::io(path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(Error::io(path, error)),
    }
}

fn lock_file(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(path.join(LOCK))
}

/// Bytes in the files below `folder`; one that vanishes meanwhile counts nothing.
fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

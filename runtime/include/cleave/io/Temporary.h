// Files and folders that are removed when the process ends, even if a signal
// ends it.
#ifndef CLEAVE_IO_TEMPORARY_H
#define CLEAVE_IO_TEMPORARY_H

#include "cleave/io/FileLock.h"

#include <atomic>
#include <csignal>
#include <memory>
#include <string>

namespace cleave {

/// A file or folder that is temporary. The destructor removes it with its
/// contents. After removeTemporariesOnSignals() was called, it is also removed
/// if a signal ends the process.
class TemporaryPath {
public:
  /// Records a path without creating anything, so that the path is known before
  /// there is something to remove.
  explicit TemporaryPath(std::string path);
  TemporaryPath(const TemporaryPath &) = delete;
  TemporaryPath &operator=(const TemporaryPath &) = delete;
  ~TemporaryPath();

  const std::string &path() const { return name; }
  /// Marks a folder as in use by a lock on a file in it, so that
  /// removeAbandoned() in other processes keeps the folder. Process ids alone
  /// would not suffice: a process in another container cannot check them.
  void guard();
  /// Ends guard() and removes its lock file from the folder, so that the folder
  /// contains only what the caller wrote.
  void unguard();
  /// From now on neither the destructor nor a signal removes the file or
  /// folder. This is also called after the file or folder was moved elsewhere.
  void keep();

private:
  std::string name;
  FileLock lock;
  std::atomic<char *> *slot = nullptr; // entry for the signal handlers, or null
  bool isKept = false;
};

/// Returns ".NAME.WHAT-HOST-PID" in the folder of `path`, where NAME is the
/// name of `path`: a temporary name for a file or folder that will be renamed
/// to `path` or has been renamed from it. WHAT is tmp, old, new or gone.
std::string temporaryNameOf(const std::string &path, const char *what);

/// Removes temporary files and folders from `folder` ("" is the current folder)
/// if their processes ran on this machine and have ended without removing them.
/// `of` restricts this to temporaries for one NAME (temporaryNameOf); empty
/// means all.
void removeAbandoned(const std::string &folder, const std::string &of = "");

/// Creates a folder PREFIX-HOST-PID-N below TMPDIR or /tmp, and guards it. Also
/// removes such folders of processes that were killed. Returns null if the
/// folder cannot be created, with the reason in `error`.
std::unique_ptr<TemporaryPath> makeTemporaryFolder(const std::string &prefix,
                                                   std::string &error);

/// Installs handlers so that SIGINT, SIGTERM and SIGHUP first remove temporary
/// files and print "NAME: interrupted" before the signal ends the process. Must
/// be called by the main thread; ignored signals stay ignored. `name` must
/// outlive the process.
void removeTemporariesOnSignals(const char *name);

/// Blocks SIGINT, SIGTERM and SIGHUP during the lifetime of this object. It is
/// used before exec: the new program calls letSignalsThrough() once it knows
/// which files to remove.
class HeldSignals {
public:
  HeldSignals();
  HeldSignals(const HeldSignals &) = delete;
  HeldSignals &operator=(const HeldSignals &) = delete;
  ~HeldSignals();

private:
  sigset_t before;
};

/// Unblocks the signals that HeldSignals has blocked, in this process or before
/// it called exec.
void letSignalsThrough();

} // namespace cleave

#endif // CLEAVE_IO_TEMPORARY_H

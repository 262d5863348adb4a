// Files and folders that do not outlive the process, however it ends.
#ifndef CLEAVE_IO_TEMPORARY_H
#define CLEAVE_IO_TEMPORARY_H

#include "cleave/io/FileLock.h"

#include <atomic>
#include <csignal>
#include <memory>
#include <string>

namespace cleave {

/// A file or folder that is removed, with all that it holds, when this object
/// goes, or when a signal ends a process that has called
/// removeTemporariesOnSignals().
class TemporaryPath {
public:
  /// Makes nothing. The name is known before there is anything to remove.
  explicit TemporaryPath(std::string path);
  TemporaryPath(const TemporaryPath &) = delete;
  TemporaryPath &operator=(const TemporaryPath &) = delete;
  ~TemporaryPath();

  const std::string &path() const { return name; }
  /// Of a folder: from now on removeAbandoned() knows that it is in use, also
  /// where process numbers say nothing (containers that share a folder).
  void guard();
  /// No more: it holds what belongs there alone.
  void unguard();
  /// What is there stays from now on, or has gone elsewhere.
  void keep();

private:
  std::string name;
  FileLock lock;
  std::atomic<char *> *slot = nullptr; // null where nobody looks any more
  bool isKept = false;
};

/// ".NAME.WHAT-HOST-PID" beside `path`: what is written there before it gets
/// the name, or what has lost it. WHAT: tmp, old, new or gone.
std::string temporaryNameOf(const std::string &path, const char *what);

/// Removes such files and folders from `folder` where the processes, of this
/// machine, have ended without doing so; "": from the current one. `of`: those
/// of this name alone, all where it is empty.
void removeAbandoned(const std::string &folder, const std::string &of = "");

/// A new folder PREFIX-HOST-PID-N below TMPDIR, or /tmp, guarded; removes those
/// of processes that were killed. Null, and `error` says why, where none can be
/// made.
std::unique_ptr<TemporaryPath> makeTemporaryFolder(const std::string &prefix,
                                                   std::string &error);

/// From now on SIGINT, SIGTERM and SIGHUP, where they end the process, first
/// remove what is temporary and say "NAME: interrupted"; the process then ends
/// by the signal. To be called by the main thread; signals that are ignored
/// stay so. `name` must live as long as the process.
void removeTemporariesOnSignals(const char *name);

/// While it lives, these signals wait: for the image that takes this process's
/// place by exec, which calls letSignalsThrough() once it knows what to remove.
class HeldSignals {
public:
  HeldSignals();
  HeldSignals(const HeldSignals &) = delete;
  HeldSignals &operator=(const HeldSignals &) = delete;
  ~HeldSignals();

private:
  sigset_t before;
};

/// Ends what HeldSignals has begun, of this image or the one before.
void letSignalsThrough();

} // namespace cleave

#endif // CLEAVE_IO_TEMPORARY_H

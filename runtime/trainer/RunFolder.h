//===- RunFolder.h - where a run writes and what it goes on from ----------===//
#ifndef CLEAVE_TRAINER_RUNFOLDER_H
#define CLEAVE_TRAINER_RUNFOLDER_H

#include "cleave/io/FileLock.h"
#include "cleave/trainer/Train.h"

#include <string>

namespace cleave {

/// Returns true if the checkpoint is in the output folder, so that the run
/// continues there.
bool continuesIn(const std::string &out, const std::string &resume);

/// Creates the folder `out`, which must not exist, or the next
/// runs/<model>-<n>.
std::string createOut(const std::string &out, const std::string &model);

/// Returns whether a folder contains only files that a run writes. This is also
/// true for an empty folder, and for the folder of a run that was killed before
/// its first checkpoint.
bool isRunFolder(const std::string &folder);

/// Lets only one process at a time write to a run's folder. The file `.lock`
/// names the process; the destructor removes it.
class RunLock {
public:
  RunLock() = default;
  /// Throws InputError that names the process and the machine which hold the
  /// lock. Removes temporary files that killed processes left in the folder.
  explicit RunLock(const std::string &folder);
  RunLock(RunLock &&) = default;
  RunLock &operator=(RunLock &&) = default;
  ~RunLock();

  /// Throws RunError if the folder was moved, removed or unmounted since it was
  /// locked. A new folder with the same name may belong to another run, which
  /// must not find our checkpoints there.
  void check() const;

  /// The locked folder; empty if no folder was to be locked.
  const std::string &folder() const { return name; }

private:
  std::string name;
  std::string path;
  FileLock lock;
};

} // namespace cleave

#endif // CLEAVE_TRAINER_RUNFOLDER_H

//===- RunFolder.h - where a run writes and what it goes on from ----------===//
#ifndef CLEAVE_TRAINER_RUNFOLDER_H
#define CLEAVE_TRAINER_RUNFOLDER_H

#include "cleave/io/FileLock.h"
#include "cleave/trainer/Train.h"

#include <string>

namespace cleave {

/// True if the checkpoint is in the output folder: the run goes on there.
bool continuesIn(const std::string &out, const std::string &resume);

/// Makes the folder `out`, which must not exist, or the next runs/<model>-<n>.
std::string createOut(const std::string &out, const std::string &model);

/// Whether a folder holds nothing but what a run writes: it is empty, say, or
/// of one that was killed before its first checkpoint.
bool isRunFolder(const std::string &folder);

/// One process at a time writes to a run's folder. The file `.lock` in it says
/// which, and goes with this object.
class RunLock {
public:
  RunLock() = default;
  /// Throws InputError with the process and the machine that hold it. Removes
  /// what processes that were killed have left there.
  explicit RunLock(const std::string &folder);
  RunLock(RunLock &&) = default;
  RunLock &operator=(RunLock &&) = default;
  ~RunLock();

  /// Throws RunError where the folder is not the one that was locked any more:
  /// it was moved, removed or unmounted, and whoever made another one of its
  /// name must not find our checkpoints there.
  void check() const;

  /// Empty where nothing was asked to be locked.
  const std::string &folder() const { return name; }

private:
  std::string name;
  std::string path;
  FileLock lock;
};

} // namespace cleave

#endif // CLEAVE_TRAINER_RUNFOLDER_H

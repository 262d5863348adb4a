// Advisory locks between processes, on files that exist only for this purpose.
#ifndef CLEAVE_IO_FILELOCK_H
#define CLEAVE_IO_FILELOCK_H

#include <string>

namespace cleave {

/// A lock of flock(2). The lock belongs to the open file, so it is released
/// when the last process that has the file open ends, even if it is killed. On
/// file systems without locks no lock is ever held.
class FileLock {
public:
  enum Kind { Shared, Exclusive };
  enum class Outcome {
    Held,
    Busy,    ///< another process holds the lock
    Missing, ///< the file does not exist and is not created
    Unknown, ///< the file system has or grants no locks
  };

  FileLock() = default;
  FileLock(FileLock &&other) noexcept;
  FileLock &operator=(FileLock &&other) noexcept;
  ~FileLock() { release(); }

  /// Tries to take the lock without waiting. With `create` the file is created
  /// if it does not exist. A lock that this object holds is released first.
  /// Returns Missing also if the file is replaced or removed during the call.
  Outcome tryLock(const std::string &path, Kind kind, bool create);
  /// Like tryLock, but waits up to a second, because other processes may hold
  /// the lock for only a moment.
  Outcome lockSoon(const std::string &path, Kind kind, bool create);
  bool isHeld() const { return descriptor >= 0; }
  /// Returns whether the path still names the locked file.
  bool isNamed(const std::string &path) const;
  /// Keeps the lock until this process, and all processes that it starts from
  /// now on, have ended.
  void keep();
  void release();
  /// Sets the file's modification time to now, if possible.
  void touch() const;

private:
  int descriptor = -1;
};

} // namespace cleave

#endif // CLEAVE_IO_FILELOCK_H

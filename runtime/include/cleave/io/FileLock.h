// Advisory locks between processes, on files that are there for them.
#ifndef CLEAVE_IO_FILELOCK_H
#define CLEAVE_IO_FILELOCK_H

#include <string>

namespace cleave {

/// A lock of flock(2): of this open file, so it ends with the last process
/// that has it, however that ends. On file systems that have no locks nothing
/// is ever held.
class FileLock {
public:
  enum Kind { Shared, Exclusive };
  enum class Outcome {
    Held,
    Busy,    ///< another process holds it
    Missing, ///< there is no such file, and none can be made
    Unknown, ///< the file system has no locks, or refuses them
  };

  FileLock() = default;
  FileLock(FileLock &&other) noexcept;
  FileLock &operator=(FileLock &&other) noexcept;
  ~FileLock() { release(); }

  /// Does not wait. `create`: makes the file where there is none. Lets go of
  /// what it held before. A file that was replaced or removed meanwhile is
  /// Missing.
  Outcome tryLock(const std::string &path, Kind kind, bool create);
  /// Waits a second for who holds it for a moment, to look or to remove.
  Outcome lockSoon(const std::string &path, Kind kind, bool create);
  bool isHeld() const { return descriptor >= 0; }
  /// Whether the file that is held still has this name.
  bool isNamed(const std::string &path) const;
  /// Until this process has ended, and all that it executes or starts from now
  /// on.
  void keep();
  void release();
  /// Sets the file's time of change to now, if it can.
  void touch() const;

private:
  int descriptor = -1;
};

} // namespace cleave

#endif // CLEAVE_IO_FILELOCK_H

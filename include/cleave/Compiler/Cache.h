// The folder of compiled programs, which many processes and users may share.
//
// An entry is a folder KEY that appears whole, with a file `lock`: who runs an
// entry holds it shared, and only who holds it alone may remove the entry. An
// entry that is damaged and in use is left to those who use it; the next one is
// KEY.2, and so on.
//
// What is given wrongly throws InputError, what the machine refuses RunError;
// Compiler::compileCached reports them.

#ifndef CLEAVE_COMPILER_CACHE_H
#define CLEAVE_COMPILER_CACHE_H

#include "cleave/io/FileLock.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace cleave::compiler {

// $XDG_CACHE_HOME/cleave, else ~/.cache/cleave, else a folder of the user's own
// below TMPDIR.
std::string defaultCacheFolder();

// What CLEAVE_CACHE_GIB says, in bytes; 5 GiB where it is not set. Throws
// InputError where it is no number.
int64_t cacheLimit();

// One compiled program.
struct CacheEntry {
  std::filesystem::path folder;
  int64_t bytes = 0;
  std::filesystem::file_time_type used; // the last time
  // By a process, now.
  bool isUsed() const;
};

class Cache {
public:
  // What a user should know now.
  struct Listener {
    std::function<void(const std::string &warning)> warn = [](auto &) {};
    // Another process compiles the same, and is waited for.
    std::function<void()> wait = [] {};
  };

  explicit Cache(std::string folder) : root(std::move(folder)) {}
  Cache(std::string folder, Listener listener)
      : root(std::move(folder)), listener(std::move(listener)) {}

  // Writes a program into the folder, which is not there yet; returns what it
  // warned of, a line each.
  using Compile = std::function<std::string(const std::string &folder)>;

  // The folder of the program `key`, compiled now where there is none that is
  // whole; nobody removes it before this process has ended and what it
  // executes. What compiling it warned of is said again.
  std::string find(const std::string &key, const Compile &compile);

  // All entries, the one that was used last first.
  std::vector<CacheEntry> entries() const;
  // Whether no process uses it, and it is gone now.
  bool remove(const CacheEntry &entry) const;
  // Removes entries that nobody uses, the one whose last use is oldest first,
  // until all together have at most so many bytes.
  void shrink(int64_t limit) const;
  // Removes what processes of this machine that have ended left unfinished.
  void sweep() const;

private:
  std::string take(const std::string &key);
  std::string publish(const std::string &key, const Compile &compile);
  void waitForOthers(const std::string &key, FileLock &lock,
                     std::string &found);

  std::filesystem::path root;
  Listener listener;
};

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_CACHE_H

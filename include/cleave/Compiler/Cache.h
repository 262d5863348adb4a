// The cache of compiled programs, a folder that many processes and users may
// share.
//
// An entry is a folder KEY with one compiled program and a file `lock`; the
// folder appears atomically. A process that runs the program holds a shared
// lock on this file; only a process with an exclusive lock may remove the
// entry. A damaged entry that is in use is kept for the processes that use it;
// its replacement is named KEY.2, and so on.
//
// Wrong input throws InputError and a failure of the machine throws RunError;
// Compiler::compileCached converts these exceptions to diagnostics.

#ifndef CLEAVE_COMPILER_CACHE_H
#define CLEAVE_COMPILER_CACHE_H

#include "cleave/io/FileLock.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace cleave::compiler {

// Returns $XDG_CACHE_HOME/cleave; if XDG_CACHE_HOME is not set,
// ~/.cache/cleave; and if HOME is not set, a folder below TMPDIR that only this
// user can access.
std::string defaultCacheFolder();

// Returns the value of CLEAVE_CACHE_GIB in bytes, or 5 GiB if it is not set.
// Throws InputError if it is not a number.
int64_t cacheLimit();

// One compiled program.
struct CacheEntry {
  std::filesystem::path folder;
  int64_t bytes = 0;
  std::filesystem::file_time_type used; // the last time
  // Returns whether a process currently uses the entry.
  bool isUsed() const;
};

class Cache {
public:
  // Receives messages for the user.
  struct Listener {
    std::function<void(const std::string &warning)> warn = [](auto &) {};
    // Called when this process waits for another process that compiles the same
    // program.
    std::function<void()> wait = [] {};
  };

  explicit Cache(std::string folder) : root(std::move(folder)) {}
  Cache(std::string folder, Listener listener)
      : root(std::move(folder)), listener(std::move(listener)) {}

  // Compiles a program into `folder`, which does not exist yet; returns the
  // warnings, one per line.
  using Compile = std::function<std::string(const std::string &folder)>;

  // Returns the folder of the program `key`, and compiles it first if there is
  // no intact entry. No process removes the folder before this process (and any
  // program that it executes) has ended. If the program is already in the
  // cache, the warnings of its compilation are given again.
  std::string find(const std::string &key, const Compile &compile);

  // All entries, most recently used first.
  std::vector<CacheEntry> entries() const;
  // Removes the entry unless a process uses it; returns whether the entry was
  // removed.
  bool remove(const CacheEntry &entry) const;
  // Removes unused entries, least recently used first, until the cache has at
  // most `limit` bytes.
  void shrink(int64_t limit) const;
  // Removes the unfinished entries of processes of this machine that have
  // ended.
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

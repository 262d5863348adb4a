// The folder of compiled programs, which many processes and users may share.
//
// An entry is a folder KEY that appears atomically, with a file `lock`. A
// process that runs the entry holds a shared lock; only a process with an
// exclusive lock may remove the entry. A damaged entry that is in use stays for
// the processes that use it; its replacement is KEY.2, and so on.
//
// Wrong input throws InputError, a failure of the machine throws RunError;
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

// The value of CLEAVE_CACHE_GIB in bytes; 5 GiB if it is not set. Throws
// InputError if it is no number.
int64_t cacheLimit();

// One compiled program.
struct CacheEntry {
  std::filesystem::path folder;
  int64_t bytes = 0;
  std::filesystem::file_time_type used; // the last time
  // Whether a process uses the entry now.
  bool isUsed() const;
};

class Cache {
public:
  // Receives messages for the user.
  struct Listener {
    std::function<void(const std::string &warning)> warn = [](auto &) {};
    // Called when another process compiles the same and this one waits for it.
    std::function<void()> wait = [] {};
  };

  explicit Cache(std::string folder) : root(std::move(folder)) {}
  Cache(std::string folder, Listener listener)
      : root(std::move(folder)), listener(std::move(listener)) {}

  // Writes a program into `folder`, which does not exist yet; returns its
  // warnings, a line each.
  using Compile = std::function<std::string(const std::string &folder)>;

  // The folder of the program `key`, compiled now if there is no intact entry.
  // No process removes it before this process, and what it executes, has ended.
  // Repeats the warnings of the compilation.
  std::string find(const std::string &key, const Compile &compile);

  // All entries, most recently used first.
  std::vector<CacheEntry> entries() const;
  // Removes the entry unless a process uses it; returns whether it is gone.
  bool remove(const CacheEntry &entry) const;
  // Removes unused entries, least recently used first, until all together have
  // at most `limit` bytes.
  void shrink(int64_t limit) const;
  // Removes unfinished entries of processes of this machine that have ended.
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

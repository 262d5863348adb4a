//===- RunFolder.cpp - where a run writes and what it goes on from --------===//
#include "RunFolder.h"
#include "cleave/io/Error.h"
#include "cleave/io/Escape.h"
#include "cleave/io/File.h"
#include "cleave/io/Temporary.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;

namespace cleave {

bool continuesIn(const std::string &out, const std::string &resume) {
  std::error_code error;
  fs::path parent = fs::path(resume).lexically_normal();
  if (!parent.has_filename())
    parent = parent.parent_path();
  parent = parent.parent_path();
  return fs::equivalent(parent.empty() ? "." : parent, out, error);
}

std::string createOut(const std::string &out, const std::string &model) {
  auto create = [](const std::string &path) {
    fs::path folder = fs::path(path).lexically_normal();
    if (!folder.has_filename())
      folder = folder.parent_path();
    // Collects the new parent folders, which must be flushed, too: otherwise a
    // power failure could lose the whole path.
    std::vector<fs::path> parents;
    std::error_code error;
    for (fs::path at = folder.parent_path();
         !at.empty() && !fs::exists(at, error); at = at.parent_path())
      parents.push_back(at);
    error.clear();
    if (folder.has_parent_path())
      fs::create_directories(folder.parent_path(), error);
    if (error)
      throw InputError(path +
                       ": cannot be created: " + folder.parent_path().string() +
                       ": " + error.message() + "; give another --out");
    if (::mkdir(folder.c_str(), 0777) == 0) {
      syncFolder(folder.parent_path().string());
      for (const fs::path &parent : parents)
        syncFolder(parent.parent_path().string());
      return true;
    }
    if (errno == EEXIST)
      return false;
    throw InputError(path + ": cannot be created: " + std::strerror(errno));
  };
  if (!out.empty()) {
    if (!create(out))
      throw InputError(out + ": the output folder exists; it is never "
                             "overwritten: give another --out");
    return out;
  }
  for (int64_t n = 1;; ++n) {
    std::string path = "runs/" + model + "-" + std::to_string(n);
    if (create(path))
      return path;
  }
}

/// Returns whether a file is output of a batch system or a shell that was
/// directed into the folder.
static bool isOutputOfLauncher(const std::string &name) {
  return name.ends_with(".out") || name.ends_with(".err") ||
         name.ends_with(".log") || name == "nohup.out";
}

bool isRunFolder(const std::string &folder) {
  std::error_code error;
  // A folder with a log and a configuration is that of a run, whatever other
  // files users have put into it.
  const bool isLogged = fs::exists(fs::path(folder) / "log.jsonl", error);
  if (isLogged && fs::exists(fs::path(folder) / "config.toml", error))
    return true;
  if (isLogged) // a run writes its configuration first
    return false;
  for (const fs::directory_entry &entry :
       fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool isConfig =
        name == "config.toml" ||
        (name.starts_with("config-") && name.ends_with(".toml"));
    const bool isKeptLog = name.starts_with("log-") && name.ends_with(".jsonl");
    if (!isConfig && !isKeptLog && name != "counters.json" &&
        name != "latest" && !name.starts_with(".latest.") && name != ".lock" &&
        !name.starts_with("checkpoint-") && !name.starts_with(".checkpoint-") &&
        !name.starts_with(".config") && !name.starts_with(".log.jsonl.") &&
        !name.starts_with(".counters.json.") && !isOutputOfLauncher(name))
      return false;
  }
  return !error;
}

RunLock::RunLock(const std::string &folder)
    : name(folder), path((fs::path(folder) / ".lock").string()) {
  int64_t process = 0;
  std::string host;
  // Tries several times: the process that holds the lock may not have written
  // its name into the file yet, or may be about to end and remove the file.
  FileLock::Outcome outcome = FileLock::Outcome::Missing;
  for (int i = 0; i < 20; ++i) {
    outcome = lock.tryLock(path, FileLock::Exclusive, /*create=*/true);
    if (outcome == FileLock::Outcome::Busy)
      std::ifstream(path) >> process >> host;
    else if (outcome != FileLock::Outcome::Missing)
      break;
    if (!host.empty())
      break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (outcome == FileLock::Outcome::Busy) {
    throw InputError(
        folder + ": process " + std::to_string(process) + " on " +
        (host.empty() ? "an unknown machine" : host) +
        " trains there; wait until it has ended, or give another --out");
  }
  if (!lock.isHeld()) {
    printEscaped(stderr,
                 "cleave: warning: %s: cannot be locked; no second process "
                 "may train there\n",
                 path.c_str());
    return;
  }
  char own[256] = "";
  ::gethostname(own, sizeof own - 1);
  std::ofstream(path, std::ios::trunc) << ::getpid() << " " << own << "\n";
  removeAbandoned(folder);
}

void RunLock::check() const {
  if (lock.isHeld() && !lock.isNamed(path))
    throw RunError(name + ": is not the folder any more in which this run "
                          "began: it was moved or removed, or its .lock was; "
                          "nothing more is written there");
}

RunLock::~RunLock() {
  if (lock.isHeld() && lock.isNamed(path))
    ::unlink(path.c_str());
}

} // namespace cleave

// Removes temporary files and folders when a signal ends the process. The
// signal handler may only call async-signal-safe functions, so it allocates no
// memory, takes no lock, and does not use opendir().

#include "cleave/io/Temporary.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <pthread.h>
#include <random>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace cleave {

namespace {

/// The lock file in a temporary folder that marks the folder as in use.
constexpr const char *guardName = "/.lock";

/// The names of files to remove; null marks a free slot. A process never needs
/// more slots than this. If it did, further files would be removed only by
/// their destructors and not after a signal.
std::array<std::atomic<char *>, 64> slots;

constexpr std::array endings = {SIGINT, SIGTERM, SIGHUP};

const char *processName = "";
pid_t process = 0;
pthread_t mainThread;

/// The beginning of a directory entry, in the format of the system call
/// getdents64.
struct DirectoryEntry {
  uint64_t inode;
  int64_t offset;
  uint16_t length;
  uint8_t type;
  char name[1];
};

bool isSelfOrParent(const char *name) {
  return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0;
}

/// Removes the content of a folder, without following links. Contents of
/// folders that are nested more than `depth` levels deep are left alone; this
/// program does not create such folders.
void removeContent(int folder, int depth) {
  alignas(DirectoryEntry) char buffer[4096];
  bool isAnyRemoved = true;
  while (isAnyRemoved) { // removing an entry may move others
    isAnyRemoved = false;
    ::lseek(folder, 0, SEEK_SET);
    for (;;) {
      long size = ::syscall(SYS_getdents64, folder, buffer, sizeof(buffer));
      if (size <= 0)
        break;
      for (long at = 0; at < size;) {
        auto *entry = reinterpret_cast<DirectoryEntry *>(buffer + at);
        at += entry->length;
        if (isSelfOrParent(entry->name))
          continue;
        if (::unlinkat(folder, entry->name, 0) == 0) {
          isAnyRemoved = true;
          continue;
        }
        if (depth == 0)
          continue;
        int inner = ::openat(folder, entry->name,
                             O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (inner < 0)
          continue;
        removeContent(inner, depth - 1);
        ::close(inner);
        if (::unlinkat(folder, entry->name, AT_REMOVEDIR) == 0)
          isAnyRemoved = true;
      }
    }
  }
}

void removeInHandler(const char *path) {
  if (::unlink(path) == 0 || errno == ENOENT)
    return;
  // Other threads may still be writing into the folder, so its removal is tried
  // several times.
  for (int tries = 0; tries < 50; ++tries) {
    int folder = ::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
      return;
    removeContent(folder, /*depth=*/8);
    ::close(folder);
    if (::rmdir(path) == 0 || errno != ENOTEMPTY)
      return;
    timespec pause = {0, 2'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

void say(const char *text) {
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0)
    return; // stderr is closed
}

void onSignal(int number) {
  int error = errno;
  if (::getpid() == process) { // else a forked child before exec
    // If the handler runs in another thread, it forwards the signal to the main
    // thread. This stops the main thread, which would otherwise continue and
    // report missing files.
    if (!::pthread_equal(::pthread_self(), mainThread)) {
      ::pthread_kill(mainThread, number);
      errno = error;
      return;
    }
    for (std::atomic<char *> &slot : slots)
      if (const char *path = slot.exchange(nullptr))
        removeInHandler(path);
    say(processName);
    say(": interrupted\n");
  }
  ::signal(number, SIG_DFL);
  ::raise(number); // delivered when the handler has returned
  errno = error;
}

sigset_t endingSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (int number : endings)
    sigaddset(&set, number);
  return set;
}

} // namespace

TemporaryPath::TemporaryPath(std::string path) : name(std::move(path)) {
  char *copy = ::strdup(name.c_str());
  for (std::atomic<char *> &candidate : slots) {
    char *none = nullptr;
    if (copy && candidate.compare_exchange_strong(none, copy)) {
      slot = &candidate;
      return;
    }
  }
  std::free(copy);
}

TemporaryPath::~TemporaryPath() {
  std::error_code ignored; // files that remain do no harm
  if (!isKept)
    fs::remove_all(name, ignored);
  keep();
}

void TemporaryPath::keep() {
  isKept = true;
  if (!slot)
    return;
  // A null slot means that the signal handler has taken the name to remove the
  // file; the process is about to end.
  std::free(slot->exchange(nullptr));
  slot = nullptr;
}

void TemporaryPath::guard() {
  lock.tryLock(name + guardName, FileLock::Exclusive, /*create=*/true);
}

void TemporaryPath::unguard() {
  lock.release();
  ::unlink((name + guardName).c_str());
}

static std::string hostAndProcess() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return std::string("-") + host + "-" + std::to_string(::getpid());
}

std::string temporaryNameOf(const std::string &path, const char *what) {
  fs::path normal = fs::path(path).lexically_normal();
  if (!normal.has_filename())
    normal = normal.parent_path();
  fs::path parent = normal.parent_path();
  // The name is cut, because file names have at most 255 bytes.
  std::string name = normal.filename().string().substr(0, 120);
  return (parent.empty() ? "." : parent.string()) + "/." + name + "." + what +
         hostAndProcess();
}

/// A temporary name ends in "-HOST-PID". Returns true if HOST is this machine
/// and the process PID has ended.
static bool hasEnded(std::string_view name) {
  size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || dash + 1 == name.size() ||
      name.find_first_not_of("0123456789", dash + 1) != std::string_view::npos)
    return false;
  std::string self = hostAndProcess();
  self.resize(self.rfind('-'));
  const int64_t process = std::atoll(name.data() + dash + 1);
  return name.substr(0, dash).ends_with(self) && process > 0 &&
         process <= INT32_MAX && ::kill(static_cast<pid_t>(process), 0) != 0 &&
         errno == ESRCH;
}

/// Returns whether a process holds the lock of the folder `path`. Processes in
/// other containers cannot be detected by their ids.
static bool isHeld(const fs::path &path) {
  std::error_code ignored;
  FileLock lock;
  return fs::is_directory(fs::symlink_status(path, ignored)) &&
         lock.tryLock(path.string() + guardName, FileLock::Exclusive,
                      /*create=*/false) == FileLock::Outcome::Busy;
}

void removeAbandoned(const std::string &folder, const std::string &of) {
  constexpr std::array kinds = {".tmp-", ".old-", ".new-", ".gone-"};
  std::error_code error, ignored;
  for (const fs::directory_entry &entry :
       fs::directory_iterator(folder.empty() ? "." : folder, error)) {
    const std::string name = entry.path().filename().string();
    bool isOurs = name.starts_with("." + of);
    size_t at = isOurs && !of.empty() ? 1 + of.size() : 0;
    isOurs = isOurs &&
             std::any_of(kinds.begin(), kinds.end(), [&](const char *kind) {
               return of.empty()
                          ? name.find(kind) != std::string::npos
                          : name.compare(at, std::strlen(kind), kind) == 0;
             });
    if (isOurs && hasEnded(name) && !isHeld(entry.path()))
      fs::remove_all(entry.path(), ignored);
  }
}

/// Removes folders PREFIX-HOST-PID-N from `parent` that killed processes left
/// there.
static void removeAbandonedFolders(const fs::path &parent,
                                   const std::string &prefix) {
  std::error_code error, ignored;
  for (const fs::directory_entry &entry :
       fs::directory_iterator(parent, error)) {
    std::string name = entry.path().filename().string();
    size_t dash = name.rfind('-'); // before N
    struct stat info{};
    if (name.starts_with(prefix + "-") && dash != std::string::npos &&
        hasEnded(std::string(name, 0, dash)) && !isHeld(entry.path()) &&
        ::lstat(entry.path().c_str(), &info) == 0 &&
        info.st_uid == ::geteuid() && S_ISDIR(info.st_mode))
      fs::remove_all(entry.path(), ignored);
  }
}

std::unique_ptr<TemporaryPath> makeTemporaryFolder(const std::string &prefix,
                                                   std::string &error) {
  const char *given = std::getenv("TMPDIR");
  const std::string parent = given && *given ? given : "/tmp";
  removeAbandonedFolders(parent, prefix);
  std::string start = parent + "/" + prefix + hostAndProcess() + "-";
  std::random_device random;
  for (;;) {
    auto folder = std::make_unique<TemporaryPath>(
        start + std::to_string(random() % 1'000'000));
    if (::mkdir(folder->path().c_str(), 0700) == 0) {
      folder->guard();
      return folder;
    }
    int number = errno;
    folder->keep(); // it is not ours, or does not exist
    if (number == EEXIST)
      continue;
    error = folder->path() + ": cannot be made: " + std::strerror(number) +
            "; set TMPDIR to a folder that can be written";
    return nullptr;
  }
}

void removeTemporariesOnSignals(const char *name) {
  processName = name;
  process = ::getpid();
  mainThread = ::pthread_self();
  for (int number : endings) {
    struct sigaction old{};
    ::sigaction(number, nullptr, &old);
    if (old.sa_handler != SIG_DFL)
      continue;
    struct sigaction action{};
    action.sa_handler = onSignal;
    action.sa_mask = endingSignals();
    action.sa_flags = SA_RESTART;
    ::sigaction(number, &action, nullptr);
  }
}

HeldSignals::HeldSignals() {
  sigset_t set = endingSignals();
  ::pthread_sigmask(SIG_BLOCK, &set, &before);
}

HeldSignals::~HeldSignals() {
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void letSignalsThrough() {
  sigset_t set = endingSignals();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

} // namespace cleave

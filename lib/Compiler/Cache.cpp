// The cache of compiled programs, which several processes may use at the same
// time; see Cache.h.

#include "cleave/Compiler/Cache.h"

#include "cleave/io/Digest.h"
#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/io/Temporary.h"
#include "cleave/manifest.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;

namespace cleave::compiler {

namespace {

constexpr const char *lockName = "lock", *warningsName = "warnings.txt";
// The longest time for which a process waits while another process compiles the
// same program.
constexpr auto patience = std::chrono::minutes(10);

// Returns the folder name of the number-th entry for a key: "KEY", "KEY.2", ...
std::string nameOf(const std::string &key, int number) {
  return number == 1 ? key : key + "." + std::to_string(number);
}

// Returns the text of a file with warnings: a line with their digest, then the
// warnings.
std::string sealed(const std::string &warnings) {
  return digestOf(warnings) + "\n" + warnings;
}

// Returns what is wrong with an entry, or "" if the entry is intact.
std::string faultOf(const fs::path &folder, std::string &warnings) {
  Manifest manifest;
  std::string error;
  if (!readManifest(folder.string(), manifest, error))
    return error;
  // A manifest that lists no files was written by a different version of the
  // compiler.
  if (manifest.files.empty())
    return folder.string() + ": is no compiled program of this version";
  fs::path file = folder / warningsName;
  std::string text = readTextFile(file.string());
  size_t end = text.find('\n');
  warnings = end == std::string::npos ? "" : text.substr(end + 1);
  if (sealed(warnings) != text)
    return file.string() + ": is not what was written";
  return "";
}

int64_t bytesOf(const fs::path &folder) {
  int64_t sum = 0;
  std::error_code error;
  fs::recursive_directory_iterator found(folder, error), end;
  for (; !error && found != end; found.increment(error)) {
    std::error_code ignored;
    uintmax_t size = found->file_size(ignored);
    if (!ignored)
      sum += static_cast<int64_t>(size);
  }
  return sum;
}

// Returns whether the folder is an entry of the cache. Only entries are ever
// removed, because the cache folder may also contain files of other programs.
// The name of an entry is the model's name, `-` and 16 hexadecimal digits, such
// as `gpt-0123456789abcdef`; a further entry for the same key has `.2`, `.3`,
// ... at the end.
bool isEntry(const fs::path &folder) {
  std::error_code ignored;
  std::string name = folder.filename().string();
  if (size_t dot = name.rfind('.');
      dot != std::string::npos && dot + 1 < name.size() &&
      name.find_first_not_of("0123456789", dot + 1) == std::string::npos)
    name.resize(dot);
  constexpr size_t digits = 16;
  return !name.starts_with(".") && name.size() > digits + 1 &&
         name[name.size() - digits - 1] == '-' &&
         name.find_first_not_of("0123456789abcdef", name.size() - digits) ==
             std::string::npos &&
         fs::is_directory(fs::symlink_status(folder, ignored)) &&
         (fs::exists(folder / lockName, ignored) ||
          fs::exists(folder / "manifest.json", ignored) ||
          fs::exists(folder / warningsName, ignored));
}

} // namespace

static std::string variable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

// Returns the cache folder for users without a home folder. Its parent folder
// is writable by other users.
static std::string folderInTemporary() {
  std::string temporary = variable("TMPDIR");
  return (temporary.empty() ? "/tmp" : temporary) + "/cleave-cache-" +
         std::to_string(::geteuid());
}

std::string defaultCacheFolder() {
  if (std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/cleave";
  if (std::string home = variable("HOME"); !home.empty())
    return home + "/.cache/cleave";
  return folderInTemporary();
}

int64_t cacheLimit() {
  const char *text = std::getenv("CLEAVE_CACHE_GIB");
  if (!text || !*text)
    return int64_t(5) << 30;
  char *end = nullptr;
  double value = std::strtod(text, &end);
  if (*end || !(value >= 0) || value > 1e9)
    throw InputError(std::string("CLEAVE_CACHE_GIB is '") + text +
                     "', expected a number of GiB, at least 0");
  return std::llround(std::ldexp(value, 30));
}

// Creates the cache folder. If other users can write to its parent folder, the
// cache folder must belong to this user alone.
static void makeRoot(const fs::path &root) {
  std::error_code error;
  if (root == fs::path(folderInTemporary())) {
    struct stat info{};
    if (::mkdir(root.c_str(), 0700) == 0)
      return;
    if (errno == EEXIST && ::lstat(root.c_str(), &info) == 0 &&
        (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() ||
         (info.st_mode & 077) != 0))
      throw InputError("cache '" + root.string() +
                       "': is not a folder of yours alone (mode 700), and "
                       "programs in it are run; give another cache folder "
                       "(--cache DIR), or set HOME");
    if (errno == EEXIST)
      return;
    error = std::error_code(errno, std::generic_category());
  } else {
    fs::create_directories(root, error);
  }
  if (error)
    throw InputError("cache '" + root.string() +
                     "' cannot be made: " + error.message() +
                     "; give another cache folder (--cache DIR)");
}

bool CacheEntry::isUsed() const {
  FileLock lock;
  return lock.tryLock((folder / lockName).string(), FileLock::Exclusive,
                      /*create=*/false) == FileLock::Outcome::Busy;
}

std::vector<CacheEntry> Cache::entries() const {
  std::vector<CacheEntry> found;
  std::error_code error;
  for (const fs::directory_entry &entry : fs::directory_iterator(root, error)) {
    std::error_code ignored;
    if (isEntry(entry.path()) && fs::exists(entry.path() / lockName, ignored))
      found.push_back({entry.path(), bytesOf(entry.path()),
                       fs::last_write_time(entry.path() / lockName, ignored)});
  }
  std::sort(found.begin(), found.end(), [](const auto &a, const auto &b) {
    return std::tie(a.used, a.folder) > std::tie(b.used, b.folder);
  });
  return found;
}

bool Cache::remove(const CacheEntry &entry) const {
  FileLock lock;
  if (lock.tryLock((entry.folder / lockName).string(), FileLock::Exclusive,
                   /*create=*/false) != FileLock::Outcome::Held)
    return false;
  // The entry's folder is renamed before its files are removed, so that a
  // folder that has the name of an entry is always complete.
  fs::path away = temporaryNameOf(entry.folder.string(), "gone");
  std::error_code error;
  fs::rename(entry.folder, away, error);
  if (error)
    return false;
  fs::remove_all(away, error);
  return true;
}

void Cache::shrink(int64_t limit) const {
  std::vector<CacheEntry> found = entries();
  int64_t sum = 0;
  for (const CacheEntry &entry : found)
    sum += entry.bytes;
  for (auto entry = found.rbegin(); entry != found.rend() && sum > limit;
       ++entry)
    if (remove(*entry))
      sum -= entry->bytes;
}

void Cache::sweep() const {
  removeAbandoned(root.string());
  // Removes lock files that no process holds. They are left by processes that
  // were killed while they compiled.
  std::error_code error;
  for (const fs::directory_entry &entry : fs::directory_iterator(root, error)) {
    const std::string name = entry.path().filename().string();
    FileLock lock;
    if (name.starts_with(".") && name.ends_with(".lock") &&
        lock.tryLock(entry.path().string(), FileLock::Exclusive,
                     /*create=*/false) == FileLock::Outcome::Held)
      ::unlink(entry.path().c_str());
  }
}

// Returns the folder of the first intact entry for a key, or "" if there is
// none. Removes damaged entries that no process uses.
std::string Cache::take(const std::string &key) {
  for (int number = 1;; ++number) {
    fs::path folder = root / nameOf(key, number);
    struct stat info;
    if (::lstat(folder.c_str(), &info) != 0)
      return "";
    FileLock lock;
    FileLock::Outcome outcome = lock.lockSoon(
        (folder / lockName).string(), FileLock::Shared, /*create=*/false);
    std::string fault, warnings;
    try {
      fault = faultOf(folder, warnings);
    } catch (const std::exception &error) {
      fault = error.what();
    }
    if (fault.empty() && outcome != FileLock::Outcome::Missing) {
      lock.touch();
      lock.keep();
      std::istringstream lines(warnings);
      for (std::string line; std::getline(lines, line);)
        listener.warn(line);
      return folder.string();
    }
    // The entry is damaged or has no lock file, unless another process has
    // removed it in the meantime.
    if (::lstat(folder.c_str(), &info) != 0)
      return "";
    lock.release();
    constexpr std::string_view advice = "; compile the model again";
    if (fault.ends_with(advice))
      fault.resize(fault.size() - advice.size());
    if (fault.empty())
      fault = folder.string() + ": has no file 'lock'";
    listener.warn(fault + "; the model is compiled again");
    if (!isEntry(folder))
      continue; // no entry, so the cache does not remove it
    if (outcome == FileLock::Outcome::Missing) {
      // A folder without a lock cannot be in use.
      std::error_code ignored;
      fs::remove_all(folder, ignored);
    } else {
      remove({folder, 0, {}});
    }
  }
}

// Waits until this process holds `lock`, which allows it to compile the
// program, but at most for the time `patience`. If another process has compiled
// the program in the meantime, `found` is the folder of the new entry.
void Cache::waitForOthers(const std::string &key, FileLock &lock,
                          std::string &found) {
  const std::string path = (root / ("." + key + ".lock")).string();
  const auto end = std::chrono::steady_clock::now() + patience;
  bool isTold = false;
  int swept = 0; // how often another process removed the lock file
  while (std::chrono::steady_clock::now() < end) {
    FileLock::Outcome outcome =
        lock.tryLock(path, FileLock::Exclusive, /*create=*/true);
    if (outcome == FileLock::Outcome::Missing && ++swept < 10)
      continue;
    if (outcome != FileLock::Outcome::Busy)
      break;
    if (!isTold)
      listener.wait();
    isTold = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  found = take(key);
}

std::string Cache::publish(const std::string &key, const Compile &compile) {
  TemporaryPath work(temporaryNameOf((root / key).string(), "new"));
  std::error_code error;
  fs::remove_all(work.path(), error); // from a killed process with the same id
  if (::mkdir(work.path().c_str(), 0777) != 0)
    throw Error(errno == ENOSPC || errno == EDQUOT ? ExitCode::failed
                                                   : ExitCode::badInput,
                "cache '" + root.string() +
                    "' cannot be written: " + std::strerror(errno) +
                    "; give another cache folder (--cache DIR)");
  work.guard();
  const fs::path program = fs::path(work.path()) / "program";
  std::string warnings = compile(program.string());
  writeFileAtomically((program / warningsName).string(), sealed(warnings));
  FileLock lock;
  lock.tryLock((program / lockName).string(), FileLock::Shared,
               /*create=*/true);
  for (int number = 1; number < 1000; ++number) {
    fs::path folder = root / nameOf(key, number);
    if (::renameat2(AT_FDCWD, program.c_str(), AT_FDCWD, folder.c_str(),
                    RENAME_NOREPLACE) == 0 ||
        (errno == EINVAL && // the file system does not support NOREPLACE
         !fs::exists(folder, error) &&
         ::rename(program.c_str(), folder.c_str()) == 0)) {
      lock.keep();
      return folder.string();
    }
    if (errno != EEXIST && errno != ENOTEMPTY && errno != EINVAL)
      break;
    // Another process has created the entry first, or a damaged entry that is
    // in use has this name.
    if (std::string found = take(key); !found.empty())
      return found;
  }
  throw RunError("cache '" + root.string() +
                 "' cannot be written: " + std::strerror(errno) +
                 "; give another cache folder (--cache DIR)");
}

std::string Cache::find(const std::string &key, const Compile &compile) {
  const int64_t limit = cacheLimit(); // before compiling: it may throw
  makeRoot(root);
  sweep();
  if (std::string found = take(key); !found.empty())
    return found;
  FileLock compiling;
  const std::string lockFile = (root / ("." + key + ".lock")).string();
  std::string found;
  waitForOthers(key, compiling, found);
  // The lock file is removed at the end. Processes that still wait for this
  // lock then use the new entry or, if there is none, compile the program
  // themselves.
  TemporaryPath lockGoes(lockFile);
  if (!compiling.isHeld())
    lockGoes.keep();
  if (!found.empty())
    return found;
  found = publish(key, compile);
  shrink(limit);
  return found;
}

} // namespace cleave::compiler

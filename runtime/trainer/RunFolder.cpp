//===- RunFolder.cpp - where a run writes and what it goes on from
//-----------===//
#include "RunFolder.h"
#include "cleave/io/Error.h"
#include "cleave/trainer/Checkpoint.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>
#include <vector>

namespace fs = std::filesystem;

namespace cleave {

std::string resolveResume(const TrainOptions &options,
                          const Manifest &manifest) {
  if (options.resume != "latest")
    return options.resume;
  std::vector<std::string> runs;
  std::error_code ignored;
  if (!options.out.empty()) {
    runs.push_back(options.out);
  } else {
    for (const fs::directory_entry &run :
         fs::directory_iterator("runs", ignored))
      if (run.path().filename().string().starts_with(manifest.model + "-"))
        runs.push_back(run.path().string());
  }
  std::string best;
  fs::file_time_type bestTime{};
  for (const std::string &run : runs) {
    std::string found = latestCheckpoint(run);
    if (found.empty())
      continue;
    fs::file_time_type time = fs::last_write_time(found, ignored);
    if (best.empty() || time > bestTime) {
      best = found;
      bestTime = time;
    }
  }
  if (best.empty())
    throw InputError(
        "--resume latest: there is no checkpoint below " +
        (options.out.empty() ? "runs/" + manifest.model + "-*" : options.out));
  return best;
}

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
    std::error_code error;
    fs::path parent = fs::path(path).lexically_normal();
    if (!parent.has_filename())
      parent = parent.parent_path();
    if (parent.has_parent_path())
      fs::create_directories(parent.parent_path(), error);
    if (::mkdir(parent.c_str(), 0777) == 0)
      return true;
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

} // namespace cleave

//===- RunFolder.cpp - where a run writes and what it goes on from
//-----------===//
#include "RunFolder.h"
#include "cleave/io/Error.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>

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

// Executables that carry a compiled program. Such a file consists of:
//
//   the runner | bytes of each file | table (JSON) | its size | the mark
//
// The table lists name, position and size of each file; sizes are u64, little
// endian. The mark is a fixed text at the end of the file.

#include "cleave/io/Bundle.h"

#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/io/Nesting.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <unistd.h>

namespace fs = std::filesystem;

namespace cleave {

namespace {
constexpr std::string_view mark = "cleave bundle 1\n";
constexpr const char *unpackedVariable = "CLEAVE_UNPACKED_BUNDLE";

[[noreturn]] void damaged(const std::string &path) {
  throw InputError(path + ": the program that it carries is damaged; compile "
                          "the model again");
}
} // namespace

bool carriesBundle(const std::string &path) {
  return MappedFile(path).text().ends_with(mark);
}

void writeBundle(const std::string &runner, const std::string &folder,
                 const std::vector<std::string> &others,
                 const std::string &output) {
  std::string all(MappedFile(runner).text());
  std::vector<fs::path> files;
  for (const fs::directory_entry &entry : fs::directory_iterator(folder))
    files.push_back(entry.path());
  files.insert(files.end(), others.begin(), others.end());
  std::sort(files.begin(), files.end()); // equal programs give equal bytes
  auto table = nlohmann::ordered_json::array();
  for (const fs::path &path : files) {
    MappedFile file(path.string());
    table.push_back({{"name", path.filename().string()},
                     {"at", all.size()},
                     {"bytes", file.size()}});
    all += file.text();
  }
  std::string text = table.dump();
  uint64_t size = text.size();
  all += text;
  all.append(reinterpret_cast<const char *>(&size), sizeof(size));
  all += mark;
  writeFileAtomically(output, all);
  std::error_code error;
  fs::permissions(output,
                  fs::perms::owner_exec | fs::perms::group_exec |
                      fs::perms::others_exec,
                  fs::perm_options::add, error);
  if (error)
    throw RunError(output + ": cannot be made executable: " + error.message());
}

std::unique_ptr<UnpackedBundle> unpackBundle(const std::string &executable) {
  MappedFile file(executable);
  std::string_view all = file.text();
  uint64_t size = 0;
  if (all.size() < mark.size() + sizeof(size) || !all.ends_with(mark))
    return nullptr;
  std::string self = std::to_string(::getpid());
  if (const char *known = std::getenv(unpackedVariable)) {
    std::string_view text = known;
    if (text.starts_with(self + ":") &&
        fs::exists(text.substr(self.size() + 1))) {
      auto folder = std::make_unique<TemporaryPath>(
          std::string(text.substr(self.size() + 1)));
      folder->guard();
      return std::make_unique<UnpackedBundle>(std::move(folder));
    }
  }
  all.remove_suffix(mark.size());
  std::memcpy(&size, all.data() + all.size() - sizeof(size), sizeof(size));
  all.remove_suffix(sizeof(size));
  if (size > all.size())
    damaged(executable);
  if (nestsTooDeep(all.substr(all.size() - size)))
    damaged(executable);
  auto table = nlohmann::json::parse(all.substr(all.size() - size), nullptr,
                                     /*allow_exceptions=*/false);
  if (!table.is_array())
    damaged(executable);
  std::string error;
  std::unique_ptr<TemporaryPath> folder = makeTemporaryFolder("cleave", error);
  if (!folder)
    throw InputError(error);
  for (const auto &entry : table) {
    if (!entry.is_object() || !entry.contains("name") ||
        !entry["name"].is_string() || !entry["at"].is_number_unsigned() ||
        !entry["bytes"].is_number_unsigned())
      damaged(executable);
    uint64_t at = entry["at"], bytes = entry["bytes"];
    if (at > all.size() || bytes > all.size() - at)
      damaged(executable);
    fs::path name = fs::path(entry["name"].get<std::string>()).filename();
    writeFileAtomically(folder->path() + "/" + name.string(),
                        all.substr(at, bytes));
  }
  ::setenv(unpackedVariable, (self + ":" + folder->path()).c_str(), 1);
  return std::make_unique<UnpackedBundle>(std::move(folder));
}

} // namespace cleave

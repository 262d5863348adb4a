// Checks that a run resumes with the data that it was trained on.

#include "ResumeText.h"
#include "Toml.h"
#include "cleave/io/Digest.h"
#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/io/JsonText.h"
#include "cleave/trainer/Resume.h"

#include <algorithm>
#include <filesystem>

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace cleave {

/// The number of bytes that are read to identify data; reading them takes well
/// below a second.
constexpr size_t identityBytes = size_t(256) << 20, blockBytes = 64 << 10;

/// Returns the size and digest of a file. At most `most` bytes are read: of a
/// larger file only blocks that are spread evenly over it.
static Json identityOfFile(const std::string &path, size_t most) {
  MappedFile file(path);
  std::string_view bytes{reinterpret_cast<const char *>(file.data()),
                         file.size()};
  if (bytes.size() <= most)
    return {{"bytes", bytes.size()}, {"whole", digestOfPieces(bytes)}};
  const size_t blocks = std::max<size_t>(2, most / blockBytes);
  std::string sampled;
  sampled.reserve(blocks * blockBytes);
  const double stride = static_cast<double>(bytes.size() - blockBytes) /
                        static_cast<double>(blocks - 1);
  for (size_t i = 0; i < blocks; ++i)
    sampled += bytes.substr(
        i + 1 == blocks ? bytes.size() - blockBytes
                        : static_cast<size_t>(static_cast<double>(i) * stride),
        blockBytes);
  return {{"bytes", bytes.size()}, {"sampled", digestOfPieces(sampled)}};
}

/// The identity of a file as earlier versions recorded it: digests of the first
/// and the last MiB.
static Json endsOfFile(const std::string &path, size_t) {
  MappedFile file(path);
  constexpr size_t ends = size_t(1) << 20;
  std::string_view bytes{reinterpret_cast<const char *>(file.data()),
                         file.size()};
  std::string digest = digestOf(bytes.substr(0, ends));
  if (bytes.size() > ends)
    digest += digestOf(bytes.substr(std::max(ends, bytes.size() - ends)));
  return {{"bytes", file.size()}, {"digest", digest}};
}

static Json identityBy(Json (*ofFile)(const std::string &, size_t),
                       const std::string &path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    return ofFile(path, identityBytes);
  std::vector<fs::path> paths;
  for (const fs::directory_entry &entry : fs::directory_iterator(path))
    if (entry.path().extension() == ".npy")
      paths.push_back(entry.path());
  std::map<std::string, Json> files;
  for (const fs::path &file : paths)
    files[file.filename().string()] =
        ofFile(file.string(), identityBytes / paths.size());
  return files;
}

std::string identityOfData(const std::string &path) {
  return jsonText(identityBy(identityOfFile, path));
}

bool isSameData(const std::string &identity, const std::string &path) {
  Json recorded = Json::parse(identity, nullptr, false);
  bool isOld = identity.find("\"digest\"") != std::string::npos;
  return recorded == identityBy(isOld ? endsOfFile : identityOfFile, path);
}

/// Lists the files of a folder that differ: " (x.npy has changed, y.npy is
/// new)".
static std::string whichFiles(const std::string &identity,
                              const std::string &path) {
  std::error_code ignored;
  Json before = Json::parse(identity, nullptr, false);
  if (!fs::is_directory(path, ignored) || !before.is_object())
    return "";
  Json now = Json::parse(identityOfData(path));
  std::string text;
  auto add = [&](const std::string &what) {
    text += (text.empty() ? " (" : ", ") + what;
  };
  for (const auto &[name, file] : before.items())
    if (!now.contains(name))
      add(name + " is gone");
    else if (now[name] != file)
      add(name + " has changed");
  for (const auto &[name, file] : now.items())
    if (!before.contains(name))
      add(name + " is new");
  return text.empty() ? "" : text + ")";
}

void checkSameData(const std::string &checkpoint, const CheckpointState &state,
                   const std::string &path, const Accepted &accepted,
                   const std::string &model) {
  std::error_code ignored;
  const std::string other =
      state.model.empty() || state.model == model
          ? ""
          : "is of model '" + state.model + "', not '" + model + "', and ";
  if (path.empty() || accepted.count("data.path"))
    return;
  auto keys = keysOf(state.config);
  std::string recorded;
  if (auto found = keys.find("data.path");
      found != keys.end() && found->second.is_string())
    recorded = found->second.get<std::string>();
  if (!fs::exists(path, ignored)) {
    if (recorded.empty() || fs::absolute(path) != fs::absolute(recorded))
      return; // said where it is opened
    throw InputError(checkpoint + ": " + other +
                     "the data of its run is gone, " + path +
                     "; give --data FILE with the place where it is now");
  }
  if (state.dataIdentity.empty() || isSameData(state.dataIdentity, path))
    return;
  throw InputError(
      checkpoint + ": " + other + "would not go on as the same run: " + path +
      " is not the data that it was trained on" +
      (recorded.empty() || fs::absolute(path) == fs::absolute(recorded)
           ? ", its contents have changed" +
                 whichFiles(state.dataIdentity, path)
           : " (" + recorded + ")") +
      "; say that it is meant with" +
      (!accepted.isBySet ? acceptFlag("data.path")
       : isPlainWord(path)
           ? " --set data.path=" + path
           : " --set " + shellQuoted("data.path=" + tomlValue(path))));
}

} // namespace cleave

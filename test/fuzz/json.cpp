// Fuzzes the readers of manifest.json and state.json. The digest at the end of
// the file is recomputed for each input, because someone who changes such a
// file deliberately can recompute it, too. The first byte of the input chooses
// the reader.
#include "Fuzz.h"

#include "cleave/io/Digest.h"
#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/manifest.h"
#include "cleave/trainer/Checkpoint.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

using namespace cleave;

/// Returns the text of the JSON object without its digest.
static std::string withoutDigest(std::string_view text) {
  size_t at = text.rfind(",\n \"digest\"");
  return at == std::string_view::npos
             ? std::string(text)
             : std::string(text.substr(0, at)) + "\n}\n";
}

static void readProgram(const std::string &text) {
  Manifest manifest;
  std::string error;
  if (!manifestFromJson(text, manifest, error))
    return fuzz::requireMessage(error);
  Manifest again;
  fuzz::require(manifestFromJson(manifestToJson(manifest), again, error) ||
                    !error.empty(),
                "a manifest that is written again is read or refused");
}

/// A temporary checkpoint folder that is removed when the process exits.
class Folder {
public:
  Folder() {
    for (const char *parent : {"/dev/shm", "/tmp"}) {
      name = std::string(parent) + "/cleave-fuzz-XXXXXX";
      if (::mkdtemp(name.data()))
        return;
    }
    std::abort();
  }
  ~Folder() { std::filesystem::remove_all(name); }

  std::string name;
};

static void readState(const std::string &text) {
  static const Folder owner;
  const std::string &folder = owner.name;
  {
    std::FILE *file = std::fopen((folder + "/state.json").c_str(), "w");
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
  }
  try {
    CheckpointState state = readCheckpointState(folder);
    fuzz::require(state.step >= 0 && state.nextSample >= 0,
                  "a position that is taken is one");
  } catch (const Error &error) {
    fuzz::requireMessage(error.what());
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  std::string text = withoutDigest(fuzz::textOf(data + 1, size - 1));
  if (text.ends_with("\n}\n"))
    text = sealJson(text);
  if (*data == '1')
    readProgram(text);
  else if (*data == '2')
    readState(text);
  return 0;
}

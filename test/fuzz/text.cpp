// Fuzzes the parsers of text that users write: the configuration, a cluster
// file and a schedule table. The first byte of the input selects the format.
#include "Fuzz.h"

#include "cleave/Config/Cluster.h"
#include "cleave/Config/Load.h"
#include "cleave/PipelineSchedule/Lower.h"
#include "cleave/PipelineSchedule/Table.h"
#include "cleave/PipelineSchedule/Verify.h"

using namespace cleave;

static void readConfig(const std::string &text) {
  auto loaded = loadConfigText(text, "c.toml");
  if (!loaded)
    return fuzz::requireMessage(loaded.error());
  // A configuration that is written and read again must be the same.
  std::string json = writeConfigJson(loaded->config);
  if (auto mesh = resolveMesh(loaded->config, std::nullopt); !mesh)
    fuzz::requireMessage(mesh.error());
  fuzz::require(!describeConfig(*loaded).empty() && !json.empty(),
                "a configuration can be shown");
}

static void readSchedule(const std::string &text) {
  auto table = pipeline::readTableText(text, "t.csv");
  if (!table)
    return fuzz::requireMessage(table.error());
  auto lowered = pipeline::lower(*table);
  if (!lowered)
    return fuzz::requireMessage(lowered.error());
  for (const pipeline::Finding &finding : pipeline::verify(*lowered))
    fuzz::requireMessage(finding.message);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  std::string text(fuzz::textOf(data + 1, size - 1));
  switch (*data) {
  case '1':
    readConfig(text);
    break;
  case '2':
    if (auto cluster = loadClusterText(text, "cluster.toml"); !cluster)
      fuzz::requireMessage(cluster.error());
    break;
  case '3':
    readSchedule(text);
    break;
  default:
    break;
  }
  return 0;
}

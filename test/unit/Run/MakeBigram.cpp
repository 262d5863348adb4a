// cleave-make-bigram DIR RANKS MICROBATCHES: writes the program of a minimal
// bigram model, data parallel over RANKS, so that cleave-run can be tested end
// to end without the compiler.
#include "cleave/io/File.h"
#include "cleave/manifest.h"
#include "cleave/program_io.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

using namespace cleave;
using namespace cleave::program;

namespace {

constexpr int64_t V = 257, S = 16, batch = 8;

struct Builder {
  Program program;
  Manifest manifest;
  int64_t at = 0;

  const program::Boundary &add(const char *name, const char *role, DType dtype,
                               std::vector<int64_t> shape, bool split = false,
                               bool partial = false, const char *of = "") {
    Boundary entry;
    entry.name = name;
    entry.role = role;
    entry.of = of;
    entry.dtype = dtype;
    entry.globalShape = entry.localShape = shape;
    SubAxis data{0, 1, manifest.ranks};
    if (split) {
      entry.sharding.resize(shape.size());
      entry.sharding[0] = {data};
      entry.localShape[0] = (shape[0] + manifest.ranks - 1) / manifest.ranks;
    }
    if (partial)
      entry.partial = {data};
    int64_t bytes = sizeOf(dtype);
    for (int64_t dim : entry.localShape)
      bytes *= dim;
    entry.buffer = {0, at, {}};
    at += (bytes + 63) / 64 * 64;
    program.boundary.push_back(entry);
    return program.boundary.back();
  }

  BufferRef ref(const char *name) { return program.findBoundary(name)->buffer; }

  Command launch(const char *symbol, std::vector<const char *> args,
                 int64_t extent) {
    Launch launch;
    launch.kernel = static_cast<uint32_t>(program.kernels.size());
    for (const char *arg : args)
      launch.args.push_back(ref(arg));
    launch.extent = launch.grain = extent;
    program.kernels.push_back({symbol, static_cast<int32_t>(args.size())});
    return {launch, program.intern(symbol), 0};
  }

  Command zero(const char *name, int64_t count) {
    Fill fill;
    fill.dst = ref(name);
    fill.elementSize = 8;
    fill.count = count;
    return {fill, program.intern(name), 0};
  }

  Command allReduce(const char *from, const char *to, int64_t count,
                    const char *purpose) {
    Collective collective;
    collective.dtype = DType::F64;
    collective.group = {{0, 1, manifest.ranks}};
    Transfer part;
    part.src = ref(from);
    part.dst = ref(to);
    part.count = part.inner = count;
    collective.parts = {part};
    collective.purpose = program.intern(purpose);
    return {collective, program.intern(std::string("all_reduce of ") + from),
            0};
  }
};

} // namespace

int main(int argc, char **argv) {
  if (argc != 4)
    return 2;
  Builder b;
  Manifest &m = b.manifest;
  m.ranks = std::atoll(argv[2]);
  m.microbatches = std::atoll(argv[3]);
  m.batch = batch;
  m.sequence = S;
  m.mesh = {{"data", m.ranks}};
  m.model = "bigram";
  m.accumulates = m.microbatches > 1;
  m.configJson =
      R"({"data":{"validation":0.1},"train":{"lr":0.05,"steps":20}})";
  b.program.mesh = {{"data", m.ranks, "intra"}};

  const int64_t rows = batch / m.microbatches;
  const int64_t local = (rows + m.ranks - 1) / m.ranks;
  b.add("input_ids", "input", DType::I64, {rows, S}, true);
  b.add("labels", "input", DType::I64, {rows, S}, true);
  b.add("step", "step", DType::I64, {});
  b.add("lr", "lr", DType::F64, {});
  b.add("table", "parameter", DType::F64, {V, V});
  b.add("table.m", "state", DType::F64, {V, V}, false, false, "table");
  b.add("table.v", "state", DType::F64, {V, V}, false, false, "table");
  b.add("table.grad", "gradient", DType::F64, {V, V}, false, true, "table");
  b.add("loss", "loss", DType::F64, {}, false, true);
  b.add("weight", "weight", DType::F64, {}, false, true);
  b.add("total.loss", "metric", DType::F64, {});
  b.add("total.weight", "metric", DType::F64, {});
  b.add("grad_norm", "metric", DType::F64, {});
  b.add("logits", "output", DType::F64, {rows, S, V}, true);
  b.program.arenas = {{"state", Lifespan::Persistent, b.at},
                      {"transient", Lifespan::Transient, 0}};

  auto action = [&](const char *name, std::vector<Command> commands) {
    b.program.actions.push_back({name, 0, std::move(commands), {}});
    m.actions.push_back(name);
  };
  std::vector<Command> grad;
  if (!m.accumulates)
    grad = {b.zero("table.grad", V * V), b.zero("loss", 1),
            b.zero("weight", 1)};
  std::vector<const char *> args = {"input_ids",  "labels", "table",
                                    "table.grad", "loss",   "weight"};
  grad.push_back(b.launch("bigram_grad", args, local));
  action("loss_grad", grad);
  action("update", {b.allReduce("table.grad", "table.grad", V * V, "gradient"),
                    b.allReduce("loss", "total.loss", 1, "loss"),
                    b.allReduce("weight", "total.weight", 1, "loss"),
                    b.launch("bigram_update",
                             {"table", "table.grad", "table.m", "table.v",
                              "total.weight", "lr", "step", "grad_norm"},
                             1)});
  action("loss", {b.zero("loss", 1), b.zero("weight", 1),
                  b.launch("bigram_loss", args, local)});
  action("forward",
         {b.launch("bigram_forward", {"input_ids", "table", "logits"}, local)});

  m.inputs = {
      {"input_ids", "input_ids", InputRole::Tokens, "i64", {rows, S}, 0, "", V},
      {"labels", "labels", InputRole::Labels, "i64", {rows, S}, 0, "", 0},
      {"step", "step", InputRole::Step, "i64", {}, -1, "", 0},
      {"lr", "lr", InputRole::LearningRate, "f64", {}, -1, "", 0}};
  m.outputs = {{"logits", "logits", "f64", {rows, S, V}, 0}};
  m.metrics = {{"update", "loss", "total.loss"},
               {"update", "weight", "total.weight"}};
  ManifestTensor table;
  table.name = table.buffer = "table";
  table.dtype = "f64";
  table.shape = {V, V};
  table.init = {"normal", 0, 0.02};
  m.tensors = {table};
  m.state = {{"table.m", "table", "exp_avg", "zeros"},
             {"table.v", "table", "exp_avg_sq", "zeros"}};

  std::filesystem::path folder(argv[1]);
  std::filesystem::create_directories(folder);
  writeFileAtomically((folder / "manifest.json").string(), manifestToJson(m));
  writeFileAtomically((folder / "program.bin").string(), serialize(b.program));
  std::filesystem::copy_file(BIGRAM_KERNELS, folder / "kernels.so",
                             std::filesystem::copy_options::overwrite_existing);
  return 0;
}

// Attention by cuDNN, used where cuDNN computes the same function as
// program::Attention.

#include "dnn.h"

#include "dnn_attention.h"
#include "dnn_device.h"
#include "error.h"

#include <algorithm>
#include <cmath>
#include <memory>

using namespace cleave;
using namespace cleave::cuda;
using program::Attention;
using program::AttentionRef;

namespace {
// Returns the key under which a plan is cached: everything that the plan
// depends on. Scalars and addresses are not in the key, because they are given
// at each execution.
std::vector<int64_t> keyOf(const Attention &x,
                           const AttentionDiagonal &diagonal) {
  std::vector<int64_t> key{x.backward,
                           x.b,
                           x.qLen,
                           x.kLen,
                           x.n,
                           x.g,
                           x.d,
                           x.dv,
                           diagonal.isCausal,
                           diagonal.shift != 0,
                           diagonal.window != 0};
  for (const AttentionRef *ref :
       {&x.q, &x.k, &x.v, &x.o, &x.lse, &x.dO, &x.dq, &x.dk, &x.dV})
    key.insert(key.end(), ref->strides.begin(), ref->strides.end());
  return key;
}

std::string describe(const Attention &x) {
  auto text = [](int64_t n) { return std::to_string(n); };
  return std::string(x.backward ? "the gradient of " : "") + "attention of " +
         text(x.b) + " x " + text(x.qLen) + " queries, " + text(x.kLen) +
         " keys, " + text(x.n) + " x " + text(x.g) + " heads of " + text(x.d) +
         " features";
}

// Computes an attention by one cuDNN plan. The samples and heads of the
// attention are divided into equal parts, and the plan is executed once for
// each part, with the addresses of that part.
class DnnCommand {
public:
  DnnCommand(DnnDevice &dnn, const Attention &x,
             const AttentionDiagonal &diagonal, const DnnEntry &entry)
      : dnn(dnn), entry(entry), what(describe(x)), scale(float(x.scale)),
        window(float(diagonal.window)), shift(int32_t(diagonal.shift)) {}
  DnnCommand(const DnnCommand &) = delete; // `packs` point to members

  void add(const std::vector<std::pair<int64_t, void *>> &arrays,
           void *workspace) {
    std::vector<int64_t> ids;
    std::vector<void *> places;
    auto put = [&](int64_t id, void *at) {
      if (std::find(entry.ids.begin(), entry.ids.end(), id) != entry.ids.end())
        ids.push_back(id), places.push_back(at);
    };
    for (auto [id, at] : arrays)
      put(id, at);
    put(dnnScale, &scale), put(dnnHidden, &hidden), put(dnnOne, &one);
    put(dnnShift, &shift), put(dnnWindow, &window);
    packs.push_back(std::make_unique<DnnDescriptor>(
        dnn.api, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
    DnnDescriptor &pack = *packs.back();
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             std::ssize(places), places.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
             &workspace);
    pack.finalize();
  }

  void enqueue(CUstream stream) const {
    for (const std::unique_ptr<DnnDescriptor> &pack : packs)
      dnn.execute(*entry.plan, *pack, stream, what);
  }

private:
  DnnDevice &dnn;
  const DnnEntry &entry;
  const std::string what;
  float scale, window, hidden = -INFINITY, one = 1;
  int32_t shift;
  std::vector<std::unique_ptr<DnnDescriptor>> packs;
};

// The arrays of an attention command, with their ids in the cuDNN graph. from()
// returns pairs of the id of an array and the address at which its data of
// sample `batch` and KV head `head` begins.
struct Arrays {
  struct One {
    int64_t id;
    void *data;
    const AttentionRef &ref;
    int64_t size;
  };
  std::vector<One> all;

  Arrays(const Attention &x, const AttentionBuffers &at) {
    auto put = [&](int64_t id, const void *data, const AttentionRef &ref,
                   int64_t size = 2) {
      all.push_back({id, const_cast<void *>(data), ref, size});
    };
    put(dnnQ, at.q, x.q), put(dnnK, at.k, x.k), put(dnnV, at.v, x.v);
    put(dnnO, at.o, x.o), put(dnnLse, at.lse, x.lse, 4);
    if (!x.backward)
      return;
    put(dnnDO, at.dO, x.dO), put(dnnDq, at.dq, x.dq);
    put(dnnDk, at.dk, x.dk), put(dnnDv, at.dV, x.dV);
  }

  std::vector<std::pair<int64_t, void *>> from(int64_t batch,
                                               int64_t head) const {
    std::vector<std::pair<int64_t, void *>> out;
    for (const One &one : all)
      out.push_back({one.id, static_cast<char *>(one.data) +
                                 one.size * (batch * one.ref.strides[0] +
                                             head * one.ref.strides[2])});
    return out;
  }
};
} // namespace

Enqueue cuda::makeDnnAttention(Device &device, const Attention &x,
                               const AttentionBuffers &at, std::string &why,
                               int64_t enough) {
  std::optional<AttentionDiagonal> diagonal = diagonalOf(x, why);
  std::optional<AttentionCut> cut;
  if (diagonal)
    cut = cutOf(x, why, enough);
  if (!cut)
    return nullptr;
  DnnDevice *dnn = DnnDevice::of(device, why);
  if (!dnn)
    return nullptr;
  Attention part = x;
  part.b = cut->batch, part.n = cut->heads;
  const DnnEntry &entry =
      dnn->planOf(DnnFamily::Attention, keyOf(part, *diagonal),
                  [&](const DnnTarget &target, DnnEntry &made) {
                    std::optional<DnnEngine> engine =
                        dnnEngineFor(target, part);
                    DnnGraph graph(target.api);
                    buildDnnAttention(graph, part, *diagonal);
                    made.plan.emplace(target, graph, cut->engineBytes, engine);
                    made.ids = graph.ids();
                  });
  if (!entry.plan) {
    why = entry.why;
    return nullptr;
  }
  char *sums = static_cast<char *>(at.workspace);
  sums += -address(sums) & 255;
  char *workspace = sums + cut->sumBytes;
  auto command = std::make_shared<DnnCommand>(*dnn, x, *diagonal, entry);
  Arrays arrays(x, at);
  try {
    for (int64_t batch = 0; batch < x.b; batch += cut->batch)
      for (int64_t head = 0; head < x.n; head += cut->heads) {
        auto places = arrays.from(batch, head);
        for (auto [id, place] : places)
          if (address(place) % 16) {
            why = "an array does not begin at a multiple of 16 bytes";
            return nullptr;
          }
        if (x.backward)
          places.push_back({dnnSums, sums});
        command->add(places, workspace);
      }
  } catch (const DnnRefusal &refusal) {
    why = refusal.what();
    return nullptr;
  }
  return [command](CUstream stream) { command->enqueue(stream); };
}

bool cuda::hasDnn(Device &device, std::string &why) {
  return DnnDevice::of(device, why) != nullptr;
}

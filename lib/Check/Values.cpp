// Random inputs, parameters and optimizer state for a check, which depend only
// on the seed and on the tensors' names.

#include "cleave/Check/Values.h"

#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Support/ValueUtils.h"
#include "cleave/io/SplitMix.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::check;

namespace {

/// The random numbers of a tensor, by SplitMix64.
class Random {
public:
  Random(uint64_t seed, StringRef name, uint64_t a = 0, uint64_t b = 0)
      : state(seed) {
    // The seed is a hash (FNV-1a) of the tensor's name, so that its values do
    // not depend on the order of tensors.
    uint64_t hash = 0xcbf29ce484222325;
    for (unsigned char c : name)
      hash = (hash ^ c) * 0x100000001b3;
    for (uint64_t part : {hash, a, b})
      state = next() ^ part;
  }

  uint64_t next() {
    uint64_t drawn = splitMix(state);
    state += splitMixStep;
    return drawn;
  }
  /// Returns a uniform number in (0, 1).
  double uniform() { return ((next() >> 11) + 0.5) * 0x1p-53; }
  double normal() {
    return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * M_PI * uniform());
  }
  int64_t below(int64_t bound) { return next() % bound; }

private:
  uint64_t state;
};

/// Rounds to f32, so that programs of any precision get the same numbers.
void roundToFloat(Tensor &tensor) {
  for (double &x : tensor.floats)
    x = static_cast<float>(x);
}

Tensor filled(RankedTensorType type, double value) {
  Tensor tensor(type);
  std::fill(tensor.floats.begin(), tensor.floats.end(), value);
  std::fill(tensor.ints.begin(), tensor.ints.end(), std::llround(value));
  return tensor;
}

double rms(const Tensor &tensor) {
  double sum = 0;
  for (double x : tensor.floats)
    sum += x * x;
  return tensor.size() ? std::sqrt(sum / tensor.size()) : 0;
}

void addNormal(Tensor &tensor, Random random, double deviation) {
  for (double &x : tensor.floats)
    x += deviation * random.normal();
}

bool isInput(std::optional<nn::Role> role) {
  return nn::isOneOf(role,
                     {nn::Role::Tokens, nn::Role::Labels, nn::Role::Input});
}

bool isKept(std::optional<nn::Role> role) {
  return nn::isOneOf(role,
                     {nn::Role::Parameter, nn::Role::Buffer, nn::Role::Constant,
                      nn::Role::State, nn::Role::Count});
}

/// Returns the slice of `tensor` in the shape of `type` that begins at `begin`
/// in dimension `dim`.
Tensor slices(const Tensor &tensor, int64_t dim, int64_t begin,
              RankedTensorType type) {
  Tensor part(type);
  int64_t inner = 1;
  for (int64_t size : type.getShape().drop_front(dim + 1))
    inner *= size;
  int64_t count = type.getDimSize(dim) * inner;
  int64_t whole = tensor.type.getDimSize(dim) * inner;
  for (int64_t i = 0, size = type.getNumElements(); i < size; ++i) {
    int64_t from = i / count * whole + begin * inner + i % count;
    if (part.isFloat())
      part.floats[i] = tensor.floats[from];
    else
      part.ints[i] = tensor.ints[from];
  }
  return part;
}

} // namespace

IndexUse check::indexUseOf(Value value, bool computed) {
  IndexUse use;
  SmallVector<std::pair<Value, unsigned>> work = {{value, 64}};
  llvm::SmallPtrSet<Operation *, 16> seen;
  while (!work.empty()) {
    auto [current, bits] = work.pop_back_val();
    auto bounded = [&, bits = bits](int64_t bound) {
      use.bound = use.bound ? std::min(use.bound, bound) : bound;
      use.bits = std::min(use.bits, bits);
    };
    for (Operation *user : current.getUsers()) {
      if (auto gather = dyn_cast<nn::GatherOp>(user)) {
        if (gather.getIndices() == current)
          bounded(typeOf(gather.getTable()).getDimSize(gather.getDim()));
      } else if (auto loss = dyn_cast<nn::CrossEntropyOp>(user)) {
        bounded(typeOf(loss.getLogits()).getShape().back());
        use.ignored = loss.getIgnoreIndex();
      } else if (auto attention = dyn_cast<nn::AttentionOp>(user)) {
        use.isSegment |= attention.getQSegments() == current ||
                         attention.getKSegments() == current;
      } else if ((computed ||
                  isa<nn::ReshapeOp, nn::TransposeOp, nn::BroadcastOp,
                      arith::ExtSIOp, arith::TruncIOp>(user)) &&
                 seen.insert(user).second) {
        for (Value result : user->getResults()) {
          Type element = getElementTypeOrSelf(result.getType());
          if (element.isInteger() && !element.isInteger(1))
            work.emplace_back(
                result, isa<arith::TruncIOp>(user)
                            ? std::min(bits, element.getIntOrFloatBitWidth())
                            : bits);
        }
      }
    }
  }
  return use;
}

Values::Values(ModuleOp module, ValueOptions options)
    : module(module), options(std::move(options)) {}

/// Returns the arguments of all functions that a check runs. An argument that
/// several functions have is returned once.
static std::vector<Port> allArguments(ModuleOp module) {
  std::vector<Port> ports;
  llvm::StringSet<> seen;
  // @loss_grad comes first, because the range of an integer argument is derived
  // from the operations of the function that it is an argument of.
  for (StringRef name : {nn::kLossGradFunc, nn::kForwardFunc, nn::kUpdateFunc})
    if (auto func = module.lookupSymbol<func::FuncOp>(name))
      for (Port &port : argumentsOf(func))
        if (seen.insert(port.key()).second)
          ports.push_back(std::move(port));
  return ports;
}

FailureOr<Tensor> Values::initial(const Port &port) {
  Random random(options.seed, port.key());
  Tensor value(port.type);
  if (port.role == nn::Role::Count) // step counts of AdamW, from 1 to 4
    return filled(port.type, 1 + random.below(4));
  if (port.role == nn::Role::State) {
    // Second moments are squares of gradients; all other optimizer state has
    // the magnitude of gradients.
    bool squares = StringRef(port.name).ends_with(".v");
    for (double &x : value.floats)
      x = squares ? 1e-4 * (0.5 + random.uniform()) : 1e-2 * random.normal();
    roundToFloat(value);
    return value;
  }
  std::optional<Tensor> stored;
  if (options.weights) {
    FailureOr<std::optional<Tensor>> read = options.weights(port);
    if (failed(read))
      return failure();
    stored = std::move(*read);
  }
  if (stored) {
    value = std::move(*stored);
    value.type = port.type;
    if (!value.isFloat() || port.role == nn::Role::Constant || !options.perturb)
      return value;
    double size = rms(value);
    if (port.role == nn::Role::Parameter)
      addNormal(value, random, size > 1e-3 ? 0.1 * size : 0.1);
  } else if (value.isFloat()) {
    int64_t inner = port.type.getRank() > 1 ? port.type.getDimSize(0) : 4;
    addNormal(value, random, 1 / std::sqrt(double(inner)));
  }
  roundToFloat(value);
  return value;
}

/// Returns the tensor with each element multiplied by 1 + k 2^-50, for a random
/// k from -4 to 4: a change in the last digits of a double.
static Tensor perturbed(Tensor tensor, Random random) {
  for (double &x : tensor.floats)
    x *= 1 + double(random.below(9) - 4) * 0x1p-50;
  return tensor;
}

LogicalResult Values::setInitial(Engine &engine, bool isPerturbed) {
  for (const Port &port : allArguments(module)) {
    if (!isKept(port.role))
      continue;
    auto found = drawn.find(port.key());
    if (found == drawn.end()) {
      FailureOr<Tensor> value = initial(port);
      if (failed(value))
        return failure();
      found = drawn.emplace(port.key(), std::move(*value)).first;
    }
    bool perturbs = isPerturbed && port.role == nn::Role::Parameter;
    const Tensor &value =
        perturbs ? perturbed(found->second, Random(options.seed, port.key(), 1))
                 : found->second;
    if (failed(engine.set(port, value)))
      return failure();
    // In mixed precision, the optimizer reads an f32 copy of the parameter (the
    // master weight), which gets the same values.
    if (port.role == nn::Role::Parameter) {
      Port master = port;
      master.role = nn::Role::State;
      master.name += nn::kMasterSuffix;
      if (failed(engine.set(master, value)))
        return failure();
    }
  }
  return success();
}

/// Returns the value of `port`, an input that has the samples of the whole
/// step: the concatenation of the microbatches' values of the corresponding
/// input `of`.
FailureOr<Tensor> Values::wholeStep(const Port &port, StringRef of,
                                    int64_t step) {
  std::optional<int64_t> dim = nn::batchDimOf(port.attrs, port.type.getRank());
  for (const Port &part : allArguments(module)) {
    if (part.name != of || !isInput(part.role) || !dim)
      continue;
    Tensor whole(port.type);
    int64_t samples = part.type.getDimSize(*dim), inner = 1;
    for (int64_t size : part.type.getShape().drop_front(*dim + 1))
      inner *= size;
    int64_t run = port.type.getDimSize(*dim) * inner, piece = samples * inner;
    for (int64_t k = 0; k * piece < run; ++k) {
      FailureOr<Tensor> value = input(part, step, k);
      if (failed(value))
        return failure();
      for (int64_t i = 0; i < value->size(); ++i) {
        int64_t at = i / piece * run + k * piece + i % piece;
        if (whole.isFloat())
          whole.floats[at] = value->floats[i];
        else
          whole.ints[at] = value->ints[i];
      }
    }
    return whole;
  }
  return emitError(port.value.getLoc())
         << "'" << port.name << "' holds the samples of '" << of
         << "', which is no input";
}

FailureOr<Tensor> Values::input(const Port &port, int64_t step,
                                int64_t microbatch) {
  if (auto of = port.attrs ? port.attrs.getAs<StringAttr>(nn::kWholeStepAttr)
                           : StringAttr())
    return wholeStep(port, of, step);
  auto given = options.inputs.find(port.name);
  if (given != options.inputs.end()) {
    std::optional<int64_t> dim =
        nn::batchDimOf(port.attrs, port.type.getRank());
    if (given->second.shape() == port.type.getShape() || !dim) {
      Tensor same = given->second; // for every microbatch
      same.type = port.type;
      return same;
    }
    return slices(given->second, *dim, microbatch * port.type.getDimSize(*dim),
                  port.type);
  }
  Random random(options.seed, port.key(), step, microbatch);
  Tensor value(port.type);
  if (value.isFloat()) {
    addNormal(value, random, 1);
    roundToFloat(value);
    return value;
  }
  IndexUse use = indexUseOf(port.value, /*computed=*/true);
  if (use.bound == 0 && use.isSegment) {
    for (int64_t &x : value.ints)
      x = random.below(3);
    return value;
  }
  if (use.bound == 0) { // not used as an index, so it may be a mask or a count
    if (!options.drawIntegers)
      return filled(port.type, 1);
    bool isBit = port.type.getElementType().isInteger(1);
    for (int64_t &x : value.ints) {
      x = random.below(isBit ? 2 : 6);
      if (!isBit) // -3 to 3 without 0, because the input may be a divisor
        x = x < 3 ? x - 3 : x - 2;
    }
    return value;
  }
  if (use.bits < 64) // the value must fit into the type of a later cast
    use.bound = std::min(use.bound, int64_t(1) << (use.bits - 1));
  for (int64_t &x : value.ints) {
    x = random.below(use.bound);
    // One in eight labels gets the value that the loss ignores (ignore_index).
    // So the check also tests that the loss is divided by the number of labels
    // that are not ignored, which can then differ between ranks and
    // microbatches.
    if (use.ignored && random.below(8) == 0)
      x = *use.ignored;
  }
  return value;
}

LogicalResult Values::setMicrobatch(Engine &engine, int64_t step,
                                    int64_t microbatch) {
  for (const Port &port : allArguments(module)) {
    FailureOr<Tensor> value = failure();
    if (isInput(port.role)) {
      value = input(port, step, microbatch);
    } else if (port.role == nn::Role::SampleIds) {
      value = Tensor(port.type);
      for (auto [i, id] : llvm::enumerate(value->ints))
        id = (step * 64 + microbatch) * value->size() + i;
    } else if (port.role == nn::Role::Seed) {
      value = filled(port.type, options.seed + 11);
    } else if (port.role == nn::Role::Step) {
      value = filled(port.type, step + 2);
    } else if (port.role == nn::Role::LearningRate) {
      value = filled(port.type, static_cast<float>(options.lr));
    } else if (port.role == nn::Role::Microbatch) {
      value = filled(port.type, microbatch);
    } else {
      continue;
    }
    if (failed(value) || failed(engine.set(port, *value)))
      return failure();
  }
  return success();
}

/// Returns a text like "f32[2, 4]".
static std::string describe(Type element, ArrayRef<int64_t> shape) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << element << '[';
  llvm::interleaveComma(shape, out);
  out << ']';
  return text;
}

LogicalResult Values::verifyInputs(int64_t microbatches) {
  Location nowhere = UnknownLoc::get(module.getContext());
  std::string names;
  llvm::StringSet<> known;
  for (const Port &port : allArguments(module)) {
    if (!isInput(port.role) ||
        (port.attrs && port.attrs.get(nn::kWholeStepAttr)))
      continue;
    names += (names.empty() ? "" : ", ") + port.name;
    known.insert(port.name);
    auto found = options.inputs.find(port.name);
    if (found == options.inputs.end())
      continue;
    const Tensor &given = found->second;
    auto array = options.inputsFile + ", array '" + port.name + "': ";
    Type element = port.type.getElementType();
    SmallVector<int64_t> whole(port.type.getShape());
    if (auto dim = nn::batchDimOf(port.attrs, port.type.getRank()))
      whole[*dim] *= microbatches;
    bool fits = given.shape() == port.type.getShape() ||
                given.shape() == ArrayRef<int64_t>(whole);
    if (!fits || given.isFloat() != isa<FloatType>(element)) {
      auto held = options.inputsHeld.find(port.name);
      return emitError(nowhere)
             << array << "is "
             << (held != options.inputsHeld.end()
                     ? held->second
                     : describe(given.type.getElementType(), given.shape()))
             << ", expected " << describe(element, whole);
    }
    IndexUse use = indexUseOf(port.value, /*computed=*/false);
    for (int64_t held : given.ints) {
      int64_t x = llvm::SignExtend64(held, use.bits);
      if (!use.bound || (x >= 0 && x < use.bound) || x == use.ignored)
        continue;
      InFlightDiagnostic error = emitError(nowhere) << array << "holds " << x;
      if (x != held)
        error << " (" << held << ", cast to " << use.bits << " bits)";
      error << ", beyond "
            << (port.role == nn::Role::Labels
                    ? "the number of classes, "
                    : "the rows of the table that it indexes, ")
            << use.bound;
      if (use.ignored && x < 0)
        error << "; labels that are not counted are data.ignore_index = "
              << *use.ignored << ": data.ignore_index = " << x << "?";
      return error;
    }
  }
  for (const auto &[name, array] : options.inputs)
    if (!known.contains(name) && !options.unread.count(name))
      return emitError(nowhere)
             << options.inputsFile << ": array '" << name
             << "' is no input of the model; the inputs are " << names;
  return success();
}

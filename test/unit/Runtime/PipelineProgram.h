// A hand-written pipeline: `stages` matrix products in a row, on a 1F1B
// schedule, data parallel, with a weight that the first and the last stage
// share. The program has library commands only, so that it can be sent to other
// processes.
#ifndef CLEAVE_UNITTEST_RUNTIME_PIPELINEPROGRAM_H
#define CLEAVE_UNITTEST_RUNTIME_PIPELINEPROGRAM_H

#include "Helpers.h"

#include <array>
#include <map>

namespace cleave::test {

struct PipelineShape {
  int stages = 4, data = 1, microbatches = 6;
  bool reducesTied = true;
  static constexpr int64_t width = 4; // of all matrices, and rows of a rank
};

class PipelineProgram {
public:
  explicit PipelineProgram(const PipelineShape &shape) : shape(shape) {
    p.mesh = {{"pipeline", shape.stages, ""}, {"data", shape.data, ""}};
    for (int rank = 0; rank < shape.stages * shape.data; ++rank)
      p.rankClass.push_back(uint32_t(rank / shape.data));
    p.arenas = {{"state", program::Lifespan::Persistent, 64, -1},
                {"transient", program::Lifespan::Transient, bytes, -1}};
    program::Boundary number;
    number.name = number.role = "microbatch";
    number.dtype = program::DType::I64;
    number.buffer = {0, 0, {}};
    p.boundary.push_back(number);
    for (int stage = 0; stage < shape.stages; ++stage)
      addStage(stage);
  }

  program::Program p;

private:
  using Ref = program::BufferRef;
  static constexpr int64_t width = PipelineShape::width;
  static constexpr int64_t count = width * width, bytes = count * 4;

  int32_t addArena(const std::string &name, program::Lifespan lifespan,
                   int64_t size) {
    p.arenas.push_back({name + "." + std::to_string(own), lifespan, size, own});
    return int32_t(p.arenas.size()) - 1;
  }

  // Adds an arena with equal slots, for values of several microbatches in
  // flight. Returns the buffer in slot 0: commands of an action use the
  // addresses of slot 0, and a call of the action adds the offset of its slot.
  Ref addSlots(const std::string &name, int slots) {
    return {addArena(name, program::Lifespan::Slots, slots * bytes), 0, {}};
  }

  Ref addNamed(const std::string &name, const std::string &role,
               std::vector<int64_t> shape, bool splitsRows = false) {
    program::Arena &arena = p.arenas[memory];
    program::Boundary entry;
    entry.name = name;
    entry.role = role;
    entry.globalShape = entry.localShape = std::move(shape);
    if (splitsRows) {
      entry.globalShape[0] *= this->shape.data;
      entry.sharding = {{{1, 1, this->shape.data}}, {}};
    }
    entry.rankClass = own;
    entry.buffer = {memory, arena.size, {}};
    arena.size += bytes;
    p.boundary.push_back(entry);
    return entry.buffer;
  }

  // Adds the command c = a b or c += a b, with a or b transposed if requested.
  void multiply(Ref a, bool transposeA, Ref b, bool transposeB, Ref c,
                bool accumulate) {
    program::Gemm gemm;
    gemm.m = gemm.n = gemm.k = width;
    gemm.a = {a, {}, transposeA ? 1 : width, transposeA ? width : 1};
    gemm.b = {b, {}, transposeB ? 1 : width, transposeB ? width : 1};
    gemm.c = {c, {}, width, 1};
    gemm.accumulate = accumulate;
    add(gemm, "product");
  }

  void add(decltype(program::Command::op) op, const std::string &source) {
    action.commands.push_back({std::move(op), p.intern(source), 0});
  }

  void start(const std::string &name) {
    action = {};
    action.name = name;
    action.rankClass = uint32_t(own);
  }
  uint32_t finish() {
    p.actions.push_back(action);
    return uint32_t(p.actions.size()) - 1;
  }

  void transfer(int from, int to, Ref at, int token, const std::string &name) {
    program::Collective send;
    send.kind = program::CollectiveKind::SendRecv;
    send.group = {{0, 1, shape.stages}};
    send.positions = {from, to};
    program::Transfer part{{}, {}, count, 1, count, 1, count};
    (own == from ? part.src : part.dst) = at;
    send.parts = {part};
    send.purpose = p.intern("pipeline");
    send.token = token;
    add(send, name);
  }

  void reduce(Ref at, program::SubAxis on, std::vector<int32_t> positions) {
    program::Collective sum;
    sum.group = {on};
    sum.positions = std::move(positions);
    sum.parts = {{at, at, count, 1, count, 1, count}};
    sum.purpose = p.intern("gradient");
    add(sum, "sum");
  }

  static Ref at(Ref ref, int slot) {
    ref.offset += slot * bytes;
    return ref;
  }

  // The stage that is being built.
  struct Stage {
    bool isFirst, isLast, isTied;
    int held; // activations at once
    Ref weight, gradient, tied, tiedGradient, input, loss;
    Ref x, y, dy, dx;
    Ref kept; // inputs of all microbatches, from `load.k` to `loss_grad`
  };

  void addStage(int stage) {
    own = stage;
    Stage s{};
    s.isFirst = stage == 0, s.isLast = stage + 1 == shape.stages;
    s.isTied = s.isFirst || s.isLast;
    addBuffers(s);
    if (s.isFirst)
      addLoads(s);
    addZero(s);
    uint32_t forward = addForward(s);
    uint32_t backward = addBackward(s);
    start("loss_grad");
    OneForwardOneBackward{*this, s, forward, backward}.schedule();
    reduceGradients(s);
    finish();
  }

  void addBuffers(Stage &s) {
    memory = addArena("parameters", program::Lifespan::Persistent, 0);
    s.weight = addNamed("w" + std::to_string(own), "parameter", {width, width});
    s.gradient =
        addNamed("g" + std::to_string(own), "gradient", {width, width});
    if (s.isTied) {
      s.tied = addNamed("tied", "parameter", {width, width});
      s.tiedGradient = addNamed("g.tied", "gradient", {width, width});
    }
    if (s.isFirst)
      s.input = addNamed("x", "input", {width, width}, true);
    if (s.isLast) {
      s.loss = addNamed("loss", "loss", {});
      p.boundary.back().partial = {{1, 1, shape.data}};
    }
    // 1F1B holds the input activations (x) of `held` microbatches at once, and
    // each of them has a slot. The other values (y, dy, dx) have two slots
    // each.
    s.held = std::min(shape.stages - own, shape.microbatches);
    s.x = addSlots("x", s.held), s.y = addSlots("y", 2);
    s.dy = addSlots("dy", 2), s.dx = addSlots("dx", 2);
  }

  void addLoads(Stage &s) {
    s.kept = {addArena("inputs", program::Lifespan::Persistent,
                       shape.microbatches * bytes),
              0,
              {}};
    for (int k = 0; k < shape.microbatches; ++k) {
      start("load." + std::to_string(k));
      add(program::Copy{s.input, at(s.kept, k), 4, {count}, {1}, {1}}, "load");
      finish();
    }
  }

  void addZero(const Stage &s) {
    start("zero");
    for (Ref ref : {s.gradient, s.tiedGradient, s.loss})
      if (ref.present())
        add(program::Fill{ref, 4, ref.offset == s.loss.offset ? 1 : count, 0},
            "zero");
    finish();
  }

  uint32_t addForward(const Stage &s) {
    Ref scratch{1, 0, {}};
    start(".F");
    if (s.isFirst)
      add(program::Copy{s.kept, s.x, 4, {count}, {1}, {1}}, "input");
    // The product is first computed in scratch memory, which holds no value
    // between calls, and then copied to the slot of the microbatch.
    multiply(s.x, false, s.weight, false, scratch, false);
    if (s.isTied)
      multiply(s.x, false, s.tied, false, scratch, true);
    add(program::Copy{scratch, s.y, 4, {count}, {1}, {1}}, "output");
    if (s.isLast) {
      add(program::Fill{scratch, 4, count, 0x3f800000}, "ones");
      program::Gemm sum;
      sum.m = sum.n = 1, sum.k = count;
      sum.a = {s.y, {}, count, 1};
      sum.b = {scratch, {}, 1, 1};
      sum.c = {s.loss, {}, 1, 1};
      sum.accumulate = true;
      add(sum, "loss");
    }
    int32_t last = int32_t(action.commands.size()) - 1;
    action.lifetimes = {{p.intern("t"), 1, 0, bytes, s.isFirst ? 1 : 0, last}};
    return finish();
  }

  uint32_t addBackward(const Stage &s) {
    start(".B");
    if (s.isLast)
      add(program::Fill{s.dy, 4, count, 0x3f800000}, "ones");
    multiply(s.x, true, s.dy, false, s.gradient, true);
    if (s.isTied)
      multiply(s.x, true, s.dy, false, s.tiedGradient, true);
    multiply(s.dy, false, s.weight, true, s.dx, false);
    if (s.isTied)
      multiply(s.dy, false, s.tied, true, s.dx, true);
    return finish();
  }

  // The forward and backward passes of a stage over all microbatches, on a 1F1B
  // schedule, with their transfers.
  struct OneForwardOneBackward {
    PipelineProgram &of;
    const Stage &s;
    uint32_t forward, backward;
    int tokens = 0;
    std::map<std::pair<char, int>, int> sent{}; // by direction and microbatch

    void schedule() {
      int microbatches = of.shape.microbatches;
      int ahead = std::min(of.shape.stages - of.own - 1, microbatches);
      for (int k = 0; k < ahead; ++k)
        doForward(k);
      for (int k = 0; k < microbatches; ++k) {
        if (k + ahead < microbatches)
          doForward(k + ahead);
        doBackward(k);
      }
      while (!sent.empty())
        settle(sent.begin()->first.first, sent.begin()->first.second);
    }

    void doForward(int k) {
      int64_t slot = k % s.held * bytes, two = k % 2 * bytes;
      settle('F', k - 2); // its slot of y is used again
      if (!s.isFirst)
        receive('F', of.own - 1, at(s.x, k % s.held), k);
      std::vector<program::Rebase> moved = {{s.x.arena, slot},
                                            {s.y.arena, two}};
      if (s.isFirst)
        moved.push_back({s.kept.arena, k * bytes});
      call('F', forward, moved, k);
      if (!s.isLast)
        send('F', of.own + 1, at(s.y, k % 2), k);
    }

    void doBackward(int k) {
      int64_t slot = k % s.held * bytes, two = k % 2 * bytes;
      settle('B', k - 2);
      if (!s.isLast)
        receive('B', of.own + 1, at(s.dy, k % 2), k);
      call('B', backward,
           {{s.x.arena, slot}, {s.dy.arena, two}, {s.dx.arena, two}}, k);
      if (!s.isFirst)
        send('B', of.own - 1, at(s.dx, k % 2), k);
    }

    void settle(char what, int k) {
      auto found = sent.find({what, k});
      if (found == sent.end())
        return;
      of.add(program::Wait{found->second}, std::string("WAIT_SEND_") + what);
      sent.erase(found);
    }
    void receive(char what, int from, Ref to, int k) {
      of.transfer(from, of.own, to, tokens, std::string("RECV_") + what);
      of.add(program::Wait{tokens++},
             std::string("WAIT_RECV_") + what + std::to_string(k));
    }
    void send(char what, int to, Ref from, int k) {
      of.transfer(of.own, to, from, tokens, std::string("SEND_") + what);
      sent[{what, k}] = tokens++;
    }
    void call(char what, uint32_t callee, std::vector<program::Rebase> moved,
              int k) {
      std::string label =
          std::to_string(of.own) + std::string(1, what) + std::to_string(k);
      of.add(program::Call{callee, std::move(moved), of.p.intern(label)},
             label);
    }
  };

  void reduceGradients(const Stage &s) {
    reduce(s.gradient, {1, 1, shape.data}, {});
    if (!s.isTied)
      return;
    reduce(s.tiedGradient, {1, 1, shape.data}, {});
    if (shape.reducesTied && shape.stages > 1)
      reduce(s.tiedGradient, {0, 1, shape.stages}, {0, shape.stages - 1});
  }

  const PipelineShape shape;
  int own = 0;        // the stage being built
  int32_t memory = 0; // its arena of named buffers
  program::Action action;
};

// The expected results of the pipeline, computed one microbatch after the
// other. All values are small integers, so that sums are exact in any order.
struct PipelineReference {
  using Matrix = std::vector<float>;
  std::vector<Matrix> weights, gradients, inputs; // inputs: all data ranks
  Matrix tied, tiedGradient;
  float loss = 0;

  static constexpr int64_t width = PipelineShape::width;

  explicit PipelineReference(const PipelineShape &shape) {
    std::mt19937 engine(7);
    auto random = [&](int64_t rows) {
      Matrix values(rows * width);
      for (float &value : values)
        value = float(int(engine() % 3) - 1);
      return values;
    };
    for (int stage = 0; stage < shape.stages; ++stage)
      weights.push_back(random(width));
    tied = random(width);
    gradients.assign(shape.stages, Matrix(width * width));
    tiedGradient.resize(width * width);
    for (int k = 0; k < shape.microbatches; ++k)
      inputs.push_back(random(width * shape.data));
    for (const Matrix &input : inputs)
      run(input);
  }

private:
  void run(const Matrix &input) {
    size_t stages = weights.size(), rows = input.size() / width;
    std::vector<Matrix> x = {input};
    auto isTied = [&](size_t stage) {
      return stage == 0 || stage + 1 == stages;
    };
    auto matrix = [&](size_t stage, int64_t i) {
      return weights[stage][i] + (isTied(stage) ? tied[i] : 0);
    };
    for (size_t stage = 0; stage < stages; ++stage) {
      Matrix y(input.size());
      for (size_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < width; ++j)
          for (int64_t k = 0; k < width; ++k)
            y[r * width + j] +=
                x[stage][r * width + k] * matrix(stage, k * width + j);
      x.push_back(y);
    }
    for (float value : x.back())
      loss += value;
    Matrix dy(input.size(), 1);
    for (size_t stage = stages; stage-- > 0;) {
      Matrix dx(input.size());
      for (size_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < width; ++j)
          for (int64_t k = 0; k < width; ++k) {
            float product = x[stage][r * width + k] * dy[r * width + j];
            gradients[stage][k * width + j] += product;
            if (isTied(stage))
              tiedGradient[k * width + j] += product;
            dx[r * width + k] +=
                dy[r * width + j] * matrix(stage, k * width + j);
          }
      dy = dx;
    }
  }
};

// Fills parameters and inputs, runs a step, and compares all results with the
// reference.
inline void checkPipelineStep(cleave_session *session,
                              const PipelineShape &shape,
                              const PipelineReference &reference, bool fills) {
  auto put = [&](const std::string &name, const std::vector<float> &values) {
    ASSERT_EQ(cleave_session_scatter(session, name.c_str(), CLEAVE_F32,
                                     values.data(), int64_t(values.size())),
              CLEAVE_OK)
        << cleave_last_error();
  };
  auto run = [&](const std::string &action) {
    ASSERT_EQ(cleave_session_run(session, action.c_str()), CLEAVE_OK)
        << cleave_last_error();
  };
  auto expect = [&](const std::string &name, const std::vector<float> &values,
                    int replicas) {
    std::vector<float> found(values.size());
    cleave_gather_report report;
    ASSERT_EQ(cleave_session_gather(session, name.c_str(), CLEAVE_F32,
                                    found.data(), int64_t(found.size()),
                                    &report),
              CLEAVE_OK)
        << cleave_last_error();
    EXPECT_EQ(found, values) << name;
    EXPECT_EQ(report.identical, 1) << name;
    EXPECT_EQ(report.replicas, replicas) << name;
  };
  for (int stage = 0; fills && stage < shape.stages; ++stage)
    put("w" + std::to_string(stage), reference.weights[stage]);
  if (fills)
    put("tied", reference.tied);
  run("zero");
  for (int k = 0; k < shape.microbatches; ++k) {
    put("x", reference.inputs[k]);
    ASSERT_EQ(cleave_session_set_integer(session, "microbatch", k), CLEAVE_OK);
    run("load." + std::to_string(k));
  }
  run("loss_grad");
  expect("loss", {reference.loss}, 1);
  for (int stage = 0; stage < shape.stages; ++stage)
    expect("g" + std::to_string(stage), reference.gradients[stage], shape.data);
  expect("g.tied", reference.tiedGradient,
         shape.data * (shape.stages > 1 ? 2 : 1));
}

// Checks trace events by rank: each of `count` messages starts at one rank and
// arrives at another one, not earlier.
inline void
checkMessages(const std::vector<std::vector<cleave_trace_event>> &events,
              size_t count) {
  std::map<std::array<int64_t, 3>, int64_t> sent, received;
  for (size_t rank = 0; rank < events.size(); ++rank)
    for (const cleave_trace_event &event : events[rank]) {
      if (event.from < 0)
        continue;
      bool sends = event.from == int64_t(rank);
      EXPECT_EQ(sends ? event.from : event.to, int64_t(rank));
      EXPECT_EQ(std::string(event.kind), sends ? "send_recv" : "wait");
      bool isNew = (sends ? sent : received)
                       .try_emplace({event.from, event.to, event.message},
                                    sends ? event.begin_ns : event.end_ns)
                       .second;
      EXPECT_TRUE(isNew) << event.name << " is there twice";
    }
  EXPECT_EQ(sent.size(), count);
  EXPECT_EQ(received.size(), count);
  for (const auto &[message, begin] : sent) {
    ASSERT_TRUE(received.count(message));
    EXPECT_LE(begin, received.at(message));
  }
}

} // namespace cleave::test

#endif // CLEAVE_UNITTEST_RUNTIME_PIPELINEPROGRAM_H

// A rank's communication thread; see comm_thread.h.

#include "comm_thread.h"
#include "quiet_thread.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

using namespace cleave;

namespace {
class Started;

class Worker {
public:
  Worker() {
    std::string failure;
    try {
      thread = startQuietThread([this] { main(); });
    } catch (const std::exception &error) {
      failure = error.what();
    }
    if (!thread.joinable())
      fail(CLEAVE_OUT_OF_MEMORY,
           "cannot start a communication thread per rank: " + failure);
  }

  ~Worker() {
    {
      std::lock_guard lock(mutex);
      quit = true;
    }
    wake.notify_one();
    thread.join();
  }

  void start(Started &operation);
  void finish(Started &operation);
  // Waits until all operations have ended; rethrows the exception of an
  // operation that failed.
  void drain();
  // After this call no thread uses the operation.
  void withdraw(Started &operation);

private:
  void main();

  std::mutex mutex; // guards the fields below and operations' states
  std::condition_variable wake, done;
  std::deque<Started *> queue;
  Started *running = nullptr;
  // The exception of an operation that failed. No operation runs after it,
  // because ranks match their operations by number, and after a failure the
  // other ranks' numbers may differ.
  std::exception_ptr failure;
  bool quit = false;
  std::thread thread;
};

class Started : public Operation {
public:
  Started(std::unique_ptr<Operation> inner, Worker &worker, std::string name)
      : inner(std::move(inner)), worker(worker), name(std::move(name)) {}
  ~Started() override { worker.withdraw(*this); }

  void start() override { worker.start(*this); }
  void finish() override { worker.finish(*this); }

  enum class State { Idle, Queued, Done };

  const std::unique_ptr<Operation> inner;
  Worker &worker;
  const std::string name;
  State state = State::Idle;
};

void Worker::start(Started &operation) {
  {
    std::lock_guard lock(mutex);
    if (operation.state != Started::State::Idle)
      fail(CLEAVE_BAD_PROGRAM, operation.name + " is started twice");
    operation.state = Started::State::Queued;
    operation.inner->post();
    queue.push_back(&operation);
  }
  wake.notify_one();
}

void Worker::finish(Started &operation) {
  std::unique_lock lock(mutex);
  if (operation.state == Started::State::Idle)
    fail(CLEAVE_BAD_PROGRAM, operation.name + " has not been started");
  done.wait(lock,
            [&] { return operation.state == Started::State::Done || failure; });
  if (failure)
    std::rethrow_exception(failure);
  operation.state = Started::State::Idle;
}

void Worker::drain() {
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return (queue.empty() && !running) || failure; });
  if (failure)
    std::rethrow_exception(failure);
}

void Worker::withdraw(Started &operation) {
  std::unique_lock lock(mutex);
  std::erase(queue, &operation);
  done.wait(lock, [&] { return running != &operation; });
}

void Worker::main() {
  std::unique_lock lock(mutex);
  while (true) {
    wake.wait(lock, [&] { return quit || (!queue.empty() && !failure); });
    if (quit)
      return;
    running = queue.front();
    queue.pop_front();
    lock.unlock();
    std::exception_ptr thrown;
    try {
      running->inner->start();
      running->inner->finish();
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    running->state = Started::State::Done;
    running = nullptr;
    if (thrown)
      failure = thrown;
    done.notify_all();
  }
}

// A synchronous collective: finish() runs it on the calling thread.
class Blocking : public Operation {
public:
  Blocking(std::unique_ptr<Operation> inner, Worker &worker)
      : inner(std::move(inner)), worker(worker) {}

  void start() override {}
  void finish() override {
    worker.drain();
    inner->start();
    inner->finish();
  }

private:
  const std::unique_ptr<Operation> inner;
  Worker &worker;
};

class ThreadedEndpoint : public Endpoint {
public:
  explicit ThreadedEndpoint(std::unique_ptr<Endpoint> inner)
      : inner(std::move(inner)) {}

  void announce(std::vector<std::vector<int>> groups) override {
    inner->announce(std::move(groups));
  }

  std::unique_ptr<Operation> prepare(CollectiveCall call) override {
    bool passes = call.kind == program::CollectiveKind::SendRecv;
    bool starts = call.onlyStarts;
    std::string name = describe(call);
    std::unique_ptr<Operation> operation = inner->prepare(std::move(call));
    if (passes)
      return operation;
    if (starts)
      return std::make_unique<Started>(std::move(operation), worker,
                                       std::move(name));
    return std::make_unique<Blocking>(std::move(operation), worker);
  }

  void connect() override { inner->connect(); }
  void progress() override { inner->progress(); }
  int64_t bufferBytes() const override { return inner->bufferBytes(); }

private:
  std::unique_ptr<Endpoint> inner;
  Worker worker;
};
} // namespace

std::unique_ptr<Endpoint>
cleave::makeCommunicationThread(std::unique_ptr<Endpoint> endpoint) {
  return std::make_unique<ThreadedEndpoint>(std::move(endpoint));
}

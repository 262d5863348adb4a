// Tests the TCP wire with its processes simulated by threads of this process.
// The conformance suite also runs on it, in real processes
// (Tcp.TransportConformance).

#include "error.h"
#include "tcp_wire.h"

#include <gtest/gtest.h>

#include <sys/socket.h>
#include <thread>

using namespace cleave;

namespace {
class TcpWires : public testing::Test {
protected:
  // Makes the TCP wire of each rank, through which it exchanges messages with
  // all other ranks. Only rank 0 has a direct connection to each other rank; it
  // forwards the messages between the other ranks.
  void open(int size) {
    std::vector<Socket> lines(size);
    std::vector<std::vector<Socket>> others(size);
    for (int rank = 1; rank < size; ++rank) {
      int ends[2];
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
      lines[rank] = Socket(ends[0]);
      others[rank].push_back(Socket(ends[1]));
    }
    wires.push_back(makeTcpWire(0, size, std::move(lines)));
    for (int rank = 1; rank < size; ++rank)
      wires.push_back(makeTcpWire(rank, size, std::move(others[rank])));
    for (auto &wire : wires)
      channel = wire->openChannel();
  }

  static bool eventually(const std::function<bool()> &holds) {
    for (int i = 0; i < 5000; ++i) {
      if (holds())
        return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  void send(int from, int to, int tag, const std::string &text) {
    Wire::Request request;
    wires[from]->send(request, channel, to, tag, text.data(),
                      static_cast<int64_t>(text.size()));
    ASSERT_TRUE(
        eventually([&] { return wires[from]->test(request, nullptr); }));
  }

  std::string receive(int at, int from, int tag, int64_t room = 1 << 20) {
    std::string text(room, 0);
    Wire::Request request;
    wires[at]->receive(request, channel, from, tag, text.data(), room);
    int64_t bytes = 0;
    if (!eventually([&] { return wires[at]->test(request, &bytes); }))
      return "nothing";
    text.resize(bytes);
    return text;
  }

  std::vector<std::unique_ptr<Wire>> wires;
  int channel = 0;
};

TEST_F(TcpWires, MessagesOfATagKeepTheirOrder) {
  open(3);
  // Messages between all pairs of ranks, also between two ranks without a
  // direct connection.
  for (auto [from, to] : {std::pair(0, 1), {1, 0}, {1, 2}, {2, 1}}) {
    for (int i = 0; i < 20; ++i) {
      send(from, to, 1, "a" + std::to_string(i));
      send(from, to, 2, "b" + std::to_string(i));
    }
    for (int i = 0; i < 20; ++i)
      EXPECT_EQ(receive(to, from, 2), "b" + std::to_string(i));
    for (int i = 0; i < 20; ++i)
      EXPECT_EQ(receive(to, i % 2 ? from : Wire::anyone, 1),
                "a" + std::to_string(i));
  }
}

TEST_F(TcpWires, ReceivesMayComeFirst) {
  open(2);
  char first[8] = {}, second[8] = {};
  Wire::Request one, two;
  wires[1]->receive(one, channel, 0, 5, first, 8);
  wires[1]->receive(two, channel, 0, 5, second, 8);
  send(0, 1, 5, "x");
  send(0, 1, 5, "");
  int64_t bytes = -1;
  EXPECT_TRUE(eventually([&] { return wires[1]->test(two, &bytes); }));
  EXPECT_EQ(bytes, 0);
  EXPECT_TRUE(wires[1]->test(one, &bytes));
  EXPECT_EQ(bytes, 1);
  EXPECT_EQ(first[0], 'x');
}

TEST_F(TcpWires, LongMessagesArriveWhole) {
  open(3);
  std::string text(40 << 20, 0);
  for (size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>(i * 2654435761 >> 7);
  Wire::Request request;
  wires[1]->send(request, channel, 2, 1, text.data(),
                 static_cast<int64_t>(text.size()));
  EXPECT_TRUE(receive(2, 1, 1, 41 << 20) == text);
  EXPECT_TRUE(eventually([&] { return wires[1]->test(request, nullptr); }));
}

// Sends more bytes than a process buffers before it asks for a message.
TEST_F(TcpWires, WhatIsNotReadStaysInTheNetwork) {
  open(2);
  std::string text(100 << 20, 'x');
  std::vector<Wire::Request> requests(8);
  for (Wire::Request &request : requests)
    wires[0]->send(request, channel, 1, 1, text.data(),
                   static_cast<int64_t>(text.size()));
  send(1, 0, 1, "the other way is open");
  EXPECT_EQ(receive(0, 1, 1), "the other way is open");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(wires[0]->test(requests.back(), nullptr));
  // The message that was sent last is received first, although the earlier
  // messages have not been received.
  Wire::Request last;
  wires[0]->send(last, channel, 1, 2, "y", 1);
  EXPECT_EQ(receive(1, 0, 2), "y");
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(receive(1, 0, 1, 100 << 20).size(), text.size());
}

TEST_F(TcpWires, ProbeSaysHowLong) {
  open(2);
  int64_t bytes = 0;
  EXPECT_FALSE(wires[0]->probe(channel, 1, 3, bytes));
  send(1, 0, 3, "four");
  EXPECT_TRUE(
      eventually([&] { return wires[0]->probe(channel, 1, 3, bytes); }));
  EXPECT_EQ(bytes, 4);
  EXPECT_FALSE(wires[0]->probe(channel, 1, 4, bytes));
  EXPECT_FALSE(wires[0]->probe(channel + 1, 1, 3, bytes));
}

TEST_F(TcpWires, AMessageThatIsTooLongIsAnError) {
  open(2);
  send(1, 0, 3, "four");
  EXPECT_THROW(receive(0, 1, 3, 3), RuntimeError);
}

TEST_F(TcpWires, ADroppedMessageNeedsItsMemoryNoMore) {
  open(2);
  {
    std::string text(8 << 20, 'x');
    Wire::Request request;
    wires[0]->send(request, channel, 1, 1, text.data(),
                   static_cast<int64_t>(text.size()));
    wires[0]->drop(request, false);
    EXPECT_FALSE(request.active);
    text.assign(text.size(), 'y');
  }
  std::string came = receive(1, 0, 1, 8 << 20);
  EXPECT_EQ(came.size(), size_t(8) << 20);
  EXPECT_EQ(came.back(), 'x');
}

TEST_F(TcpWires, AllHearWhoHasGoneAfterItsLastWord) {
  open(3);
  send(2, 0, 1, "last");
  wires[2].reset();
  for (int rank : {0, 1}) {
    EXPECT_TRUE(eventually([&] { return wires[rank]->hasGone(2); }));
    EXPECT_FALSE(wires[rank]->hasGone(1 - rank));
  }
  EXPECT_EQ(receive(0, 2, 1), "last");
  send(1, 2, 1, "nobody minds");
  wires[0].reset();
  EXPECT_TRUE(eventually([&] { return wires[1]->hasGone(0); }));
}

TEST_F(TcpWires, CloseWaitsForAll) {
  open(3);
  std::vector<std::thread> threads;
  for (auto &wire : wires)
    threads.emplace_back([&] { wire->close(); });
  for (std::thread &thread : threads)
    thread.join();
}
} // namespace

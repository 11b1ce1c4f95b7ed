#pragma once
// Connections between processes. Messages of one direction of one connection keep their order, as on TCP; between
// connections anything may overtake. A connection breaks when an end closes it or dies, or when the network resets it; what
// is on its way is then delivered or lost. Between partitioned hosts nothing arrives and nobody hears of a death until the
// partition heals.
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include <tl/expected.hpp>

#include "sim/kernel/dice.h"
#include "sim/kernel/loop.h"

namespace llorch::sim {

struct NetworkOptions {
  std::int64_t delay_us_max = 2 * kMs;
  int slow_permille = 0;  // messages that take up to slow_us_max instead
  std::int64_t slow_us_max = 3000 * kMs;
};

class Network;

// One connection. Closures stand for bytes: a sent closure runs at the other end, in its process.
class Wire : public std::enable_shared_from_this<Wire> {
 public:
  enum Side : std::size_t { kClient = 0, kServer = 1 };

  void send(Side from, Loop::Action deliver);
  // After what was sent. Nothing reaches `from` any more, and its on_broken is dropped.
  void close(Side from);
  // Called at most once, when the other end has closed, died or was cut off. REQUIRES: not set before.
  void on_broken(Side at, Loop::Action fn) { ends_[at].broken = std::move(fn); }
  bool closed(Side side) const { return ends_[side].closed; }

 private:
  friend class Network;
  struct End {
    Process* process = nullptr;
    std::uint64_t life = 0;
    bool closed = false;
    Loop::Action broken;
    std::deque<Loop::Action> inbox;  // an empty one is the end of the stream
  };
  static Side other(Side side) { return side == kClient ? kServer : kClient; }
  void drop_callbacks();

  Network* network_ = nullptr;
  std::uint64_t id_ = 0;
  bool accepted_ = false;
  std::array<End, 2> ends_;
  std::array<std::int64_t, 2> last_arrival_us_{};
};
using WirePtr = std::shared_ptr<Wire>;

class Network {
 public:
  Network(Loop& loop, Dice dice, NetworkOptions options) : loop_(loop), dice_(dice), options_(options) {}
  ~Network();

  // `accept` runs at `to`, `refused` at `from` if nobody listens there.
  WirePtr connect(Process& from, Process& to, std::function<void(const WirePtr&)> accept, Loop::Action refused);

  // The process has just died: its connections break.
  void died(const Process& process);
  // Breaks a connection at random. False if there is none.
  bool reset_one();
  void partition(int host_a, int host_b, std::int64_t until_us);
  bool partitioned(int host_a, int host_b) const;
  // Nothing new connects from one to the other, as behind a wrong name or a firewall; what is connected goes on.
  void block(int from_host, int to_host, std::int64_t until_us);
  // From now on only ordinary delays.
  void heal();
  // Drops every callback, so that nothing that they hold outlives what it refers to.
  void shut_down();

  Loop& loop() { return loop_; }

 private:
  friend class Wire;
  std::int64_t delay_us();
  void enqueue(Wire& wire, Wire::Side to, Loop::Action item);
  void arrive(const WirePtr& wire, Wire::Side at);
  void take(const WirePtr& wire, Wire::Side at, const Loop::Action& item);
  void cut(Wire& wire, Wire::Side at, std::int64_t extra_us);
  void forget_if_over(Wire& wire);
  bool blocked(int from_host, int to_host) const;
  static std::pair<int, int> link(int a, int b) { return {std::min(a, b), std::max(a, b)}; }

  Loop& loop_;
  Dice dice_;
  NetworkOptions options_;
  std::uint64_t wires_count_ = 0;
  std::map<std::uint64_t, WirePtr> wires_;  // open at one end at least
  std::map<std::pair<int, int>, std::int64_t> partitioned_until_us_;
  std::map<std::pair<int, int>, std::int64_t> blocked_until_us_;  // by from and to
};

enum class CallError : std::uint8_t { kUnreachable, kTimeout, kBroken };
template <class T>
using CallResult = tl::expected<T, CallError>;
template <class T>
using Reply = std::function<void(T)>;

// One request and its answer. `serve` runs at `to` and may reply later; `done` runs at `from`, exactly once while it lives.
template <class T>
void call(Network& network, Process& from, Process& to, std::int64_t timeout_ms, std::function<void(Reply<T>)> serve,
          std::function<void(CallResult<T>)> done) {
  struct State {
    WirePtr wire;
    std::function<void(CallResult<T>)> done;
  };
  const auto state = std::make_shared<State>();
  state->done = std::move(done);
  const auto finish = [state](CallResult<T> result) {
    if (!state->done) return;
    const auto fn = std::exchange(state->done, nullptr);
    const WirePtr wire = std::move(state->wire);
    if (wire) wire->close(Wire::kClient);
    fn(std::move(result));
  };
  state->wire = network.connect(
      from, to,
      [serve = std::move(serve), finish](const WirePtr& wire) {
        serve([weak = std::weak_ptr(wire), finish](T reply) {
          const WirePtr open = weak.lock();
          if (!open) return;
          open->send(Wire::kServer, [finish, reply = std::move(reply)] { finish(reply); });
          open->close(Wire::kServer);
        });
      },
      [finish] { finish(tl::unexpected(CallError::kUnreachable)); });
  state->wire->on_broken(Wire::kClient, [finish] { finish(tl::unexpected(CallError::kBroken)); });
  network.loop().post(from, timeout_ms * kMs, [finish] { finish(tl::unexpected(CallError::kTimeout)); });
}

}  // namespace llorch::sim

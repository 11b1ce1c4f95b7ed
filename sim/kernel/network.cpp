#include "sim/kernel/network.h"

#include <algorithm>
#include <vector>

namespace llorch::sim {
namespace {
constexpr std::int64_t kConnectTimeoutUs = 5'000 * kMs;
// How long one end of a reset connection may believe in it.
constexpr std::int64_t kHalfOpenUsMax = 20'000 * kMs;
}  // namespace

void Wire::send(Side from, Loop::Action deliver) {
  if (ends_[from].closed) return;
  network_->enqueue(*this, other(from), std::move(deliver));
}

void Wire::close(Side from) {
  End& end = ends_[from];
  if (end.closed) return;
  end.closed = true;
  end.broken = nullptr;
  end.inbox.clear();
  network_->enqueue(*this, other(from), nullptr);
}

// What waits at an end may hold the connection itself.
void Wire::drop_callbacks() {
  for (End& end : ends_) {
    end.broken = nullptr;
    end.inbox.clear();
  }
}

Network::~Network() { shut_down(); }

void Network::shut_down() {
  for (auto& [id, wire] : wires_) wire->drop_callbacks();
  wires_.clear();
}

std::int64_t Network::delay_us() {
  return dice_.chance(options_.slow_permille) ? dice_.between(0, options_.slow_us_max)
                                              : dice_.between(20, options_.delay_us_max);
}

WirePtr Network::connect(Process& from, Process& to, std::function<void(const WirePtr&)> accept, Loop::Action refused) {
  const auto wire = std::make_shared<Wire>();
  wire->network_ = this;
  wire->id_ = ++wires_count_;
  wire->ends_[Wire::kClient].process = &from;
  wire->ends_[Wire::kClient].life = from.life;
  wire->ends_[Wire::kServer].process = &to;
  wires_.emplace(wire->id_, wire);
  const auto refuse = [this, wire, &from, refused = std::move(refused)](std::int64_t after_us) {
    wire->ends_[Wire::kServer].closed = true;
    loop_.post(from, after_us, [this, wire, refused] {
      if (wire->closed(Wire::kClient)) return;
      refused();
      forget_if_over(*wire);
    });
  };
  if (partitioned(from.host, to.host) || blocked(from.host, to.host)) {
    refuse(kConnectTimeoutUs);
    return wire;
  }
  // The first thing that arrives. Whoever lives there then is the one who accepts.
  enqueue(*wire, Wire::kServer, [this, wire = std::weak_ptr(wire), &to, accept = std::move(accept), refuse] {
    const WirePtr open = wire.lock();
    if (!open) return;
    if (!to.alive) return refuse(delay_us());
    open->accepted_ = true;
    open->ends_[Wire::kServer].life = to.life;
    accept(open);
  });
  return wire;
}

void Network::enqueue(Wire& wire, Wire::Side to, Loop::Action item) {
  if (wire.ends_[to].closed) return forget_if_over(wire);
  wire.ends_[to].inbox.push_back(std::move(item));
  std::int64_t& last = wire.last_arrival_us_[to];
  last = std::max(last, loop_.now_us() + delay_us());
  loop_.at(last, [this, open = wire.shared_from_this(), to] { arrive(open, to); });
}

void Network::arrive(const WirePtr& wire, Wire::Side at) {
  Wire::End& end = wire->ends_[at];
  if (end.closed || end.inbox.empty()) return;
  const auto& peer = *wire->ends_[Wire::other(at)].process;
  if (const auto it = partitioned_until_us_.find(link(end.process->host, peer.host));
      it != partitioned_until_us_.end() && loop_.now_us() < it->second) {
    return loop_.at(it->second, [this, wire, at] { arrive(wire, at); });
  }
  const bool accepting = at == Wire::kServer && !wire->accepted_;
  if (end.process->alive && loop_.now_us() < end.process->hung_until_us) {
    if (end.process->hung_until_us == kForever) return;
    return loop_.at(end.process->hung_until_us, [this, wire, at] { arrive(wire, at); });
  }
  if (!accepting && (!end.process->alive || end.process->life != end.life)) return;
  const Loop::Action item = std::move(end.inbox.front());
  end.inbox.pop_front();
  take(wire, at, item);
}

void Network::take(const WirePtr& wire, Wire::Side at, const Loop::Action& item) {
  if (item) return item();
  Wire::End& end = wire->ends_[at];
  end.closed = true;
  const Loop::Action broken = std::exchange(end.broken, nullptr);
  forget_if_over(*wire);
  if (broken) broken();
}

void Network::forget_if_over(Wire& wire) {
  if (!wire.ends_[0].closed || !wire.ends_[1].closed) return;
  const WirePtr last = wire.shared_from_this();
  wires_.erase(wire.id_);
  wire.drop_callbacks();
}

// `at` hears that the connection is gone, and nothing else any more.
void Network::cut(Wire& wire, Wire::Side at, std::int64_t extra_us) {
  wire.ends_[at].inbox.clear();
  wire.last_arrival_us_[at] = std::max(wire.last_arrival_us_[at], loop_.now_us() + extra_us);
  enqueue(wire, at, nullptr);
}

void Network::died(const Process& process) {
  std::vector<WirePtr> open;
  for (const auto& [id, wire] : wires_) open.push_back(wire);
  for (const WirePtr& wire : open) {
    for (const Wire::Side side : {Wire::kClient, Wire::kServer}) {
      Wire::End& end = wire->ends_[side];
      if (end.process != &process || end.closed || (side == Wire::kServer && !wire->accepted_)) continue;
      end.closed = true;
      end.broken = nullptr;
      end.inbox.clear();
      // What the kernel had taken may still arrive.
      if (dice_.chance(500)) {
        enqueue(*wire, Wire::other(side), nullptr);
      } else {
        cut(*wire, Wire::other(side), 0);
      }
    }
  }
}

bool Network::reset_one() {
  if (wires_.empty()) return false;
  auto it = wires_.begin();
  std::advance(it, dice_.below(static_cast<std::int64_t>(wires_.size())));
  const WirePtr wire = it->second;
  if (!wire->accepted_) return false;
  const auto late = static_cast<Wire::Side>(dice_.below(2));
  cut(*wire, late, dice_.chance(200) ? dice_.between(0, kHalfOpenUsMax) : 0);
  cut(*wire, Wire::other(late), 0);
  return true;
}

void Network::partition(int host_a, int host_b, std::int64_t until_us) {
  partitioned_until_us_[link(host_a, host_b)] = until_us;
}

bool Network::partitioned(int host_a, int host_b) const {
  const auto it = partitioned_until_us_.find(link(host_a, host_b));
  return it != partitioned_until_us_.end() && loop_.now_us() < it->second;
}

void Network::block(int from_host, int to_host, std::int64_t until_us) {
  blocked_until_us_[{from_host, to_host}] = until_us;
}

bool Network::blocked(int from_host, int to_host) const {
  const auto it = blocked_until_us_.find({from_host, to_host});
  return it != blocked_until_us_.end() && loop_.now_us() < it->second;
}

void Network::heal() {
  partitioned_until_us_.clear();
  blocked_until_us_.clear();
  options_.slow_permille = 0;
}

}  // namespace llorch::sim

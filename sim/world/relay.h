#pragma once
// Runs jobs on workers over the simulated network, by the rules of orchestratord/streaming/relay.h: the real one needs the
// real HTTP client. What the tokens go into is the real Stream.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "orchestratord/brain/commands.h"
#include "orchestratord/brain/events.h"
#include "orchestratord/streaming/stream_hub.h"
#include "sim/kernel/network.h"
#include "sim/world/request.h"

namespace llorch::sim {

struct World;

class Relay {
 public:
  using Post = std::function<void(orchestratord::brain::Event)>;
  Relay(World& world, orchestratord::streaming::StreamHub& hub, Post post)
      : world_(world), hub_(hub), post_(std::move(post)) {}

  void execute(const orchestratord::brain::Execute& order, const JobRequest& request,
               orchestratord::streaming::StreamPtr stream);
  void abort(std::uint64_t execution);
  // Whether a client would notice if the process died now.
  bool in_mid_stream() const;

 private:
  class Run;
  World& world_;
  orchestratord::streaming::StreamHub& hub_;
  Post post_;
  std::map<std::uint64_t, std::shared_ptr<Run>> running_;
};

}  // namespace llorch::sim

#pragma once
// Every decision of orchestratord in one pure state machine: admission, queue, placement, worker starts and stops, pool
// health, retries, timeouts, cancellation, restart, shutdown. No threads, sockets, files, clocks or SQL. The same events
// at the same times with the same entropy give the same commands.
//
// Thread rule: one thread owns a Core. Other threads ask by event (Query*) and are answered by command.
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/entropy.h"
#include "orchestratord/core/commands.h"
#include "orchestratord/core/config.h"
#include "orchestratord/core/events.h"
#include "orchestratord/core/view.h"

namespace llorch::orchestratord::core {

struct State;

class Core {
 public:
  // `entropy` feeds worker ids and the jitter of backoffs; borrowed.
  Core(CoreConfig config, base::Entropy& entropy);
  ~Core();

  // Appends to `out` what is to be done. REQUIRES: now.mono_ms never decreases; Restored first (an empty one if there is
  // no store), exactly once.
  void step(Event event, base::Time now, std::vector<Command>& out);

  // The monotonic time by which a Tick is due; earlier or later events move it.
  std::int64_t next_wakeup_ms() const;

  // ASSERTs what must hold between steps over the whole state. Linear in its size: for tests and simulation.
  void verify() const;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace llorch::orchestratord::core

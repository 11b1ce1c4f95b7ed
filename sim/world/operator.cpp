#include "sim/world/operator.h"

#include "sim/world/orchestrator.h"
#include "sim/world/world.h"

namespace llorch::sim {

namespace {
constexpr int kOperatorsHost = 101;
constexpr std::int64_t kCallTimeoutMs = 10'000;
// Longer than a load and a few jobs take, so that what was let in gets something done.
constexpr std::int64_t kMakeRoomMs = 60'000;
}  // namespace

Operator::Operator(World& world) : world_(world), process_{.name = "operator", .host = kOperatorsHost} {
  process_.start();
}

void Operator::begin() {
  const OperationOptions& o = world_.options.operations;
  repeat(o.drain_ms, &Operator::drain);
  repeat(o.drain_ms, &Operator::undrain);
  repeat(o.reload_ms, &Operator::reload);
  repeat(o.purge_ms, &Operator::purge);
  repeat(o.goodbye_ms, &Operator::say_goodbye);
  repeat(o.session_ms, &Operator::tend_session);
}

void Operator::repeat(std::int64_t mean_ms, void (Operator::*act)()) {
  if (mean_ms == 0) return;
  world_.loop.post(process_, world_.dice_operations.between(1, 2 * mean_ms) * kMs, [this, mean_ms, act] {
    if (world_.healed()) return;
    (this->*act)();
    repeat(mean_ms, act);
  });
}

std::string Operator::any_pool() {
  const auto count = static_cast<std::int64_t>(world_.pools.size());
  return "pool-" + std::to_string(world_.dice_operations.below(count));
}

void Operator::drain() {
  const std::int64_t deadline_ms = world_.dice_operations.chance(200) ? 0 : world_.dice_operations.between(1, 20'000);
  call<ControlAnswer>(
      world_.network, process_, world_.orchestrator_process, kCallTimeoutMs,
      [this, pool = any_pool(), deadline_ms](Reply<ControlAnswer> reply) {
        world_.orchestrator->drain(pool, deadline_ms, std::move(reply));
      },
      [](const CallResult<ControlAnswer>&) {});
}

void Operator::undrain() {
  call<ControlAnswer>(
      world_.network, process_, world_.orchestrator_process, kCallTimeoutMs,
      [this, pool = any_pool()](Reply<ControlAnswer> reply) { world_.orchestrator->undrain(pool, std::move(reply)); },
      [](const CallResult<ControlAnswer>&) {});
}

void Operator::reload() {
  const auto models = static_cast<std::int64_t>(world_.options.models.size());
  call<ControlAnswer>(
      world_.network, process_, world_.orchestrator_process, kCallTimeoutMs,
      [this, pool = any_pool(), model = static_cast<int>(world_.dice_operations.below(models))](
          Reply<ControlAnswer> reply) { world_.orchestrator->reload(pool, model, std::move(reply)); },
      [](const CallResult<ControlAnswer>&) {});
}

void Operator::purge() {
  const bool force = world_.dice_operations.chance(300);
  call<ControlAnswer>(
      world_.network, process_, world_.orchestrator_process, kCallTimeoutMs,
      [this, pool = any_pool(), force](Reply<ControlAnswer> reply) {
        world_.orchestrator->purge(pool, force, std::move(reply));
      },
      [](const CallResult<ControlAnswer>&) {});
}

void Operator::say_goodbye() {
  call<ControlAnswer>(
      world_.network, process_, world_.orchestrator_process, kCallTimeoutMs,
      [this, pool = any_pool()](Reply<ControlAnswer> reply) { world_.orchestrator->pool_left(pool, std::move(reply)); },
      [](const CallResult<ControlAnswer>&) {});
}

void Operator::tend_session() {
  Dice& dice = world_.dice_operations;
  const std::string session = session_name(dice.below(world_.options.work.sessions));
  contract::CreateSessionRequest wanted{.session_id = session};
  if (dice.chance(300)) wanted.token_budget = dice.between(20, 200);
  const std::int64_t act = dice.below(10);
  call<SessionAnswer>(
      world_.network, process_, world_.orchestrator_process, kCallTimeoutMs,
      [this, act, session, wanted](Reply<SessionAnswer> reply) {
        if (act < 5) return world_.orchestrator->open_session(wanted, std::move(reply));
        if (act < 8) return world_.orchestrator->show_session(session, std::move(reply));
        world_.orchestrator->close_session(session, std::move(reply));
      },
      [](const CallResult<SessionAnswer>&) {});
}

void Operator::heal() {
  for (std::size_t p = 0; p < world_.pools.size(); ++p) take_back("pool-" + std::to_string(p));
  if (world_.options.brain.eviction.worker_policy == contract::EvictionPolicy::kManual) make_room();
}

void Operator::take_back(const std::string& pool) {
  call<ControlAnswer>(
      world_.network, process_, world_.orchestrator_process, kCallTimeoutMs,
      [this, pool](Reply<ControlAnswer> reply) { world_.orchestrator->undrain(pool, std::move(reply)); },
      [this, pool](const CallResult<ControlAnswer>& answer) {
        // An earlier drain may still be on its way.
        const std::int64_t again_ms = answer && answer->accepted ? 30'000 : 2'000;
        world_.loop.post(process_, again_ms * kMs, [this, pool] { take_back(pool); });
      });
}

void Operator::make_room() {
  for (std::size_t p = 0; p < world_.pools.size(); ++p) {
    call<ControlAnswer>(
        world_.network, process_, world_.orchestrator_process, kCallTimeoutMs,
        [this, p](Reply<ControlAnswer> reply) {
          world_.orchestrator->purge("pool-" + std::to_string(p), false, std::move(reply));
        },
        [](const CallResult<ControlAnswer>&) {});
  }
  world_.loop.post(process_, kMakeRoomMs * kMs, [this] { make_room(); });
}

}  // namespace llorch::sim

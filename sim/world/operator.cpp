#include "sim/world/operator.h"

#include <fmt/core.h>

#include <utility>

#include "sim/world/api.h"
#include "sim/world/orchestrator.h"
#include "sim/world/world.h"
#include "wire/json.h"
#include "wire/pool_control.h"
#include "wire/session.h"

namespace llorch::sim {

namespace {
constexpr int kOperatorsHost = 101;
constexpr std::int64_t kOperatorTimeoutMs = 10'000;
// Longer than a load and a few jobs take, so that what was let in gets something done.
constexpr std::int64_t kMakeRoomMs = 60'000;
}  // namespace

Operator::Operator(World& world) : world_(world), process_{.name = "operator", .host = kOperatorsHost} {
  process_.start();
}

void Operator::begin() {
  const OperationOptions& o = world_.options.operations;
  repeat(o.drain_ms, &Operator::drain_any);
  repeat(o.drain_ms, &Operator::undrain);
  repeat(o.reload_ms, &Operator::reload);
  repeat(o.purge_ms, &Operator::purge_any);
  repeat(o.deregister_ms, &Operator::deregister);
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

net::http::Principal Operator::principal() {
  return {.role = net::http::Role::kOperator, .name = {}, .identity = "operator", .account = "operator"};
}

// Whatever the answer is.
void Operator::order(std::string method, std::string path, std::string body) {
  ask_api(world_, process_,
          {.caller = principal(),
           .method = std::move(method),
           .path = std::move(path),
           .body = std::move(body),
           .timeout_ms = kOperatorTimeoutMs},
          [](const ApiAnswer&) {});
}

void Operator::drain(const std::string& pool, std::int64_t deadline_ms) {
  order("POST", fmt::format("/v2/pools/{}/drain", pool), wire::encode(wire::DrainRequest{deadline_ms}));
}

void Operator::drain_any() {
  const std::int64_t deadline_ms = world_.dice_operations.chance(200) ? 0 : world_.dice_operations.between(1, 20'000);
  drain(any_pool(), deadline_ms);
}

void Operator::undrain() { order("DELETE", fmt::format("/v2/pools/{}/drain", any_pool())); }

void Operator::reload() {
  const std::string pool = any_pool();
  const auto models = static_cast<std::int64_t>(world_.options.models.size());
  const auto& model = world_.options.models[static_cast<std::size_t>(world_.dice_operations.below(models))];
  order("POST", fmt::format("/v2/pools/{}/reload", pool),
        wire::encode(wire::ReloadRequest{.new_model_ref = model.name, .deadline_ms = 10'000}));
}

void Operator::purge(const std::string& pool, bool force) {
  order("POST", fmt::format("/v2/pools/{}/purge", pool), wire::encode(wire::PurgeRequest{.force = force}));
}

void Operator::purge_any() {
  const bool force = world_.dice_operations.chance(300);
  purge(any_pool(), force);
}

void Operator::deregister() {
  const std::string pool = any_pool();
  ask_api(world_, process_,
          {.caller = node_principal(pool),
           .method = "DELETE",
           .path = "/v2/pools/" + pool,
           .timeout_ms = kOperatorTimeoutMs},
          [](const ApiAnswer&) {});
}

void Operator::tend_session() {
  Dice& dice = world_.dice_operations;
  const std::string session = session_name(dice.below(world_.options.work.sessions));
  wire::CreateSessionRequest wanted{.session_id = session};
  if (dice.chance(300)) wanted.token_budget = dice.between(20, 200);
  const std::int64_t act = dice.below(10);
  if (act < 5) return order("POST", "/v2/sessions", wire::encode(wanted));
  order(act < 8 ? "GET" : "DELETE", "/v2/sessions/" + session);
}

void Operator::heal() {
  for (std::size_t p = 0; p < world_.pools.size(); ++p) take_back("pool-" + std::to_string(p));
  if (world_.options.core.eviction.worker_policy == config::EvictionPolicy::kManual) make_room();
}

void Operator::take_back(const std::string& pool) {
  ask_api(world_, process_,
          {.caller = principal(),
           .method = "DELETE",
           .path = fmt::format("/v2/pools/{}/drain", pool),
           .timeout_ms = kOperatorTimeoutMs},
          [this, pool](const ApiAnswer& answer) {
            // A pool that nobody has heard of has no drain to take back; an earlier drain may still be on its way.
            const bool taken_back = answer || answer.error().code == base::ErrorCode::kPoolNotFound;
            const std::int64_t again_ms = taken_back ? 30'000 : 2'000;
            world_.loop.post(process_, again_ms * kMs, [this, pool] { take_back(pool); });
          });
}

void Operator::make_room() {
  for (std::size_t p = 0; p < world_.pools.size(); ++p) purge("pool-" + std::to_string(p), false);
  world_.loop.post(process_, kMakeRoomMs * kMs, [this] { make_room(); });
}

}  // namespace llorch::sim

#include "sim/world/orchestrator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/assert.h"
#include "base/sha256.h"
#include "net/http/url.h"
#include "sim/world/api.h"
#include "sim/world/life.h"
#include "sim/world/world.h"
#include "wire/json.h"

namespace llorch::sim {

namespace core = orchestratord::core;
namespace jobs = orchestratord::core::jobs;
namespace store = orchestratord::store;
using base::ErrorCode;
using orchestratord::pool_access::PoolAccess;

namespace {

constexpr std::int64_t kTickMs = 1'000;
// After a hang, until what was late has happened.
constexpr std::int64_t kSettledUs = 3'000 * kMs;
constexpr int kPoolsMax = 8;
constexpr std::int64_t kRequestUs = 10, kAsideUs = 1'000;

core::CoreConfig core_config(const Options& o) {
  core::CoreConfig config = o.core;
  if (o.bug == InjectedBug::kSessionsOutlive) config.sessions.ttl_ms *= 3;
  if (o.bug == InjectedBug::kGivesUpEarly) config.retry.max_attempts = 1;
  if (o.bug == InjectedBug::kSilentPoolServes) config.heartbeat.missed_threshold = 1'000;
  if (o.bug == InjectedBug::kQuotaOneMore && config.quotas.max_concurrent_jobs > 0) ++config.quotas.max_concurrent_jobs;
  return config;
}

config::Config shell_config(const Options& o) {
  config::Config config;
  config.orchestratord.stream = o.stream;
  config.orchestratord.worker_slots = o.core.worker_slots;
  for (const ModelOptions& model : o.models) {
    config.models.aliases[model.name] = model_ref_of(model.name);
    if (model.devices > 1) config.models.tensor_split[model.name] = model.devices;
  }
  return config;
}

// Nobody reads them here, and they take long to make.
orchestratord::http::Metrics& metrics() {
  static orchestratord::http::Metrics metrics({.engine_version = "simulated", .algorithm = "simulated"});
  return metrics;
}

// Every pool of every run is paired, by a file that is written once: pairing is not simulated.
struct Pairing {
  std::filesystem::path directory = [] {
    std::string name = (std::filesystem::temp_directory_path() / "llorch-sim-XXXXXX").string();
    ASSERT(::mkdtemp(name.data()) != nullptr, "{}", name);
    return name;
  }();
  std::filesystem::path file = directory / orchestratord::pool_access::kFileName;
  std::map<std::string, net::http::Principal> callers;  // by pool

  Pairing() {
    base::SeededEntropy fixed(0);
    const auto access = PoolAccess::open(file, fixed).value();
    for (int p = 0; p < kPoolsMax; ++p) {
      const base::PoolId id(fmt::format("pool-{}", p));
      const auto credential = access->pair(id);
      ASSERT(credential, "{}", credential.error().message);
      callers.emplace(id.value, access->caller_of(base::sha256(credential->node_token())).value());
    }
  }
  ~Pairing() {
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  }
  Pairing(const Pairing&) = delete;
  Pairing& operator=(const Pairing&) = delete;
};
const Pairing& pairing() {
  static const Pairing pairing;
  return pairing;
}

}  // namespace

net::http::Principal node_principal(const std::string& pool_id) { return pairing().callers.at(pool_id); }

Orchestrator::Life::Life(Orchestrator& self, core::CoreConfig core_config)
    : config(shell_config(self.world_.options)),
      core(std::move(core_config), self.entropy_),
      store(self.world_),
      http(self.world_, self.world_.orchestrator_process),
      access(PoolAccess::open(pairing().file, self.entropy_).value()),
      names(orchestratord::models::ModelNames::open({.file = {},
                                                     .configured = config.models.aliases,
                                                     .roots = {.directories = {kModelsDirectory}},
                                                     .clock = &self.clock_})
                .value()),
      request_executor(self.world_, kRequestUs),
      aside(self.world_, kAsideUs),
      shell({.config = &config,
             .clock = &self.clock_,
             .entropy = &self.entropy_,
             .metrics = &metrics(),
             .store = &store,
             .client = &http,
             .access = access.get(),
             .request_executor = &request_executor,
             .aside = &aside,
             .post = [&self](core::Event event) { self.post(std::move(event)); },
             .on_drained = {},
             .roots = {.directories = {kModelsDirectory}},
             .names = names.get(),
             .known_models = &known_models,
             .state_directory = {}}),
      watch(self.world_) {
  for (auto& route : shell.routes()) {
    router.add(route.method, route.pattern);
    routes.push_back(std::move(route));
  }
}

Orchestrator::Orchestrator(World& world)
    : world_(world), clock_(world.loop, world.orchestrator_process), entropy_(world.options.seed) {}
Orchestrator::~Orchestrator() = default;

// ---- the process ----------------------------------------------------------------------------------------------------

void Orchestrator::start() {
  world_.orchestrator_process.start();
  world_.trace("orchestratord starts", "", static_cast<std::int64_t>(world_.orchestrator_process.life));
  life_ = std::make_unique<Life>(*this, core_config(world_.options));
  auto state = life_->store.restore();
  if (!state) return world_.crash_orchestrator();
  world_.oracle.life_begins(world_.disk, clock_.now(), state->settled_unix_ms);
  bug(*state);
  auto requests = orchestratord::daemon::read_live_jobs(*state);
  if (!requests) return world_.oracle.violate("a live job cannot be read: " + requests.error().message);
  post(life_->shell.restore(std::move(*state), std::move(*requests)));
  world_.loop.post(world_.orchestrator_process, kTickMs * kMs, [this] { tick(); });
}

void Orchestrator::crash() {
  if (!world_.orchestrator_process.alive) return;
  world_.trace("orchestratord crashes", "");
  life_->watch.crashes();
  life_->store.crash();
  life_->drop_clients();
  world_.orchestrator_process.alive = false;
  world_.network.died(world_.orchestrator_process);
  dead_.push_back(std::move(life_));
}

void Orchestrator::store_reopens() {
  life_->store.crash();
  Store next(world_);
  if (!next.restore()) world_.oracle.violate("the store cannot be opened on a disk that works");
  next.drop();
}

void Orchestrator::shut_down() {
  if (life_) dead_.push_back(std::move(life_));
  for (const auto& life : dead_) {
    life->drop_clients();
    life->store.drop();
  }
}

// ---- the core's thread ---------------------------------------------------------------------------------------------

void Orchestrator::post(core::Event event) {
  life_->mailbox.push_back(std::move(event));
  if (std::exchange(life_->draining, true)) return;
  world_.loop.post(world_.orchestrator_process, 10, [this] { drain(); });
}

void Orchestrator::drain() {
  while (!life_->mailbox.empty()) {
    core::Event event = std::move(life_->mailbox.front());
    life_->mailbox.pop_front();
    step(std::move(event));
  }
  life_->draining = false;
  arm();
}

void Orchestrator::step(core::Event event) {
  world_.trace_event(event);
  world_.oracle.heard(event);
  life_->watch.heard(event);
  if (world_.options.bug != InjectedBug::kNone) bug(event);
  std::vector<Command> commands;
  life_->core.step(std::move(event), clock_.now(), commands);
  life_->core.verify();
  if (world_.options.bug != InjectedBug::kNone) bug(commands);
  for (Command& command : commands) {
    world_.trace_command(command);
    world_.oracle.commanded(command, world_.disk);
    life_->watch.commanded(command, *life_->shell.context().hub);
    execute(std::move(command));
  }
}

void Orchestrator::execute(Command command) {
  if (is_lost(command)) return;
  const auto* admission = std::get_if<core::CommitAdmission>(&command);
  const std::optional<core::CommitId> early =
      admission != nullptr && world_.options.bug == InjectedBug::kAnswerBeforeCommit ? std::optional(admission->commit)
                                                                                     : std::nullopt;
  life_->shell.execute(std::move(command));
  if (early) post(core::Committed{{*early}});
}

void Orchestrator::arm() {
  const std::int64_t next = life_->core.next_wakeup_ms();
  if (next == kForever || next == life_->next_wake_ms) return;
  life_->next_wake_ms = next;
  const std::int64_t delay_us = std::max<std::int64_t>(0, next - world_.loop.now_ms()) * kMs;
  world_.loop.post(world_.orchestrator_process, delay_us, [this, ticket = ++life_->wakes] {
    if (ticket != life_->wakes) return;
    life_->next_wake_ms = -1;
    post(core::Tick{});
  });
}

void Orchestrator::tick() {
  life_->shell.tick_streams();
  life_->shell.tick_relay();
  const std::int64_t awake_us = world_.loop.now_us() - world_.orchestrator_process.hung_until_us;
  if (awake_us > kSettledUs) {
    world_.oracle.check_bounds();
    world_.disk_check.check_keys(false);
  }
  world_.loop.post(world_.orchestrator_process, kTickMs * kMs, [this] { tick(); });
}

// ---- the server -----------------------------------------------------------------------------------------------------

void Orchestrator::handle(net::Request request, const net::ExchangePtr& exchange) {
  auto target = net::http::parse_target(request.path).value();
  auto match = life_->router.match(request.method, target.segments);
  ASSERT(match.outcome == net::http::Router::Outcome::kFound, "{} {}", request.method, request.path);
  request.path_params = std::move(match.params);
  request.query_params = std::move(target.query);
  request.correlation_id = base::CorrelationId("c-1");
  const auto& route = life_->routes[match.route];
  ASSERT(net::http::permits(route.scope, request.peer.principal.role), "{} {}", request.method, request.path);
  // On the head of a request, as the server asks it.
  if (route.check) {
    if (const auto checked = route.check(request.peer.principal); !checked) {
      return void(exchange->respond_error(checked.error()));
    }
  }
  route.handler(std::move(request), exchange);
}

void Orchestrator::serve(net::Request request, Reply<net::Response> reply) {
  constexpr std::string_view kTasks = "/v2/tasks";
  const bool submits = request.method == "POST" && request.path == kTasks;
  const bool cancels = request.method == "DELETE" && request.path.starts_with(kTasks);
  if (!submits && !cancels) return handle(std::move(request), std::make_shared<ApiExchange>(std::move(reply)));
  const std::string job =
      submits ? *wire::decode<wire::SubmitRequest>(request.body)->task_id : request.path.substr(kTasks.size() + 1);
  Watch& watch = life_->watch;
  if (submits) {
    // Who comes back after its job's row has gone would start it again; nobody here waits for that long.
    if (world_.disk_check.is_too_late(job)) {
      return reply(net::http::error_response({ErrorCode::kDeadlineUnmet, "too late", {}}, {}));
    }
    if (world_.options.bug == InjectedBug::kNewCallers)
      request.peer.principal.account += fmt::format("-{}", ++callers_);
    watch.submitted(job);
  } else {
    watch.cancel_asked(job);
  }
  const auto answered = [this, &watch, submits, job, reply = std::move(reply)](net::Response response) {
    if (world_.options.bug == InjectedBug::kRefusesCommitted && submits && response.status == 202) {
      response = net::http::error_response({ErrorCode::kDeadlineUnmet, "injected", {}}, {});
    }
    submits ? watch.submission_answered(job, response) : watch.cancel_answered(job, response);
    reply(std::move(response));
  };
  const auto exchange = std::make_shared<ApiExchange>(answered);
  if (cancels && world_.options.bug == InjectedBug::kCancelsInWordsOnly) {
    const wire::CancelReply done{.job_id = job, .status = "cancelled"};
    return void(exchange->respond(net::http::json_response(202, wire::encode(done))));
  }
  handle(std::move(request), exchange);
}

void Orchestrator::events(const EventsWanted& wanted, const WirePtr& wire, const SinkPtr& sink) {
  const std::string& job = wanted.job;
  const auto exchange = std::make_shared<SimExchange>(world_.loop, world_.orchestrator_process, wire, sink);
  exchange->listen();
  exchange->on_lost([this, job, sink](net::CloseReason reason) {
    if (reason == net::CloseReason::kAborted && sink->stalled) world_.oracle.reached("slow client cut off");
    world_.oracle.stream_lost(job);
  });
  life_->exchanges.push_back(exchange);
  life_->exchange_of[sink.get()] = exchange;
  const auto stream = life_->shell.context().hub->find(base::JobId(job));
  exchange->on_status([watch = &life_->watch, job, from_store = stream == nullptr](int status) {
    watch->events_answered(job, status, from_store);
  });
  net::Request request{.method = "GET", .path = "/v2/tasks/" + job + "/events"};
  request.peer.principal = wanted.caller;
  if (wanted.last_event_id) {
    request.headers.add("Last-Event-ID", *wanted.last_event_id);
    life_->watch.events_asked(stream, *wanted.last_event_id);
    if (world_.options.bug == InjectedBug::kResumeOneLate) exchange->lose_first_event();
  }
  handle(std::move(request), exchange);
}

void Orchestrator::client_reads(const SinkPtr& sink) {
  if (!life_) return;
  const auto it = life_->exchange_of.find(sink.get());
  if (it == life_->exchange_of.end()) return;
  if (const auto exchange = it->second.lock()) exchange->flush();
}

}  // namespace llorch::sim

#include "adapter/app.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <thread>

#include "adapter/http_api.h"
#include "adapter/jobs/service.h"
#include "adapter/process/engine_process.h"
#include "adapter/process/free_port.h"
#include "adapter/process/port_guard.h"
#include "adapter/self_test.h"
#include "adapter/upstream/grpc.h"
#include "base/build_id.h"
#include "base/entropy.h"
#include "base/log.h"
#include "base/process.h"
#include "base/sha256.h"
#include "config/config.h"
#include "net/client.h"
#include "net/http/url.h"
#include "wire/json.h"
#include "wire/pool.h"

namespace llorch::adapter {
namespace {

using base::ErrorCode;
using base::LogLevel;

constexpr std::int64_t kProbeTimeoutMs = 5'000;
constexpr std::int64_t kStartPollMs = 200;
constexpr std::size_t kRequestBytesMax = 64 << 20;
constexpr std::size_t kHealthBytesMax = 64 << 10;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The engine as this process knows it: how to ask it, and what it said.
struct Upstream {
  const engines::Engine& engine;
  engines::Target target;
  std::string bearer;
  upstream::HttpClient client;
  std::atomic<bool> process_gone{false};
  std::atomic<bool> port_taken{false};
  engines::EngineFacts facts;
  std::optional<process::PortGuard> port;  // of an engine that was started here

  bool grpc() const { return engine.protocol() == engines::Protocol::kGrpc; }
  upstream::Call call_of(const engines::Probe& probe) {
    upstream::Call call{.url = probe.url, .bearer = bearer, .timeout_ms = kProbeTimeoutMs, .may_send = [this] {
                          return check_port().has_value();
                        }};
    if (!grpc()) return call;
    call.method = "POST";
    call.body = upstream::grpc_frame(probe.body);
    call.grpc = true;
    return call;
  }
  // Whether the engine is what listens on its port. UNREACHABLE: nobody does. WORKER_RESET: somebody else does, and this worker ends.
  base::Result<> check_port() {
    if (!port) return {};
    const auto seen = port->look();
    if (seen && *seen == process::PortState::kEngine) return {};
    if (seen) return base::fail(ErrorCode::kUnreachable, "the engine does not listen on its port");
    if (seen.error().code != ErrorCode::kWorkerStartFailed) return base::fail(seen.error());
    if (!port_taken.exchange(true)) {
      base::log_event(LogLevel::kError, "upstream.port", {}, seen.error().message, {});
      ::kill(::getpid(), SIGTERM);
    }
    return base::fail(ErrorCode::kWorkerReset, "somebody else listens on the engine's port");
  }
  base::Result<upstream::Reply> ask(const engines::Probe& probe) {
    auto reply = TRY(client.call(call_of(probe)));
    if (grpc()) return upstream::grpc_reply(std::move(reply));
    return reply;
  }
};

// Until it answers. Errors: WORKER_START_TIMEOUT, with why the last look failed; WORKER_START_FAILED, its process ended.
base::Result<> wait_until_well(Upstream& up, std::int64_t timeout_ms) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  std::string why;
  for (;;) {
    if (up.process_gone) return base::fail(ErrorCode::kWorkerStartFailed, "the engine ended while it started");
    if (up.port && TRY(up.port->look()) == process::PortState::kFree) {
      why = "it does not listen on its port yet";
    } else {
      const auto reply = up.ask(up.engine.health(up.target));
      const bool serves = reply && reply->head.status < 300;
      if (serves && up.engine.is_well(reply->body)) return {};
      why = serves  ? "it says that it is not ready"
            : reply ? fmt::format("it answers with status {}", reply->head.status)
                    : reply.error().message;
      if (reply && (reply->head.status == 401 || reply->head.status == 403)) {
        return base::fail(ErrorCode::kWorkerStartFailed,
                          "the engine refuses the key it is called with; check api_key_file");
      }
    }
    if (std::chrono::steady_clock::now() >= until) {
      return base::fail(ErrorCode::kWorkerStartTimeout, "the engine cannot be asked: " + why);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kStartPollMs));
  }
}

base::Result<> learn(Upstream& up) {
  const auto probes = up.engine.facts(up.target);
  for (std::size_t i = 0; i < probes.size(); ++i) {
    const auto reply = TRY(up.ask(probes[i]));
    if (reply.head.status == 200) TRY(up.engine.learn(i, reply.body, up.target, up.facts));
  }
  return {};
}

std::int64_t context_of(const Options& o, const engines::EngineFacts& facts) {
  if (o.context_tokens == 0) return facts.context_tokens;
  return facts.context_tokens == 0 ? o.context_tokens : std::min(o.context_tokens, facts.context_tokens);
}

jobs::Identity identity_of(const Options& o, const Upstream& up) {
  const std::string& version = up.facts.version;
  return {.worker_id = o.worker_id,
          .model_ref = o.model_ref,
          .model_digest = o.model_digest,
          .engine_build = fmt::format("{}/{}", up.engine.kind(), version.empty() ? "unknown" : version),
          .device_class = o.device_class};
}

wire::WorkerHealth health_of(const Options& o, const jobs::Identity& identity, const Upstream& up) {
  return {.status = "healthy",
          .worker_id = identity.worker_id,
          .model = identity.model_ref,
          .model_digest = identity.model_digest,
          .resident = true,
          .quant_kind = "",
          .vram_bytes_used = o.memory_bytes,
          .tokenizer_kind = "engine",
          .vocab_size = 0,
          .context_length = context_of(o, up.facts),
          .slots_total = o.slots,
          .slots_free = o.slots,
          .engine_build = identity.engine_build,
          .numerics = "foreign",
          .device_class = identity.device_class,
          .sampler = std::string(up.engine.kind()),
          .kv_dtype = "",
          .capabilities = {"text-gen"},
          .memory_architecture = "external"};
}

base::Result<> report_ready(net::Client& client, const Options& o, const wire::WorkerHealth& health,
                            const std::string& uri) {
  wire::ReadyCallback callback{.worker_id = o.worker_id,
                               .spawn_token = environment("LLORCH_SPAWN_TOKEN"),
                               .model_ref = o.model_ref,
                               .model_digest = o.model_digest,
                               .uri = uri,
                               .vram_bytes = o.memory_bytes,
                               .memory_bytes = o.memory_bytes,
                               .memory_architecture = health.memory_architecture,
                               .worker_type = health.sampler,
                               .capabilities = health.capabilities,
                               .slots_total = o.slots,
                               .context_length = *health.context_length,
                               .engine_build = health.engine_build,
                               .numerics = health.numerics,
                               .device_class = health.device_class,
                               .sampler = health.sampler,
                               .kv_dtype = health.kv_dtype};
  const auto response = TRY(client.call({.method = "POST",
                                         .url = o.callback_url,
                                         .headers = {{"Content-Type", "application/json"}},
                                         .bearer = environment("LLORCH_WORKER_CALLBACK_TOKEN"),
                                         .body = wire::encode(callback)}));
  if (response.status >= 400) return base::fail(net::http::error_of(response));
  return {};
}

// Looks at the engine again and again, on the client's thread.
class Prober : public std::enable_shared_from_this<Prober> {
 public:
  Prober(Upstream& up, jobs::Service& service, std::int64_t interval_ms)
      : up_(up), service_(service), interval_ms_(interval_ms) {}
  void look_later() {
    up_.client.post_after(interval_ms_, [self = shared_from_this()] { self->look(); });
  }

 private:
  void look() {
    reply_ = {};
    if (!up_.check_port()) return seen(false);
    const auto self = shared_from_this();
    up_.client.start(up_.call_of(up_.engine.health(up_.target)),
                     {.on_head = [self](const upstream::Head& head) { self->reply_.head = head; },
                      .on_data =
                          [self](std::string_view bytes) {
                            const std::size_t room = kHealthBytesMax - self->reply_.body.size();
                            self->reply_.body.append(bytes.substr(0, room));
                            return true;
                          },
                      .on_grpc_status = [self](int code) { self->reply_.grpc_status = code; },
                      .on_end = [self](const base::Result<>& result) { self->seen(result.has_value()); }});
  }
  void seen(bool answered) {
    if (up_.port_taken) return service_.probed(false);  // and no more
    if (answered && up_.grpc()) {
      auto reply = upstream::grpc_reply(std::move(reply_));
      answered = reply.has_value();
      if (reply) reply_ = std::move(*reply);
    }
    const std::int64_t status = reply_.head.status;
    const bool well = answered && status < 300 && up_.engine.is_well(reply_.body);
    if (well != service_.is_well()) {
      base::log_event(well ? LogLevel::kInfo : LogLevel::kWarn, "upstream.health", {},
                      well ? "The engine answers again." : "The engine does not answer.", {{"status", status}});
    }
    service_.probed(well);
    look_later();
  }
  Upstream& up_;
  jobs::Service& service_;
  const std::int64_t interval_ms_;
  upstream::Reply reply_;
};

base::Result<> serve(const Options& o, Upstream& up) {
  const base::SystemClock clock;
  base::SystemEntropy entropy;
  const std::string token = TRY(config::load_worker_token(std::getenv));
  const net::http::AuthRules auth = TRY(net::http::rules_of_one_token(token, o.auth_optional_on_loopback));
  net::IoRuntime runtime;
  net::Client client(runtime);
  const jobs::Identity identity = identity_of(o, up);
  const wire::WorkerHealth health = health_of(o, identity, up);
  jobs::Service service({.engine = &up.engine,
                         .client = &up.client,
                         .clock = &clock,
                         .entropy = &entropy,
                         .target = up.target,
                         .facts = up.facts,
                         .identity = identity,
                         .bearer = up.bearer,
                         .slots = o.slots,
                         .timeout_ms_max = o.inference_timeout_s * 1000,
                         .silence_ms = o.silence_ms,
                         .retry = {},
                         .may_send = [&up] { return up.check_port(); }});
  // What runs on the client's thread uses the service.
  const std::unique_ptr<upstream::HttpClient, void (*)(upstream::HttpClient*)> stops(
      &up.client, [](upstream::HttpClient* c) { c->stop(); });
  const auto hosts = o.advertise.empty() ? std::vector<std::string>{} : std::vector{o.advertise};
  net::Server server(runtime, {.component = "worker-adapterd",
                               .bind_address = o.bind,
                               .port = o.port,
                               .listener_fd = o.listen_fd,
                               .auth = auth,
                               .browsers = {.hosts = hosts, .cors_origins = {}},
                               .request_bytes_max = kRequestBytesMax,
                               // orchestratord, which may be short of memory for streams, takes an end late.
                               .write_stall_timeout_ms = o.inference_timeout_s * 1000});
  add_routes(server, {.service = service, .health = health, .ready_mono_ms = clock.now().mono_ms, .on_shutdown = [] {
                        ::kill(::getpid(), SIGTERM);
                      }});
  TRY(server.start());
  TRY(self_test(client,
                {.url = net::http::base_url(net::http::local_host(o.bind), server.port()),
                 .bearer = token,
                 .may_lack_prompts = o.engine == "openai"},
                o.start_timeout_ms));
  const std::string uri = net::http::base_url(o.advertise.empty() ? o.bind : o.advertise, server.port());
  if (!o.callback_url.empty()) TRY(report_ready(client, o, health, uri));
  std::make_shared<Prober>(up, service, o.probe_interval_ms)->look_later();
  base::log_event(LogLevel::kInfo, "ready", {}, "The worker serves.",
                  {{"worker_id", o.worker_id}, {"uri", uri}, {"engine_build", identity.engine_build}});
  base::announce(base::Announce::kOut, fmt::format(R"({{"event":"listening","bind":"{}"}})", server.url().substr(7)));

  base::wait_for_stop_signal();
  base::log_event(LogLevel::kInfo, "shutdown", {}, "The worker stops.", {{"worker_id", o.worker_id}});
  service.drain(up.process_gone || up.port_taken ? 0 : o.shutdown_grace_ms);
  server.stop(1000);
  if (up.port_taken) return base::fail(ErrorCode::kWorkerReset, "somebody else listens on the engine's port");
  if (up.process_gone) return base::fail(ErrorCode::kWorkerReset, "the engine ended by itself");
  return {};
}

constexpr std::string_view kPort = "{port}";

void replace_port(std::string& text, std::uint16_t port) {
  for (std::size_t at = text.find(kPort); at != std::string::npos; at = text.find(kPort, at)) {
    text.replace(at, kPort.size(), std::to_string(port));
  }
}

// Held while this process runs, so that nobody removes the program under it. Errors: WORKER_START_FAILED, it is gone.
base::Result<> hold_installation(const std::string& directory) {
  if (directory.empty()) return {};
  const int fd = ::open((directory + "/engine.json").c_str(), O_RDONLY | O_CLOEXEC);  // ends with the process
  if (fd >= 0 && ::flock(fd, LOCK_SH | LOCK_NB) == 0) return {};
  if (fd >= 0) ::close(fd);
  return base::fail(ErrorCode::kWorkerStartFailed,
                    "the engine's installation is not there; llorch engine install makes it");
}

std::string random_key() {
  base::SystemEntropy entropy;
  std::array<std::uint8_t, 32> bytes;
  entropy.fill(std::as_writable_bytes(std::span(bytes)));
  return base::to_hex(bytes);
}

base::Result<> start_and_serve(Options o) {
  TRY(hold_installation(o.installation));
  const bool chooses_port = !o.command.empty() && o.endpoint.find(kPort) != std::string::npos;
  if (!o.command.empty()) {
    const std::uint16_t port = TRY(process::free_port());
    replace_port(o.endpoint, port);
    for (std::string& argument : o.command) replace_port(argument, port);
  }
  std::string bearer = o.api_key_file.empty() ? std::string() : TRY(config::read_secret(o.api_key_file));
  const engines::Engine& kind = *engines::engine_of(o.engine, o.endpoint);
  process::Variables variables;
  // A key that nobody else has keeps other users from an engine at a port that nobody else was told of.
  if (const std::string variable(kind.key_variable()); chooses_port && bearer.empty() && !variable.empty()) {
    bearer = environment(variable.c_str());
    if (bearer.empty()) bearer = random_key();
    variables.emplace_back(variable, bearer);
  }
  Upstream up{.engine = kind,
              .target = {o.endpoint, o.model, o.field_names},
              .bearer = bearer,
              .client = upstream::HttpClient({.ca_file = o.ca_file, .proxy = o.proxy})};
  process::EngineProcess engine;
  if (!o.command.empty()) {
    engine = TRY(process::EngineProcess::start(o.command, variables, [&up] {
      up.process_gone = true;
      ::kill(::getpid(), SIGTERM);
    }));
    up.port.emplace(process::PortGuard::Options{.place = process::place_of(o.endpoint),
                                                .pid = engine.pid(),
                                                .in_container = process::starts_container(o.command[0])});
  }
  TRY(wait_until_well(up, o.start_timeout_ms));
  TRY(learn(up));
  return serve(o, up);
}

}  // namespace

int run(const Options& options) {
  base::harden_process();
  base::block_stop_signals();
  base::init_logging(
      {.component = "worker-adapterd", .level = base::parse_log_level(options.log_level, LogLevel::kInfo)});
  base::log_event(LogLevel::kInfo, "startup", {}, "The worker starts.",
                  {{"worker_id", options.worker_id}, {"engine", options.engine}, {"build", base::build_id()}});
  const auto outcome = start_and_serve(options);
  if (outcome) return 0;
  base::log_event(LogLevel::kError, "error", {}, "The worker ends: it cannot serve.",
                  {{"code", outcome.error().name()},
                   {"message", outcome.error().message},
                   {"gpu_id", options.device_class},
                   {"model", options.model_ref}});
  return 1;
}

}  // namespace llorch::adapter

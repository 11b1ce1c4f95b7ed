#include "orchestratord/daemon/shell.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/log.h"
#include "orchestratord/core/sessions/quota.h"
#include "orchestratord/http/tasks/job_view.h"
#include "orchestratord/store/rows/job_row.h"
#include "wire/json.h"
#include "wire/worker.h"

namespace llorch::orchestratord::daemon {
namespace {

std::vector<store::Checkpoint> rows_of(const std::vector<streams::StreamHub::Checkpoint>& moved, std::int64_t unix_ms) {
  std::vector<store::Checkpoint> rows;
  for (const auto& point : moved) {
    const std::string text = streams::to_string(point.id);
    rows.push_back({point.job_id, point.id.seq, "token", text.substr(text.find('-') + 1), unix_ms});
  }
  return rows;
}

// Errors: those of store::read_stored().
base::Result<std::optional<LiveRequest>> read_live_job(const store::RestoredJob& live) {
  if (live.job.unreadable) return base::fail(*live.job.unreadable);
  TRY(http::tasks::check_placement(live.job.params));
  if (!live.payload) return std::nullopt;
  const auto request = TRY(store::read_stored<wire::ExecuteRequest>(*live.payload));
  if (!live.payload->ends_with('}')) {  // its relay writes more behind its last member
    return base::fail(base::ErrorCode::kCorruptFile, "the stored request does not end where its object does");
  }
  return LiveRequest{.parameters_sha256 = wire::parameters_sha256(request),
                     .prompt_events = wire::prompt_events_count(request)};
}

bool is_newer(const base::Error& error) { return error.code == base::ErrorCode::kUnsupportedFormatVersion; }

}  // namespace

base::Result<> check_live_job(const store::FoundLiveJob& job) {
  const auto placement = http::tasks::check_placement(job.params);
  if (!placement && is_newer(placement.error())) return base::fail(store::newer_job(job.job_id, placement.error()));
  if (!job.payload) return {};
  const auto request = store::read_stored<wire::ExecuteRequest>(*job.payload);
  if (!request) return base::fail(store::newer_job(job.job_id, request.error()));
  return {};
}

base::Result<LiveRequests> read_live_jobs(const store::RestoredState& state) {
  LiveRequests requests;
  requests.reserve(state.jobs.size());
  for (const store::RestoredJob& live : state.jobs) {
    auto request = read_live_job(live);
    if (!request && is_newer(request.error())) return base::fail(store::newer_job(live.job.job_id, request.error()));
    requests.push_back(std::move(request));
  }
  return requests;
}

Shell::Shell(Options options)
    : options_(std::move(options)),
      live_config_(*options_.config),
      port_(options_.post),
      hub_({.limits = options_.config->orchestratord.stream,
            .clock = options_.clock,
            .answers = options_.request_executor,
            .on_clients_gone =
                [this](const base::JobId& job_id) {
                  if (stopping_) return;  // it is us who went
                  port_.post(core::CancelRequested{
                      .request = {}, .job_id = job_id, .reason = core::jobs::CancelReason::kDisconnect});
                },
            .on_paused_too_long =
                [this](const base::JobId& job_id) {
                  if (stopping_) return;
                  port_.post(core::CancelRequested{
                      .request = {}, .job_id = job_id, .reason = core::jobs::CancelReason::kStreamMemory});
                },
            .on_checkpoints =
                [this](const std::vector<streams::StreamHub::Checkpoint>& moved) {
                  options_.store->checkpoint(rows_of(moved, options_.clock->now().unix_ms));
                },
            .ticks_per_s = options_.stream_ticks_per_s}),
      model_settings_(options_.config->models, options_.roots),
      catalog_({.client = options_.client,
                .runtime = options_.request_executor,
                .clock = options_.clock,
                .token_at = [this](const std::string& endpoint) -> std::optional<std::string> {
                  auto pool = options_.access->at(endpoint);
                  if (!pool) return std::nullopt;
                  return std::move(pool->token);
                },
                .pools_besides =
                    [this](const std::vector<std::string>& endpoints) { return options_.access->besides(endpoints); },
                .worker_slots = options_.config->orchestratord.worker_slots,
                .worker_context_tokens = options_.config->orchestratord.worker_context_tokens,
                .worker_kv_tokens = options_.config->orchestratord.worker_kv_tokens,
                .worker_image_tokens_max = options_.config->orchestratord.worker_image_tokens_max,
                .kv_dtype = options_.config->orchestratord.kv_dtype,
                .devices_of = [this](const std::string& ref) { return model_settings_.devices(ref); },
                .timeout_ms_of = [this](const std::string& ref) { return model_settings_.timeout_ms(ref); },
                .chat_format_of = [this](const std::string& ref) -> std::optional<text::formats::Format> {
                  const auto name = model_settings_.chat_format(ref);
                  return name ? text::formats::parse_format(*name) : std::nullopt;
                }}),
      relay_({.client = options_.client,
              .hub = &hub_,
              .clock = options_.clock,
              .boot_id = base::uuid_v4(*options_.entropy)}),
      pools_({.client = options_.client, .catalog = &catalog_, .access = options_.access, .post = options_.post}),
      context_(make_context()),
      runner_({.context = &context_,
               .relay = &relay_,
               .pools = &pools_,
               .aside = options_.aside,
               .spans = options_.spans,
               .on_drained = options_.on_drained}),
      api_(context_) {}

// A request that was still being read asks the core behind end_stop(). What waits for such an answer holds streams, which report to the hub
// as they go.
Shell::~Shell() { port_.drop_all(); }

// The core hears of a tenant before any of its requests does, so it knows the limits by then.
void Shell::set_config(config::Config config) {
  auto limits = core::SetLimits::from(config.orchestratord);
  live_config_.set(std::move(config));
  options_.post(std::move(limits));
}

http::Context Shell::make_context() {
  http::Context context;
  context.config = options_.config;
  context.live_config = &live_config_;
  context.clock = options_.clock;
  context.entropy = options_.entropy;
  context.request_executor = options_.request_executor;
  context.files = options_.files;
  context.core = &port_;
  context.board = &board_;
  context.store = options_.store;
  context.blobs = options_.blobs;
  context.hub = &hub_;
  context.client = options_.client;
  context.catalog = &catalog_;
  context.pools = options_.access;
  context.names = options_.names;
  context.name_reads = options_.name_reads;
  context.known_models = options_.known_models;
  context.jobs = &jobs_;
  context.metrics = options_.metrics;
  context.stopping = &stopping_;
  context.state_directory = options_.state_directory;
  context.started_mono_ms = options_.clock->now().mono_ms;
  return context;
}

core::Restored Shell::restore(store::RestoredState state, LiveRequests requests) {
  ASSERT(requests.size() == state.jobs.size());
  core::Restored out;
  // Asked for models from the first request on, not only once they have answered for themselves.
  for (auto& [pool_id, endpoint] : state.pool_endpoints) {
    if (!options_.access->is_paired(pool_id)) {  // nobody there is ours
      context_.unpaired_pools.push_back(pool_id);
      continue;
    }
    if (endpoint.empty()) continue;  // another pool has its address
    options_.access->restore(pool_id, endpoint);
    catalog_.pool_seen(endpoint);
    out.pool_endpoints.push_back(std::move(endpoint));
  }
  if (!context_.unpaired_pools.empty()) {
    base::log_event(base::LogLevel::kWarn, "pools.not_paired", {},
                    "Pools of the job store are not paired here, so their jobs wait until they are.",
                    {{"pools", context_.unpaired_pools.size()}, {"first_pool_id", context_.unpaired_pools.front()}});
  }
  out.sessions = std::move(state.sessions);
  out.desired_states = std::move(state.desired_states);
  out.tenants = std::move(state.tenants);
  out.settled_unix_ms = state.settled_unix_ms;
  std::int64_t former_tenants_jobs = 0;
  std::vector<std::string> unreadable;
  for (std::size_t i = 0; i < state.jobs.size(); ++i) {
    store::RestoredJob& restored = state.jobs[i];
    const auto live = std::make_shared<http::LiveJobData>();
    live->record = std::move(restored.job);
    const store::JobRecord& record = live->record;
    former_tenants_jobs +=
        core::sessions::is_former_tenant(record.tenant_id, options_.config->orchestratord.tenants) ? 1 : 0;
    const bool is_readable = requests[i].has_value();
    if (!is_readable) unreadable.push_back(record.job_id.value);
    const bool payload_available = is_readable && requests[i]->has_value();
    if (payload_available) {
      LiveRequest& request = **requests[i];
      live->payload = std::move(*restored.payload);
      live->parameters_sha256 = std::move(request.parameters_sha256);
      live->prompt_events = request.prompt_events;
    }
    // Its checkpoint counts the prompt's tokens as well, where these are told.
    if (auto& told = live->record.progress.tokens_out; told) {
      *told = std::clamp<std::int64_t>(*told - live->prompt_events, 0, record.max_tokens);
    }
    live->stream = hub_.open(record.job_id, record.on_disconnect, record.tenant_id);
    jobs_.add(live);
    out.jobs.push_back({.spec = http::tasks::job_spec(record),
                        .status = record.progress.status,
                        .attempts = record.progress.attempts,
                        .submitted_unix_ms = record.submitted_unix_ms,
                        .session_key = record.session_key,
                        .payload_available = payload_available,
                        .worker_version = record.progress.worker_version.value_or(""),
                        .readable = is_readable});
  }
  options_.metrics->unreadable(static_cast<std::int64_t>(unreadable.size()));
  if (!unreadable.empty()) {
    base::log_event(base::LogLevel::kWarn, "jobs.unreadable", {},
                    "Jobs of the store cannot be read back and end with PAYLOAD_LOST; all others go on.",
                    {{"jobs", unreadable.size()}, {"first_job_id", unreadable.front()}});
  }
  if (former_tenants_jobs > 0) {
    base::log_event(base::LogLevel::kWarn, "tenants.removed", {},
                    "Jobs of tenants that are not configured any more go on, one of a tenant at a time.",
                    {{"jobs", former_tenants_jobs}});
  }
  return out;
}

void Shell::end_stop() {
  runner_.stop();
  port_.drop_all();
}

}  // namespace llorch::orchestratord::daemon

#include "orchestratord/http/pulls.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "wire/json.h"
#include "wire/pull_error_message.h"

namespace llorch::orchestratord::http {
namespace {

using base::Error;
using base::ErrorCode;
using wire::PullState;

constexpr std::int64_t kFollowMs = 300;
constexpr std::int64_t kGrantMs = 24LL * 3600 * 1000;  // a pull waits behind others, and a large model takes its time
constexpr std::size_t kPeersMax = 16;

// A file of that machine, which its cache does not have.
bool is_file(const wire::NamedModel& model) { return model.source.starts_with("file:"); }

// What its bytes must be; empty: whatever its source gives.
const std::string& wanted_checksum(const wire::NamedModel& model) {
  return model.checksum.empty() ? model.wanted_checksum : model.checksum;
}

// What its pool is asked for.
const std::string& wanted_source(const wire::NamedModel& model) {
  return model.pinned_source.empty() ? model.source : model.pinned_source;
}

bool runs(const wire::PullStatus& status) {
  return status.state != PullState::kDone && status.state != PullState::kFailed &&
         status.state != PullState::kCancelled;
}

bool is_same_pull(const wire::NamedModel& a, const wire::NamedModel& b) {
  return a.source == b.source && a.pool_id == b.pool_id && a.wanted_checksum == b.wanted_checksum &&
         a.created_unix_ms == b.created_unix_ms;
}

}  // namespace

std::optional<net::ClientRequest> request_to_pool(const Context& context, const std::string& pool_id,
                                                  const std::string& path) {
  const auto endpoint = context.pools->endpoint_of(base::PoolId(pool_id));
  if (!endpoint) return std::nullopt;
  const auto pool = context.pools->at(*endpoint);
  if (!pool) return std::nullopt;
  net::ClientRequest request;
  request.url = *endpoint + path;
  request.bearer = pool->token;
  return request;
}

void Pulls::begin(const std::string& model_id) {
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_[model_id];
    if (entry.is_followed) return;
    entry = {.is_followed = true};
  }
  follow(model_id);
}

void Pulls::resume() {
  for (const wire::NamedModel& model : context_.names->named()) {
    if (model.model_ref.empty()) begin(model.model_id);
  }
}

void Pulls::cancel(const std::string& model_id) {
  std::string pull_id;
  {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(model_id);
    if (it == entries_.end()) return;
    if (it->second.is_known) pull_id = it->second.status.pull_id;
    entries_.erase(it);
  }
  // Of one that the pool has yet to answer for, the answer says what to end.
  const auto model = context_.names->find(model_id);
  if (!pull_id.empty() && model) end_at_pool(*model, pull_id);
}

void Pulls::end_at_pool(const wire::NamedModel& model, const std::string& pull_id) {
  if (is_shared(model)) return;
  auto request = request_to_pool(context_, model.pool_id, "/v2/models/pulls/" + pull_id);
  if (!request) return;
  request->method = "DELETE";
  context_.client->request(std::move(*request), [](base::Result<net::Response>) {});
}

// Whether another name waits for the same pull, which the pool has once. A name that has its model waits while it is pulled anew.
bool Pulls::is_shared(const wire::NamedModel& model) const {
  const auto all = context_.names->named();
  const std::lock_guard lock(mutex_);
  return std::any_of(all.begin(), all.end(), [&](const wire::NamedModel& other) {
    const bool is_it = other.model_id == model.model_id && other.created_unix_ms == model.created_unix_ms;
    const auto entry = entries_.find(other.model_id);
    const bool waits = other.model_ref.empty() || (entry != entries_.end() && entry->second.is_followed);
    return !is_it && waits && other.pool_id == model.pool_id && wanted_source(other) == wanted_source(model) &&
           wanted_checksum(other) == wanted_checksum(model);
  });
}

// Other pools that have what is wanted, or what the same reference stood for when they fetched it: the pool that asks finds out
// whether it still does.
std::vector<wire::PeerOffer> Pulls::peers_of(const wire::NamedModel& model) const {
  const std::string& checksum = wanted_checksum(model);
  const std::int64_t until_unix_s = (context_.clock->now().unix_ms + kGrantMs) / 1000;
  std::vector<wire::PeerOffer> out;
  for (const wire::NamedModel& other : context_.names->named()) {
    const bool has_it = !other.model_ref.empty() && other.pool_id != model.pool_id && !is_file(other);
    const bool is_same = checksum.empty() ? other.source == model.source : other.checksum == checksum;
    if (!has_it || !is_same || out.size() >= kPeersMax) continue;
    const base::PoolId pool_id(other.pool_id);
    auto endpoint = context_.pools->endpoint_of(pool_id);
    auto grant = context_.pools->grant(pool_id, other.checksum, until_unix_s);
    if (!endpoint || !grant) continue;
    out.push_back({.pool_id = other.pool_id,
                   .endpoint = *std::move(endpoint),
                   .checksum = other.checksum,
                   .grant = *std::move(grant)});
  }
  return out;
}

std::optional<wire::PullStatus> Pulls::status(const std::string& model_id) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(model_id);
  return it == entries_.end() ? std::nullopt : std::optional(it->second.status);
}

void Pulls::follow(const std::string& model_id) {
  const auto model = context_.names->find(model_id);
  std::string pull_id;
  {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(model_id);
    if (it == entries_.end()) return;
    if (!model) return void(entries_.erase(it));
    if (it->second.is_known) pull_id = it->second.status.pull_id;
  }
  auto request =
      request_to_pool(context_, model->pool_id, pull_id.empty() ? "/v2/models/pull" : "/v2/models/pulls/" + pull_id);
  if (!request) return follow_later(model_id);  // it will register again, or somebody removes the name
  if (pull_id.empty()) {
    request->method = "POST";
    request->headers.set("Content-Type", "application/json");
    request->body = wire::encode(wire::PoolPullRequest{
        .source = wanted_source(*model), .checksum = wanted_checksum(*model), .peers = peers_of(*model)});
  }
  const bool begins = pull_id.empty();
  context_.client->request(std::move(*request), [this, asked = *model, begins](base::Result<net::Response> response) {
    // Names are kept on disk, which the thread of the sockets does not wait for.
    context_.request_executor->post(
        [this, asked, begins, response = std::move(response)] { on_answer(asked, begins, response); });
  });
}

bool Pulls::is_wanted(const wire::NamedModel& asked) {
  const auto model = context_.names->find(asked.model_id);
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(asked.model_id);
  if (it == entries_.end()) return false;
  // One that was removed and given again is followed by itself.
  if (model) return is_same_pull(*model, asked);
  if (it->second.is_followed) entries_.erase(it);
  return false;
}

void Pulls::on_answer(const wire::NamedModel& asked, bool begins, base::Result<net::Response> response) {
  const std::string& model_id = asked.model_id;
  if (!is_wanted(asked)) {
    if (!begins || !response || response->status >= 300) return;
    // Whoever cancelled it could not name it to the pool, which would go on for nobody.
    const auto begun = wire::decode<wire::PullStatus>(response->body);
    if (begun && runs(*begun)) end_at_pool(asked, begun->pull_id);
    return;
  }
  if (!response || response->status >= 500) return follow_later(model_id);
  if (response->status >= 400) {
    bool was_known = false;
    {
      const std::lock_guard lock(mutex_);
      const auto it = entries_.find(model_id);
      if (it == entries_.end()) return;
      was_known = std::exchange(it->second.is_known, false);
    }
    // A pool that knew of it has restarted, and is told anew.
    return was_known ? follow(model_id) : fail(model_id, net::http::error_of(*response));
  }
  const auto status = wire::decode<wire::PullStatus>(response->body);
  if (!status) return fail(model_id, status.error());
  on_status(model_id, *status);
}

void Pulls::on_status(const std::string& model_id, const wire::PullStatus& status) {
  // Who is told that a pull has ended finds the names as it left them.
  const bool goes_on = runs(status);
  {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(model_id);
    if (it == entries_.end()) return;
    it->second.is_known = true;
    if (goes_on) it->second.status = status;
    it->second.status.pull_id = status.pull_id;
  }
  if (goes_on) return follow_later(model_id);
  if (status.state == PullState::kFailed || status.state == PullState::kCancelled) {
    const auto code = base::error_code_from_name(status.error_code.value_or("")).value_or(ErrorCode::kInternal);
    return fail(model_id, {code, status.error_message.value_or("the pool gives no reason"), {}});
  }
  if (const auto model = context_.names->find(model_id)) {
    const std::string& wanted = wanted_checksum(*model);
    if (!wanted.empty() && status.checksum != wanted) {
      return fail(
          model_id,
          {ErrorCode::kUntrustedArtifact, "the pool says that it has fetched another checksum than was asked for", {}});
    }
  }
  const auto kept = context_.names->change(model_id, [&](wire::NamedModel& model) {
    if (model.checksum != status.checksum) model.verification.reset();
    model.model_ref = status.model_ref;
    model.checksum = status.checksum;
    model.size_bytes = status.size_bytes;
    if (!status.source.empty()) model.pinned_source = status.source;
    model.signature = status.signature.value_or("");
  });
  if (!kept) return follow_later(model_id);  // the disk may have room later
  context_.metrics->verification("");
  base::log_event(base::LogLevel::kInfo, "catalog.model_ready", {}, "A model that was pulled can be used.",
                  {{"model", model_id},
                   {"digest", status.checksum},
                   {"size_bytes", status.size_bytes},
                   {"peer_pool_id", status.peer_pool_id.value_or("")},
                   {"signature", status.signature.value_or("")}});
  const std::lock_guard lock(mutex_);
  entries_.erase(model_id);
}

void Pulls::fail(const std::string& model_id, const Error& error) {
  const auto model = context_.names->find(model_id);
  // A name without a model is nobody's; one that had a model before keeps it.
  if (model && model->model_ref.empty() && !context_.names->erase(model_id)) return follow_later(model_id);
  if (error.code == ErrorCode::kUntrustedArtifact) context_.metrics->verification("checksum");
  base::log_event(base::LogLevel::kWarn, "catalog.pull_failed", {}, error.message,
                  {{"model", model_id}, {"error_code", error.name()}});
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(model_id);
  if (it == entries_.end()) return;
  it->second.is_followed = false;
  it->second.status.state = PullState::kFailed;
  it->second.status.error_code = std::string(error.name());
  it->second.status.error_message = wire::fitted_pull_error(error.message);
}

void Pulls::follow_later(const std::string& model_id) {
  context_.request_executor->post_after(kFollowMs, [this, model_id] { follow(model_id); });
}

}  // namespace llorch::orchestratord::http

#include "orchestratord/streams/stream_hub.h"

#include <algorithm>

#include "base/assert.h"
#include "base/fair_share.h"

namespace llorch::orchestratord::streams {
namespace {
// Buffers of streams that a client was sent to the end are kept for its return, as long as they cost little: so many of
// them, and none once all streams together hold this share of buffer_bytes_max.
constexpr std::size_t kSentStreamsMax = 4096;
constexpr std::int64_t kSentBytesShare = 4;
// How long a stream goes without a look at its slow clients, its grace and its checkpoint.
constexpr std::int64_t kLookEveryMs = 1000;
}  // namespace

StreamHub::StreamHub(Options options)
    : options_(std::move(options)),
      governor_(options_.limits.buffer_bytes_max, options_.limits.slow_client_timeout_ms),
      answers_(options_.answers) {
  ASSERT(options_.clock != nullptr);
}

StreamHub::~StreamHub() = default;

StreamPtr StreamHub::open(const base::JobId& job_id, wire::OnDisconnect on_disconnect, std::string tenant_id) {
  const std::lock_guard lock(mutex_);
  Entry& entry = streams_[job_id];
  if (entry.stream == nullptr) {
    const auto [tenant, is_new] = tenants_.try_emplace(tenant_id);
    if (is_new) tenant->second.number = tenants_.size() - 1;
    entry.tenant = &tenant->second;
    const std::uint64_t order = next_order_++;
    entry.stream = std::make_shared<Stream>(Stream::Identity{.job_id = job_id,
                                                             .on_disconnect = on_disconnect,
                                                             .tenant_id = std::move(tenant_id),
                                                             .order = order,
                                                             .tenant_bytes = &entry.tenant->bytes_held},
                                            options_.limits, static_cast<Stream::Watcher&>(*this));
    const auto ticks = static_cast<std::int64_t>(1 + order % options_.ticks_per_s);
    const std::int64_t first_ms = kLookEveryMs * ticks / static_cast<std::int64_t>(options_.ticks_per_s);
    const std::int64_t keep_alive_ms = options_.limits.keep_alive_ms;
    const std::int64_t now_ms = options_.clock->now().mono_ms;
    looks_.push({now_ms + (keep_alive_ms > 0 ? std::min(first_ms, keep_alive_ms) : first_ms), entry.stream});
  }
  return entry.stream;
}

StreamPtr StreamHub::find(const base::JobId& job_id) const {
  const std::lock_guard lock(mutex_);
  const auto it = streams_.find(job_id);
  return it == streams_.end() ? nullptr : it->second.stream;
}

void StreamHub::forget(const base::JobId& job_id) {
  StreamPtr dropped;  // outlives the lock: its end reports back
  const std::lock_guard lock(mutex_);
  dropped = take(job_id);
}

StreamPtr StreamHub::take(const base::JobId& job_id) {
  const auto it = streams_.find(job_id);
  if (it == streams_.end()) return nullptr;
  const Entry entry = std::move(it->second);
  if (entry.finished_ms) entry.tenant->finished.erase({*entry.finished_ms, entry.stream->identity().order});
  streams_.erase(it);
  checkpointed_.erase(job_id);
  return entry.stream;
}

void StreamHub::relay_begins(const Stream& stream, Pause pause) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t order = stream.identity().order;
  governor_.remove(order);
  governor_.add(order, tenants_.at(stream.identity().tenant_id).number);
  relays_[order] = {stream.identity().job_id, std::move(pause)};
}

void StreamHub::relay_ends(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  governor_.remove(stream.identity().order);
  relays_.erase(stream.identity().order);
  any_paused_ = governor_.paused_count() > 0;
}

void StreamHub::on_bytes_held(const Stream::Identity& identity, std::int64_t delta) {
  *identity.tenant_bytes += delta;
  const std::int64_t total = bytes_held_ += delta;
  if (delta <= 0 || total <= options_.limits.buffer_bytes_max)
    return;  // nor at the end of a stream: the hub may be at its own
  drop_sent({.count_max = kSentStreamsMax, .bytes_max = options_.limits.buffer_bytes_max});
  govern();
}

void StreamHub::on_finished(const Stream::Identity& identity, std::int64_t now_ms) {
  const std::lock_guard lock(mutex_);
  const auto it = streams_.find(identity.job_id);
  if (it == streams_.end() || it->second.stream->identity().order != identity.order) return;
  it->second.finished_ms = now_ms;
  it->second.tenant->finished.emplace(std::pair(now_ms, identity.order), identity.job_id);
}

std::vector<std::int64_t> StreamHub::held_by_tenant() const {
  std::vector<std::int64_t> held(tenants_.size());
  for (const auto& [id, tenant] : tenants_) held[tenant.number] = tenant.bytes_held;
  return held;
}

// Finds the log that ended first of the tenant that holds the most, of those above their share, once its readers had the time
// that a slow client has. Past the hard limit that time is not there. Leaves out `read`, by order.
StreamPtr StreamHub::find_forgettable(const std::set<std::uint64_t>& read) const {
  const std::vector<std::int64_t> held = held_by_tenant();
  const std::int64_t share = base::fair_share(held, governor_.bytes_low());
  const bool is_short = bytes_held_ > governor_.bytes_hard();
  const std::int64_t ended_by_ms = options_.clock->now().mono_ms - options_.limits.slow_client_timeout_ms;
  const base::JobId* found = nullptr;
  std::int64_t most = 0;
  for (const auto& [id, tenant] : tenants_) {
    const std::int64_t bytes = held[tenant.number];
    if (bytes <= share || bytes <= most) continue;
    const auto first =
        std::ranges::find_if(tenant.finished, [&](const auto& log) { return !read.contains(log.first.second); });
    if (first == tenant.finished.end() || (!is_short && first->first.first > ended_by_ms)) continue;
    found = &first->second;
    most = bytes;
  }
  return found == nullptr ? nullptr : streams_.at(*found).stream;
}

void StreamHub::govern() {
  // One at a time, so that a pause and its end are told in their order. Who is turned away is made up for by the next tick.
  if (is_governing_.exchange(true)) return;
  // Orders of logs that stay: those that clients read while no relay waits for the room, and those of which answers are due.
  std::set<std::uint64_t> read, due;
  for (bool goes_on = true; goes_on;) {
    StreamPtr ended;
    bool also_read = false;
    Pause change;
    bool paused = false;
    base::JobId starved;
    {
      const std::lock_guard lock(mutex_);
      also_read = governor_.paused_count() > 0 || bytes_held_ > governor_.bytes_hard();
      if (also_read) read = due;
      ended = find_forgettable(read);
      if (ended == nullptr) {
        const FlowGovernor::Change next = governor_.update(held_by_tenant(), options_.clock->now().mono_ms);
        any_paused_ = governor_.paused_count() > 0;
        paused = next.pause.has_value();
        if (const auto order = paused ? next.pause : next.resume) change = relays_.at(*order).pause;
        if (next.end) starved = relays_.at(*next.end).job_id;
      }
    }
    goes_on = ended != nullptr || paused;
    if (ended != nullptr) {
      if (ended->let_go(also_read)) {
        forget(ended->identity().job_id);
      } else {
        read.insert(ended->identity().order);
        if (also_read) due.insert(ended->identity().order);
      }
    }
    if (change) change(paused);
    if (!starved.value.empty() && options_.on_paused_too_long) options_.on_paused_too_long(starved);
  }
  is_governing_ = false;
}

void StreamHub::on_clients_gone(const base::JobId& job_id) {
  if (options_.on_clients_gone) options_.on_clients_gone(job_id);
}

void StreamHub::on_sent_to_the_end(const base::JobId& job_id) {
  {
    const std::lock_guard lock(mutex_);
    const auto it = streams_.find(job_id);
    if (it != streams_.end()) it->second.tenant->sent.push_back(job_id);
  }
  drop_sent({.count_max = kSentStreamsMax, .bytes_max = options_.limits.buffer_bytes_max / kSentBytesShare});
}

// Finds the tenant whose sent streams go first: of those above their share the one that holds the most, or has the most of them.
// Null: the limits allow all.
StreamHub::Tenant* StreamHub::find_sent(const SentLimits& limits) {
  Tenant* most = nullptr;
  if (bytes_held_ > limits.bytes_max) {
    const std::vector<std::int64_t> held = held_by_tenant();
    const std::int64_t share = base::fair_share(held, limits.bytes_max);
    for (auto& [id, tenant] : tenants_) {
      if (held[tenant.number] <= share || tenant.sent.empty()) continue;
      if (most == nullptr || held[tenant.number] > held[most->number]) most = &tenant;
    }
    if (most != nullptr) return most;
  }
  std::size_t count = 0;
  for (auto& [id, tenant] : tenants_) {
    count += tenant.sent.size();
    if (most == nullptr || tenant.sent.size() > most->sent.size()) most = &tenant;
  }
  return count > limits.count_max ? most : nullptr;
}

void StreamHub::drop_sent(const SentLimits& limits) {
  while (true) {
    base::JobId oldest;
    {
      const std::lock_guard lock(mutex_);
      Tenant* tenant = find_sent(limits);
      if (tenant == nullptr) return;
      oldest = std::move(tenant->sent.front());
      tenant->sent.pop_front();
    }
    const StreamPtr stream = find(oldest);
    if (stream != nullptr && stream->let_go(false)) forget(oldest);  // a client that reads it again holds it to its end
  }
}

std::vector<StreamPtr> StreamHub::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<StreamPtr> out;
  out.reserve(streams_.size());
  for (const auto& [job_id, entry] : streams_) out.push_back(entry.stream);
  return out;
}

std::vector<StreamPtr> StreamHub::take_due(std::int64_t now_ms) {
  std::vector<StreamPtr> due, forgotten;  // outlive the lock: the end of a stream reports back
  const std::lock_guard lock(mutex_);
  for (; !looks_.empty() && looks_.top().due_ms <= now_ms; looks_.pop()) {
    StreamPtr stream = looks_.top().stream.lock();
    if (stream == nullptr) continue;
    const auto held = streams_.find(stream->identity().job_id);
    (held != streams_.end() && held->second.stream == stream ? due : forgotten).push_back(std::move(stream));
  }
  return due;
}

void StreamHub::tick() {
  const std::int64_t now_ms = options_.clock->now().mono_ms;
  std::vector<Checkpoint> moved;
  for (const StreamPtr& stream : take_due(now_ms)) {
    const std::optional<std::int64_t> keep_alive_due_ms = stream->tick(now_ms);
    const Stream::Progress progress = stream->progress();
    std::int64_t due_ms = now_ms + kLookEveryMs;
    if (!progress.retain_until_ms) {
      due_ms = std::min(due_ms, keep_alive_due_ms.value_or(due_ms));
    } else if (*progress.retain_until_ms > now_ms) {
      // Most streams are such ones. A client that comes back for one and then stops reading is found by the later bound.
      due_ms = std::max(due_ms, std::min(*progress.retain_until_ms, now_ms + options_.limits.slow_client_timeout_ms));
    } else {
      forget(stream->identity().job_id);
      continue;
    }
    const std::lock_guard lock(mutex_);
    looks_.push({due_ms, stream});
    if (!progress.finished && progress.tokens_count > 0) {
      EventId& last = checkpointed_[stream->identity().job_id];
      if (last != progress.id) moved.push_back({stream->identity().job_id, progress.id});
      last = progress.id;
    }
  }
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, tenant] : tenants_) {
      while (!tenant.sent.empty() && !streams_.contains(tenant.sent.front())) tenant.sent.pop_front();
    }
  }
  if (!moved.empty() && options_.on_checkpoints) options_.on_checkpoints(std::move(moved));
  if (any_paused_ || bytes_held_ > options_.limits.buffer_bytes_max) govern();
}

void StreamHub::abort_clients() {
  for (const StreamPtr& stream : all()) stream->abort_clients();
}

StreamHub::Gauges StreamHub::gauges() const {
  Gauges g;
  for (const StreamPtr& stream : all()) {
    ++g.streams;
    g.clients += static_cast<std::int64_t>(stream->progress().clients_count);
  }
  g.bytes_held = bytes_held_;
  const std::lock_guard lock(mutex_);
  g.relays_paused = static_cast<std::int64_t>(governor_.paused_count());
  return g;
}

}  // namespace llorch::orchestratord::streams

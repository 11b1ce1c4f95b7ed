#include "orchestratord/http/deferred/batch_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <exception>
#include <utility>

#include "base/assert.h"
#include "base/error_detail.h"
#include "base/exceptions.h"
#include "base/log.h"
#include "orchestratord/core/sessions/quota.h"
#include "orchestratord/http/deferred/batch_facts.h"
#include "orchestratord/http/tasks/kept_facts.h"
#include "orchestratord/http/tenancy.h"

namespace llorch::orchestratord::http::deferred {
namespace {

namespace json = boost::json;
using base::Error;
using base::ErrorCode;
using store::blobs::Blob;
using tasks::kDeferredRetryMs;
using tasks::number_of;
using tasks::object_of;

constexpr std::int64_t kLookMs = 1000;
constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::size_t kWriteBytes = 256 << 10;

std::int64_t retry_after_ms(const Error& error) {
  const auto said_ms = base::number_detail(error, "retry_after_ms");
  return said_ms ? std::clamp<std::int64_t>(*said_ms, 50, 60'000) : kDeferredRetryMs;
}

void add_one(json::object& facts, std::string_view member) { set_count(facts, member, count_of(facts, member) + 1); }

}  // namespace

std::string BatchRunner::name_of(const Active& batch, const Request& request) {
  return fmt::format("{}/{}", batch.id, request.number);
}

base::CorrelationId BatchRunner::correlation_of(const Active& batch, const Request& request) {
  return base::CorrelationId{uuid_of_name(name_of(batch, request))};
}

std::map<std::string, BatchRunner::Unfinished>& BatchRunner::unfinished() const {
  if (unfinished_) return *unfinished_;
  unfinished_.emplace();
  for (const BatchForm* form : forms_) {
    for (const Blob* blob : context_.blobs->list(form->kind())) {
      const json::object facts = object_of(blob->facts.body);
      if (is_final(status_of(facts))) continue;
      unfinished_->emplace(blob->id, Unfinished{blob->facts.tenant_id, form->blobs_of(blob->id, facts).input});
    }
  }
  return *unfinished_;
}

bool BatchRunner::reads(const std::string& blob_id) const {
  return std::ranges::any_of(unfinished(), [&](const auto& batch) { return batch.second.input == blob_id; });
}

base::Result<> BatchRunner::check_count(const std::string& account) const {
  const auto count = static_cast<std::size_t>(
      std::ranges::count_if(unfinished(), [&](const auto& batch) { return batch.second.account == account; }));
  if (count < kUnfinishedBatchesMax) return {};
  Error error{
      ErrorCode::kQuotaExceeded,
      fmt::format("{} batches of this caller have not ended, and {} may be so at once; cancel some, or try again "
                  "when one has ended",
                  count, kUnfinishedBatchesMax),
      {}};
  return base::fail(std::move(error)
                        .with("policy_label", std::string("quota.batches"))
                        .with("limit", static_cast<std::int64_t>(kUnfinishedBatchesMax)));
}

base::Result<> BatchRunner::create(const BatchForm& form, const std::string& id, const json::object& facts) {
  const auto caller = tasks::caller_from(facts.if_contains(kCaller));
  ASSERT(caller, "a batch is somebody's");
  const std::int64_t now_ms = context_.clock->now().unix_ms;
  std::optional<std::int64_t> expires_ms;
  if (is_final(status_of(facts))) expires_ms = now_ms + context_.config->orchestratord.files.retention_ms;
  TRY(context_.blobs->create(id, {.kind = std::string(form.kind()),
                                  .tenant_id = caller->account,
                                  .created_unix_ms = now_ms,
                                  .expires_unix_ms = expires_ms,
                                  .body = json::serialize(facts)}));
  if (!expires_ms) {
    const std::int64_t left_ms = number_of(facts, "expires_at") * 1000 - now_ms;
    const std::int64_t due_ms = context_.blobs->elapsed_ms() + left_ms;
    unfinished().emplace(id, Unfinished{caller->account, form.blobs_of(id, facts).input, due_ms});
  }
  // Whoever made it answers its client first.
  context_.files->post([this, tenant_id = caller->account] { schedule(tenant_id); });
  return {};
}

BatchRunner::ActivePtr BatchRunner::find_active(const Blob& batch) const {
  const auto it = active_.find(batch.facts.tenant_id);
  return it != active_.end() && it->second->id == batch.id ? it->second : nullptr;
}

json::object BatchRunner::facts_of(const Blob& batch) const {
  const ActivePtr active = find_active(batch);
  return active != nullptr ? active->facts : object_of(batch.facts.body);
}

base::Result<> BatchRunner::cancel(const Blob& blob) {
  const std::string tenant_id = blob.facts.tenant_id;
  const ActivePtr batch = find_active(blob);
  json::object facts = facts_of(blob);
  if (is_final(status_of(facts))) {
    return base::fail(ErrorCode::kConflict, fmt::format("the batch has ended: it is {}", status_of(facts)));
  }
  if (status_of(facts) == "cancelling") return {};
  set_status(facts, "cancelling", context_.clock->now().unix_ms / 1000);
  store::blobs::Facts kept = blob.facts;
  kept.body = json::serialize(facts);
  TRY(context_.blobs->set_facts(blob.id, std::move(kept)));
  if (batch != nullptr) {
    batch->facts = std::move(facts);
    end_jobs(*batch);
    feed(batch);
  }
  schedule(tenant_id);
  return {};
}

base::Result<> BatchRunner::set_facts(const Active& batch) const {
  store::blobs::Facts facts = context_.blobs->find(batch.id)->facts;
  facts.body = json::serialize(batch.facts);
  if (is_final(status_of(batch.facts))) {
    facts.expires_unix_ms = context_.clock->now().unix_ms + context_.config->orchestratord.files.retention_ms;
  }
  return context_.blobs->set_facts(batch.id, std::move(facts));
}

// The oldest one that is not done; null: there is none.
BatchRunner::ActivePtr BatchRunner::next_of(const std::string& tenant_id) const {
  ActivePtr oldest;
  for (BatchForm* form : forms_) {
    for (const Blob* blob : context_.blobs->list(form->kind(), tenant_id)) {
      if (!unfinished().contains(blob->id)) continue;
      if (oldest && oldest->created_unix_ms <= blob->facts.created_unix_ms) break;
      json::object facts = object_of(blob->facts.body);
      const auto caller = tasks::caller_from(facts.if_contains(kCaller));
      if (!caller || is_final(status_of(facts))) continue;
      BatchBlobs blobs = form->blobs_of(blob->id, facts);
      oldest = std::make_shared<Active>(Active{.id = blob->id,
                                               .form = form,
                                               .facts = std::move(facts),
                                               .caller = *caller,
                                               .blobs = std::move(blobs),
                                               .created_unix_ms = blob->facts.created_unix_ms});
      break;
    }
  }
  return oldest;
}

void BatchRunner::schedule(const std::string& tenant_id) {
  if (active_.contains(tenant_id)) return;
  const ActivePtr batch = next_of(tenant_id);
  if (batch == nullptr) return;
  active_.emplace(tenant_id, batch);
  begin(batch);
}

void BatchRunner::begin(const ActivePtr& batch) {
  if (status_of(batch->facts) == "validating" && waits_for_room(*batch)) return;
  batch->done.clear();
  for (const char* member : {"completed", "failed"}) set_count(batch->facts, member, 0);
  const auto take = [&](const std::string& blob_id) {
    const auto read = read_results(*batch, blob_id);
    return read || note_loss(*batch, &BatchLosses::results, read.error());
  };
  bool is_read = take(batch->blobs.answers);
  if (is_read && batch->blobs.failures != batch->blobs.answers) is_read = take(batch->blobs.failures);
  if (is_read && status_of(batch->facts) == "validating") {
    set_status(batch->facts, "in_progress", context_.clock->now().unix_ms / 1000);
    if (!set_facts(*batch)) batch->facts["status"] = "validating";
  }
  if (!is_read || status_of(batch->facts) == "validating") {
    return context_.files->post_after(kDeferredRetryMs, [this, batch] { begin(batch); });
  }
  batch->begun = true;
  feed(batch);
}

bool BatchRunner::waits_for_room(Active& batch) const {
  const auto begun = static_cast<std::int64_t>(batch.done.size() + batch.in_flight.size());
  const bool more = !ends(batch) && begun < count_of(batch.facts, "total");
  // That it began is kept, and then its answers are.
  const std::size_t bytes =
      batch.begun ? (batch.in_flight.size() + 1) * batch.longest_answer_bytes : json::serialize(batch.facts).size();
  const auto room = more ? context_.blobs->check_room(batch.caller.account, bytes) : base::Result<>();
  if (!room && !batch.in_flight.empty()) return true;  // whichever of these is answered asks again
  const bool waited = std::exchange(batch.waits_for_room, !room);
  if (!room && !waited) {
    base::log_event(base::LogLevel::kWarn, "batch.waits_for_room", {},
                    "A batch begins no further request: its owner keeps as many bytes as it may.",
                    {{"batch_id", batch.id}, {"reason", room.error().message}});
  }
  return !room;
}

bool BatchRunner::note_loss(Active& batch, bool BatchLosses::*part, const Error& error) {
  if (error.code != ErrorCode::kNotFound && error.code != ErrorCode::kCorruptFile) return false;
  if (std::exchange(batch.losses.*part, true)) return true;
  if (part == &BatchLosses::input) {
    base::log_event(base::LogLevel::kError, "batch.input_lost", {},
                    "The input of a batch is gone or damaged; the batch fails when those that run have ended.",
                    {{"batch_id", batch.id}, {"reason", error.message}});
  } else {
    base::log_event(base::LogLevel::kError, "batch.results_lost", {},
                    "Answers of a batch are gone or damaged; no further request of it begins.",
                    {{"batch_id", batch.id}, {"reason", error.message}});
  }
  return true;
}

base::Result<> BatchRunner::read_results(Active& batch, const std::string& blob_id) const {
  LineSplitter lines;
  std::uint64_t offset = 0;
  for (bool last = false; !last;) {
    const std::string bytes = TRY(context_.blobs->read(blob_id, offset, kReadBytes));
    offset += bytes.size();
    last = bytes.empty();
    lines.feed(bytes);
    while (const auto line = lines.next(last)) {
      batch.longest_answer_bytes = std::max(batch.longest_answer_bytes, line->size());
      auto result = batch.form->result_of(*line);
      if (!result || !batch.done.insert(std::move(result->custom_id)).second) continue;
      if (result->outcome == BatchOutcome::kCompleted) add_one(batch.facts, "completed");
      if (result->outcome == BatchOutcome::kFailed) add_one(batch.facts, "failed");
    }
  }
  return {};
}

// As many requests as may be in flight; when none is left, the batch ends.
void BatchRunner::feed(const ActivePtr& batch) {
  if (*context_.stopping || !batch->begun || is_final(status_of(batch->facts))) return;
  if (ends(*batch)) {
    batch->input_ended = true;
    end_jobs(*batch);
  }
  while (!batch->input_ended && batch->in_flight.size() < kInFlightMax) {
    if (waits_for_room(*batch)) return;
    auto request = next_request(*batch, batch->input);
    if (!request && note_loss(*batch, &BatchLosses::input, request.error())) {
      batch->input_ended = true;
      break;
    }
    if (!request) {
      return context_.files->post_after(kDeferredRetryMs, [this, batch] { feed(batch); });
    }
    if (!*request) {
      batch->input_ended = true;
      break;
    }
    if (batch->done.contains((*request)->custom_id)) continue;
    const auto shared = std::make_shared<Request>(**std::move(request));
    batch->in_flight.insert(shared);
    run(batch, shared);
  }
  if (batch->input_ended && batch->in_flight.empty()) finish(batch);
}

// Nothing: there are no more. NOT_FOUND, CORRUPT_FILE: the input is gone, or is not what it was.
base::Result<std::optional<BatchRunner::Request>> BatchRunner::next_request(const Active& batch, Input& input) const {
  for (bool last = false;;) {
    if (const auto text = input.lines.next(last)) {
      ++input.lines_read;
      auto line = batch.form->line_of(batch.facts, *text);
      if (!line) continue;  // it was checked once; whoever changed it since then gets no answer for it
      return Request{input.lines_read, std::move(line->custom_id), std::move(line->body)};
    }
    if (last) return std::nullopt;
    const std::string bytes = TRY(context_.blobs->read(batch.blobs.input, input.offset, kReadBytes));
    last = bytes.empty();
    input.lines.feed(bytes);
    input.offset += bytes.size();
  }
}

bool BatchRunner::is_too_late(const Active& batch) const {
  const auto found = unfinished().find(batch.id);
  if (found != unfinished().end() && found->second.due_elapsed_ms) {
    return context_.blobs->elapsed_ms() >= *found->second.due_elapsed_ms;
  }
  return context_.blobs->unix_ms() / 1000 >= number_of(batch.facts, "expires_at");
}

bool BatchRunner::ends(const Active& batch) const {
  return batch.losses.results || status_of(batch.facts) == "cancelling" || is_too_late(batch);
}

// What a library throws out of a request ends that request, not its batch.
base::Result<tasks::DeferredJobPtr> BatchRunner::job_of(const Active& batch, BatchRequest request) {
  try {
    return batch.form->job_of(batch.facts, std::move(request));
  } catch (const std::exception&) {
    base::log_event(base::LogLevel::kError, "batch.request_failed", {}, "A request of a batch failed inside a library.",
                    {{"type", base::current_exception_type()}});
    return base::fail(ErrorCode::kInternal, "this request failed inside a library");
  }
}

void BatchRunner::run(const ActivePtr& batch, const RequestPtr& request) {
  if (ends(*batch)) {
    batch->in_flight.erase(request);
    return feed(batch);
  }
  const std::string name = name_of(*batch, *request);
  const base::CorrelationId correlation_id = correlation_of(*batch, *request);
  const std::string task_id = uuid_of_name(fmt::format("{}/try {}", name, request->tries));
  const auto job = job_of(*batch, {.body = request->body,
                                   .name = name,
                                   .caller = batch->caller,
                                   .task_id = task_id,
                                   .identity = {.job_id = job_id_of_task(batch->caller, task_id),
                                                .correlation_id = correlation_id,
                                                .created_unix_s = batch->created_unix_ms / 1000}});
  if (!job) {
    return context_.files->post([this, batch, request, answer = batch->form->refusal(job.error(), correlation_id)] {
      keep(batch, request, answer);
    });
  }
  const auto unfinished_batch = unfinished().find(batch->id);
  const bool is_resumed = unfinished_batch != unfinished().end() && !unfinished_batch->second.due_elapsed_ms;
  const auto asked_unix_ms = is_resumed ? std::optional(batch->created_unix_ms) : std::nullopt;
  tasks::run_deferred(context_, submitter_, *job,
                      {.admitted =
                           [this, batch, request](const wire::SubmitReply&, const tasks::Admission& now) {
                             request->job_id = base::JobId(now.reply.job_id);
                             if (batch->input_ended) feed(batch);
                           },
                       .done =
                           [this, batch, request](base::Result<net::Response> answer) {
                             request->job_id.reset();
                             on_done(batch, request, std::move(answer));
                           }},
                      {.count = tasks::DeferredCount::kEach, .asked_unix_ms = asked_unix_ms});
}

void BatchRunner::on_done(const ActivePtr& batch, const RequestPtr& request, base::Result<net::Response> answer) {
  const bool good = answer && answer->status == 200;
  if (ends(*batch) && !good) {
    batch->in_flight.erase(request);
    return feed(batch);
  }
  if (!answer && tasks::may_pass(context_, answer.error())) {
    return context_.files->post_after(retry_after_ms(answer.error()), [this, batch, request] { run(batch, request); });
  }
  if (answer && answer->status >= 500 && request->tries + 1 < kTriesMax) {
    ++request->tries;
    return context_.files->post_after(kDeferredRetryMs, [this, batch, request] { run(batch, request); });
  }
  keep(batch, request, answer ? *answer : batch->form->refusal(answer.error(), correlation_of(*batch, *request)));
}

void BatchRunner::keep(const ActivePtr& batch, const RequestPtr& request, const net::Response& answer) {
  const base::CorrelationId correlation_id = correlation_of(*batch, *request);
  std::string text = batch->form->result_line(request->custom_id, correlation_id.value, answer);
  const auto room = context_.blobs->check_answer(batch->caller.account, text.size());
  const bool good = room && answer.status == 200;
  if (!room) {
    text = batch->form->result_line(request->custom_id, correlation_id.value,
                                    batch->form->refusal(room.error(), correlation_id));
  }
  batch->longest_answer_bytes = std::max(batch->longest_answer_bytes, text.size());
  const auto kept = context_.blobs->append(good ? batch->blobs.answers : batch->blobs.failures, text);
  if (!kept && note_loss(*batch, &BatchLosses::results, kept.error())) {
    batch->in_flight.erase(request);
    return feed(batch);
  }
  if (!kept) {
    return context_.files->post_after(kDeferredRetryMs,
                                      [this, batch, request, answer] { keep(batch, request, answer); });
  }
  add_one(batch->facts, good ? "completed" : "failed");
  batch->done.insert(request->custom_id);
  batch->in_flight.erase(request);
  feed(batch);
}

void BatchRunner::end_jobs(const Active& batch) {
  for (const RequestPtr& request : batch.in_flight) {
    if (!request->job_id) continue;
    context_.core->post(core::CancelRequested{
        .request = {}, .job_id = *request->job_id, .reason = core::jobs::CancelReason::kClientRequest});
  }
}

// Where it fails it is called again, and goes on with those that are not listed yet.
base::Result<> BatchRunner::list_unanswered(Active& batch) const {
  const bool cancelled = status_of(batch.facts) == "cancelling";
  Input input;
  std::string lines;
  std::vector<std::string> ids;
  for (bool more = true; more;) {
    auto next = next_request(batch, input);
    // Nobody can say which the others were.
    const bool is_lost = !next && note_loss(batch, &BatchLosses::input, next.error());
    auto request = is_lost ? std::optional<Request>() : TRY(std::move(next));
    more = request.has_value();
    if (more && !batch.done.contains(request->custom_id)) {
      const std::string line = batch.form->unanswered_line(request->custom_id, cancelled);
      if (line.empty()) return {};
      lines += line;
      ids.push_back(std::move(request->custom_id));
    }
    if (lines.empty() || (more && lines.size() < kWriteBytes)) continue;
    TRY(context_.blobs->append(batch.blobs.failures, std::exchange(lines, {})));
    for (std::string& id : std::exchange(ids, {})) batch.done.insert(std::move(id));
  }
  return {};
}

void BatchRunner::finish(const ActivePtr& batch) {
  if (is_final(status_of(batch->facts))) return;  // a second try found it done
  const base::Time now = context_.clock->now();
  const std::int64_t answered = count_of(batch->facts, "completed") + count_of(batch->facts, "failed");
  const bool all = answered >= count_of(batch->facts, "total");
  const bool cancelled = status_of(batch->facts) == "cancelling";
  const auto settled = [&](const base::Result<>& result) {
    return result || note_loss(*batch, &BatchLosses::results, result.error());
  };
  bool written = all || batch->losses.results || settled(list_unanswered(*batch));
  const bool lost_before = batch->losses.results;  // and answered since, if all are
  if (written) {
    written = settled(
        batch->form->reveal(batch->id, batch->facts, now.unix_ms + context_.config->orchestratord.files.retention_ms));
  }
  if (written) {
    json::object before = batch->facts;
    if (!cancelled) batch->facts["finalizing_at"] = now.unix_ms / 1000;
    const bool is_lost = batch->losses.input || batch->losses.results;
    const bool is_whole = all && (lost_before || !batch->losses.results);
    if (!is_whole && is_lost) batch->form->tell(batch->losses, batch->facts);
    const char* status = cancelled ? "cancelled" : is_whole ? "completed" : is_lost ? "failed" : "expired";
    set_status(batch->facts, status, now.unix_ms / 1000);
    written = set_facts(*batch).has_value();
    if (!written) batch->facts = std::move(before);
  }
  if (!written) return context_.files->post_after(kDeferredRetryMs, [this, batch] { finish(batch); });
  unfinished().erase(batch->id);
  batch->form->ended(batch->id);
  const std::string tenant_id = batch->caller.account;
  active_.erase(tenant_id);
  schedule(tenant_id);
}

void BatchRunner::resume() {
  std::set<std::string> tenants;
  for (const BatchForm* form : forms_) {
    for (const Blob* blob : context_.blobs->list(form->kind())) tenants.insert(blob->facts.tenant_id);
  }
  for (const std::string& tenant_id : tenants) schedule(tenant_id);
  const auto config = context_.live_config->get();
  const std::int64_t left = std::ranges::count_if(unfinished(), [&config](const auto& batch) {
    return core::sessions::is_former_tenant(batch.second.account, config->orchestratord.tenants);
  });
  if (left > 0) {
    base::log_event(base::LogLevel::kWarn, "tenants.removed", {},
                    "Batches of tenants that are not configured any more go on, one request at a time.",
                    {{"batches", left}});
  }
  look();
}

void BatchRunner::look() {
  context_.files->post_after(kLookMs, [this] { look(); });
  std::vector<ActivePtr> due;
  for (const auto& [tenant_id, batch] : active_) {
    if (!batch->input_ended && (batch->waits_for_room || ends(*batch))) due.push_back(batch);
  }
  for (const ActivePtr& batch : due) {
    if (batch->begun) {
      feed(batch);
    } else if (batch->waits_for_room) {
      begin(batch);
    }
  }
}

}  // namespace llorch::orchestratord::http::deferred

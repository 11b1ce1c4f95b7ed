#include "orchestratord/http/openai/deferred/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <variant>

#include "base/log.h"
#include "base/sha256.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/openai/deferred/files.h"
#include "orchestratord/http/openai/errors.h"
#include "orchestratord/http/tasks/kept_facts.h"
#include "orchestratord/http/tenancy.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

namespace json = boost::json;
using base::Error;
using base::ErrorCode;
using chat::refused;
using store::blobs::Blob;
using tasks::caller_from;
using tasks::number_of;
using tasks::object_of;
using tasks::text_of;
using tasks::to_json;

constexpr std::int64_t kLookMs = 1000;
constexpr std::int64_t kWindowS = 24 * 3600;
constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::size_t kListDefault = 20;
constexpr std::size_t kMetadataBytesMax = 16 << 10;

// Members of the facts that a client is not shown.
constexpr std::string_view kOutput = "output_blob", kErrors = "error_blob", kCaller = "caller";

bool is_final(std::string_view status) {
  return status == "completed" || status == "failed" || status == "expired" || status == "cancelled";
}

std::string status_of(const json::object& facts) { return text_of(facts, "status"); }

json::object fresh_batch(const wire::CreateBatchRequest& wanted, const std::string& id, std::int64_t now_s) {
  json::object out{{"id", id},
                   {"object", "batch"},
                   {"endpoint", wanted.endpoint},
                   {"errors", nullptr},
                   {"input_file_id", wanted.input_file_id},
                   {"completion_window", wanted.completion_window},
                   {"status", "validating"},
                   {"output_file_id", nullptr},
                   {"error_file_id", nullptr},
                   {"created_at", now_s},
                   {"expires_at", now_s + kWindowS}};
  for (const char* event : {"in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"}) {
    out[std::string(event) + "_at"] = nullptr;
  }
  out["request_counts"] = json::object{{"total", 0}, {"completed", 0}, {"failed", 0}};
  out["metadata"] = wanted.metadata ? json::parse(wanted.metadata->text) : json::value();
  return out;
}

void set_status(json::object& facts, std::string_view status, std::int64_t now_s) {
  facts["status"] = status;
  facts[std::string(status) + "_at"] = now_s;
}

void count(json::object& facts, std::string_view member, std::int64_t value) {
  facts["request_counts"].get_object()[member] = value;
}

std::int64_t counted(const json::object& facts, std::string_view member) {
  return number_of(facts.at("request_counts").get_object(), member);
}

json::object errors_of(const std::vector<BatchLineError>& errors) {
  json::array data;
  for (const BatchLineError& error : errors) {
    data.push_back(json::object{{"code", error.code},
                                {"line", error.line > 0 ? json::value(error.line) : json::value()},
                                {"message", error.message},
                                {"param", error.param.empty() ? json::value() : json::value(error.param)}});
  }
  return {{"object", "list"}, {"data", std::move(data)}};
}

base::Result<> check(const wire::CreateBatchRequest& wanted) {
  if (decoder_of(wanted.endpoint) == nullptr) {
    return refused("endpoint", "unsupported",
                   "endpoint is one of /v1/chat/completions, /v1/completions, /v1/responses and /v1/embeddings");
  }
  if (wanted.completion_window != "24h") return refused("completion_window", "unsupported", "completion_window is 24h");
  if (wanted.metadata && wanted.metadata->text.size() > kMetadataBytesMax) {
    return refused("metadata", "range", "metadata has up to 16 KiB");
  }
  return {};
}

// As the client of a line would have it, were it sent alone.
base::Result<Call> call_of(const std::string& endpoint, const std::string& body, const std::string& seed_name) {
  Call call = TRY(decoder_of(endpoint)(body));
  if (const AnswerOptions* text = call.text_answer()) {
    const char* field = text->stream                          ? "stream"
                        : text->background                    ? "background"
                        : text->kept                          ? "store"
                        : !text->previous_response_id.empty() ? "previous_response_id"
                        : !call.prompts.empty()               ? "prompt"
                        : text->choices > 1                   ? "n"
                                                              : nullptr;
    if (field != nullptr) {
      return refused(field, "unsupported",
                     "a line of a batch has one answer, in the output file; it neither streams nor is kept beside it");
    }
  }
  call.submission.priority = wire::Priority::kBatch;
  if (!call.submission.seed) {
    const base::Sha256Digest digest = base::sha256(seed_name);
    std::uint64_t seed = 0;
    for (std::size_t i = 0; i < sizeof seed; ++i) seed = seed << 8 | static_cast<std::uint8_t>(digest[i]);
    call.submission.seed = seed >> 1;  // 63 bits, which every JSON reader keeps
  }
  return call;
}

std::int64_t retry_after_ms(const Error& error) {
  for (const auto& [key, value] : error.details) {
    const auto* ms = std::get_if<std::int64_t>(&value);
    if (key == "retry_after_ms" && ms != nullptr) return std::clamp<std::int64_t>(*ms, 50, 60'000);
  }
  return kDeferredRetryMs;
}

}  // namespace

bool Batches::reads(const store::blobs::BlobStore& blobs, const std::string& file_id) {
  return std::ranges::any_of(blobs.list(kKind), [&](const Blob* blob) {
    const json::object facts = object_of(blob->facts.body);
    return !is_final(status_of(facts)) && text_of(facts, "input_file_id") == file_id;
  });
}

std::string Batches::view(const Blob& blob) const {
  const auto active = active_.find(blob.facts.tenant_id);
  const bool is_active = active != active_.end() && active->second->id == blob.id;
  json::object facts = is_active ? active->second->facts : object_of(blob.facts.body);
  for (const std::string_view member : {kOutput, kErrors, kCaller}) facts.erase(member);
  return json::serialize(facts);
}

const Blob* Batches::find(const net::Request& request, const net::ExchangePtr& exchange) const {
  const Blob* blob = context_.blobs->find(request.path_param("id"));
  if (blob != nullptr && blob->facts.kind == kKind && owns(request.peer.principal, blob->facts.tenant_id)) return blob;
  refuse(context_, exchange, {ErrorCode::kNotFound, "no batch has this id: it never was, or has expired", {}});
  return nullptr;
}

base::Result<> Batches::check_input(const std::string& file_id, BatchCheck& check) const {
  LineSplitter lines;
  std::uint64_t offset = 0;
  for (bool last = false; !last;) {
    const std::string bytes = TRY(context_.blobs->read(file_id, offset, kReadBytes));
    offset += bytes.size();
    last = bytes.empty();
    lines.feed(bytes);
    while (const auto line = lines.next(last)) check.take(*line);
  }
  check.finish();
  return {};
}

// What the batch is from now on: with its files, or failed for what its input holds.
base::Result<json::object> Batches::accept(const wire::CreateBatchRequest& wanted, const std::string& id,
                                           const net::http::Principal& caller) const {
  const base::Time now = context_.clock->now();
  json::object facts = fresh_batch(wanted, id, now.unix_ms / 1000);
  facts[kCaller] = to_json(caller);
  BatchCheck check(wanted.endpoint);
  TRY(check_input(wanted.input_file_id, check));
  if (!check.errors().empty()) {
    set_status(facts, "failed", now.unix_ms / 1000);
    facts["errors"] = errors_of(check.errors());
    return facts;
  }
  count(facts, "total", check.lines());
  for (const std::string_view member : {kOutput, kErrors}) {
    const std::string file_id = "file-" + base::uuid_v4(*context_.entropy);
    TRY(context_.blobs->create(
        file_id,
        {.kind = std::string(Files::kKind),
         .tenant_id = caller.account,
         .created_unix_ms = now.unix_ms,
         .expires_unix_ms = {},
         .body = encode_file({.filename = fmt::format("{}_{}.jsonl", id, member == kOutput ? "output" : "error"),
                              .purpose = "batch_output",
                              .hidden = true})}));
    facts[member] = file_id;
  }
  return facts;
}

void Batches::create(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto wanted = wire::decode<wire::CreateBatchRequest>(request.body, wire::UnknownKeys::kRefuse);
  if (!wanted) return refuse(context_, exchange, wanted.error());
  if (const auto valid = check(*wanted); !valid) return refuse(context_, exchange, valid.error());
  const net::http::Principal& caller = request.peer.principal;
  const Blob* input = context_.blobs->find(wanted->input_file_id);
  if (input == nullptr || input->facts.kind != Files::kKind || !owns(caller, input->facts.tenant_id) ||
      decode_file(*input).purpose != "batch") {
    return refuse(context_, exchange,
                  Error{ErrorCode::kInvalidParams, "input_file_id names no file of purpose batch", {}}
                      .with("field", "input_file_id")
                      .with("reason", "unknown"));
  }
  const std::string id = "batch_" + base::uuid_v4(*context_.entropy);
  auto facts = accept(*wanted, id, caller);
  if (!facts) return refuse(context_, exchange, std::move(facts).error());
  const std::int64_t now_ms = context_.clock->now().unix_ms;
  std::optional<std::int64_t> expires_ms;
  if (is_final(status_of(*facts))) expires_ms = now_ms + context_.config->orchestratord.files.retention_ms;
  // From here on the batch is.
  auto kept = context_.blobs->create(id, {.kind = std::string(kKind),
                                          .tenant_id = caller.account,
                                          .created_unix_ms = now_ms,
                                          .expires_unix_ms = expires_ms,
                                          .body = json::serialize(*facts)});
  if (!kept) return refuse(context_, exchange, std::move(kept).error());
  exchange->respond(net::http::json_response(200, view(*context_.blobs->find(id))));
  schedule(caller.account);
}

void Batches::list(const net::Request& request, const net::ExchangePtr& exchange) {
  std::vector<const Blob*> blobs = context_.blobs->list(kKind);
  std::erase_if(blobs, [&](const Blob* blob) { return !owns(request.peer.principal, blob->facts.tenant_id); });
  auto page = list_page(request, {.usual = kListDefault, .most = kListMax}, ids_of(blobs),
                        [&](std::size_t index) { return view(*blobs[index]); });
  if (!page) return refuse(context_, exchange, page.error());
  exchange->respond(net::http::json_response(200, *std::move(page)));
}

void Batches::show(const net::Request& request, const net::ExchangePtr& exchange) {
  if (const Blob* blob = find(request, exchange)) exchange->respond(net::http::json_response(200, view(*blob)));
}

void Batches::cancel(const net::Request& request, const net::ExchangePtr& exchange) {
  const Blob* blob = find(request, exchange);
  if (blob == nullptr) return;
  const std::string id = blob->id, tenant_id = blob->facts.tenant_id;
  const auto it = active_.find(tenant_id);
  const ActivePtr batch = it != active_.end() && it->second->id == id ? it->second : nullptr;
  json::object facts = batch != nullptr ? batch->facts : object_of(blob->facts.body);
  if (is_final(status_of(facts))) {
    return refuse(context_, exchange,
                  {ErrorCode::kConflict, fmt::format("the batch has ended: it is {}", status_of(facts)), {}});
  }
  if (status_of(facts) != "cancelling") set_status(facts, "cancelling", context_.clock->now().unix_ms / 1000);
  store::blobs::Facts kept = blob->facts;
  kept.body = json::serialize(facts);
  if (auto written = context_.blobs->set_facts(id, std::move(kept)); !written) {
    return refuse(context_, exchange, std::move(written).error());
  }
  if (batch != nullptr) {
    batch->facts = std::move(facts);
    end_jobs(*batch);
    feed(batch);
  }
  exchange->respond(net::http::json_response(200, view(*context_.blobs->find(id))));
  schedule(tenant_id);
}

base::Result<> Batches::set_facts(const Active& batch) const {
  store::blobs::Facts facts = context_.blobs->find(batch.id)->facts;
  facts.body = json::serialize(batch.facts);
  if (is_final(status_of(batch.facts))) {
    facts.expires_unix_ms = context_.clock->now().unix_ms + context_.config->orchestratord.files.retention_ms;
  }
  return context_.blobs->set_facts(batch.id, std::move(facts));
}

// One batch of a tenant at a time, the oldest first.
void Batches::schedule(const std::string& tenant_id) {
  if (active_.contains(tenant_id)) return;
  for (const Blob* blob : context_.blobs->list(kKind, tenant_id)) {
    json::object facts = object_of(blob->facts.body);
    const auto caller = caller_from(facts.if_contains(kCaller));
    if (!caller || is_final(status_of(facts))) continue;
    auto batch = std::make_shared<Active>(Active{
        .id = blob->id, .facts = std::move(facts), .caller = *caller, .created_unix_ms = blob->facts.created_unix_ms});
    active_.emplace(tenant_id, batch);
    return begin(batch);
  }
}

void Batches::begin(const ActivePtr& batch) {
  const auto completed = read_results(*batch, text_of(batch->facts, kOutput), "completed");
  const auto failed = completed ? read_results(*batch, text_of(batch->facts, kErrors), "failed") : completed;
  if (failed && status_of(batch->facts) == "validating") {
    set_status(batch->facts, "in_progress", context_.clock->now().unix_ms / 1000);
    if (!set_facts(*batch)) batch->facts["status"] = "validating";
  }
  if (!failed || status_of(batch->facts) == "validating") {
    batch->done.clear();
    return context_.files->post_after(kDeferredRetryMs, [this, batch] { begin(batch); });
  }
  feed(batch);
}

base::Result<> Batches::read_results(Active& batch, const std::string& file_id, std::string_view name) {
  LineSplitter lines;
  std::int64_t lines_count = 0;
  std::uint64_t offset = 0;
  for (bool last = false; !last;) {
    const std::string bytes = TRY(context_.blobs->read(file_id, offset, kReadBytes));
    offset += bytes.size();
    last = bytes.empty();
    lines.feed(bytes);
    while (const auto line = lines.next(last)) {
      if (auto id = custom_id_of_result(*line)) lines_count += batch.done.insert(*std::move(id)).second;
    }
  }
  count(batch.facts, name, lines_count);
  return {};
}

// As many lines as may be in flight; when none is left, the batch ends.
void Batches::feed(const ActivePtr& batch) {
  if (*context_.stopping) return;
  if (ends(*batch)) {
    batch->input_ended = true;
    end_jobs(*batch);
  }
  while (!batch->input_ended && batch->in_flight.size() < kInFlightMax) {
    auto line = next_line(*batch);
    if (!line) {
      return context_.files->post_after(kDeferredRetryMs, [this, batch] { feed(batch); });
    }
    if (!*line) {
      batch->input_ended = true;
      break;
    }
    if (batch->done.contains((*line)->custom_id)) continue;
    const auto shared = std::make_shared<Line>(**std::move(line));
    batch->in_flight.insert(shared);
    run(batch, shared);
  }
  if (batch->input_ended && batch->in_flight.empty()) finish(batch);
}

// Nothing: there are no more.
base::Result<std::optional<Batches::Line>> Batches::next_line(Active& batch) const {
  for (bool last = false;;) {
    if (const auto text = batch.input.next(last)) {
      ++batch.lines_read;
      auto parsed = parse_batch_line(*text, text_of(batch.facts, "endpoint"));
      if (!parsed) continue;  // it was checked once; whoever changed it since then gets no answer for it
      return Line{batch.lines_read, std::move(parsed->custom_id), std::move(parsed->body)};
    }
    if (last) return std::nullopt;
    auto bytes = context_.blobs->read(text_of(batch.facts, "input_file_id"), batch.input_offset, kReadBytes);
    if (!bytes && bytes.error().code != ErrorCode::kNotFound) return base::fail(std::move(bytes).error());
    last = !bytes || bytes->empty();
    if (!last) batch.input.feed(*bytes);
    if (!last) batch.input_offset += bytes->size();
  }
}

bool Batches::ends(const Active& batch) const {
  return status_of(batch.facts) == "cancelling" ||
         context_.clock->now().unix_ms / 1000 >= number_of(batch.facts, "expires_at");
}

void Batches::run(const ActivePtr& batch, const LinePtr& line) {
  if (ends(*batch)) {
    batch->in_flight.erase(line);
    return feed(batch);
  }
  const std::string name = fmt::format("{}/{}", batch->id, line->number);
  const base::CorrelationId correlation_id{uuid_of_name(name)};
  auto call = call_of(text_of(batch->facts, "endpoint"), line->body, name);
  if (!call) {
    return context_.files->post(
        [this, batch, line, answer = error_response(call.error(), correlation_id)] { keep(batch, line, answer); });
  }
  const std::string task_id = uuid_of_name(fmt::format("{}/try {}", name, line->tries));
  const auto deferred =
      std::make_shared<const DeferredCall>(DeferredCall{.call = *std::move(call),
                                                        .caller = batch->caller,
                                                        .task_id = task_id,
                                                        .identity = {.job_id = job_id_of_task(batch->caller, task_id),
                                                                     .correlation_id = correlation_id,
                                                                     .created_unix_s = batch->created_unix_ms / 1000}});
  run_deferred(context_, submitter_, deferred,
               {.admitted =
                    [this, batch, line](const base::JobId& job_id, const tasks::Admission&) {
                      line->job_id = job_id;
                      if (batch->input_ended) feed(batch);
                    },
                .done =
                    [this, batch, line](base::Result<net::Response> answer) {
                      line->job_id.reset();
                      on_done(batch, line, std::move(answer));
                    }});
}

void Batches::on_done(const ActivePtr& batch, const LinePtr& line, base::Result<net::Response> answer) {
  const bool good = answer && answer->status == 200;
  if (ends(*batch) && !good) {
    batch->in_flight.erase(line);
    return feed(batch);
  }
  if (!answer && base::info(answer.error().code).retriable) {
    return context_.files->post_after(retry_after_ms(answer.error()), [this, batch, line] { run(batch, line); });
  }
  if (answer && answer->status >= 500 && line->tries + 1 < kTriesMax) {
    ++line->tries;
    return context_.files->post_after(kDeferredRetryMs, [this, batch, line] { run(batch, line); });
  }
  keep(batch, line, answer ? *answer : error_response(answer.error(), {}));
}

void Batches::keep(const ActivePtr& batch, const LinePtr& line, const net::Response& answer) {
  const bool good = answer.status == 200;
  const std::string name = uuid_of_name(fmt::format("{}/{}", batch->id, line->number));
  const std::string text = batch_result_line("batch_req_" + name, line->custom_id, answer, name);
  if (!context_.blobs->append(text_of(batch->facts, good ? kOutput : kErrors), text)) {
    return context_.files->post_after(kDeferredRetryMs, [this, batch, line, answer] { keep(batch, line, answer); });
  }
  const std::string_view member = good ? "completed" : "failed";
  count(batch->facts, member, counted(batch->facts, member) + 1);
  batch->done.insert(line->custom_id);
  batch->in_flight.erase(line);
  feed(batch);
}

void Batches::end_jobs(const Active& batch) {
  for (const LinePtr& line : batch.in_flight) {
    if (!line->job_id) continue;
    context_.core->post(core::CancelRequested{
        .request = {}, .job_id = *line->job_id, .reason = core::jobs::CancelReason::kClientRequest});
  }
}

// What was written is the client's to read from here on; a file without a line is none.
base::Result<> Batches::reveal(json::object& facts, std::string_view member) const {
  const std::string id = text_of(facts, member);
  const Blob* blob = context_.blobs->find(id);
  if (blob == nullptr) return {};
  if (blob->content_bytes == 0) return context_.blobs->erase(id);
  store::blobs::Facts kept = blob->facts;
  FileFacts file = decode_file(*blob);
  file.hidden = false;
  kept.body = encode_file(file);
  kept.expires_unix_ms = context_.clock->now().unix_ms + context_.config->orchestratord.files.retention_ms;
  TRY(context_.blobs->set_facts(id, std::move(kept)));
  facts[member == kOutput ? "output_file_id" : "error_file_id"] = id;
  return {};
}

void Batches::finish(const ActivePtr& batch) {
  const std::int64_t now_s = context_.clock->now().unix_ms / 1000;
  const bool all =
      counted(batch->facts, "completed") + counted(batch->facts, "failed") >= counted(batch->facts, "total");
  const bool cancelled = status_of(batch->facts) == "cancelling";
  auto written = reveal(batch->facts, kOutput);
  if (written) written = reveal(batch->facts, kErrors);
  if (written) {
    json::object before = batch->facts;
    if (!cancelled) batch->facts["finalizing_at"] = now_s;
    set_status(batch->facts, cancelled ? "cancelled" : all ? "completed" : "expired", now_s);
    written = set_facts(*batch);
    if (!written) batch->facts = std::move(before);
  }
  if (!written) return context_.files->post_after(kDeferredRetryMs, [this, batch] { finish(batch); });
  const std::string tenant_id = batch->caller.account;
  active_.erase(tenant_id);
  schedule(tenant_id);
}

// Results of a batch that a crash kept from being made.
void Batches::remove_orphans() const {
  std::set<std::string> known;
  for (const Blob* blob : context_.blobs->list(kKind)) {
    const json::object facts = object_of(blob->facts.body);
    for (const std::string_view member : {kOutput, kErrors}) known.insert(text_of(facts, member));
  }
  for (const Blob* blob : context_.blobs->list(Files::kKind)) {
    const std::string id = blob->id;
    if (decode_file(*blob).hidden && !known.contains(id)) (void)context_.blobs->erase(id);
  }
}

void Batches::resume() {
  remove_orphans();
  std::set<std::string> tenants;
  for (const Blob* blob : context_.blobs->list(kKind)) tenants.insert(blob->facts.tenant_id);
  for (const std::string& tenant_id : tenants) schedule(tenant_id);
  look();
}

void Batches::look() {
  std::vector<ActivePtr> over;
  for (const auto& [tenant_id, batch] : active_) {
    if (ends(*batch) && !batch->input_ended) over.push_back(batch);
  }
  for (const ActivePtr& batch : over) feed(batch);
  context_.files->post_after(kLookMs, [this] { look(); });
}

}  // namespace llorch::orchestratord::http::openai

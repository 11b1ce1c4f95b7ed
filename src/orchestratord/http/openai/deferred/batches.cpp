#include "orchestratord/http/openai/deferred/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "base/parse_json.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/deferred/batch_facts.h"
#include "orchestratord/http/deferred/list_page.h"
#include "orchestratord/http/deferred/owned_blobs.h"
#include "orchestratord/http/openai/deferred/deferred_call.h"
#include "orchestratord/http/openai/deferred/files.h"
#include "orchestratord/http/openai/errors.h"
#include "orchestratord/http/tasks/kept_facts.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

namespace json = boost::json;
using base::Error;
using base::ErrorCode;
using chat::refused;
using deferred::is_final;
using deferred::kCaller;
using deferred::set_status;
using deferred::status_of;
using store::blobs::Blob;
using tasks::object_of;
using tasks::text_of;

constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::size_t kListDefault = 20;
constexpr std::size_t kMetadataBytesMax = 16 << 10;

// Members of the facts that a client is not shown.
constexpr std::string_view kOutput = "output_blob", kErrors = "error_blob";
constexpr std::array kEvents{"in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"};

std::string_view shown_as(std::string_view member) { return member == kOutput ? "output_file_id" : "error_file_id"; }

// Those that nobody writes any more and nobody is shown.
std::vector<std::string> useless_files(const json::object& facts) {
  std::vector<std::string> out;
  for (const std::string_view member : {kOutput, kErrors}) {
    std::string id = text_of(facts, member);
    const bool used = !is_final(status_of(facts)) || !text_of(facts, shown_as(member)).empty();
    if (!id.empty() && !used) out.push_back(std::move(id));
  }
  return out;
}

json::object fresh_batch(const wire::CreateBatchRequest& wanted, const std::string& id,
                         const net::http::Principal& caller, std::int64_t total, std::int64_t now_s) {
  json::object out{{"id", id},
                   {"object", "batch"},
                   {"endpoint", wanted.endpoint},
                   {"errors", nullptr},
                   {"input_file_id", wanted.input_file_id},
                   {"completion_window", wanted.completion_window},
                   {"output_file_id", nullptr},
                   {"error_file_id", nullptr}};
  for (const char* event : kEvents) out[std::string(event) + "_at"] = nullptr;
  for (const auto& [name, value] : deferred::fresh_facts(caller, total, now_s)) out[name] = value;
  out["metadata"] = wanted.metadata ? base::parse_known_json(wanted.metadata->text) : json::value();
  return out;
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
base::Result<Call> call_of(const std::string& endpoint, std::string_view body, const std::string& seed_name) {
  Call call = TRY(decoder_of(endpoint)(body));
  if (!call.submission.model) return refused("model", "missing", "model is required of a line of a batch");
  if (const AnswerOptions* text = call.text_answer()) {
    const char* field = text->stream                          ? "stream"
                        : text->background                    ? "background"
                        : text->kept                          ? "store"
                        : !text->previous_response_id.empty() ? "previous_response_id"
                        : !text->conversation.id.empty()      ? "conversation"
                        : !call.prompts.empty()               ? "prompt"
                        : text->choices > 1                   ? "n"
                                                              : nullptr;
    if (field != nullptr) {
      return refused(field, "unsupported",
                     "a line of a batch has one answer, in the output file; it neither streams nor is kept beside it");
    }
  }
  call.submission.priority = wire::Priority::kBatch;
  if (!call.submission.seed) call.submission.seed = deferred::seed_of_name(seed_name);
  return call;
}

}  // namespace

std::string Batches::view(const Blob& blob) const {
  json::object facts = runner_.facts_of(blob);
  for (const std::string_view member : {kOutput, kErrors, kCaller}) facts.erase(member);
  return json::serialize(facts);
}

const Blob* Batches::find(const net::Request& request, const net::ExchangePtr& exchange) const {
  const Blob* blob = deferred::find_owned(context_, kKind, request.path_param("id"), request.peer.principal);
  if (blob != nullptr) return blob;
  refuse(context_, exchange, {ErrorCode::kNotFound, "no batch has this id: it never was, or has expired", {}});
  return nullptr;
}

base::Result<> Batches::check_input(const std::string& file_id, BatchCheck& check) const {
  deferred::LineSplitter lines;
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
  BatchCheck check(wanted.endpoint);
  TRY(check_input(wanted.input_file_id, check));
  const bool good = check.errors().empty();
  json::object facts = fresh_batch(wanted, id, caller, good ? check.lines() : 0, now.unix_ms / 1000);
  if (!good) {
    set_status(facts, "failed", now.unix_ms / 1000);
    facts["errors"] = errors_of(check.errors());
    return facts;
  }
  const auto make = [&](std::string_view member) {
    const std::string file_id = "file-" + base::uuid_v4(*context_.entropy);
    facts[member] = file_id;
    return context_.blobs->create(
        file_id,
        {.kind = std::string(Files::kKind),
         .tenant_id = caller.account,
         .created_unix_ms = now.unix_ms,
         .expires_unix_ms = {},
         .body = encode_file({.filename = fmt::format("{}_{}.jsonl", id, member == kOutput ? "output" : "error"),
                              .purpose = "batch_output",
                              .hidden = true})});
  };
  for (const std::string_view member : {kOutput, kErrors}) {
    if (auto made = make(member); !made) {
      erase_files(facts);
      return base::fail(std::move(made).error());
    }
  }
  return facts;
}

void Batches::erase_files(const json::object& facts) const {
  for (const std::string_view member : {kOutput, kErrors}) (void)context_.blobs->erase(text_of(facts, member));
}

void Batches::create(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto wanted = wire::decode<wire::CreateBatchRequest>(request.body, wire::UnknownKeys::kRefuse);
  if (!wanted) return refuse(context_, exchange, wanted.error());
  if (const auto valid = check(*wanted); !valid) return refuse(context_, exchange, valid.error());
  const net::http::Principal& caller = request.peer.principal;
  if (auto may = runner_.check_count(caller.account); !may) return refuse(context_, exchange, std::move(may).error());
  const Blob* input = deferred::find_owned(context_, Files::kKind, wanted->input_file_id, caller);
  if (input == nullptr || decode_file(*input).purpose != "batch") {
    return refuse(context_, exchange,
                  Error{ErrorCode::kInvalidParams, "input_file_id names no file of purpose batch", {}}
                      .with("field", "input_file_id")
                      .with("reason", "unknown"));
  }
  const std::string id = "batch_" + base::uuid_v4(*context_.entropy);
  auto facts = accept(*wanted, id, caller);
  if (!facts) return refuse(context_, exchange, std::move(facts).error());
  auto kept = runner_.create(*this, id, *facts);  // from here on the batch is
  if (!kept) {
    erase_files(*facts);
    return refuse(context_, exchange, std::move(kept).error());
  }
  exchange->respond(net::http::json_response(200, view(*context_.blobs->find(id))));
}

void Batches::list(const net::Request& request, const net::ExchangePtr& exchange) {
  const std::vector<const Blob*> blobs = deferred::list_owned(context_, kKind, request.peer.principal);
  auto page = deferred::list_page(request, {.usual = kListDefault, .most = kListMax}, deferred::ids_of(blobs),
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
  if (auto cancelled = runner_.cancel(*blob); !cancelled) {
    return refuse(context_, exchange, std::move(cancelled).error());
  }
  exchange->respond(net::http::json_response(200, view(*blob)));
}

deferred::BatchBlobs Batches::blobs_of(const std::string&, const json::object& facts) const {
  return {text_of(facts, "input_file_id"), text_of(facts, kOutput), text_of(facts, kErrors)};
}

std::optional<deferred::BatchLine> Batches::line_of(const json::object& facts, std::string_view text) const {
  auto line = parse_batch_line(text, text_of(facts, "endpoint"));
  return line ? std::optional(*std::move(line)) : std::nullopt;
}

base::Result<tasks::DeferredJobPtr> Batches::job_of(const json::object& facts, deferred::BatchRequest request) const {
  Call call = TRY(call_of(text_of(facts, "endpoint"), request.body, request.name));
  return openai::job_of(std::make_shared<const DeferredCall>(DeferredCall{.call = std::move(call),
                                                                          .caller = std::move(request.caller),
                                                                          .task_id = std::move(request.task_id),
                                                                          .identity = std::move(request.identity)}));
}

net::Response Batches::refusal(const Error& error, const base::CorrelationId& correlation_id) const {
  return error_response(error, correlation_id);
}

std::string Batches::result_line(std::string_view custom_id, std::string_view name, const net::Response& answer) const {
  return batch_result_line(fmt::format("batch_req_{}", name), custom_id, answer, name);
}

std::optional<deferred::BatchResult> Batches::result_of(std::string_view line) const { return batch_result_of(line); }

// A file without a line is none: it stays hidden until the batch has ended, for whoever goes on with the batch reads it.
base::Result<> Batches::reveal(const std::string&, json::object& facts, std::int64_t expires_unix_ms) {
  base::Result<> all;
  for (const std::string_view member : {kOutput, kErrors}) {
    const std::string id = text_of(facts, member);
    const Blob* blob = context_.blobs->find(id);
    if (blob == nullptr || blob->content_bytes == 0) continue;
    store::blobs::Facts kept = blob->facts;
    FileFacts file = decode_file(*blob);
    file.hidden = false;
    kept.body = encode_file(file);
    kept.expires_unix_ms = expires_unix_ms;
    auto shown = context_.blobs->set_facts(id, std::move(kept));
    if (shown) facts[shown_as(member)] = id;
    if (all && !shown) all = std::move(shown);
  }
  return all;
}

void Batches::tell(const deferred::BatchLosses& losses, json::object& facts) const {
  std::vector<BatchLineError> errors;
  if (losses.input) {
    errors.push_back(
        {0, "input_file_missing", "The input file was gone or damaged before every line had run.", "input_file_id"});
  }
  if (losses.results) {
    errors.push_back(
        {0, "results_damaged", "Answers of earlier lines were gone or damaged before every line had run.", ""});
  }
  facts["errors"] = errors_of(errors);
}

void Batches::ended(const std::string& id) {
  const Blob* batch = context_.blobs->find(id);
  if (batch == nullptr) return;
  for (const std::string& file_id : useless_files(object_of(batch->facts.body))) (void)context_.blobs->erase(file_id);
}

void Batches::remove_orphans() const {
  std::set<std::string> known;
  for (const Blob* blob : context_.blobs->list(kKind)) {
    const json::object facts = object_of(blob->facts.body);
    for (const std::string_view member : {kOutput, kErrors}) known.insert(text_of(facts, member));
    for (const std::string& id : useless_files(facts)) known.erase(id);
  }
  for (const Blob* blob : context_.blobs->list(Files::kKind)) {
    const std::string id = blob->id;
    if (decode_file(*blob).hidden && !known.contains(id)) (void)context_.blobs->erase(id);
  }
}

}  // namespace llorch::orchestratord::http::openai

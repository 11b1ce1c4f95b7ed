#include "orchestratord/http/openai/response_renderer.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/append.h"
#include "base/error_code.h"
#include "base/json_text.h"
#include "base/parse_json.h"
#include "orchestratord/http/openai/errors.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

// Caches are shared and their hits not told; thoughts are not told apart.
void append_response_usage(std::string& out, const wire::EndEvent& end) {
  base::append(out,
               R"({{"input_tokens":{},"input_tokens_details":{{"cached_tokens":0,"cache_write_tokens":0}},)"
               R"("output_tokens":{},"output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":{}}})",
               end.tokens_in, end.tokens_out, end.tokens_in + end.tokens_out);
}

// What a call of a custom tool gives it; of arguments without that text all that they say.
std::string custom_input(const std::string& arguments) {
  boost::json::error_code ec;
  const boost::json::value parsed = base::parse_json(arguments, ec);
  const boost::json::object* object = ec ? nullptr : parsed.if_object();
  const boost::json::value* input = object == nullptr ? nullptr : object->if_contains("input");
  return input != nullptr && input->is_string() ? std::string(input->get_string()) : arguments;
}

bool is_cut(wire::StopReason reason) { return finish_reason(reason) == "length"; }

}  // namespace

ResponseRenderer::ResponseRenderer(const AnswerOptions& options, const AnswerIdentity& identity)
    : options_(options), identity_(identity), new_logprobs_(options.endpoint) {
  if (options.reading) reader_.emplace(options.reading);
  head_.headers = options.stream ? net::http::sse_headers() : net::http::json_response(200, "").headers;
  head_.headers.set("X-Request-Id", identity.correlation_id.value);
}

void ResponseRenderer::open_event(std::string_view type, std::string& out) {
  base::append(out, R"(event: {0}{1}data: {{"type":"{0}","sequence_number":{2})", type, '\n', sequence_number_++);
}

void ResponseRenderer::open_text_event(std::string_view prefix, std::string_view rest, std::string& out) {
  const std::string_view what = open_ == Kind::kReasoning ? "reasoning_text" : "output_text";
  open_event(rest.empty() ? std::string(prefix) : fmt::format("{}{}{}", prefix, what, rest), out);
  base::append(out, R"(,"item_id":"{}","output_index":{},"content_index":0)", item_id(), items_count_);
}

void ResponseRenderer::open_item_event(std::string_view type, std::string& out) {
  open_event(type, out);
  base::append(out, R"(,"output_index":{},"item":)", items_count_);
}

void ResponseRenderer::item_event(std::string_view type, std::string_view item, std::string& out) {
  open_item_event(type, out);
  out.append(item).append("}\n\n");
}

// Of the open item. The first message has the job's own, so that it is told from any other at a glance.
std::string ResponseRenderer::item_id() const {
  if (open_ == Kind::kReasoning) return fmt::format("rs_{}_{}", identity_.job_id.value, items_count_);
  if (messages_count_ == 1) return "msg_" + identity_.job_id.value;
  return fmt::format("msg_{}_{}", identity_.job_id.value, items_count_);
}

void ResponseRenderer::queued(const wire::QueuedEvent& event, const streams::EventId&, std::string&) { wait_ = event; }

void ResponseRenderer::started(const wire::StartedEvent&, const streams::EventId&, std::string& out) {
  wait_.reset();
  begin(out);
}

void ResponseRenderer::begin(std::string& out) {
  if (begun_ || !options_.stream) return;
  begun_ = true;
  for (const std::string_view type : {"response.created", "response.in_progress"}) {
    open_event(type, out);
    out += R"(,"response":)";
    append_response({.status = "in_progress"}, out);
    out += "}\n\n";
  }
  if (!reader_) open_item(Kind::kContent, out);
}

std::string ResponseRenderer::part_opening() const {
  return open_ == Kind::kReasoning ? R"({"type":"reasoning_text","text":)"
                                   : R"({"type":"output_text","annotations":[],"logprobs":)";
}

std::string ResponseRenderer::item_opening(std::string_view status) const {
  if (open_ == Kind::kReasoning) {
    return fmt::format(R"({{"id":"{}","type":"reasoning","status":"{}","summary":[],"content":[)", item_id(), status);
  }
  return fmt::format(R"({{"id":"{}","type":"message","status":"{}","role":"assistant","content":[)", item_id(), status);
}

void ResponseRenderer::open_item(Kind kind, std::string& out) {
  open_ = kind;
  messages_count_ += kind == Kind::kContent;
  if (!options_.stream) return;
  item_event("response.output_item.added", item_opening("in_progress") + "]}", out);
  open_text_event("response.content_part.added", "", out);
  out.append(R"(,"part":)").append(part_opening());
  out.append(kind == Kind::kContent ? R"([],"text":""}})" : R"(""}})").append("\n\n");
}

// Those of the tokens since the last text, which are the open item's now.
std::string ResponseRenderer::take_logprobs() {
  std::string list;
  new_logprobs_.write(list);
  if (list == "[]") return list;
  logprobs_.pop_back();
  logprobs_.append(logprobs_ == "[" ? "" : ",").append(list, 1);
  return list;
}

// Those of markers, thoughts and calls, which no item tells.
void ResponseRenderer::drop_logprobs() {
  std::string list;
  new_logprobs_.write(list);
}

void ResponseRenderer::add_text(std::string_view text, std::string& out) {
  text_ += text;
  const std::string logprobs = open_ == Kind::kContent ? take_logprobs() : "";
  if (!options_.stream) return;
  open_text_event("response.", ".delta", out);
  out += R"(,"delta":)";
  base::append_json_string(out, text);
  if (open_ == Kind::kContent) out.append(R"(,"logprobs":)").append(logprobs);
  out += "}\n\n";
}

ResponseRenderer::Closed ResponseRenderer::add_open_item(std::string_view status) {
  const auto from = [this](std::size_t begin) { return Range{begin, items_.size() - begin}; };
  Closed out;
  items_ += items_.empty() ? "" : ",";
  const std::size_t item_begin = items_.size();
  items_ += item_opening(status);
  const std::size_t part_begin = items_.size();
  items_ += part_opening();
  if (open_ == Kind::kContent) {
    const std::size_t logprobs_begin = items_.size();
    items_ += logprobs_;
    out.logprobs = from(logprobs_begin);
    items_ += R"(,"text":)";
  }
  const std::size_t text_begin = items_.size();
  base::append_json_string(items_, text_);
  out.text = from(text_begin);
  items_ += '}';
  out.part = from(part_begin);
  items_ += "]}";
  out.item = from(item_begin);
  return out;
}

void ResponseRenderer::close_item(std::string_view status) {
  if (!open_) return;
  const Closed closed = add_open_item(status);
  if (options_.stream) {
    std::string done, part_done, item_done;
    open_text_event("response.", ".done", done);
    left_.push_back({{done + R"(,"text":)", closed.text}});
    if (open_ == Kind::kContent) left_.back().push_back({R"(,"logprobs":)", closed.logprobs});
    left_.back().push_back({"}\n\n"});
    open_text_event("response.content_part.done", "", part_done);
    left_.push_back({{part_done + R"(,"part":)", closed.part}, {"}\n\n"}});
    open_item_event("response.output_item.done", item_done);
    left_.push_back({{std::move(item_done), closed.item}, {"}\n\n"}});
  }
  ++items_count_;
  open_.reset();
  text_.clear();
  std::string("[]").swap(logprobs_);  // gives back its memory
}

std::string& ResponseRenderer::behind_left(std::string& out) {
  return left_.empty() ? out : left_.emplace_back().emplace_back().text;
}

bool ResponseRenderer::more(std::string& out) {
  if (left_.empty()) return false;
  for (const Piece& piece : left_.front()) out.append(piece.text).append(items_, piece.behind.begin, piece.behind.size);
  left_.pop_front();
  return true;
}

void ResponseRenderer::add_call(const chat::Part& call, std::string& out) {
  const bool is_custom = options_.custom_tools.contains(call.name);
  const std::string_view type = is_custom ? "custom_tool_call" : "function_call";
  const std::string_view what = is_custom ? "input" : "arguments";
  const std::string id = fmt::format("{}_{}_{}", is_custom ? "ctc" : "fc", identity_.job_id.value, call.index);
  const auto member = options_.members.find(call.name);
  std::string name, said, space;
  base::append_json_string(name, member == options_.members.end() ? call.name : member->second.name);
  base::append_json_string(said, is_custom ? custom_input(call.text) : call.text);
  if (member != options_.members.end()) base::append_json_string(space = R"(,"namespace":)", member->second.space);
  const auto item = [&](std::string_view status, std::string_view so_far) {
    return fmt::format(R"({{"id":"{}","type":"{}","status":"{}","{}":{},"call_id":"{}","name":{}{}}})", id, type,
                       status, what, so_far, chat::call_id("call_", identity_.job_id, call), name, space);
  };
  const std::string whole = item("completed", said);
  if (options_.stream) {
    item_event("response.output_item.added", item("in_progress", R"("")"), out);
    open_event(fmt::format("response.{}_{}.delta", type, what), out);
    base::append(out, R"(,"item_id":"{}","output_index":{},"delta":{}}}{}{})", id, items_count_, said, '\n', '\n');
    open_event(fmt::format("response.{}_{}.done", type, what), out);
    base::append(out, R"(,"item_id":"{}","output_index":{},"name":{},"{}":{}}}{}{})", id, items_count_, name, what,
                 said, '\n', '\n');
    item_event("response.output_item.done", whole, out);
  }
  items_.append(items_.empty() ? "" : ",").append(whole);
  ++items_count_;
}

void ResponseRenderer::take(const chat::Part& part, std::string& out) {
  if (open_ != part.kind) close_item("completed");
  std::string& to = behind_left(out);
  if (part.kind == Kind::kCall) {
    drop_logprobs();
    return add_call(part, to);
  }
  if (!open_) open_item(part.kind, to);
  add_text(part.text, to);
}

void ResponseRenderer::token(const streams::TokenView& token, const streams::EventId&, std::string& out) {
  begin(out);
  if (!reader_ && !open_) open_item(Kind::kContent, out);  // nothing is streamed
  new_logprobs_.add(token);
  if (!reader_) {
    if (!token.t.empty() || !token.logprobs.empty()) add_text(token.t, out);
    return;
  }
  reader_->take(token, parts_);
  for (const chat::Part& part : parts_) take(part, out);
  parts_.clear();
  if (open_ == Kind::kReasoning) drop_logprobs();
}

void ResponseRenderer::append_opening(const Outcome& outcome, std::string& out) const {
  base::append(out, R"({{"id":"resp_{}","object":"response","created_at":{},"status":"{}","error":)",
               identity_.job_id.value, identity_.created_unix_s, outcome.status);
  if (outcome.error != nullptr) {
    out += R"({"code":"server_error","message":)";
    base::append_json_string(out, outcome.error->message);
    out.append(R"(,"llorch":)").append(wire::encode(*outcome.error)).append("}");
  } else {
    out += "null";
  }
  const bool cut = outcome.end != nullptr && is_cut(outcome.end->stop_reason);
  out += R"(,"incomplete_details":)";
  out += cut ? R"({"reason":"max_output_tokens"})" : "null";
  out.append(",").append(options_.asked).append(R"(,"model":)");
  base::append_json_string(out, options_.model);
  out += R"(,"previous_response_id":)";
  if (options_.previous_response_id.empty()) {
    out += "null";
  } else {
    base::append_json_string(out, options_.previous_response_id);
  }
  if (const std::string& id = options_.conversation.id; !id.empty()) {
    out += R"(,"conversation":{"id":)";
    base::append_json_string(out, id);
    out += '}';
  }
  out += R"(,"service_tier":)";
  out += options_.is_flex ? R"("flex")" : R"("default")";
  if (options_.background) out += R"(,"background":true)";
  out += options_.kept ? R"(,"store":true)" : R"(,"store":false)";
  out += R"(,"truncation":"disabled","output":[)";
}

void ResponseRenderer::append_closing(const Outcome& outcome, std::string& out) const {
  out += R"(],"usage":)";
  if (outcome.end != nullptr) {
    append_response_usage(out, *outcome.end);
    append_provenance(out, *outcome.end);
  } else {
    out += "null";
  }
  out += '}';
}

void ResponseRenderer::append_response(const Outcome& outcome, std::string& out) const {
  append_opening(outcome, out);
  append_closing(outcome, out);
}

std::string ResponseRenderer::unfinished(std::string_view status) const {
  std::string out;
  append_response({.status = status}, out);
  return out;
}

void ResponseRenderer::end(const wire::EndEvent& event, const streams::EventId&, std::string& out) {
  begin(out);
  const std::string_view status = is_cut(event.stop_reason) ? "incomplete" : "completed";
  if (reader_) {
    reader_->finish(parts_);
    for (const chat::Part& part : parts_) take(part, out);
    parts_.clear();
  }
  if (!open_ && messages_count_ == 0 && (!reader_ || reader_->calls() == 0)) {
    open_item(Kind::kContent, behind_left(out));
  }
  if (open_ == Kind::kContent) take_logprobs();  // of the token that ends the output
  close_item(status);
  const Outcome outcome{.status = status, .end = &event};
  if (!options_.stream) {
    append_opening(outcome, out);
    out += items_;
    return append_closing(outcome, out);
  }
  std::string before, behind;
  open_event(is_cut(event.stop_reason) ? "response.incomplete" : "response.completed", before);
  before += R"(,"response":)";
  append_opening(outcome, before);
  append_closing(outcome, behind);
  left_.push_back({{std::move(before), {0, items_.size()}}, {behind + "}\n\n"}});
}

void ResponseRenderer::error(const wire::ErrorBody& error, const std::optional<streams::EventId>&, std::string& out) {
  if (options_.stream) {
    begin(out);
    open_event("response.failed", out);
    out += R"(,"response":)";
    const bool is_cancelled = outlives_client(options_) && error.code == base::info(base::ErrorCode::kCancelled).name;
    append_response({.status = is_cancelled ? "cancelled" : "failed", .error = is_cancelled ? nullptr : &error}, out);
    out += "}\n\n";
    return;
  }
  net::http::Response response = error_response(wire::to_error(error), identity_.correlation_id);
  out += response.body;
  head_ = {.status = response.status, .headers = std::move(response.headers)};
}

void ResponseRenderer::keep_alive(std::string& out) { chat::append_keep_alive(out, wait_); }

}  // namespace llorch::orchestratord::http::openai

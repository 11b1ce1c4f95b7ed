#include "orchestratord/models/catalog.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error_detail.h"
#include "base/exceptions.h"
#include "base/join.h"
#include "base/log.h"
#include "net/http/error_response.h"
#include "net/http/url.h"
#include "text/tokenizer_data.h"
#include "wire/json.h"
#include "wire/told_facts.h"

namespace llorch::orchestratord::models {
namespace {

using base::Error;
using base::ErrorCode;

// A pool answers from its own cache in a fraction of a millisecond; a replaced file is noticed after this.
constexpr std::int64_t kFreshMs = 5000;
constexpr std::int64_t kRetryAfterMs = 1000;
// Behind a start pools register within moments; a question waits for one, up to so long, and looks so often.
constexpr std::int64_t kNoPoolWaitMs = 2000, kNoPoolLookMs = 200;
constexpr std::size_t kNamedMax = 4;  // silent pools in a refusal

Error unready(std::string message) {
  return Error{ErrorCode::kPoolUnready, std::move(message), {}}.with("retry_after_ms", kRetryAfterMs);
}

Error being_read() {
  return unready("the pool is still reading the model; try again").with("reason", std::string("MODEL_BEING_READ"));
}

Error some_are_silent(std::vector<std::string> pools) {
  const std::size_t left_out = pools.size() - std::min(pools.size(), kNamedMax);
  pools.resize(pools.size() - left_out);
  std::string names = base::join(pools, ", ");
  if (left_out > 0) names += fmt::format(" and {} more", left_out);
  return unready(
             fmt::format("no pool that answered has the file with this checksum, and {} did not answer; try again, or "
                         "unpair a pool that is gone for good (llorch pool unpair)",
                         names))
      .with("silent_pools", names);
}

base::Result<std::string> body_of(base::Result<net::Response> response) {
  if (!response) return base::fail(std::move(response).error());
  if (response->status >= 400) return base::fail(net::http::error_of(*response));
  return std::move(response->body);
}

base::Result<std::shared_ptr<const ModelText>> text_of(const std::string& blob, const wire::ModelFacts& facts) {
  auto data = TRY(text::parse_tokenizer_data(std::as_bytes(std::span(blob))));
  const std::size_t sent = data.tokens.size();
  if (facts.vocab_size != 0) TRY(text::fit_to_rows(data, facts.vocab_size));
  // In memory a token that fills the table is no less than one that the pool sent.
  const std::size_t filled = data.tokens.size() - std::min(sent, data.tokens.size());
  text::Chat chat(data);
  ControlTokens tokens = control_tokens(data);
  ChatFormat format = ChatFormat::of(data.chat_template, tokens);
  ChatFormat with_tools = ChatFormat::of(text::template_for_tools(data), tokens);
  auto infill = text::Infill::of(data);
  return std::shared_ptr<const ModelText>(std::make_shared<ModelText>(
      ModelText{TRY(text::Tokenizer::create(std::move(data))), std::move(chat), std::move(tokens), std::move(format),
                std::move(with_tools), std::move(infill),
                static_cast<std::int64_t>(blob.size() + filled * sizeof(std::string))}));
}

tl::unexpected<Error> no_pool_there() {
  return base::fail(ErrorCode::kUnreachable, "no paired pool answers there any more");
}

// Of what pools say, how much it tells: a file that cannot be used more than another file, and that more than none.
int tells(const Error& error) {
  if (error.code == ErrorCode::kModelNotFound) return 0;
  return is_other_file(error) ? 1 : 2;
}

// Whether another pool may answer better.
bool nobody_answered(ErrorCode code) {
  return code == ErrorCode::kUnreachable || code == ErrorCode::kIoError || code == ErrorCode::kTimeout ||
         code == ErrorCode::kShuttingDown || code == ErrorCode::kMissingToken || code == ErrorCode::kBadToken;
}

// What passes leaves the caller with what was known.
Catalog::Done or_known(KnownModel known, Catalog::Done done) {
  return [known = std::move(known), done = std::move(done)](base::Result<KnownModel> found) {
    const bool passes = !found && base::info(found.error().code).retriable;
    done(passes ? base::Result<KnownModel>(known) : std::move(found));
  };
}

}  // namespace

wire::Workload workload_of(const wire::ModelFacts& facts) {
  if (facts.reranks.value_or(false)) return wire::Workload::kRerank;
  return facts.embedding_dimensions ? wire::Workload::kEmbedding : wire::Workload::kCompletion;
}

// ORCH-3097: a name stands for the bytes that came with it.
Error other_file(const std::string& found) {
  return Error{ErrorCode::kUntrustedArtifact,
               "the model's file has another checksum than the model that has this name; pull it again",
               {}}
      .with("found", found);
}

bool is_other_file(const Error& error) {
  return error.code == ErrorCode::kUntrustedArtifact && base::has_detail(error, "found");
}

std::int64_t largest_device_bytes(const std::vector<wire::GpuInfo>& gpus) {
  std::int64_t largest = 0;
  for (const wire::GpuInfo& gpu : gpus) largest = std::max(largest, gpu.vram_total_bytes);
  return largest;
}

void Catalog::pool_seen(const std::string& endpoint) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(pools_, endpoint, &Pool::endpoint) == pools_.end()) pools_.push_back({endpoint});
}

void Catalog::pool_lost(const std::string& endpoint) {
  const std::lock_guard lock(mutex_);
  std::erase_if(pools_, [&](const Pool& pool) { return pool.endpoint == endpoint; });
}

void Catalog::devices_seen(const std::string& endpoint, std::int64_t largest_device_bytes) {
  const std::lock_guard lock(mutex_);
  const auto pool = std::ranges::find(pools_, endpoint, &Pool::endpoint);
  if (pool != pools_.end()) pool->largest_device_bytes = largest_device_bytes;
}

void Catalog::find(const Wanted& wanted, Done done) {
  const Key key{wanted.model_ref, wanted.checksum};
  std::int64_t wait_ms = wanted.wait_ms;
  std::optional<base::Result<KnownModel>> answer;
  std::optional<Question> question;
  std::optional<std::uint64_t> waiter;
  bool looks_again = false;
  {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.try_emplace(key).first;
    Entry& entry = it->second;
    entry.asked_for = ++questions_count_;
    const std::int64_t now_ms = options_.clock->now().mono_ms;
    const bool stale = now_ms - entry.known_since_ms >= kFreshMs;
    const bool asks = !entry.asking && !pools_.empty() && (!entry.known || stale || wanted.anew);
    if (asks) entry.asked_ms = now_ms;
    const bool remembers = entry.known && !wanted.anew;
    if (remembers) {
      const std::int64_t left_ms = entry.asked_ms + options_.stale_wait_ms - now_ms;
      wait_ms = stale && !pools_.empty() ? std::min(wait_ms, left_ms) : 0;
    }
    if (remembers && wait_ms <= 0) {
      answer = *entry.known;
    } else if (pools_.empty() && wanted.wait_ms >= kNoPoolLookMs) {
      looks_again = true;
    } else if (pools_.empty()) {
      answer = base::fail(unready("no pool manager is registered, so no model can be looked at; start pool-managerd"));
    } else {
      waiter = ++waiters_count_;
      (wanted.anew && entry.asking ? entry.waiters_for_next : entry.waiters)
          .emplace(*waiter, remembers ? or_known(*entry.known, done) : done);
    }
    if (asks) {
      entry.asking = true;
      question = Question{key, wanted.correlation_id, pools_};
    }
    if (!entry.known && !entry.asking) entries_.erase(it);  // names nobody can look at leave nothing behind
  }
  // Outside the lock: a timer takes one of its own, which is held while expire() runs.
  if (looks_again) {
    Wanted rest = wanted;
    rest.wait_ms = std::min(wanted.wait_ms, kNoPoolWaitMs) - kNoPoolLookMs;
    options_.runtime->post_after(kNoPoolLookMs,
                                 [this, rest = std::move(rest), done = std::move(done)] { find(rest, done); });
    return;
  }
  if (waiter) {
    options_.runtime->post_after(wait_ms, [this, key, id = *waiter] { expire(key, id); });
  }
  if (answer) options_.runtime->post([done = std::move(done), answer = std::move(*answer)] { done(answer); });
  if (question) ask(std::move(*question));
}

std::optional<wire::ModelFacts> Catalog::known_facts(const std::string& model_ref) {
  const std::lock_guard lock(mutex_);
  const Entry* newest = nullptr;
  for (auto it = entries_.lower_bound({model_ref, ""}); it != entries_.end() && it->first.model_ref == model_ref;
       ++it) {
    const Entry& entry = it->second;
    if (entry.known && (newest == nullptr || entry.asked_for > newest->asked_for)) newest = &entry;
  }
  return newest == nullptr ? std::nullopt : std::optional(newest->known->facts);
}

std::string Catalog::describe_path(const Question& question) const {
  std::string path =
      fmt::format("/v2/models/describe?ref={}&slots={}&kv_dtype={}", net::http::percent_encode(question.key.model_ref),
                  options_.worker_slots, net::http::percent_encode(options_.kv_dtype));
  if (options_.worker_kv_tokens != 0) path += fmt::format("&kv_tokens={}", options_.worker_kv_tokens);
  path += fmt::format("&image_tokens_max={}", options_.worker_image_tokens_max);
  if (question.devices > 1) path += fmt::format("&devices={}", question.devices);
  if (options_.worker_context_tokens) path += fmt::format("&context_tokens={}", *options_.worker_context_tokens);
  return path;
}

std::optional<net::ClientRequest> Catalog::request_to(const Question& question, const std::string& path) const {
  const std::string& endpoint = question.pools.front().endpoint;
  net::ClientRequest request;
  if (options_.token_at) {
    auto token = options_.token_at(endpoint);
    if (!token) return std::nullopt;
    request.bearer = std::move(*token);
  }
  request.url = endpoint + path;
  request.correlation_id = question.correlation_id;
  return request;
}

void Catalog::ask(Question question) {
  if (question.pools.empty() && question.too_large) {
    auto [pool, facts] = *std::exchange(question.too_large, {});
    question.pools = {std::move(pool)};
    return take(std::move(question), std::move(facts));
  }
  if (question.pools.empty()) return settle(question, base::fail(refusal_of(question)));
  question.devices = options_.devices_of ? options_.devices_of(question.key.model_ref) : 1;
  auto request = request_to(question, describe_path(question));
  if (!request) return on_facts(std::move(question), no_pool_there());
  request->timeout_ms = options_.describe_timeout_ms;
  options_.client->request(std::move(*request),
                           [this, question = std::move(question)](base::Result<net::Response> response) {
                             attempt(question, [&] { on_facts(question, std::move(response)); });
                           });
}

// A pool that said nothing, or that is not here, may have the bytes that the others have not.
Error Catalog::refusal_of(const Question& question) const {
  if (!question.refusal) return unready("no pool manager answers; the model cannot be looked at now");
  if (is_other_file(*question.refusal) && options_.pools_besides) {
    auto silent = options_.pools_besides(question.answered);
    if (!silent.empty()) return some_are_silent(std::move(silent));
  }
  return *question.refusal;
}

// What a library throws at a pool's answer is that pool's failure: the question goes on, or nobody could ask again.
void Catalog::attempt(const Question& question, const std::function<void()>& step) {
  try {
    step();
  } catch (const std::exception&) {
    std::optional<std::int64_t> left_out;
    {
      const std::lock_guard lock(mutex_);
      left_out = exception_lines_.admit(options_.clock->now().mono_ms);
    }
    if (left_out) {
      base::log_event(base::LogLevel::kError, "catalog.answer_failed", question.correlation_id,
                      "A pool's answer about a model failed inside a library.",
                      {{"endpoint", question.pools.front().endpoint},
                       {"type", base::current_exception_type()},
                       {"left_out_before", *left_out}});
    }
    ask_next(question, {ErrorCode::kInternal, "the pool's description of the model cannot be read", {}});
  }
}

// Another pool may have the file, or a better copy of it.
void Catalog::ask_next(Question question, Error error) {
  if (error.code == ErrorCode::kCancelled) return settle(question, base::fail(std::move(error)));  // the client ends
  if (base::has_detail(error, "reason", "MODEL_BEING_READ"))
    error = being_read();  // without the path that the pool names
  const bool says_nothing = nobody_answered(error.code);
  const bool says_more = !question.refusal || tells(*question.refusal) == 0 || tells(error) > tells(*question.refusal);
  if (!says_nothing) question.answered.push_back(question.pools.front().endpoint);
  if (!says_nothing && says_more) question.refusal = std::move(error);
  question.pools.erase(question.pools.begin());
  ask(std::move(question));
}

void Catalog::on_facts(Question question, base::Result<net::Response> response) {
  auto body = body_of(std::move(response));
  if (!body) return ask_next(std::move(question), std::move(body).error());
  auto facts = wire::decode_told_facts(*body);
  if (!facts || facts->model_ref != question.key.model_ref || facts->devices != question.devices) {
    return ask_next(std::move(question), unready("the pool's description of the model is not valid"));
  }
  if (!question.key.checksum.empty() && facts->digest != question.key.checksum) {
    return ask_next(std::move(question), other_file(facts->digest));
  }
  const Pool pool = question.pools.front();
  if (pool.largest_device_bytes > 0 && facts->memory_bytes > pool.largest_device_bytes) {
    const auto& least = question.too_large;
    if (!least || facts->memory_bytes < least->second.memory_bytes) question.too_large = {pool, *std::move(facts)};
    question.pools.erase(question.pools.begin());
    return ask(std::move(question));
  }
  take(std::move(question), *std::move(facts));
}

void Catalog::take(Question question, wire::ModelFacts facts) {
  if (facts.takes == wire::PromptForm::kText) return settle(question, Known{{.facts = std::move(facts)}, 0});
  std::shared_ptr<const ModelText> cached;
  {
    const std::lock_guard lock(mutex_);
    const auto it = texts_.find({question.pools.front().endpoint, facts.digest});
    if (it != texts_.end()) cached = it->second.lock();
  }
  if (cached != nullptr) return settle(question, known(question, std::move(facts), cached));
  auto request = request_to(question, fmt::format("/v2/models/{}/tokenizer", net::http::percent_encode(facts.digest)));
  if (!request) return on_tokenizer(std::move(question), std::move(facts), no_pool_there());
  options_.client->request(std::move(*request), [this, question = std::move(question),
                                                 facts = std::move(facts)](base::Result<net::Response> reply) mutable {
    // Not on the client's thread, which carries streams: a tokenizer takes a while to build.
    options_.runtime->post(
        [this, question = std::move(question), facts = std::move(facts), reply = std::move(reply)]() mutable {
          attempt(question, [&] { on_tokenizer(question, std::move(facts), std::move(reply)); });
        });
  });
}

void Catalog::on_tokenizer(Question question, wire::ModelFacts facts, base::Result<net::Response> response) {
  auto body = body_of(std::move(response));
  if (!body) {
    const bool pool_gone = nobody_answered(body.error().code);
    return ask_next(std::move(question),
                    pool_gone ? unready("the pool went away; try again") : std::move(body).error());
  }
  auto text = text_of(*body, facts);
  if (!text) return ask_next(std::move(question), std::move(text).error());
  {
    const std::lock_guard lock(mutex_);
    texts_[{question.pools.front().endpoint, facts.digest}] = *text;
  }
  settle(question, known(question, std::move(facts), *text));
}

Catalog::Known Catalog::known(const Question& question, wire::ModelFacts facts,
                              const std::shared_ptr<const ModelText>& text) const {
  KnownModel model{std::move(facts),
                   {text, &text->tokenizer},
                   {text, &text->chat},
                   {text, &text->format},
                   {text, &text->format_with_tools}};
  if (text->infill) model.infill = {text, &*text->infill};
  if (options_.timeout_ms_of) model.timeout_ms = options_.timeout_ms_of(question.key.model_ref);
  if (const auto format = options_.chat_format_of ? options_.chat_format_of(question.key.model_ref) : std::nullopt) {
    model.format = std::make_shared<ChatFormat>(text->format.in(*format, text->control_tokens));
    model.format_with_tools = std::make_shared<ChatFormat>(text->format_with_tools.in(*format, text->control_tokens));
  }
  return {std::move(model), text->bytes};
}

void Catalog::settle(const Question& question, base::Result<Known> result) {
  std::map<std::uint64_t, Done> waiters;
  std::optional<std::int64_t> left_out;
  std::optional<Question> next;
  {
    const std::lock_guard lock(mutex_);
    if (!result) left_out = failure_lines_.admit(options_.clock->now().mono_ms);
    Entry& entry = entries_[question.key];
    entry.asking = false;
    waiters = std::exchange(entry.waiters, {});
    if (result) {
      entry.known = result->model;
      entry.text_bytes = result->text_bytes;
      entry.known_since_ms = options_.clock->now().mono_ms;
      forget_unused(question.key);
    } else if (!entry.known || !base::info(result.error().code).retriable) {
      entry.known.reset();  // gone, or not a model: nothing to serve from memory
      entry.text_bytes = 0;
    }
    if (!entry.waiters_for_next.empty()) {
      entry.waiters = std::exchange(entry.waiters_for_next, {});
      entry.asking = true;
      next = Question{question.key, question.correlation_id, pools_};
    } else if (!entry.known) {
      entries_.erase(question.key);
    }
  }
  if (left_out) {
    base::log_event(base::LogLevel::kWarn, "catalog.describe_failed", question.correlation_id,
                    "A model could not be looked at.",
                    {{"model_ref", question.key.model_ref},
                     {"code", result.error().name()},
                     {"message", result.error().message},
                     {"left_out_before", *left_out}});
  }
  const base::Result<KnownModel> answer =
      result ? base::Result<KnownModel>(std::move(result->model)) : base::fail(std::move(result).error());
  for (auto& [id, done] : waiters) options_.runtime->post([done = std::move(done), answer] { done(answer); });
  if (next) ask(*std::move(next));
}

// Those that nobody asked for the longest go first; a model that is being asked for stays.
void Catalog::forget_unused(const Key& kept) {
  std::size_t count = 0;
  std::int64_t bytes = 0;
  std::map<std::uint64_t, Key> by_use;
  for (const auto& [key, entry] : entries_) {
    if (!entry.known) continue;
    ++count;
    bytes += entry.text_bytes;
    if (key != kept && !entry.asking) by_use.emplace(entry.asked_for, key);
  }
  for (const auto& [asked_for, key] : by_use) {
    if (count <= options_.models_max && bytes <= options_.tokenizer_bytes_max) break;
    --count;
    bytes -= entries_.at(key).text_bytes;
    entries_.erase(key);
  }
  std::erase_if(texts_, [](const auto& text) { return text.second.expired(); });
}

void Catalog::expire(const Key& key, std::uint64_t waiter) {
  Done done;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = entries_.find(key);
    if (entry == entries_.end()) return;
    auto node = entry->second.waiters.extract(waiter);
    if (!node) node = entry->second.waiters_for_next.extract(waiter);
    if (!node) return;
    done = std::move(node.mapped());
  }
  done(base::fail(being_read()));
}

}  // namespace llorch::orchestratord::models

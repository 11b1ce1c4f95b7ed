#pragma once
// Facts and tokenizers of models, asked from the pools and cached by digest.
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log_limiter.h"
#include "net/client.h"
#include "net/executor.h"
#include "orchestratord/models/chat_format.h"
#include "text/chat.h"
#include "text/infill/infill.h"
#include "text/tokenizer.h"
#include "wire/pool.h"
#include "wire/task.h"

namespace llorch::orchestratord::models {

// Of a model that takes text there are the facts and nothing else: only its engine can count a prompt, and tells it as its own
// template wants.
struct KnownModel {
  wire::ModelFacts facts;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::Chat> chat;
  std::shared_ptr<const ChatFormat> format, format_with_tools;
  std::optional<std::int64_t> timeout_ms{};      // of CatalogOptions::timeout_ms_of
  std::shared_ptr<const text::Infill> infill{};  // null: it cannot be asked what stands between two texts
};

// What a model does: one thing, and nothing else.
wire::Workload workload_of(const wire::ModelFacts& facts);

// Tokenizer and chat templates of one digest; what KnownModel points into.
struct ModelText {
  text::Tokenizer tokenizer;
  text::Chat chat;
  ControlTokens control_tokens;
  ChatFormat format, format_with_tools;  // of the template for either
  std::optional<text::Infill> infill;
  std::int64_t bytes = 0;  // as a pool serves it
};

// What the catalog says where pools have `model_ref` and none has the bytes that were asked for; `found` is the digest of theirs.
base::Error other_file(const std::string& found);
bool is_other_file(const base::Error& error);

// Of the devices of one pool; 0: it has none.
std::int64_t largest_device_bytes(const std::vector<wire::GpuInfo>& gpus);

struct CatalogOptions {
  net::Transport* client = nullptr;  // these three REQUIRE not null and outlive the catalog
  net::Executor* runtime = nullptr;
  const base::Clock* clock = nullptr;
  // The token for calls to the pool at `endpoint`; absent: do not call it. A null function: calls need no token.
  std::function<std::optional<std::string>(const std::string& endpoint)> token_at;
  // The ids of the paired pools that are at none of `endpoints`. A null function: there is none.
  std::function<std::vector<std::string>(const std::vector<std::string>& endpoints)> pools_besides;
  // What a worker of ours would need: decides memory_bytes of the facts.
  std::int64_t worker_slots = 1;
  std::optional<std::int64_t> worker_context_tokens;
  std::int64_t worker_kv_tokens = 0;
  std::int64_t worker_image_tokens_max = 0;
  std::string kv_dtype = "f16";
  // How many devices a worker of a model shares it among; null: one.
  std::function<std::int64_t(const std::string& model_ref)> devices_of;
  // The limit on a run of a model that names none; null: no model has one of its own.
  std::function<std::optional<std::int64_t>(const std::string& model_ref)> timeout_ms_of;
  // The format of a model whose template does not tell it; null: every model's tells.
  std::function<std::optional<text::formats::Format>(const std::string& model_ref)> chat_format_of;
  // The catalog keeps at most so many models, and of their tokenizers at most so many bytes as pools serve them; the
  // models least lately asked for go first. Whoever holds a KnownModel keeps it.
  std::size_t models_max = 256;
  std::int64_t tokenizer_bytes_max = 256LL << 20;
  std::int64_t describe_timeout_ms = 60'000;  // a pool hashes a new file before it answers
  std::int64_t stale_wait_ms = 250;           // from the question on, for what was known some seconds ago
};

// Thread-safe. REQUIRES: destroyed after `client` and `runtime` have no callback running.
class Catalog {
 public:
  explicit Catalog(CatalogOptions options) : options_(std::move(options)) {}

  // Pools that can be asked, in the order they came.
  void pool_seen(const std::string& endpoint);
  void pool_lost(const std::string& endpoint);
  // A model that needs more than the largest device there, as that pool says, is asked of the next pool as well. 0: not known.
  void devices_seen(const std::string& endpoint, std::int64_t largest_device_bytes);

  struct Wanted {
    std::string model_ref;
    std::int64_t wait_ms = 0;
    base::CorrelationId correlation_id;  // of the request that brings it up
    bool anew = false;                   // what was known, or asked for, before this question is no answer
    std::string checksum{};              // "sha256:<hex>" that the model must have; empty: any
  };
  using Done = std::function<void(base::Result<KnownModel>)>;
  // Calls `done` once, in a call of `runtime`, at the latest after `wait_ms`. Errors: POOL_UNREADY with retry_after_ms (no pool,
  // or no answer yet: the question goes on and a later call profits; or all pools that answered have other bytes than `checksum`, and
  // `silent_pools` did not), or the pool's own (MODEL_NOT_FOUND, ...); other_file(), once every paired pool has answered.
  // What is known is answered at once. What is older than a few seconds is asked again first, and answered from memory where no pool says
  // within `stale_wait_ms` what it is now.
  void find(const Wanted& wanted, Done done);
  // The facts of a model that somebody has asked for; nobody is asked now.
  std::optional<wire::ModelFacts> known_facts(const std::string& model_ref);

 private:
  struct Key {
    std::string model_ref, checksum;
    auto operator<=>(const Key&) const = default;
  };
  struct Pool {
    std::string endpoint;
    std::int64_t largest_device_bytes = 0;
  };
  struct Entry {
    std::optional<KnownModel> known;
    std::int64_t known_since_ms = 0;
    std::int64_t text_bytes = 0;  // of its tokenizer; 0 with nothing known
    std::uint64_t asked_for = 0;  // when in the order of all questions
    bool asking = false;
    std::int64_t asked_ms = 0;  // when the last question began
    std::map<std::uint64_t, Done> waiters;
    std::map<std::uint64_t, Done> waiters_for_next;  // the question under way is older than theirs
  };
  struct Known {
    KnownModel model;
    std::int64_t text_bytes = 0;
  };
  struct Question {
    Key key;
    base::CorrelationId correlation_id;    // of the request that began it
    std::vector<Pool> pools;               // still to be asked; the first one is
    std::vector<std::string> answered{};   // endpoints of pools that refused; the others that were asked said nothing
    std::optional<base::Error> refusal{};  // a pool's answer that another one may better
    // As another pool may better as well: the least memory that a pool asks for and does not have on any device.
    std::optional<std::pair<Pool, wire::ModelFacts>> too_large{};
    std::int64_t devices = 1;  // asked for; no pool chooses others
  };

  void ask(Question question);
  void ask_next(Question question, base::Error error);
  base::Error refusal_of(const Question& question) const;
  void attempt(const Question& question, const std::function<void()>& step);
  void on_facts(Question question, base::Result<net::Response> response);
  void take(Question question, wire::ModelFacts facts);
  // A request for `path` at the first pool of `question`, with its token; absent: do not call that endpoint.
  std::optional<net::ClientRequest> request_to(const Question& question, const std::string& path) const;
  void on_tokenizer(Question question, wire::ModelFacts facts, base::Result<net::Response> response);
  // As the configuration has it, for the model that `question` is about.
  Known known(const Question& question, wire::ModelFacts facts, const std::shared_ptr<const ModelText>& text) const;
  void settle(const Question& question, base::Result<Known> result);
  void expire(const Key& key, std::uint64_t waiter);
  void forget_unused(const Key& kept);  // REQUIRES mutex_ held
  std::string describe_path(const Question& question) const;

  const CatalogOptions options_;
  std::mutex mutex_;
  // Whoever submits decides how often a model is looked at.
  base::LogLimiter failure_lines_{10, 10'000}, exception_lines_{10, 10'000};
  std::vector<Pool> pools_;
  std::map<Key, Entry> entries_;
  // By endpoint and digest: what one pool says of a digest is nothing to the models of another.
  std::map<std::pair<std::string, std::string>, std::weak_ptr<const ModelText>> texts_;
  std::uint64_t waiters_count_ = 0;
  std::uint64_t questions_count_ = 0;
};

}  // namespace llorch::orchestratord::models

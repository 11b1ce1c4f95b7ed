#include "cli/determinism/run.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "base/philox.h"
#include "base/sha256.h"
#include "engine/inference/continuous_batch.h"
#include "engine/inference/speculation/model_predictor.h"
#include "engine/sampling/sampler.h"

namespace llorch::cli::determinism {
namespace {

using base::TokenId;
using engine::inference::ContinuousBatch;
using engine::inference::Engine;
using engine::inference::SequenceId;
using engine::inference::speculation::ModelPredictor;

// Not the corpus: a generator of circumstances.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  std::uint32_t below(std::uint32_t bound) {
    const auto block = base::philox(seed_, {.position = throws_++, .purpose = base::PhiloxPurpose::kEntropy});
    return static_cast<std::uint32_t>(std::uint64_t{block[0]} * bound >> 32);
  }

 private:
  std::uint64_t seed_;
  std::uint32_t throws_ = 0;
};

std::uint64_t fingerprint(std::span<const float> logits) {
  base::Sha256 hash;
  hash.update(std::as_bytes(logits));
  const base::Sha256Digest digest = hash.digest();
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < 8; ++i) out = out << 8 | digest[i];
  return out;
}

// Draws one request's tokens from the logits it is given.
class Writer {
 public:
  Writer(const Request& request, std::uint32_t vocab)
      : request_(&request),
        history_(request.prompt),
        sampler_(request.sampling, {.vocab = vocab, .history_max = request.tokens_max()}) {}

  base::Result<TokenId> draw(std::span<const float> logits, Trace& trace) {
    const TokenId token =
        TRY(sampler_.sample({.logits = logits,
                             .history = {.tokens = history_, .prompt_tokens = request_->prompt.size()},
                             .position = static_cast<std::uint32_t>(history_.size())}));
    history_.push_back(token);
    trace.tokens.push_back(token);
    trace.logits.push_back(fingerprint(logits));
    return token;
  }
  bool complete() const { return history_.size() == request_->tokens_max(); }

 private:
  const Request* request_;
  std::vector<TokenId> history_;
  engine::sampling::Sampler sampler_;
};

// Knows what will be drawn, and is wrong now and then.
class Foreteller final : public engine::inference::speculation::ProposalSource {
 public:
  // Tokens of the request behind an id so far and all of them; none of a stranger.
  struct Text {
    std::size_t drawn = 0;
    std::span<const TokenId> tokens;
  };
  using TextOf = std::function<Text(SequenceId)>;

  Foreteller(std::uint64_t seed, std::uint32_t vocab, TextOf text_of)
      : dice_(seed), vocab_(vocab), text_of_(std::move(text_of)) {}

  bool propose(std::span<Request> requests) override {
    for (Request& request : requests) {
      const Text text = text_of_(request.id);
      for (std::size_t i = 0; i < request.proposals.size() && text.drawn + i < text.tokens.size(); ++i) {
        const bool wrong = dice_.below(6) == 0;
        request.proposals[i] = wrong ? TokenId{dice_.below(vocab_)} : text.tokens[text.drawn + i];
        request.count = static_cast<std::uint32_t>(i + 1);
      }
      if (request.count == 0) request.proposals[request.count++] = TokenId{dice_.below(vocab_)};
    }
    return true;
  }
  void remove(SequenceId) override {}

 private:
  Dice dice_;
  std::uint32_t vocab_;
  TextOf text_of_;
};

// Requests and strangers in one batch, each under an id of its own; a fork may hand a request over to another id.
class Run {
 public:
  Run(Engine& engine, std::span<const Request> requests, const Circumstances& circumstances, const RequestDone& done)
      : engine_(engine),
        requests_(requests),
        how_(circumstances),
        done_(done),
        dice_(circumstances.seed),
        foreteller_(circumstances.seed + 1, engine.facts().vocab, [this](SequenceId id) { return text_of(id); }),
        predictor_(predictor_of(engine)),
        batch_(engine, batch_options(circumstances)),
        writers_(requests.size()) {
    result_.traces.resize(requests.size());
    arrivals_.resize(requests.size());
    std::iota(arrivals_.begin(), arrivals_.end(), 0);
    for (std::size_t i = arrivals_.size(); how_.shuffled && i > 1; --i) {
      std::swap(arrivals_[i - 1], arrivals_[dice_.below(static_cast<std::uint32_t>(i))]);
    }
  }

  base::Result<RunResult> run() {
    while (finished_ < requests_.size() && (how_.steps_max == 0 || result_.counts.steps < how_.steps_max)) {
      TRY(let_in());
      TRY(keep_strangers());
      pause_somebody();
      TRY(batch_.step(static_cast<std::int64_t>(result_.counts.steps),
                      [&](SequenceId id, std::span<const float> logits) {
                        if (failure_) return;
                        if (const auto answered = answer(id, logits); !answered) failure_ = answered.error();
                      }));
      if (failure_) return base::fail(*failure_);
      ++result_.counts.steps;
    }
    const auto counts = batch_.usage().counts;
    result_.counts.preemptions = counts.preemptions;
    result_.counts.cached_tokens = counts.prefix_tokens_hit;
    result_.counts.rows = counts.rows;
    result_.counts.proposed = counts.proposals.proposed;
    result_.counts.accepted = counts.proposals.accepted;
    for (const auto& [id, request] : owners_) batch_.remove(id);
    for (const Stranger& stranger : strangers_) batch_.remove(stranger.id);
    return std::move(result_);
  }

 private:
  struct Stranger {
    SequenceId id{};
    std::uint64_t leaves_at_step = 0;
  };
  struct Pause {
    SequenceId id{};
    std::uint64_t ends_at_step = 0;
  };

  engine::inference::ContinuousBatchOptions batch_options(const Circumstances& how) {
    engine::inference::ContinuousBatchOptions options;
    if (how.cached) options.cache_salt.assign(16, std::byte{7});
    if (predictor_) options.speculation = {.source = &*predictor_, .proposals_max = 6, .always = true};
    if (!how.foretold.empty()) options.speculation = {.source = &foreteller_, .proposals_max = 6, .always = true};
    return options;
  }
  // What it proposes is the likeliest token, whatever the request draws by.
  static std::optional<ModelPredictor> predictor_of(Engine& engine) {
    if (!engine.facts().predicts) return std::nullopt;
    const auto likeliest = [](SequenceId, std::span<const TokenId>, std::span<const float> logits) {
      return TokenId{static_cast<std::uint32_t>(std::ranges::max_element(logits) - logits.begin())};
    };
    return std::optional<ModelPredictor>(std::in_place, engine, likeliest);
  }
  Foreteller::Text text_of(SequenceId id) const {
    const auto owner = owners_.find(id);
    if (owner == owners_.end()) return {};
    return {result_.traces[owner->second].tokens.size(), how_.foretold[owner->second].tokens};
  }

  SequenceId fresh_id() { return SequenceId{next_id_++}; }
  TokenId random_token() { return TokenId{dice_.below(engine_.facts().vocab)}; }

  base::Result<> let_in() {
    while (arrived_ < arrivals_.size()) {
      if (how_.shuffled && result_.counts.steps < next_arrival_step_) return {};
      // Strangers wait in the same line: they need slots of their own to be company.
      if (how_.strangers != 0 && owners_.size() + how_.strangers >= engine_.facts().slots) return {};
      const std::size_t index = arrivals_[arrived_++];
      const Request& request = requests_[index];
      writers_[index].emplace(request, engine_.facts().vocab);
      const SequenceId id = fresh_id();
      owners_.emplace(id, index);
      TRY(batch_.add({.id = id, .prompt = request.prompt, .tokens_max = request.tokens_max()}));
      if (how_.shuffled) next_arrival_step_ = result_.counts.steps + dice_.below(4);
    }
    return {};
  }

  base::Result<> keep_strangers() {
    std::erase_if(strangers_, [&](const Stranger& stranger) {
      if (stranger.leaves_at_step > result_.counts.steps) return false;
      batch_.remove(stranger.id);
      return true;
    });
    while (strangers_.size() < how_.strangers) {
      const std::uint32_t context = engine_.facts().context_tokens;
      std::vector<TokenId> prompt(1 + dice_.below(context / 2));
      for (TokenId& token : prompt) token = random_token();
      const Stranger stranger{fresh_id(), result_.counts.steps + 1 + dice_.below(stay_max())};
      strangers_.push_back(stranger);
      TRY(batch_.add({.id = stranger.id, .prompt = prompt, .tokens_max = context}));
    }
    return {};
  }

  // A step gives a stranger one token, or two when a number was foretold by chance, so nobody outgrows the context.
  std::uint32_t stay_max() const { return std::min<std::uint32_t>(24, engine_.facts().context_tokens / 4); }

  // A paused sequence loses its slot and pages to whoever waits, and is computed again when it goes on.
  void pause_somebody() {
    std::erase_if(pauses_, [&](const Pause& pause) {
      if (pause.ends_at_step > result_.counts.steps) return false;
      batch_.set_paused(pause.id, false);
      return true;
    });
    if (how_.pause_every == 0 || result_.counts.steps % how_.pause_every != how_.pause_every - 1) return;
    const auto paused = [&](SequenceId id) { return std::ranges::find(pauses_, id, &Pause::id) != pauses_.end(); };
    std::vector<SequenceId> candidates;
    for (const auto& [id, request] : owners_) {
      if (candidates.size() < engine_.facts().slots && !paused(id)) candidates.push_back(id);
    }
    if (candidates.size() < 2) return;  // somebody must get on
    const SequenceId id = candidates[dice_.below(static_cast<std::uint32_t>(candidates.size()))];
    batch_.set_paused(id, true);
    pauses_.push_back({id, result_.counts.steps + 1 + dice_.below(6)});
  }

  base::Result<> answer(SequenceId id, std::span<const float> logits) {
    const auto owner = owners_.find(id);
    if (owner == owners_.end()) {
      batch_.append(id, random_token());
      return {};
    }
    const std::size_t index = owner->second;
    const TokenId token = TRY(writers_[index]->draw(logits, result_.traces[index]));
    const bool complete = writers_[index]->complete();
    if (how_.forked && !complete && result_.traces[index].tokens.size() == 1 + index % 4) id = hand_over(owner);
    if (!complete) {
      batch_.append(id, token);
      return {};
    }
    batch_.remove(id);
    owners_.erase(id);
    std::erase_if(pauses_, [&](const Pause& pause) { return pause.id == id; });
    writers_[index].reset();
    ++finished_;
    if (done_) done_();
    return {};
  }

  // The request goes on in a fork; what it was forked from goes on for a while with other tokens.
  SequenceId hand_over(std::map<SequenceId, std::size_t>::iterator owner) {
    const auto [parent, index] = *owner;
    const SequenceId child = fresh_id();
    batch_.fork(parent, child);
    batch_.append(parent, random_token());
    // It leaves before it has as many tokens as the request may have.
    const auto left = requests_[index].max_tokens - static_cast<std::uint32_t>(result_.traces[index].tokens.size());
    strangers_.push_back({parent, result_.counts.steps + 1 + dice_.below(std::min(6U, left))});
    owners_.erase(owner);
    owners_.emplace(child, index);
    return child;
  }

  Engine& engine_;
  const std::span<const Request> requests_;
  const Circumstances how_;
  const RequestDone& done_;
  Dice dice_;
  Foreteller foreteller_;
  std::optional<ModelPredictor> predictor_;  // none: the engine was loaded without
  ContinuousBatch batch_;
  std::vector<std::size_t> arrivals_;
  std::size_t arrived_ = 0;
  std::uint64_t next_arrival_step_ = 0;
  std::vector<std::optional<Writer>> writers_;  // of requests that run
  std::map<SequenceId, std::size_t> owners_;    // requests that run, by index
  std::size_t finished_ = 0;
  std::vector<Stranger> strangers_;
  std::vector<Pause> pauses_;
  std::uint64_t next_id_ = 0;
  std::optional<base::Error> failure_;
  RunResult result_;
};

}  // namespace

std::string Trace::tokens_sha256() const {
  base::Sha256 hash;
  for (const TokenId token : tokens) hash.update_u32_le(static_cast<std::uint32_t>(token));
  return base::to_hex(hash.digest());
}

std::optional<Departure> departure(const Trace& part, const Trace& whole) {
  for (std::size_t i = 0; i < part.tokens.size(); ++i) {
    if (i >= whole.tokens.size() || part.tokens[i] != whole.tokens[i]) return Departure{i, true};
    if (part.logits[i] != whole.logits[i]) return Departure{i, false};
  }
  return std::nullopt;
}

base::Result<RunResult> run_requests(Engine& engine, std::span<const Request> requests,
                                     const Circumstances& circumstances, const RequestDone& done) {
  return Run(engine, requests, circumstances, done).run();
}

}  // namespace llorch::cli::determinism

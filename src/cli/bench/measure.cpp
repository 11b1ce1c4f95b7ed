#include "cli/bench/measure.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "base/sha256.h"

namespace llorch::cli::bench {
namespace {

using base::Result;
using base::TokenId;
using engine::inference::Engine;
using engine::inference::RowsWanted;
using engine::inference::SlotRows;
using engine::plan::kPageTokens;

class Bench {
 public:
  Bench(Engine& engine, const Traffic& traffic, const Shape& shape, const Hooks& hooks, Report& report)
      : engine_(engine),
        traffic_(traffic),
        shape_(shape),
        hooks_(hooks),
        report_(report),
        reads_(read_probe_bytes()),
        parts_total_(shape.contexts.size() * (shape.batch_max() + shape.runs * (1 + shape.batches.size()))) {
    report_.machine.read_probe_bytes = reads_.bytes();
  }

  Result<> run() {
    TRY(warm_up());
    for (const std::uint32_t context : shape_.contexts) {
      TRY(fill(context));
      std::vector<Figure> figures = figures_of(context);
      Result<> outcome;
      for (std::uint32_t round = 0; round < shape_.runs && outcome && !stopped(); ++round) outcome = run_round(figures);
      for (Figure& figure : figures) {
        if (!figure.samples.empty()) report_.figures.push_back(std::move(figure));
      }
      TRY(std::move(outcome));
      if (stopped()) break;
    }
    report_.interrupted = stopped();
    return {};
  }

 private:
  bool stopped() const { return hooks_.should_stop(); }
  void show(const std::string& part) { hooks_.progress(parts_done_, parts_total_, part); }

  // Arbitrary, and other ones in every slot.
  TokenId token_of(std::uint32_t slot, std::uint32_t position) const {
    return TokenId{(position * 7 + slot * 31 + 3) % engine_.facts().vocab};
  }

  std::vector<Figure> figures_of(std::uint32_t context) const {
    std::vector<Figure> out{{.phase = Phase::kPrefill, .context = context, .tokens = shape_.prompt_tokens}};
    for (const std::uint32_t batch : shape_.batches) {
      // A step at position p reads p + 1 positions.
      const double positions = context + (shape_.generate_tokens + 1) / 2.0;
      out.push_back({.phase = Phase::kDecode,
                     .context = context,
                     .batch = batch,
                     .tokens = shape_.generate_tokens,
                     .step_bytes = decode_step_bytes(traffic_, batch, positions)});
    }
    return out;
  }

  // Touches what the first steps would otherwise fault in while they are timed.
  Result<> warm_up() {
    show("warm-up");
    TRY(engine_.reset(0));
    return append(0, std::min(shape_.prompt_tokens, engine_.facts().rows_max));
  }

  // Every slot gets a context of its own, kept in pages that later runs find again: sequences that shared pages would read
  // them from the processor's caches.
  Result<> fill(std::uint32_t context) {
    engine_.pages().clear_cache();
    for (std::uint32_t slot = 0; slot < shape_.batch_max(); ++slot) {
      show(fmt::format("context {}, sequence {}", context, slot + 1));
      if (stopped()) return {};
      TRY(engine_.reset(slot));
      TRY(append(slot, context));
      if (stopped()) return {};
      const std::uint32_t pages = engine_.facts().paged ? context / kPageTokens : 0;
      for (std::uint32_t page = 0; page < pages; ++page) engine_.pages().publish(slot, page, key_of(slot, page), 0);
      ++parts_done_;
    }
    return {};
  }

  static engine::inference::paging::PageKey key_of(std::uint32_t slot, std::uint32_t page) {
    return base::sha256(fmt::format("{}.{}", slot, page));
  }

  // Appends tokens until the slot holds so many, a chunk at a time; stops early if it is to.
  Result<> append(std::uint32_t slot, std::uint32_t positions) {
    std::vector<TokenId> tokens;
    while (engine_.length(slot) < positions && !stopped()) {
      const std::uint32_t held = engine_.length(slot);
      tokens.resize(std::min(positions - held, engine_.facts().rows_max));
      for (std::uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = token_of(slot, held + i);
      TRY(engine_.prefill(slot, tokens));
    }
    return {};
  }

  // A slot that holds exactly `context` positions.
  Result<> restore(std::uint32_t slot, std::uint32_t context) {
    if (!engine_.facts().paged) {
      TRY(engine_.reset(slot));
      return append(slot, context);
    }
    std::vector<engine::inference::paging::PageKey> keys;
    for (std::uint32_t page = 0; page < context / kPageTokens; ++page) keys.push_back(key_of(slot, page));
    engine_.pages().release(slot);
    const std::uint32_t held = engine_.pages().adopt(slot, keys, 0);
    TRY(engine_.start(slot, {.held = held}));
    return append(slot, context);
  }

  Result<> run_round(std::vector<Figure>& figures) {
    for (Figure& figure : figures) {
      const bool is_prefill = figure.phase == Phase::kPrefill;
      show(is_prefill ? fmt::format("prefill behind {}", figure.context)
                      : fmt::format("decode {} behind {}", figure.batch, figure.context));
      for (std::uint32_t slot = 0; slot < figure.batch; ++slot) TRY(restore(slot, figure.context));
      if (stopped()) return {};
      const std::optional<double> before = mean_core_share();
      const double limit = probe(figure);
      const auto begin = std::chrono::steady_clock::now();
      TRY(is_prefill ? append(0, figure.context + shape_.prompt_tokens) : decode(figure));
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (stopped()) return {};
      const double rate = static_cast<double>(figure.batch) * figure.tokens / seconds;
      const std::optional<double> after = mean_core_share();
      figure.samples.push_back({.tokens_per_s = rate,
                                .share_of_limit = rate / limit,
                                .core_share = before && after ? std::min(before, after) : std::nullopt});
      ++parts_done_;
    }
    return {};
  }

  // Tokens per second at the machine's limit, as it is now.
  double probe(const Figure& figure) {
    MachineFacts& machine = report_.machine;
    if (figure.phase == Phase::kPrefill) {
      machine.multiply_adds_per_s.push_back(multiply_adds_per_s(
          machine.implementation, traffic_.multiplies_integers ? Product::kInteger : Product::kFloat, shape_.threads));
      // The table's line names both limits.
      if (machine.read_bytes_per_s.empty()) machine.read_bytes_per_s.push_back(reads_.bytes_per_s(shape_.threads));
      return machine.multiply_adds_per_s.back() / static_cast<double>(traffic_.row_multiply_adds);
    }
    machine.read_bytes_per_s.push_back(reads_.bytes_per_s(shape_.threads));
    return machine.read_bytes_per_s.back() / figure.step_bytes * figure.batch;
  }

  Result<> decode(const Figure& figure) {
    std::vector<TokenId> next(figure.batch);
    std::vector<SlotRows> rows(figure.batch);
    for (std::uint32_t step = 0; step < figure.tokens && !stopped(); ++step) {
      for (std::uint32_t slot = 0; slot < figure.batch; ++slot) {
        next[slot] = token_of(slot, figure.context + step);
        rows[slot] = {.slot = slot, .tokens = {&next[slot], 1}, .wanted = RowsWanted::kLast};
      }
      TRY(engine_.step(rows));
    }
    return {};
  }

  Engine& engine_;
  const Traffic& traffic_;
  const Shape& shape_;
  const Hooks& hooks_;
  Report& report_;
  const ReadProbe reads_;
  std::size_t parts_done_ = 0;
  const std::size_t parts_total_;
};

}  // namespace

std::uint32_t Shape::batch_max() const { return std::ranges::max(batches); }

std::uint64_t Shape::positions_max() const {
  return std::uint64_t{std::ranges::max(contexts)} + std::max(prompt_tokens, generate_tokens);
}

Result<> measure(Engine& engine, const Traffic& traffic, const Shape& shape, const Hooks& hooks, Report& report) {
  return Bench(engine, traffic, shape, hooks, report).run();
}

}  // namespace llorch::cli::bench

// What a model writes under a constraint, for test_constrained_output.py to check with another validator: engine, sampler
// and matcher as a worker joins them. Usage: constrained_generate MODEL TOKENIZER, a GGUF file each with vocabularies of one
// size. A line of input is {"request": ExecuteRequest, "closing_bias": b}, b for all tokens that can close JSON; a line of
// output {"output": hex bytes, "ended": bool, "completed": hex bytes} (witness.h), or {"error": text} for a schema that is
// refused. Exits with 2 when anything else goes wrong.
#include <boost/json.hpp>

#include <iostream>
#include <limits>
#include <memory>
#include <string>

#include "engine/compute/cpu/backend.h"
#include "engine/inference/engine.h"
#include "engine/io/tokenizer_json/tokenizer_directory.h"
#include "engine/sampling/sampler.h"
#include "tests/parity/jsonschema/witness.h"
#include "text/text_stream.h"
#include "wire/json.h"
#include "wire/worker.h"
#include "worker/sampling/constraint.h"
#include "worker/sampling/wire.h"

namespace llorch::parity {
namespace {

namespace bj = boost::json;
using base::Result;
using base::TokenId;
using grammar::Grammar;
using grammar::Matcher;

struct Generation {
  std::string output;  // bytes of the tokens
  bool ended = false;
};

class Generator {
 public:
  static Result<std::unique_ptr<Generator>> load(const std::string& model, const std::string& tokenizer) {
    auto data = TRY(engine::io::tokenizer_json::read_tokenizer(tokenizer));
    auto out = std::unique_ptr<Generator>(new Generator(TRY(text::Tokenizer::create(std::move(data)))));
    out->backend_ = TRY(engine::compute::cpu::make_cpu_backend(
        {.threads_count = 1, .memory_budget_bytes = std::numeric_limits<std::uint64_t>::max()}));
    out->engine_ = TRY(engine::inference::Engine::load(model, {.context_tokens = 512}, *out->backend_));
    if (out->engine_->facts().vocab != out->tokenizer_.facts().vocab_size)
      return base::fail(base::ErrorCode::kInvalidParams, "the vocabularies of model and tokenizer differ in size");
    return out;
  }

  // Nothing for a schema that is refused, which *refusal then explains.
  Result<std::optional<Matcher>> constraint(const wire::ExecuteRequest& request, std::string* refusal) {
    auto matcher = constraints_.matcher(request.sampling);
    if (matcher) return std::move(*matcher);
    if (matcher.error().code != base::ErrorCode::kInvalidParams) return base::fail(std::move(matcher.error()));
    *refusal = std::move(matcher.error().message);
    return std::nullopt;
  }

  Result<Generation> run(const wire::ExecuteRequest& request, double closing_bias, Matcher matcher) {
    engine::sampling::SamplingParams params = worker::sampling::engine_params(request, request.seed.value());
    if (closing_bias != 0) bias_closing(static_cast<float>(closing_bias), params);
    const auto vocab = tokenizer_.facts().vocab_size;
    TRY(engine::sampling::validate(params, vocab));
    engine::sampling::Sampler sampler(params, {.vocab = vocab, .history_max = engine_->facts().context_tokens});
    text::TextStream stream(tokenizer_, {});

    std::vector<TokenId> history = TRY(tokenizer_.encode(request.prompt.value()));
    const std::size_t prompt_tokens = history.size();
    TRY(engine_->reset(0));
    std::span<const float> logits = TRY(engine_->prefill(0, history));
    Generation out;
    std::string shown;
    while (!out.ended && history.size() - prompt_tokens < static_cast<std::size_t>(request.max_tokens)) {
      const TokenId token = TRY(sampler.sample({.logits = logits,
                                                .history = {.tokens = history, .prompt_tokens = prompt_tokens},
                                                .position = static_cast<std::uint32_t>(history.size()),
                                                .mask = TRY(matcher.mask())}));
      TRY(matcher.accept(token));
      history.push_back(token);
      shown += stream.push(token).text;
      out.ended = tokenizer_.is_end_of_generation(token);
      if (!out.ended) {
        out.output += tokenizer_.token_bytes(token);
        logits = TRY(engine_->decode(0, token));
      }
    }
    shown += stream.finish().text;
    if (out.ended && shown != out.output)
      return base::fail(base::ErrorCode::kInternal, "the text that is shown is not what the constraint saw");
    return out;
  }

 private:
  explicit Generator(text::Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)), constraints_(tokenizer_) {}

  void bias_closing(float bias, engine::sampling::SamplingParams& params) const {
    for (std::uint32_t id = 0; id < tokenizer_.facts().vocab_size; ++id) {
      const std::string_view bytes = tokenizer_.token_bytes(TokenId{id});
      const bool closes = bytes.empty() ? tokenizer_.is_end_of_generation(TokenId{id})
                                        : std::string_view("\"]}").find(bytes[0]) != std::string_view::npos;
      if (closes) params.logit_bias.push_back({.token = TokenId{id}, .bias = bias});
    }
  }

  text::Tokenizer tokenizer_;
  worker::sampling::Constraints constraints_;
  std::unique_ptr<engine::plan::Backend> backend_;
  std::unique_ptr<engine::inference::Engine> engine_;
};

Result<bj::object> answer(Generator& generator, const Witness& witness, const bj::value& line) {
  const auto request = TRY(wire::decode<wire::ExecuteRequest>(bj::serialize(line.at("request"))));
  std::string refusal;
  auto matcher = TRY(generator.constraint(request, &refusal));
  if (!matcher) return bj::object{{"error", refusal}};
  const Generation got = TRY(generator.run(request, line.at("closing_bias").to_number<double>(), *matcher));
  const auto grammar = TRY(Grammar::from_json_schema(request.sampling.json_schema.value().text));
  const std::string completed = TRY(witness.complete(grammar, got.output, got.ended));
  return bj::object{{"output", hex(got.output)}, {"ended", got.ended}, {"completed", hex(completed)}};
}

Result<> run(const std::string& model, const std::string& tokenizer) {
  const auto generator = TRY(Generator::load(model, tokenizer));
  const Witness witness;
  for (std::string line; std::getline(std::cin, line);) {
    const bj::object out = TRY(answer(*generator, witness, bj::parse(line, {}, {.max_depth = 256})));
    std::cout << bj::serialize(out) << "\n";
  }
  return {};
}

}  // namespace
}  // namespace llorch::parity

int main(int argc, char** argv) {
  if (argc != 3) return std::cerr << "usage: constrained_generate MODEL TOKENIZER\n", 2;
  if (const auto done = llorch::parity::run(argv[1], argv[2]); !done)
    return std::cerr << "constrained_generate: " << done.error().message << "\n", 2;
}

// Jobs with tokens computed ahead say the same bits as jobs without. LLORCH_SPECULATION_RUNS asks for more runs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <iostream>
#include <list>
#include <random>

#include "engine/compute/cpu/backend.h"
#include "engine/io/gguf.h"
#include "engine/io/gguf_writer.h"
#include "engine/io/tokenizer_source.h"
#include "wire/json.h"
#include "worker/engine_loop.h"
#include "worker/sampling/constraint.h"

namespace llorch::worker::ahead {
namespace {

using engine::inference::speculation::ProposalSource;

constexpr const char* kModel = LLORCH_SOURCE_DIR "/models/demo/fairytale-5m-q8_0.gguf";
constexpr std::chrono::seconds kHangs{300};  // only bounds a hang
constexpr std::uint32_t kContext = 192;

// All that a client can see of a job but its times: events, endings, receipt.
struct Said {
  std::vector<std::string> tokens;  // index, id, text, log-probabilities
  std::vector<base::TokenId> ids;
  std::string ending;
  std::int64_t proposed = 0, accepted = 0;

  bool operator==(const Said& other) const { return tokens == other.tokens && ending == other.ending; }
};

std::string bits(double value) { return std::to_string(std::bit_cast<std::uint64_t>(value)); }

class Listener final : public JobSink {
 public:
  void token(const TokenOut& token) override {
    std::string line = std::to_string(token.index) + " " + std::to_string(base::index(token.token)) + " " + token.text;
    if (token.logprobs) {
      line += " " + bits(token.logprobs->logprob);
      for (const auto& top : token.logprobs->top_logprobs)
        line += " " + std::to_string(top.id) + " " + bits(top.logprob);
    }
    said_.tokens.push_back(std::move(line));
    said_.ids.push_back(token.token);
  }
  void vector(const embedding::VectorOut&) override {}
  void end(wire::EndEvent end) override {
    if (end.speculation) said_.proposed = end.speculation->proposed, said_.accepted = end.speculation->accepted;
    end.receipt->speculation.reset();
    said_.ending = std::to_string(end.tokens_in) + " " + std::to_string(end.tokens_out) + " " +
                   std::to_string(static_cast<int>(end.stop_reason)) + " " + wire::encode(*end.receipt);
    done_.set_value(said_);
  }
  void error(const base::Error& error) override {
    said_.ending = std::string(error.name()) + " " + error.message;
    done_.set_value(said_);
  }
  bool congested() override { return false; }
  Said wait() {
    auto future = done_.get_future();
    EXPECT_EQ(future.wait_for(kHangs), std::future_status::ready);
    return future.get();
  }

 private:
  Said said_;
  std::promise<Said> done_;
};

// Knows how texts go on, and is wrong now and then.
class Foreteller final : public ProposalSource {
 public:
  explicit Foreteller(std::uint32_t seed) : random_(seed) {}
  bool propose(std::span<Request> requests) override {
    for (Request& request : requests) {
      const std::vector<base::TokenId>* text = find(request.tokens);
      for (std::size_t i = 0; i < request.proposals.size(); ++i) {
        const std::size_t at = request.tokens.size() + i;
        const bool known = text != nullptr && at < text->size() && random_() % 8 != 0;
        request.proposals[i] = known ? (*text)[at] : base::TokenId{static_cast<std::uint32_t>(random_() % 500)};
      }
      request.count = static_cast<std::uint32_t>(random_() % (request.proposals.size() + 1));
    }
    return true;
  }
  void remove(engine::inference::scheduling::SequenceId) override {}
  std::vector<std::vector<base::TokenId>> texts;  // set before the loop runs

 private:
  const std::vector<base::TokenId>* find(std::span<const base::TokenId> tokens) {
    const std::size_t first = random_() % texts.size();
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto& text = texts[(first + i) % texts.size()];
      if (text.size() > tokens.size() && std::equal(tokens.begin(), tokens.end(), text.begin())) return &text;
    }
    return nullptr;
  }
  std::minstd_rand random_;
};

struct Circumstances {
  std::uint32_t slots = 1;
  std::uint64_t kv_tokens = 0;
  bool caches = false;
  ProposalSource* source = nullptr;  // null: lookup
  std::uint32_t proposals_max = 0;   // 0: no speculation
  engine::inference::Engine* draft = nullptr;
};

class World {
 public:
  World()
      : backend_(
            engine::compute::cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 256u << 20}).value()),
        tokenizer_(
            text::Tokenizer::create(engine::io::read_tokenizer_data(engine::io::GgufFile::open(kModel).value()).value())
                .value()),
        constraints_(tokenizer_) {}

  std::unique_ptr<engine::inference::Engine> load(std::uint32_t slots, std::uint64_t kv_tokens,
                                                  std::uint32_t proposal_rows, const std::string& model = kModel) {
    return engine::inference::Engine::load(model,
                                           {.context_tokens = kContext,
                                            .slots = slots,
                                            .prefill_chunk = 24,
                                            .proposal_rows_max = proposal_rows,
                                            .kv_tokens = kv_tokens},
                                           *backend_)
        .value();
  }

  // Runs the requests, as many at a time as there are slots.
  std::vector<Said> run(std::span<const wire::ExecuteRequest> requests, const Circumstances& how) {
    const auto engine = load(how.slots, how.kv_tokens, how.proposals_max == 0 ? 0 : 24);
    EngineLoopOptions options;
    if (how.caches) options.batch.cache_salt.assign(16, std::byte{7});
    options.batch.speculation = {.source = how.source, .proposals_max = how.proposals_max, .always = true};
    options.draft = how.draft;
    EngineLoop loop(*engine, options, tokenizer_, Identity{.model_digest = "sha256:x", .numerics = "cpu-1"}, clock_);
    std::vector<Said> said;
    for (std::size_t first = 0; first < requests.size(); first += how.slots) {
      std::vector<std::shared_ptr<Listener>> listeners;
      const std::size_t count = std::min<std::size_t>(how.slots, requests.size() - first);
      for (const wire::ExecuteRequest& request : requests.subspan(first, count)) {
        listeners.push_back(std::make_shared<Listener>());
        auto spec = make_sequence_spec(request, tokenizer_, kContext, 0);
        EXPECT_TRUE(spec) << spec.error().message;
        spec->constraint = constraints_.matcher(request.sampling).value();
        EXPECT_TRUE(loop.start(*std::move(spec), listeners.back(), 600'000, [] {}));
      }
      for (const auto& listener : listeners) said.push_back(listener->wait());
    }
    counts_ = loop.usage().counts;
    return said;
  }

  std::vector<base::TokenId> tokens_of(const wire::ExecuteRequest& request, const Said& said) const {
    std::vector<base::TokenId> tokens = tokenizer_.encode(*request.prompt).value();
    tokens.insert(tokens.end(), said.ids.begin(), said.ids.end());
    return tokens;
  }
  const engine::inference::scheduling::SchedulerCounts& counts() const { return counts_; }

 private:
  base::SystemClock clock_;
  std::unique_ptr<engine::plan::Backend> backend_;
  text::Tokenizer tokenizer_;
  sampling::Constraints constraints_;
  engine::inference::scheduling::SchedulerCounts counts_;
};

// Writes the model with the first `rows` of its tokens and no other.
void write_cut_model(const std::filesystem::path& path, std::uint64_t rows) {
  const auto file = engine::io::GgufFile::open(kModel).value();
  engine::io::GgufWriter writer(static_cast<std::uint32_t>(file.alignment()));
  for (const engine::io::GgufEntry& entry : file.metadata()) writer.put(entry.key, entry.value);
  std::list<std::vector<std::byte>> held;
  for (const engine::io::GgufTensor& tensor : file.tensors()) {
    std::vector<std::uint64_t> dims(tensor.dims.begin(), tensor.dims.begin() + tensor.rank);
    std::vector<std::byte>& bytes = held.emplace_back(tensor.data.read_all().value());
    if (tensor.name == "token_embd.weight" || tensor.name == "output.weight") {
      bytes.resize(bytes.size() / dims[1] * rows);
      dims[1] = rows;
    }
    writer.add_tensor({.name = std::string(tensor.name), .dtype = tensor.dtype, .dims = dims},
                      std::span<const std::byte>(bytes));
  }
  ASSERT_TRUE(writer.write(path));
}

// One of everything that shapes a draw or ends a job.
wire::ExecuteRequest some_request(std::minstd_rand& random, int number) {
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() / 7 % n); };
  static const char* const kPrompts[] = {
      "Once upon a time", "There was once a king who had three daughters. There was once a king who had three",
      "The fox said: I will run, I will run, I will run", "A", "Once upon a time there was a poor woodcutter"};
  wire::ExecuteRequest r{.job_id = "job-" + std::to_string(number),
                         .prompt = kPrompts[below(5)],
                         .max_tokens = 1 + below(below(6) == 0 ? 170 : 48),
                         .temperature = std::array{0.0, 0.4, 0.8, 1.3}[below(4)],
                         .seed = below(1000)};
  wire::SamplingRequest& s = r.sampling;
  if (below(3) == 0) s.top_k = 1 + below(60);
  if (below(3) == 0) s.top_p = 0.8;
  if (below(4) == 0) s.min_p = 0.05;
  if (below(4) == 0) s.repetition_penalty = 1.2;
  if (below(4) == 0) s.frequency_penalty = 0.4, s.presence_penalty = 0.1;
  if (below(5) == 0) s.dry_multiplier = 0.8;
  if (below(6) == 0 && r.temperature > 0) s.xtc_probability = 0.5;
  if (below(6) == 0 && r.temperature > 0) s.dynatemp_range = 0.2;
  if (below(8) == 0 && r.temperature > 0) {
    s = {};
    s.mirostat = 2;
  }
  if (below(3) == 0) s.logprobs = true, s.top_logprobs = below(5);
  if (below(4) == 0) r.stop = {below(2) == 0 ? "the" : ". "};
  switch (below(8)) {
    case 0: s.regex = "[a-z ,]{1,60}\\."; break;
    case 1:
      s.json_schema = wire::JsonSchema{R"({"type":"object","properties":{"a":{"type":"string"}},"required":["a"]})"};
      break;
    case 2: s.grammar = "root ::= (\"the \" | \"king \" | \"fox \")+ \".\""; break;
    default: break;
  }
  return r;
}

// 10,000 runs with LLORCH_SPECULATION_RUNS=10000: everything that shapes a draw, in company, with cached prefixes, preempted,
// with proposals that are right, wrong and looked up. Texts, ids, log-probabilities, endings and receipts are compared.
TEST(Speculation, ChangesNoBit) {
  const char* wanted = std::getenv("LLORCH_SPECULATION_RUNS");
  const int runs = wanted != nullptr ? std::atoi(wanted) : 240;
  const int different = std::min(runs / 3, 400);
  std::minstd_rand random(11);
  World world;
  std::vector<wire::ExecuteRequest> requests;
  for (int i = 0; i < different; ++i) requests.push_back(some_request(random, i));
  const std::vector<Said> alone = world.run(requests, {});
  Foreteller foreteller(5);
  for (std::size_t i = 0; i < requests.size(); ++i) foreteller.texts.push_back(world.tokens_of(requests[i], alone[i]));

  std::vector<std::size_t> long_ones;  // three of them need more pages than there are
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (alone[i].ids.size() > 80) long_ones.push_back(i);
  ASSERT_FALSE(long_ones.empty());

  int compared = 0;
  std::int64_t proposed = 0, accepted = 0;
  std::uint64_t preemptions = 0;
  for (int round = 0; compared < runs; ++round) {
    const bool is_short_of_pages = round % 3 == 0;
    const Circumstances how{.slots = is_short_of_pages ? 5 : 1 + static_cast<std::uint32_t>(random() % 5),
                            .kv_tokens = is_short_of_pages ? kContext + 64 : 0u,
                            .caches = round % 2 == 0,
                            .source = round % 4 == 3 ? nullptr : &foreteller,
                            .proposals_max = 1 + static_cast<std::uint32_t>(random() % 9)};
    std::vector<std::size_t> order(requests.size());
    for (std::size_t& i : order)
      i = is_short_of_pages ? long_ones[random() % long_ones.size()] : random() % requests.size();
    // A job of a name runs once at a time.
    std::vector<wire::ExecuteRequest> chosen;
    for (std::size_t i = 0; i < order.size(); ++i) {
      chosen.push_back(requests[order[i]]);
      chosen.back().job_id = "job-" + std::to_string(i);
    }
    const std::vector<Said> said = world.run(chosen, how);
    for (std::size_t i = 0; i < said.size(); ++i, ++compared) {
      EXPECT_EQ(said[i].tokens, alone[order[i]].tokens) << "round " << round << " request " << order[i];
      EXPECT_EQ(said[i].ending, alone[order[i]].ending) << "round " << round << " request " << order[i];
      proposed += said[i].proposed;
      accepted += said[i].accepted;
      if (HasFailure()) return;
    }
    preemptions += world.counts().preemptions;
  }
  std::cout << compared << " runs, " << proposed << " tokens proposed, " << accepted << " accepted, " << preemptions
            << " preemptions\n";
  EXPECT_GT(accepted, compared);
  EXPECT_GT(proposed, accepted);
  EXPECT_GT(preemptions, static_cast<std::uint64_t>(runs) / 50);
}

// A draft that is the model itself proposes what will be drawn, whatever the temperature: draws are functions of seed and
// position. Only what it knows less of (constraints, DRY, mirostat) makes it err.
TEST(Speculation, AModelDraftsForItself) {
  World world;
  std::vector<wire::ExecuteRequest> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back({.job_id = "job-" + std::to_string(i),
                        .prompt = i % 2 == 0 ? "Once upon a time"
                                             : "There was once a king who had three daughters and a golden apple tree",
                        .max_tokens = 40,
                        .temperature = i < 2 ? 0.0 : 0.9,
                        .seed = static_cast<std::uint64_t>(i)});
    requests.back().sampling.repetition_penalty = i % 3 == 0 ? 1.1 : 1.0;
  }
  const std::vector<Said> alone = world.run(requests, {});
  const auto draft = world.load(3, 0, 0);
  ASSERT_TRUE(engine::inference::speculation::DraftModel::check(*draft));
  const std::vector<Said> drafted = world.run(requests, {.slots = 3, .proposals_max = 4, .draft = draft.get()});
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(drafted[i], alone[i]);
    EXPECT_GT(drafted[i].proposed, 20);
    EXPECT_GE(drafted[i].accepted + 4, drafted[i].proposed) << "but for what is behind the end";
  }
}

// Models of one family fill their tables differently: a token that the draft lacks is neither proposed nor read by it, whatever shapes
// the draw, a bias of such a token for instance.
TEST(Speculation, ADraftOfFewerTokensChangesNoBit) {
  constexpr std::uint32_t kRows = 1300;
  std::minstd_rand random(12);
  World world;
  std::vector<wire::ExecuteRequest> requests;
  for (int i = 0; i < 24; ++i) {
    requests.push_back(some_request(random, i));
    // Without its first token, which begins texts and is among those at the table's end.
    const std::vector<base::TokenId> prompt = world.tokens_of(requests.back(), {});
    requests.back().prompt.reset();
    requests.back().prompt_tokens.emplace();
    for (const base::TokenId token : std::span(prompt).subspan(1))
      requests.back().prompt_tokens->push_back(static_cast<std::int32_t>(base::index(token)));
    if (i % 4 == 0) requests.back().sampling.logit_bias = {{2047, 2.0}};
  }
  const std::vector<Said> alone = world.run(requests, {});
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / ("cut-" + std::to_string(::getpid()) + ".gguf");
  write_cut_model(path, kRows);
  const auto draft = world.load(3, 0, 0, path);
  ASSERT_EQ(draft->facts().vocab, kRows);
  const std::vector<Said> drafted = world.run(requests, {.slots = 3, .proposals_max = 4, .draft = draft.get()});
  std::int64_t accepted = 0, foreign = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(drafted[i], alone[i]) << i;
    accepted += drafted[i].accepted;
    foreign += std::ranges::count_if(alone[i].ids, [](base::TokenId id) { return base::index(id) >= kRows; });
  }
  EXPECT_GT(accepted, 20);
  EXPECT_GT(foreign, 0);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace llorch::worker::ahead

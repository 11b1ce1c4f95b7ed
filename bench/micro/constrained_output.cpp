// Cost of a mask at a vocabulary of 128k tokens: mean, quantiles and worst over outputs of typical schemas, cold (every
// schema's first output) and warm. Usage: constrained_output_bench [seed]. Build in release; run with nothing else on.
//
// The vocabulary is synthetic but shaped like byte-level BPE: all bytes, words with and without a leading blank in three
// casings with Zipf-like lengths, pieces of words, numbers up to three digits, punctuation runs with quotes and brackets,
// runs of white space, two- and three-byte scripts, whole and split.
#include <fmt/core.h>

#include <time.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "grammar/matcher.h"

namespace {

using llorch::base::TokenId;
using llorch::grammar::Grammar;
using llorch::grammar::Matcher;
using llorch::grammar::TokenTrie;

// Of this thread's processor time, which other processes do not disturb much.
struct Clock {
  static std::chrono::nanoseconds now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
};

constexpr std::size_t kTokens = 128 * 1024;
constexpr int kOutputs = 8;
constexpr int kTokensMax = 250;

class Vocabulary {
 public:
  explicit Vocabulary(std::uint32_t seed) : random_(seed) {
    for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
    for (int i = 0; i < 1000; ++i) add(fmt::format("{}", i)), add(fmt::format("{:02}", i)), add(fmt::format("{:03}", i));
    for (std::size_t n = 1; n <= 96; ++n) {
      for (const char* run : {" ", "\t", "\n", "-", "=", "*", "/", "_", ".", "#"}) {
        std::string text;
        for (std::size_t i = 0; i < n; ++i) text += run;
        add(text);
        add("\n" + text);
      }
    }
    for (int i = 0; i < 4000; ++i) add(punctuation());
    for (int i = 0; i < 12000; ++i) add(script(0x400, 0x52F, 2, 6));    // Cyrillic and neighbours
    for (int i = 0; i < 14000; ++i) add(script(0x4E00, 0x9FFF, 1, 4));  // Han
    while (tokens_.size() < kTokens - 1) add(word());
    tokens_.emplace_back();  // ends
  }
  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  void add(std::string text) {
    if (tokens_.size() < kTokens - 1 && known_.insert(text).second) tokens_.push_back(std::move(text));
  }
  std::size_t below(std::size_t n) { return random_() % n; }
  std::string punctuation() {
    static constexpr std::string_view kMarks = "\"'{}[]():,;.!?<>/\\|=+-*&%$#@~`^_ \n";
    std::string out = below(3) == 0 ? " " : "";
    for (std::size_t n = 1 + below(4); n > 0; --n) out += kMarks[below(kMarks.size())];
    return out;
  }
  std::string script(std::uint32_t first, std::uint32_t last, std::size_t min, std::size_t max) {
    std::string out = below(3) == 0 ? " " : "";
    for (std::size_t n = min + below(max - min + 1); n > 0; --n) {
      const std::uint32_t c = first + static_cast<std::uint32_t>(below(last - first + 1));
      if (c < 0x800) {
        out += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
      } else {
        out += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
      }
    }
    if (below(12) == 0) out.pop_back();  // a merge that stops inside a code point
    return out;
  }
  std::string word() {
    static constexpr std::string_view kOnsets[] = {"", "b", "c", "d", "f", "g", "h", "l", "m", "n", "p", "r", "s", "t", "st", "tr", "pr", "th", "qu", "w"};
    static constexpr std::string_view kVowels[] = {"a", "e", "i", "o", "u", "ea", "io", "ou"};
    static constexpr std::string_view kCodas[] = {"", "n", "r", "s", "t", "ng", "l", "ment", "tion", "ing", "ed", "er"};
    std::string out;
    for (std::size_t n = 1 + below(4); n > 0; --n) {
      out += kOnsets[below(std::size(kOnsets))];
      out += kVowels[below(std::size(kVowels))];
      if (n == 1 || below(3) == 0) out += kCodas[below(std::size(kCodas))];
    }
    const std::size_t form = below(20);
    if (form < 5) out[0] = static_cast<char>(out[0] & ~0x20);
    if (form == 5) std::transform(out.begin(), out.end(), out.begin(), [](char c) { return static_cast<char>(c & ~0x20); });
    if (form == 6) out += "\"";
    if (form == 7) out = "\"" + out;
    if (form == 8) out += below(2) == 0 ? "," : "_";
    return below(2) == 0 ? " " + out : out;
  }

  std::mt19937 random_;
  std::vector<std::string> tokens_;
  std::unordered_set<std::string> known_;
};

struct NamedSchema {
  const char* name;
  const char* text;
};
constexpr NamedSchema kSchemas[] = {
    {"weather call", R"({"type":"object","properties":{"location":{"type":"string"},"unit":{"enum":["celsius","fahrenheit"]},
      "days":{"type":"integer","minimum":1,"maximum":14}},"required":["location","unit"],"additionalProperties":false})"},
    {"person", R"({"type":"object","properties":{"name":{"type":"string","minLength":1,"maxLength":80},"email":{"type":"string","format":"email"},
      "born":{"type":"string","format":"date"},"tags":{"type":"array","items":{"type":"string","maxLength":24},"maxItems":8},
      "address":{"type":"object","properties":{"street":{"type":"string"},"zip":{"type":"string","pattern":"^[0-9]{5}(-[0-9]{4})?$"},
      "country":{"enum":["DE","FR","US","JP","BR"]}},"required":["street","country"]}},"required":["name","address"]})"},
    {"steps", R"({"type":"object","properties":{"steps":{"type":"array","minItems":1,"items":{"type":"object","properties":{
      "explanation":{"type":"string"},"output":{"type":"string"}},"required":["explanation","output"],"additionalProperties":false}},
      "final_answer":{"type":"string"}},"required":["steps","final_answer"],"additionalProperties":false})"},
    {"tool union", R"({"anyOf":[{"type":"object","properties":{"tool":{"const":"search"},"query":{"type":"string"},"limit":{"type":"integer"}},"required":["tool","query"]},
      {"type":"object","properties":{"tool":{"const":"open"},"url":{"type":"string","format":"uri"}},"required":["tool","url"]},
      {"type":"object","properties":{"tool":{"const":"answer"},"text":{"type":"string"},"confidence":{"type":"number","minimum":0,"maximum":1}},"required":["tool","text"]}]})"},
    {"tree", R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"value":{"type":"number"},"label":{"type":["string","null"]},
      "children":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["value","children"]}}})"},
    {"any object", R"({"type":"object"})"},
    {"open map", R"({"type":"object","properties":{"id":{"type":"string","format":"uuid"}},"required":["id"],"additionalProperties":{"type":["integer","string","null"]}})"},
};

// Text-like: mostly a longest allowed token of a few drawn, sometimes one that closes something.
TokenId draw(std::span<const std::uint32_t> mask, const std::vector<std::string>& tokens, std::mt19937& random) {
  std::vector<TokenId> closing;
  std::vector<TokenId> allowed;
  for (std::uint32_t word = 0; word < mask.size(); ++word) {
    for (std::uint32_t bits = mask[word]; bits != 0; bits &= bits - 1) {
      const std::uint32_t id = word * 32 + static_cast<std::uint32_t>(__builtin_ctz(bits));
      allowed.push_back(TokenId{id});
      if (tokens[id].empty() || std::string_view("\"]}").find(tokens[id][0]) != std::string_view::npos) closing.push_back(TokenId{id});
    }
  }
  if (!closing.empty() && random() % 12 == 0) return closing[random() % closing.size()];
  return allowed[random() % allowed.size()];
}

struct Times {
  std::vector<double> masks_us;
  double accepts_us = 0;
};

void output(const std::shared_ptr<const Grammar>& grammar, const std::shared_ptr<const TokenTrie>& trie,
            const std::vector<std::string>& tokens, std::uint32_t seed, Times& times) {
  std::mt19937 random(seed);
  Matcher matcher = Matcher::create(grammar, trie).value();
  for (int i = 0; i < kTokensMax; ++i) {
    const auto begin = Clock::now();
    const auto mask = matcher.mask().value();
    const auto end = Clock::now();
    times.masks_us.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
    const TokenId id = draw(mask, tokens, random);
    const auto before = Clock::now();
    const bool accepted = matcher.accept(id).has_value();
    times.accepts_us += std::chrono::duration<double, std::micro>(Clock::now() - before).count();
    if (!accepted) fmt::print("an allowed token was refused\n");
    if (trie->is_end(id)) return;
  }
}

void print(const char* name, const char* phase, Times times) {
  std::vector<double>& us = times.masks_us;
  double sum = 0;
  for (const double each : us) sum += each;
  std::sort(us.begin(), us.end());
  const auto quantile = [&](double q) { return us[static_cast<std::size_t>(q * static_cast<double>(us.size() - 1))]; };
  fmt::print("{:14} {:5} masks {:5}  mean {:7.1f} us  p50 {:6.1f}  p99 {:7.1f}  max {:8.1f}  accept mean {:5.2f} us\n", name, phase,
             us.size(), sum / static_cast<double>(us.size()), quantile(0.5), quantile(0.99), us.back(),
             times.accepts_us / static_cast<double>(us.size()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint32_t seed = argc > 1 ? static_cast<std::uint32_t>(std::stoul(argv[1])) : 1;
  const Vocabulary vocabulary(seed);
  const std::vector<std::string>& tokens = vocabulary.tokens();
  const std::vector<std::string_view> views(tokens.begin(), tokens.end());
  const TokenId end{static_cast<std::uint32_t>(tokens.size() - 1)};
  auto begin = Clock::now();
  const auto trie = TokenTrie::build(views, {&end, 1}).value();
  fmt::print("{} tokens, {} + {} nodes, built in {:.0f} ms\n", tokens.size(), trie->tiers()[0].node_count(), trie->tiers()[1].node_count(),
             std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  Times all;
  for (const NamedSchema& schema : kSchemas) {
    begin = Clock::now();
    const auto grammar = Grammar::from_json_schema(schema.text).value();
    const double compile_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    Times cold, warm;
    output(grammar, trie, tokens, seed, cold);
    for (std::uint32_t i = 1; i < kOutputs; ++i) output(grammar, trie, tokens, seed + i, warm);
    fmt::print("{:14} compiled in {:.2f} ms\n", schema.name, compile_ms);
    print(schema.name, "cold", cold);
    print(schema.name, "warm", warm);
    for (const Times& times : {cold, warm}) {
      all.masks_us.insert(all.masks_us.end(), times.masks_us.begin(), times.masks_us.end());
      all.accepts_us += times.accepts_us;
    }
  }
  print("all", "", all);
  fmt::print("mask cache {:.1f} MiB\n", static_cast<double>(trie->mask_cache().bytes()) / (1 << 20));
}

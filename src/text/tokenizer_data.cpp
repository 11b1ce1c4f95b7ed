#include "text/tokenizer_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <string_view>
#include <type_traits>

namespace llorch::text {
namespace {

constexpr std::string_view kMagic = "LLTK";
constexpr std::uint32_t kVersion = 4;

base::Error corrupt(std::string_view what) {
  return {base::ErrorCode::kCorruptFile, fmt::format("tokenizer blob: {}; fetch it again", what), {}};
}

// What is past a limit marks it failed; the caller looks once, at the end.
class Writer {
 public:
  void u8(std::uint8_t value) { out_ += static_cast<char>(value); }
  void u32(std::uint32_t value) { number(value, 4); }
  void f64(double value) { number(std::bit_cast<std::uint64_t>(value), 8); }
  void flag(bool value) { u8(value); }
  template <class Enum>
  void choice(Enum value) {
    u8(static_cast<std::uint8_t>(value));
  }
  void id(TokenId id) { u32(index(id)); }
  void string(std::string_view text, std::size_t bytes_max = TokenizerLimits::kStringBytesMax) {
    if (text.size() > bytes_max) return fail("a string", text.size(), "bytes", bytes_max);
    u32(static_cast<std::uint32_t>(text.size()));
    out_ += text;
  }
  template <class T, class WriteOne>
  void list(const std::vector<T>& values, std::size_t count_max, const WriteOne& write_one) {
    if (values.size() > count_max) return fail("a list", values.size(), "entries", count_max);
    u32(static_cast<std::uint32_t>(values.size()));
    for (const T& value : values) write_one(value);
  }
  void magic() { out_ += kMagic; }
  base::Result<std::string> take() {
    if (failure_) return base::fail(*std::move(failure_));
    return std::move(out_);
  }

 private:
  void fail(std::string_view what, std::size_t count, std::string_view unit, std::size_t count_max) {
    if (failure_) return;
    failure_ = {base::ErrorCode::kModelIncompatible,
                fmt::format("the tokenizer has {} of {} {}, at most {} are read", what, count, unit, count_max),
                {}};
  }
  void number(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> 8 * i & 0xFF);
  }

  std::string out_;
  std::optional<base::Error> failure_;
};

// Reads past the end or out of range mark it failed and give zeros; the caller looks once, at the end.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::string_view take(std::size_t count) {
    if (count > bytes_.size()) {
      fail("it ends too early");
      return {};
    }
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  std::uint8_t u8() {
    const std::string_view b = take(1);
    return b.empty() ? 0 : static_cast<std::uint8_t>(b[0]);
  }
  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  double f64() { return std::bit_cast<double>(number(8)); }
  bool flag() { return choice<std::uint8_t>(1) == 1; }
  template <class Enum>
  Enum choice(std::uint8_t last, std::uint8_t first = 0) {
    const std::uint8_t value = u8();
    if (value < first || value > last) fail("a choice is out of its range");
    return static_cast<Enum>(failed() ? first : value);
  }
  TokenId id() { return TokenId{u32()}; }
  std::string string(std::size_t bytes_max = TokenizerLimits::kStringBytesMax) {
    const std::uint32_t size = u32();
    if (size > bytes_max) fail("a string is longer than the limit");
    return failed() ? std::string() : std::string(take(size));
  }
  // `item_bytes_min`: least bytes one item takes, so that a count cannot reserve more than the blob can hold.
  template <class ReadOne>
  auto list(std::size_t count_max, std::size_t item_bytes_min, const ReadOne& read_one) {
    std::vector<std::invoke_result_t<ReadOne>> values;
    const std::uint32_t count = u32();
    if (count > count_max || count > bytes_.size() / item_bytes_min)
      fail("a count is larger than the limit or the blob");
    if (failed()) return values;
    values.reserve(count);
    for (std::uint32_t i = 0; i < count && !failed(); ++i) values.push_back(read_one());
    return values;
  }
  void fail(std::string_view what) {
    if (what_.empty()) what_ = what;
    bytes_ = {};
  }
  bool failed() const { return !what_.empty(); }
  std::string_view what() const { return what_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    int shift = 0;
    for (const char c : take(bytes)) {
      value |= std::uint64_t{static_cast<std::uint8_t>(c)} << shift;
      shift += 8;
    }
    return value;
  }

  std::string_view bytes_;
  std::string_view what_;
};

void write_id(Writer& w, const std::optional<TokenId>& id) {
  w.flag(id.has_value());
  if (id) w.id(*id);
}

std::optional<TokenId> read_id(Reader& r) {
  if (!r.flag()) return std::nullopt;
  return r.id();
}

// 0 absent, 1 false, 2 true.
void write_flag(Writer& w, const std::optional<bool>& flag) { w.u8(flag ? 1 + *flag : 0); }

std::optional<bool> read_flag(Reader& r) {
  const auto value = r.choice<std::uint8_t>(2);
  if (value == 0) return std::nullopt;
  return value == 2;
}

void write_ids(Writer& w, const std::vector<TokenId>& ids, std::size_t count_max) {
  w.list(ids, count_max, [&](TokenId id) { w.id(id); });
}

std::vector<TokenId> read_ids(Reader& r, std::size_t count_max) {
  return r.list(count_max, 4, [&] { return r.id(); });
}

void write_pattern(Writer& w, const TextPattern& pattern) {
  w.string(pattern.text);
  w.flag(pattern.is_regex);
}

TextPattern read_pattern(Reader& r) {
  TextPattern pattern;
  pattern.text = r.string();
  pattern.is_regex = r.flag();
  return pattern;
}

void write_pipeline(Writer& w, const Pipeline& pipeline) {
  using L = TokenizerLimits;
  w.list(pipeline.normalizers, L::kStepsMax, [&](const NormalizerStep& step) {
    w.choice(step.kind);
    write_pattern(w, step.pattern);
    w.string(step.text);
    w.flag(step.left);
    w.flag(step.right);
  });
  w.list(pipeline.pre_tokenizers, L::kStepsMax, [&](const PreTokenizerStep& step) {
    w.choice(step.kind);
    write_pattern(w, step.pattern);
    w.choice(step.behavior);
    for (const bool flag : {step.invert, step.add_prefix_space, step.use_regex}) w.flag(flag);
    w.string(step.replacement);
    w.choice(step.prepend);
    for (const bool flag : {step.split, step.individual_digits}) w.flag(flag);
  });
  w.list(pipeline.decoders, L::kStepsMax, [&](const DecoderStep& step) {
    w.choice(step.kind);
    write_pattern(w, step.pattern);
    w.string(step.text);
    w.u32(step.start);
    w.u32(step.stop);
    w.choice(step.prepend);
  });
}

constexpr std::uint8_t last_of(auto value) { return static_cast<std::uint8_t>(value); }

NormalizerStep read_normalizer(Reader& r) {
  NormalizerStep step;
  step.kind = r.choice<NormalizerKind>(last_of(NormalizerKind::kDropNonspacing));
  step.pattern = read_pattern(r);
  step.text = r.string();
  for (bool* flag : {&step.left, &step.right}) *flag = r.flag();
  return step;
}

PreTokenizerStep read_pre_tokenizer(Reader& r) {
  PreTokenizerStep step;
  step.kind = r.choice<PreTokenizerKind>(last_of(PreTokenizerKind::kWhitespaceSplit));
  step.pattern = read_pattern(r);
  step.behavior = r.choice<SplitBehavior>(last_of(SplitBehavior::kContiguous));
  for (bool* flag : {&step.invert, &step.add_prefix_space, &step.use_regex}) *flag = r.flag();
  step.replacement = r.string();
  step.prepend = r.choice<PrependScheme>(last_of(PrependScheme::kNever));
  for (bool* flag : {&step.split, &step.individual_digits}) *flag = r.flag();
  return step;
}

DecoderStep read_decoder(Reader& r) {
  DecoderStep step;
  step.kind = r.choice<DecoderKind>(last_of(DecoderKind::kWordPiece));
  step.pattern = read_pattern(r);
  step.text = r.string();
  step.start = r.u32();
  step.stop = r.u32();
  step.prepend = r.choice<PrependScheme>(last_of(PrependScheme::kNever));
  return step;
}

void write_json(Writer& w, const TokenizerJson& json) {
  using L = TokenizerLimits;
  write_pipeline(w, json.pipeline);
  w.list(json.added, L::kTokensMax, [&](const AddedTokenRule& rule) {
    w.id(rule.id);
    for (const bool flag : {rule.lstrip, rule.rstrip, rule.single_word, rule.normalized, rule.outside_model}) {
      w.flag(flag);
    }
  });
  w.list(json.merges, L::kMergesMax, [&](const MergeIds& merge) {
    w.id(merge.left);
    w.id(merge.right);
  });
  for (const bool flag : {json.byte_fallback, json.fuse_unknown, json.whole_piece_first}) w.flag(flag);
  write_ids(w, json.prefix, L::kAffixMax);
  write_ids(w, json.suffix, L::kAffixMax);
  w.flag(json.pair.has_value());
  if (!json.pair) return;
  write_ids(w, json.pair->between, L::kAffixMax);
  w.u32(json.pair->second_type);
}

TokenizerJson read_json(Reader& r) {
  using L = TokenizerLimits;
  TokenizerJson json;
  json.pipeline.normalizers = r.list(L::kStepsMax, 12, [&] { return read_normalizer(r); });
  json.pipeline.pre_tokenizers = r.list(L::kStepsMax, 17, [&] { return read_pre_tokenizer(r); });
  json.pipeline.decoders = r.list(L::kStepsMax, 19, [&] { return read_decoder(r); });
  json.added = r.list(L::kTokensMax, 9, [&] {
    AddedTokenRule rule;
    rule.id = r.id();
    for (bool* flag : {&rule.lstrip, &rule.rstrip, &rule.single_word, &rule.normalized, &rule.outside_model}) {
      *flag = r.flag();
    }
    return rule;
  });
  json.merges = r.list(L::kMergesMax, 8, [&] {
    const TokenId left = r.id();
    return MergeIds{left, r.id()};
  });
  for (bool* flag : {&json.byte_fallback, &json.fuse_unknown, &json.whole_piece_first}) *flag = r.flag();
  json.prefix = read_ids(r, L::kAffixMax);
  json.suffix = read_ids(r, L::kAffixMax);
  if (!r.flag()) return json;
  json.pair.emplace().between = read_ids(r, L::kAffixMax);
  json.pair->second_type = r.u32();
  return json;
}

// The infill tokens in their order in the blob.
auto roles(auto& tokens) {
  return std::array{&tokens.prefix, &tokens.suffix, &tokens.middle, &tokens.pad, &tokens.repository, &tokens.separator};
}

// Whether text or an end may be made of a token behind the first `rows`.
bool needs_more_than(const TokenizerData& data, std::size_t rows) {
  const auto is_behind = [rows](TokenId id) { return index(id) >= rows; };
  const auto is_role_behind = [&](const std::optional<TokenId>& role) { return role && is_behind(*role); };
  for (std::size_t id = rows; id < data.tokens.size(); ++id) {
    const TokenKind kind = data.kinds.empty() ? TokenKind::kNormal : data.kinds[id];
    if (kind != TokenKind::kControl && kind != TokenKind::kUserDefined && kind != TokenKind::kUnused) return true;
  }
  for (const auto* role : {&data.bos, &data.eos, &data.eot, &data.eom, &data.unknown}) {
    if (is_role_behind(*role)) return true;
  }
  for (const auto* role : roles(data.infill)) {
    if (is_role_behind(*role)) return true;
  }
  const auto is_any_behind = [&](const std::vector<TokenId>& ids) { return std::ranges::any_of(ids, is_behind); };
  return is_any_behind(data.json.prefix) || is_any_behind(data.json.suffix) ||
         (data.json.pair && is_any_behind(data.json.pair->between)) ||
         std::ranges::any_of(data.json.merges,
                             [&](const MergeIds& merge) { return is_behind(merge.left) || is_behind(merge.right); });
}

}  // namespace

base::Result<> fit_to_rows(TokenizerData& data, std::int64_t rows) {
  const std::size_t tokens = data.tokens.size();
  const auto count = static_cast<std::size_t>(rows);
  if (count == tokens) return {};
  if (rows <= 0 || count > TokenizerLimits::kTokensMax || (count < tokens && needs_more_than(data, count))) {
    return base::fail(base::ErrorCode::kModelIncompatible,
                      fmt::format("the tokenizer has {} tokens and the model rows for {}: these files are not of one "
                                  "model, or tokens were added without rows",
                                  tokens, rows));
  }
  if (data.kinds.empty()) data.kinds.assign(tokens, TokenKind::kNormal);
  data.tokens.resize(count);
  data.kinds.resize(count, TokenKind::kUnused);
  if (!data.scores.empty()) data.scores.resize(count, 0);
  std::erase_if(data.json.added, [count](const AddedTokenRule& rule) { return index(rule.id) >= count; });
  std::erase_if(data.more_end_of_generation, [count](TokenId id) { return index(id) >= count; });
  return {};
}

bool has_too_long_tokens(const std::vector<std::string>& tokens) {
  std::size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  return bytes > TokenizerLimits::kTokensBytesMax;
}

base::Result<std::string> serialize(const TokenizerData& data) {
  using L = TokenizerLimits;
  if (has_too_long_tokens(data.tokens)) {
    return base::fail(base::ErrorCode::kModelIncompatible,
                      fmt::format("the tokenizer's tokens have more than {} bytes together", L::kTokensBytesMax));
  }
  Writer w;
  w.magic();
  w.u32(kVersion);
  w.string(data.model);
  w.string(data.pre);
  w.list(data.tokens, L::kTokensMax, [&](const std::string& text) { w.string(text); });
  w.list(data.scores, L::kTokensMax, [&](double score) { w.f64(score); });
  w.list(data.kinds, L::kTokensMax, [&](TokenKind kind) { w.choice(kind); });
  w.list(data.merges, L::kMergesMax, [&](const std::string& text) { w.string(text); });
  for (const auto& id : {data.bos, data.eos, data.eot, data.eom, data.unknown}) write_id(w, id);
  write_ids(w, data.more_end_of_generation, L::kTokensMax);
  for (const auto& flag : {data.add_bos, data.add_eos, data.add_space_prefix}) write_flag(w, flag);
  w.string(data.chat_template, L::kChatTemplateBytesMax);
  w.list(data.named_chat_templates, L::kNamedChatTemplatesMax, [&](const NamedChatTemplate& named) {
    w.string(named.name);
    w.string(named.text, L::kChatTemplateBytesMax);
  });
  for (const auto& id : roles(data.infill)) write_id(w, *id);
  write_json(w, data.json);
  return w.take();
}

base::Result<TokenizerData> parse_tokenizer_data(std::span<const std::byte> blob) {
  using L = TokenizerLimits;
  Reader r({reinterpret_cast<const char*>(blob.data()), blob.size()});
  if (r.take(kMagic.size()) != kMagic) return base::fail(corrupt("it does not begin with LLTK"));
  const std::uint32_t version = r.u32();
  if (!r.failed() && version != kVersion) {
    return base::fail(base::ErrorCode::kUnsupportedFormatVersion,
                      fmt::format("tokenizer blob: version {}, this build reads {}; run the same release everywhere",
                                  version, kVersion));
  }
  TokenizerData data;
  data.model = r.string();
  data.pre = r.string();
  data.tokens = r.list(L::kTokensMax, 4, [&] { return r.string(); });
  data.scores = r.list(L::kTokensMax, 8, [&] { return r.f64(); });
  data.kinds = r.list(L::kTokensMax, 1,
                      [&] { return r.choice<TokenKind>(last_of(TokenKind::kByte), last_of(TokenKind::kNormal)); });
  data.merges = r.list(L::kMergesMax, 4, [&] { return r.string(); });
  for (auto* id : {&data.bos, &data.eos, &data.eot, &data.eom, &data.unknown}) *id = read_id(r);
  data.more_end_of_generation = read_ids(r, L::kTokensMax);
  for (auto* flag : {&data.add_bos, &data.add_eos, &data.add_space_prefix}) *flag = read_flag(r);
  data.chat_template = r.string(L::kChatTemplateBytesMax);
  data.named_chat_templates = r.list(L::kNamedChatTemplatesMax, 8, [&] {
    NamedChatTemplate named;
    named.name = r.string();
    named.text = r.string(L::kChatTemplateBytesMax);
    return named;
  });
  for (auto* id : roles(data.infill)) *id = read_id(r);
  data.json = read_json(r);
  if (!r.failed() && !r.at_end()) r.fail("bytes follow its end");
  if (r.failed()) return base::fail(corrupt(r.what()));
  for (const std::size_t count : {data.scores.size(), data.kinds.size()}) {
    if (count != 0 && count != data.tokens.size()) {
      return base::fail(corrupt(fmt::format("it has {} tokens, and scores or kinds of {}", data.tokens.size(), count)));
    }
  }
  return data;
}

}  // namespace llorch::text

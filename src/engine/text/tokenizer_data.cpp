#include "engine/text/tokenizer_data.h"

#include <fmt/format.h>

#include <bit>
#include <string_view>
#include <type_traits>

#include "base/assert.h"

namespace llorch::engine::text {
namespace {

constexpr std::string_view kMagic = "LLTK";
constexpr std::uint32_t kVersion = 2;

base::Error corrupt(std::string_view what) {
  return {base::ErrorCode::kCorruptFile, fmt::format("tokenizer blob: {}; fetch it again", what), {}};
}

class Writer {
 public:
  void u8(std::uint8_t value) { out_ += static_cast<char>(value); }
  void u32(std::uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) out_ += static_cast<char>(value >> shift & 0xFF);
  }
  void string(std::string_view text, std::size_t bytes_max = TokenizerLimits::kStringBytesMax) {
    ASSERT(text.size() <= bytes_max, "bytes={}", text.size());
    u32(static_cast<std::uint32_t>(text.size()));
    out_ += text;
  }
  template <class T, class WriteOne>
  void list(const std::vector<T>& values, std::size_t count_max, const WriteOne& write_one) {
    ASSERT(values.size() <= count_max, "count={}", values.size());
    u32(static_cast<std::uint32_t>(values.size()));
    for (const T& value : values) write_one(value);
  }
  void magic() { out_ += kMagic; }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
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
  std::uint32_t u32() {
    std::uint32_t value = 0;
    int shift = 0;
    for (const char c : take(4)) {
      value |= std::uint32_t{static_cast<std::uint8_t>(c)} << shift;
      shift += 8;
    }
    return value;
  }
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
  std::string_view bytes_;
  std::string_view what_;
};

void write_id(Writer& w, const std::optional<TokenId>& id) {
  w.u8(id.has_value());
  if (id) w.u32(index(*id));
}

std::optional<TokenId> read_id(Reader& r) {
  const std::uint8_t present = r.u8();
  if (present > 1) r.fail("a flag is neither 0 nor 1");
  if (present != 1) return std::nullopt;
  return TokenId{r.u32()};
}

// 0 absent, 1 false, 2 true.
void write_flag(Writer& w, const std::optional<bool>& flag) { w.u8(flag ? 1 + *flag : 0); }

std::optional<bool> read_flag(Reader& r) {
  const std::uint8_t value = r.u8();
  if (value > 2) r.fail("a flag is none of 0, 1, 2");
  if (value == 0) return std::nullopt;
  return value == 2;
}

TokenKind read_kind(Reader& r) {
  const std::uint8_t value = r.u8();
  if (value < 1 || value > 6) r.fail("a token kind is not in 1..6");
  return static_cast<TokenKind>(value);
}

}  // namespace

std::string serialize(const TokenizerData& data) {
  using L = TokenizerLimits;
  Writer w;
  w.magic();
  w.u32(kVersion);
  w.string(data.model);
  w.string(data.pre);
  w.list(data.tokens, L::kTokensMax, [&](const std::string& text) { w.string(text); });
  w.list(data.scores, L::kTokensMax, [&](float score) { w.u32(std::bit_cast<std::uint32_t>(score)); });
  w.list(data.kinds, L::kTokensMax, [&](TokenKind kind) { w.u8(static_cast<std::uint8_t>(kind)); });
  w.list(data.merges, L::kMergesMax, [&](const std::string& text) { w.string(text); });
  for (const auto& id : {data.bos, data.eos, data.eot, data.eom, data.unknown}) write_id(w, id);
  w.list(data.more_end_of_generation, L::kTokensMax, [&](TokenId id) { w.u32(index(id)); });
  for (const auto& flag : {data.add_bos, data.add_eos, data.add_space_prefix}) write_flag(w, flag);
  w.string(data.chat_template, L::kChatTemplateBytesMax);
  w.list(data.named_chat_templates, L::kNamedChatTemplatesMax, [&](const NamedChatTemplate& named) {
    w.string(named.name);
    w.string(named.text, L::kChatTemplateBytesMax);
  });
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
  data.scores = r.list(L::kTokensMax, 4, [&] { return std::bit_cast<float>(r.u32()); });
  data.kinds = r.list(L::kTokensMax, 1, [&] { return read_kind(r); });
  data.merges = r.list(L::kMergesMax, 4, [&] { return r.string(); });
  for (auto* id : {&data.bos, &data.eos, &data.eot, &data.eom, &data.unknown}) *id = read_id(r);
  data.more_end_of_generation = r.list(L::kTokensMax, 4, [&] { return TokenId{r.u32()}; });
  for (auto* flag : {&data.add_bos, &data.add_eos, &data.add_space_prefix}) *flag = read_flag(r);
  data.chat_template = r.string(L::kChatTemplateBytesMax);
  data.named_chat_templates = r.list(L::kNamedChatTemplatesMax, 8, [&] {
    NamedChatTemplate named;
    named.name = r.string();
    named.text = r.string(L::kChatTemplateBytesMax);
    return named;
  });
  if (!r.failed() && !r.at_end()) r.fail("bytes follow its end");
  if (r.failed()) return base::fail(corrupt(r.what()));
  return data;
}

}  // namespace llorch::engine::text

#include "engine/io/huggingface/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "engine/io/huggingface/json_events.h"
#include "engine/io/printable.h"

namespace llorch::engine::io {

using base::Error;
using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

constexpr StoredType kNamedTypes[] = {
    StoredType::kF64,     StoredType::kF32,     StoredType::kF16,     StoredType::kBF16,
    StoredType::kF8_E4M3, StoredType::kF8_E5M2, StoredType::kF8_E8M0, StoredType::kI64,
    StoredType::kI32,     StoredType::kI16,     StoredType::kI8,      StoredType::kU64,
    StoredType::kU32,     StoredType::kU16,     StoredType::kU8,      StoredType::kBool};

std::optional<StoredType> type_named(std::string_view name) {
  for (const StoredType type : kNamedTypes) {
    if (stored_type_info(type).name == name) return type;
  }
  return {};
}

// The entry of one tensor as its keys come in.
struct Entry {
  std::string name;
  std::optional<StoredType> type;
  std::uint32_t rank = 0;
  std::array<std::uint64_t, kFileRankMax> dims{};
  std::array<std::uint64_t, 2> offsets{};  // in the data section
  bool has_shape = false, has_offsets = false;
};

}  // namespace

// The header's events -> entries.
class SafetensorsHeader final : public JsonEvents {
 public:
  SafetensorsHeader(std::string_view source, const SafetensorsLimits& limits) : source_(source), limits_(limits) {}

  std::vector<Entry> entries;
  std::map<std::string, std::string, std::less<>> metadata;

  Result<> open_object() override {
    switch (where_) {
      case Where::kStart: where_ = Where::kTensors; return {};
      case Where::kTensors:
        where_ = key_ == kMetadataKey ? Where::kMetadata : Where::kEntry;
        if (where_ == Where::kEntry) entries.push_back({.name = key_});
        return {};
      default: return unexpected("an object");
    }
  }

  Result<> close_object() override {
    if (where_ == Where::kEntry) {
      const Entry& entry = entries.back();
      if (!entry.type) return corrupt("has no dtype");
      if (!entry.has_shape) return corrupt("has no shape");
      if (!entry.has_offsets) return corrupt("has no data_offsets");
    }
    where_ = where_ == Where::kTensors ? Where::kStart : Where::kTensors;
    return {};
  }

  Result<> open_list() override {
    if (where_ != Where::kEntry) return unexpected("a list");
    Entry& entry = entries.back();
    if (key_ == "shape" && !std::exchange(entry.has_shape, true)) {
      where_ = Where::kShape;
    } else if (key_ == "data_offsets" && !std::exchange(entry.has_offsets, true)) {
      where_ = Where::kOffsets;
    } else {
      return corrupt(fmt::format("has a second or an unknown list {}", printable(key_)));
    }
    numbers_count_ = 0;
    return {};
  }

  Result<> close_list() override {
    if (where_ == Where::kShape) entries.back().rank = static_cast<std::uint32_t>(numbers_count_);
    if (where_ == Where::kOffsets && numbers_count_ != 2) {
      return corrupt(fmt::format("has {} data_offsets, wanted 2", numbers_count_));
    }
    where_ = Where::kEntry;
    return {};
  }

  Result<> key(std::string_view key) override {
    key_ = key;
    if (where_ == Where::kTensors && (key.empty() || key.size() > limits_.name_bytes_max || !is_printable_utf8(key))) {
      return fail(ErrorCode::kCorruptFile, fmt::format("{}: the tensor name {} is not 1 to {} bytes of printable UTF-8",
                                                       source_, printable(key), limits_.name_bytes_max));
    }
    return {};
  }

  Result<> string(std::string_view text) override {
    if (where_ == Where::kMetadata) {
      if (metadata.emplace(key_, text).second) return {};
      return fail(ErrorCode::kCorruptFile,
                  fmt::format("{}: the metadata key {} occurs twice", source_, printable(key_)));
    }
    if (where_ != Where::kEntry || key_ != "dtype") return unexpected("a string");
    Entry& entry = entries.back();
    if (entry.type) return corrupt("has two dtypes");
    entry.type = type_named(text);
    if (entry.type) return {};
    return fail(ErrorCode::kUnsupportedQuantType,
                fmt::format("{}: tensor {} has the type {}, which this build does not read", source_,
                            printable(entry.name), printable(text)));
  }

  Result<> count(std::uint64_t number) override {
    if (where_ == Where::kShape) {
      if (numbers_count_ == kFileRankMax) {
        return fail(ErrorCode::kUnsupportedTensorRank, fmt::format("{}: tensor {} has more than {} dimensions", source_,
                                                                   printable(entries.back().name), kFileRankMax));
      }
      entries.back().dims[numbers_count_++] = number;
      return {};
    }
    if (where_ != Where::kOffsets) return unexpected("a number");
    if (numbers_count_ < 2) entries.back().offsets[numbers_count_] = number;
    ++numbers_count_;
    return {};
  }

  Result<> other() override { return unexpected("a value that is no string and no count"); }

 private:
  enum class Where : std::uint8_t { kStart, kTensors, kMetadata, kEntry, kShape, kOffsets };

  tl::unexpected<Error> corrupt(std::string_view what) const {
    return fail(ErrorCode::kCorruptFile,
                fmt::format("{}: tensor {} {}", source_, printable(entries.back().name), what));
  }
  tl::unexpected<Error> unexpected(std::string_view what) const {
    return fail(ErrorCode::kCorruptFile,
                fmt::format("{}: the header has {} at {}, where the format has none", source_, what, printable(key_)));
  }

  std::string_view source_;
  const SafetensorsLimits& limits_;
  Where where_ = Where::kStart;
  std::string key_;  // the last one seen
  std::size_t numbers_count_ = 0;
};

class SafetensorsParser {
 public:
  SafetensorsParser(const SafetensorsLimits& limits, SafetensorsFile& file)
      : stored_(*file.file_), limits_(limits), file_(file) {}

  Result<> run() {
    const std::string json = TRY(header_text());
    SafetensorsHeader header(stored_.source(), limits_);
    TRY(walk_json(json, stored_.source(), {}, header));
    data_begin_ = file_.header_bytes_ = kLengthBytes + json.size();
    std::sort(header.entries.begin(), header.entries.end(),
              [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
    TRY(check_tiling(header.entries));
    file_.metadata_ = std::move(header.metadata);
    file_.names_.reserve(header.entries.size());
    file_.tensors_.reserve(header.entries.size());
    for (Entry& entry : header.entries) TRY(add(entry));
    return sort_names();
  }

 private:
  tl::unexpected<Error> corrupt(std::string_view what) const {
    return fail(ErrorCode::kCorruptFile, fmt::format("{}: {}", stored_.source(), what));
  }

  Result<std::string> header_text() const {
    if (stored_.size() < kLengthBytes) {
      return corrupt(fmt::format("{} bytes are no safetensors file; it is truncated, fetch it again", stored_.size()));
    }
    std::uint64_t length = 0;
    TRY(stored_.read(0, std::as_writable_bytes(std::span(&length, 1))));
    if (length > limits_.header_bytes_max) {
      return corrupt(fmt::format("not a safetensors file: its header claims {} bytes, the limit is {}", length,
                                 limits_.header_bytes_max));
    }
    if (length > stored_.size() - kLengthBytes) {
      return corrupt(
          fmt::format("the file ends inside its header ({} bytes wanted, {} left); it is truncated, fetch it "
                      "again",
                      length, stored_.size() - kLengthBytes));
    }
    std::string json(length, '\0');
    TRY(stored_.read(kLengthBytes, std::as_writable_bytes(std::span(json))));
    if (json.empty() || json.front() != '{') return corrupt("not a safetensors file: its header is no JSON object");
    return json;
  }

  std::uint64_t data_bytes() const { return stored_.size() - data_begin_; }

  // Every byte of the data belongs to exactly one tensor. `entries` are sorted by their offsets.
  Result<> check_tiling(std::span<const Entry> entries) const {
    std::uint64_t end = 0;
    for (const Entry& entry : entries) {
      const auto [from, to] = entry.offsets;
      if (from > to || from != end) {
        return corrupt(
            fmt::format("tensor {} has bytes {} to {} of the data, where a tensor that starts at {} is due; "
                        "ranges must neither overlap nor leave holes",
                        printable(entry.name), from, to, end));
      }
      if (to > data_bytes()) {
        return corrupt(
            fmt::format("tensor {} has bytes {} to {} of the data, but there are {}; the file is truncated, "
                        "fetch it again",
                        printable(entry.name), from, to, data_bytes()));
      }
      end = to;
    }
    if (end == data_bytes()) return {};
    return corrupt(fmt::format("{} bytes follow the last tensor", data_bytes() - end));
  }

  Result<> add(Entry& entry) {
    const std::uint64_t bytes = entry.offsets[1] - entry.offsets[0];
    std::uint64_t wanted = stored_type_info(*entry.type).block_bytes;
    bool fits = true;
    for (const std::uint64_t dim : std::span(entry.dims).first(entry.rank)) {
      fits = fits && !__builtin_mul_overflow(wanted, dim, &wanted);
    }
    file_.names_.push_back(std::move(entry.name));
    FileTensor tensor{.name = file_.names_.back(), .type = *entry.type, .rank = entry.rank, .dims = entry.dims};
    if (!fits || wanted != bytes) {
      return corrupt(
          fmt::format("tensor {} is {} but has {} bytes of data", printable(tensor.name), describe(tensor), bytes));
    }
    tensor.data = FileRange(stored_, data_begin_ + entry.offsets[0], bytes);
    file_.tensors_.push_back(tensor);
    return {};
  }

  Result<> sort_names() {
    auto& order = file_.names_sorted_;
    order.resize(file_.tensors_.size());
    std::iota(order.begin(), order.end(), 0u);
    const auto name = [&](std::uint32_t i) { return file_.tensors_[i].name; };
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return name(a) < name(b); });
    const auto duplicate =
        std::adjacent_find(order.begin(), order.end(), [&](auto a, auto b) { return name(a) == name(b); });
    if (duplicate == order.end()) return {};
    return corrupt(fmt::format("the tensor name {} occurs twice", printable(name(*duplicate))));
  }

  const StoredFile& stored_;
  const SafetensorsLimits& limits_;
  SafetensorsFile& file_;
  std::uint64_t data_begin_ = 0;
};

Result<SafetensorsFile> SafetensorsFile::read(std::unique_ptr<StoredFile> stored, const SafetensorsLimits& limits) {
  SafetensorsFile file;
  file.file_ = std::move(stored);
  TRY(SafetensorsParser(limits, file).run());
  TRY(file.file_->check_unchanged());
  return file;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, std::string source,
                                               const SafetensorsLimits& limits) {
  return read(StoredFile::of_memory(bytes, std::move(source)), limits);
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  return read(TRY(StoredFile::open(path)));
}

const FileTensor* SafetensorsFile::find_tensor(std::string_view name) const {
  const auto at = std::lower_bound(names_sorted_.begin(), names_sorted_.end(), name,
                                   [&](std::uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  return at != names_sorted_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

}  // namespace llorch::engine::io

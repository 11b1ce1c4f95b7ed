// Bytes -> GgufFile. Everything here runs on untrusted input; nothing is read or reserved before it is checked.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "engine/io/gguf.h"
#include "engine/io/gguf_types.h"
#include "engine/io/printable.h"

namespace llorch::engine::io {

using base::Error;
using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

static_assert(std::endian::native == std::endian::little, "values are read as they lie in the file");

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint64_t kFirstReadBytes = 64u << 10;
constexpr std::uint64_t kEntryBytesMin = 8 + 1 + 4 + 1;  // key length, key, type, value
constexpr std::uint64_t kTensorBytesMin =
    8 + 1 + 4 + 8 + 4 + 8;  // name length, name, rank, one dimension, type, offset

// Bytes of one element; 0 for strings and arrays, whose size is in the file.
constexpr std::uint64_t fixed_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool: return 1;
    case GgufType::kU16:
    case GgufType::kI16: return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32: return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64: return 8;
    case GgufType::kString:
    case GgufType::kArray: return 0;
  }
  return 0;
}

bool multiply(std::uint64_t a, std::uint64_t b, std::uint64_t& product) {
  return !__builtin_mul_overflow(a, b, &product);
}
bool add(std::uint64_t a, std::uint64_t b, std::uint64_t& sum) { return !__builtin_add_overflow(a, b, &sum); }

}  // namespace

class GgufParser {
 public:
  // `header`: the first bytes of the file.
  GgufParser(std::span<const std::byte> header, const GgufLimits& limits, GgufFile& file)
      : header_(header), limits_(limits), file_(file) {}

  // After a failure: the bytes of the header that it takes to go on; 0 when more of them would not help.
  std::uint64_t header_bytes_wanted() const { return header_bytes_wanted_; }

  Result<> run() {
    TRY(read_preamble());
    TRY(read_metadata());
    TRY(read_alignment());
    TRY(read_tensors());
    TRY(place_tensors());
    return {};
  }

 private:
  std::uint64_t left() const { return file_.file_bytes() - position_; }

  tl::unexpected<Error> refuse(ErrorCode code, std::string_view what) const {
    return fail(code, fmt::format("{}: {}", file_.source(), what));
  }
  tl::unexpected<Error> corrupt(std::uint64_t offset, std::string_view what) const {
    return fail(
        Error{ErrorCode::kCorruptFile, fmt::format("{}: at byte {}: {}", file_.source(), offset, what), {}}.with(
            "offset", static_cast<std::int64_t>(offset)));
  }
  tl::unexpected<Error> truncated(std::string_view what, std::uint64_t wanted) const {
    return corrupt(position_,
                   fmt::format("the file ends inside {} ({} bytes wanted, {} left); it is truncated or damaged, "
                               "fetch it again",
                               what, wanted, left()));
  }
  std::uint64_t offset_of(std::string_view view) const {
    return static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(view.data()) - header_.data());
  }

  // The next `bytes`, which it steps over.
  Result<std::span<const std::byte>> take(std::string_view what, std::uint64_t bytes) {
    if (bytes > left()) return truncated(what, bytes);
    if (bytes > header_.size() - position_) {
      header_bytes_wanted_ = position_ + bytes;
      return corrupt(position_, fmt::format("the header goes on with {} bytes of {}; more than {} are no header", bytes,
                                            what, limits_.header_bytes_max));
    }
    const auto taken = header_.subspan(position_, bytes);
    position_ += bytes;
    return taken;
  }
  template <class T>
  Result<T> read(std::string_view what) {
    T value;
    std::memcpy(&value, TRY(take(what, sizeof(T))).data(), sizeof(T));
    return value;
  }

  Result<std::string_view> read_string(std::string_view what, std::uint64_t bytes_max) {
    const std::uint64_t start = position_;
    const auto length = TRY(read<std::uint64_t>(what));
    if (length > bytes_max)
      return corrupt(start, fmt::format("{} claims {} bytes, the limit is {}", what, length, bytes_max));
    const auto text = TRY(take(what, length));
    return std::string_view(reinterpret_cast<const char*>(text.data()), text.size());
  }

  // A key or a tensor's name.
  Result<std::string_view> read_identifier(std::string_view what, std::uint64_t bytes_max) {
    const std::uint64_t start = position_;
    const auto text = TRY(read_string(what, bytes_max));
    if (text.empty()) return corrupt(start, fmt::format("{} is empty", what));
    if (!is_printable_utf8(text))
      return corrupt(start, fmt::format("{} {} is not printable UTF-8", what, printable(text)));
    return text;
  }

  Result<bool> read_bool(std::string_view what) {
    const std::uint64_t start = position_;
    const auto value = TRY(read<std::uint8_t>(what));
    if (value > 1) return corrupt(start, fmt::format("{} is a bool of value {}, only 0 and 1 exist", what, value));
    return value == 1;
  }

  Result<> read_preamble() {
    if (header_.size() < kMagic.size() || std::memcmp(header_.data(), kMagic.data(), kMagic.size()) != 0) {
      const std::string_view found(reinterpret_cast<const char*>(header_.data()),
                                   std::min<std::size_t>(4, header_.size()));
      return corrupt(
          0, found.empty()
                 ? std::string("the file is empty; a GGUF file starts with 'GGUF'")
                 : fmt::format("not a GGUF file: it starts with {}, a GGUF file starts with 'GGUF'", printable(found)));
    }
    position_ = kMagic.size();
    const auto version = TRY(read<std::uint32_t>("the version"));
    if (const auto swapped = __builtin_bswap32(version); swapped >= 1 && swapped <= 3) {
      return refuse(
          ErrorCode::kUnsupportedFormatVersion,
          fmt::format("GGUF version {} in big-endian byte order; convert the model to little-endian", swapped));
    }
    if (version != 2 && version != 3) {
      return refuse(
          ErrorCode::kUnsupportedFormatVersion,
          fmt::format("GGUF version {}; versions 2 and 3 are read, convert the model again with current tools",
                      version));
    }
    file_.version_ = version;
    tensors_count_ = TRY(read<std::uint64_t>("the tensor count"));
    metadata_count_ = TRY(read<std::uint64_t>("the metadata count"));
    TRY(check_count("tensors", tensors_count_,
                    {.at = 8, .count_max = limits_.tensors_count_max, .bytes_min = kTensorBytesMin}));
    return check_count("metadata entries", metadata_count_,
                       {.at = 16, .count_max = limits_.metadata_count_max, .bytes_min = kEntryBytesMin});
  }

  struct CountBounds {
    std::uint64_t at, count_max, bytes_min;
  };
  Result<> check_count(std::string_view what, std::uint64_t count, const CountBounds& bounds) const {
    if (count > bounds.count_max) {
      return corrupt(bounds.at, fmt::format("the file claims {} {}, the limit is {}", count, what, bounds.count_max));
    }
    if (count > left() / bounds.bytes_min) {
      return corrupt(bounds.at, fmt::format("the file claims {} {}, but only {} bytes follow", count, what, left()));
    }
    return {};
  }

  Result<> read_metadata() {
    file_.metadata_.reserve(metadata_count_);
    for (std::uint64_t i = 0; i < metadata_count_; ++i) {
      const auto key = TRY(read_identifier("a metadata key", limits_.key_bytes_max));
      const std::string what = fmt::format("the value of {}", printable(key));
      const auto type = TRY(read_type(what));
      file_.metadata_.push_back({key, TRY(read_value(what, type))});
    }
    auto& order = file_.keys_sorted_;
    order.resize(file_.metadata_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(),
              [&](auto a, auto b) { return file_.metadata_[a].key < file_.metadata_[b].key; });
    const auto duplicate = std::adjacent_find(
        order.begin(), order.end(), [&](auto a, auto b) { return file_.metadata_[a].key == file_.metadata_[b].key; });
    if (duplicate == order.end()) return {};
    const auto key = file_.metadata_[std::max(duplicate[0], duplicate[1])].key;
    return corrupt(offset_of(key), fmt::format("the metadata key {} occurs twice", printable(key)));
  }

  Result<GgufType> read_type(std::string_view what) {
    const std::uint64_t start = position_;
    const auto type = TRY(read<std::uint32_t>(what));
    if (type > static_cast<std::uint32_t>(GgufType::kF64)) {
      return corrupt(start, fmt::format("{} has the unknown type {}", what, type));
    }
    return static_cast<GgufType>(type);
  }

  Result<GgufValue> read_value(std::string_view what, GgufType type) {
    switch (type) {
      case GgufType::kU8: return GgufValue(TRY(read<std::uint8_t>(what)));
      case GgufType::kI8: return GgufValue(TRY(read<std::int8_t>(what)));
      case GgufType::kU16: return GgufValue(TRY(read<std::uint16_t>(what)));
      case GgufType::kI16: return GgufValue(TRY(read<std::int16_t>(what)));
      case GgufType::kU32: return GgufValue(TRY(read<std::uint32_t>(what)));
      case GgufType::kI32: return GgufValue(TRY(read<std::int32_t>(what)));
      case GgufType::kF32: return GgufValue(TRY(read<float>(what)));
      case GgufType::kBool: return GgufValue(TRY(read_bool(what)));
      case GgufType::kString: return GgufValue(TRY(read_string(what, limits_.string_bytes_max)));
      case GgufType::kArray: return GgufValue(TRY(read_array(what)));
      case GgufType::kU64: return GgufValue(TRY(read<std::uint64_t>(what)));
      case GgufType::kI64: return GgufValue(TRY(read<std::int64_t>(what)));
      case GgufType::kF64: return GgufValue(TRY(read<double>(what)));
    }
    ASSERT(false, "type {}", static_cast<unsigned>(type));
  }

  Result<GgufArray> read_array(std::string_view what) {
    const auto type = TRY(read_type(what));
    if (type == GgufType::kArray) {
      return refuse(ErrorCode::kConfigKeyInvalid,
                    fmt::format("{} is an array of arrays, which no known model uses", what));
    }
    const std::uint64_t count_at = position_;
    const auto count = TRY(read<std::uint64_t>(what));
    const std::uint64_t element_bytes_min = type == GgufType::kString ? 8 : fixed_bytes(type);
    if (count > left() / element_bytes_min) {
      return corrupt(count_at, fmt::format("{} claims {} elements, but only {} bytes follow", what, count, left()));
    }
    const std::uint64_t start = position_;
    if (type == GgufType::kString) {
      for (std::uint64_t i = 0; i < count; ++i) TRY(read_string(what, limits_.array_string_bytes_max));
    } else if (type == GgufType::kBool) {
      for (std::uint64_t i = 0; i < count; ++i) TRY(read_bool(what));
    } else {
      TRY(take(what, count * element_bytes_min));
    }
    return GgufArray{type, count, header_.subspan(start, position_ - start)};
  }

  Result<> read_alignment() {
    file_.alignment_ = TRY(file_.u64_or("general.alignment", 32));
    if (!std::has_single_bit(file_.alignment_) || file_.alignment_ < 8) {
      return refuse(ErrorCode::kConfigKeyInvalid,
                    fmt::format("general.alignment is {}, it must be a power of two of at least 8", file_.alignment_));
    }
    return {};
  }

  Result<> read_tensors() {
    TRY(check_count("tensors", tensors_count_,
                    {.at = 8, .count_max = limits_.tensors_count_max, .bytes_min = kTensorBytesMin}));
    file_.tensors_.reserve(tensors_count_);
    for (std::uint64_t i = 0; i < tensors_count_; ++i) file_.tensors_.push_back(TRY(read_tensor()));

    auto& order = file_.names_sorted_;
    order.resize(file_.tensors_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(),
              [&](auto a, auto b) { return file_.tensors_[a].name < file_.tensors_[b].name; });
    const auto duplicate = std::adjacent_find(
        order.begin(), order.end(), [&](auto a, auto b) { return file_.tensors_[a].name == file_.tensors_[b].name; });
    if (duplicate == order.end()) return {};
    const auto name = file_.tensors_[std::max(duplicate[0], duplicate[1])].name;
    return corrupt(offset_of(name), fmt::format("the tensor name {} occurs twice", printable(name)));
  }

  // Without its data, which place_tensors() finds.
  Result<GgufTensor> read_tensor() {
    GgufTensor tensor;
    tensor.name = TRY(read_identifier("a tensor name", limits_.name_bytes_max));
    const std::string what = fmt::format("tensor {}", printable(tensor.name));
    const std::uint64_t start = position_;
    tensor.rank = TRY(read<std::uint32_t>(what));
    if (tensor.rank < 1 || tensor.rank > 4) {
      return corrupt(start, fmt::format("{} has {} dimensions, 1 to 4 are possible", what, tensor.rank));
    }
    for (std::uint32_t d = 0; d < tensor.rank; ++d) tensor.dims[d] = TRY(read<std::uint64_t>(what));
    const auto type_id = TRY(read<std::uint32_t>(what));
    const auto offset = TRY(read<std::uint64_t>(what));
    if (std::find(tensor.dims.begin(), tensor.dims.end(), 0u) != tensor.dims.end()) {
      return corrupt(start, fmt::format("{} has a dimension of 0", what));
    }
    tensor.dtype = TRY(stored_dtype(what, type_id));
    if (offset % file_.alignment_ != 0) {
      return corrupt(start, fmt::format("{} lies at offset {}, which is no multiple of the alignment {}", what, offset,
                                        file_.alignment_));
    }
    offsets_.push_back(offset);
    return tensor;
  }

  Result<plan::DType> stored_dtype(std::string_view what, std::uint32_t type_id) const {
    const GgufTensorType* row = gguf_tensor_type(type_id);
    if (row != nullptr && row->dtype) return *row->dtype;
    std::string known;
    for (const GgufTensorType& type : kGgufTensorTypes) {
      if (type.dtype) known += fmt::format("{}{}", known.empty() ? "" : ", ", type.name);
    }
    return fail(Error{
        ErrorCode::kUnsupportedQuantType,
        fmt::format("{}: {} has {}, which this build does not read; it reads {}", file_.source(), what,
                    row == nullptr ? fmt::format("the unknown type {}", type_id) : fmt::format("type {}", row->name),
                    known),
        {}}.with("type_id", std::int64_t{type_id}));
  }

  Result<std::uint64_t> bytes_of(const GgufTensor& tensor) const {
    const auto info = plan::dtype_info(tensor.dtype);
    const auto& d = tensor.dims;
    if (d[0] % info.block_elements != 0) {
      return corrupt(offset_of(tensor.name),
                     fmt::format("tensor {} has rows of {} elements, no multiple of {}'s block of {}",
                                 printable(tensor.name), d[0], info.name, info.block_elements));
    }
    std::uint64_t elements = 0, bytes = 0;
    if (!multiply(d[0], d[1], elements) || !multiply(elements, d[2], elements) || !multiply(elements, d[3], elements) ||
        !multiply(elements / info.block_elements, info.block_bytes, bytes)) {
      return corrupt(offset_of(tensor.name), fmt::format("tensor {} of {} x {} x {} x {} elements overflows 64 bits",
                                                         printable(tensor.name), d[0], d[1], d[2], d[3]));
    }
    return bytes;
  }

  Result<> place_tensors() {
    if (file_.tensors_.empty()) return {};
    std::uint64_t data_start = 0;
    if (!add(position_, file_.alignment_ - 1, data_start))
      return corrupt(position_, "general.alignment overflows 64 bits");
    data_start &= ~(file_.alignment_ - 1);
    for (std::size_t i = 0; i < file_.tensors_.size(); ++i) {
      GgufTensor& tensor = file_.tensors_[i];
      const auto bytes = TRY(bytes_of(tensor));
      std::uint64_t begin = 0, end = 0;
      if (!add(data_start, offsets_[i], begin) || !add(begin, bytes, end)) {
        return corrupt(offset_of(tensor.name),
                       fmt::format("tensor {} lies at offset {} with {} bytes, which overflows 64 bits",
                                   printable(tensor.name), offsets_[i], bytes));
      }
      if (end > file_.file_bytes()) {
        return corrupt(
            offset_of(tensor.name),
            fmt::format("tensor {} occupies bytes {} to {}, but the file has {}; it is truncated or damaged, "
                        "fetch it again",
                        printable(tensor.name), begin, end, file_.file_bytes()));
      }
      tensor.data = FileRange(*file_.file_, begin, bytes);
    }
    return refuse_overlap();
  }

  Result<> refuse_overlap() const {
    std::vector<std::uint32_t> order(file_.tensors_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(),
              [&](auto a, auto b) { return file_.tensors_[a].data.offset() < file_.tensors_[b].data.offset(); });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const auto& before = file_.tensors_[order[i - 1]];
      const auto& after = file_.tensors_[order[i]];
      if (before.data.offset() + before.data.size() <= after.data.offset()) continue;
      return corrupt(after.data.offset(), fmt::format("the data of tensors {} and {} overlaps", printable(before.name),
                                                      printable(after.name)));
    }
    return {};
  }

  std::span<const std::byte> header_;
  const GgufLimits& limits_;
  GgufFile& file_;
  std::uint64_t position_ = 0;
  std::uint64_t header_bytes_wanted_ = 0;
  std::uint64_t tensors_count_ = 0;
  std::uint64_t metadata_count_ = 0;
  std::vector<std::uint64_t> offsets_;  // of the tensors, in the data section
};

// How long a header is shows when it has been read. So it is read as far as most of them go, and where that is not enough
// once more and twice as far: at most four times its length in all.
Result<GgufFile> GgufFile::read(std::unique_ptr<StoredFile> stored, const GgufLimits& limits) {
  const std::uint64_t bytes_max = std::min(stored->size(), limits.header_bytes_max);
  for (std::uint64_t bytes = std::min(bytes_max, kFirstReadBytes);;) {
    GgufFile file;
    file.file_ = std::move(stored);
    file.header_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    file.header_bytes_ = bytes;
    const std::span header(file.header_.get(), bytes);
    TRY(file.file_->read(0, header));
    GgufParser parser(header, limits, file);
    const Result<> parsed = parser.run();
    if (parsed) {
      TRY(file.file_->check_unchanged());
      return file;
    }
    const std::uint64_t wanted = parser.header_bytes_wanted();
    if (wanted == 0 || wanted > bytes_max) return fail(parsed.error());
    bytes = std::min(bytes_max, std::max(wanted, 2 * bytes));
    stored = std::move(file.file_);
  }
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string source, const GgufLimits& limits) {
  return read(StoredFile::of_memory(bytes, std::move(source)), limits);
}

Result<GgufFile> GgufFile::open(const std::filesystem::path& path) { return read(TRY(StoredFile::open(path))); }

}  // namespace llorch::engine::io

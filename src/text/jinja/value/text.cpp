#include "text/jinja/value/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace llorch::text::jinja {
namespace {

bool starts_code_point(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

std::size_t footprint(std::size_t bytes, std::size_t runs) { return 96 + bytes + runs * sizeof(OriginRun); }

}  // namespace

bool Budget::fail(std::string_view what, std::uint64_t limit) {
  if (failed_.empty()) {
    failed_ = what;
    failed_limit_ = limit;
  }
  return false;
}

bool Budget::step(std::uint64_t count) {
  steps_ += count;
  return steps_ <= limits_.steps_max ? ok() : fail("steps", limits_.steps_max);
}

bool Budget::allocate(std::size_t bytes) {
  memory_bytes_ += bytes;
  return memory_bytes_ <= limits_.memory_bytes_max ? ok() : fail("bytes of memory", limits_.memory_bytes_max);
}

bool Budget::output(std::size_t bytes) {
  return bytes <= limits_.output_bytes_max ? ok() : fail("bytes of output", limits_.output_bytes_max);
}

base::Error Budget::failure() const {
  return {base::ErrorCode::kInvalidParams,
          fmt::format("the chat template needs more than the {} {} it may use; send fewer or shorter messages",
                      failed_limit_, failed_),
          {}};
}

Text::Text(std::string bytes, std::vector<OriginRun> runs, Budget* budget)
    : bytes_(std::move(bytes)), runs_(std::move(runs)), budget_(budget) {
  length_ = static_cast<std::size_t>(std::count_if(bytes_.begin(), bytes_.end(), starts_code_point));
  if (budget_ != nullptr) budget_->allocate(footprint(bytes_.size(), runs_.size()));
}

Text::~Text() {
  if (budget_ != nullptr) budget_->release(footprint(bytes_.size(), runs_.size()));
}

std::size_t Text::offset(std::size_t index) const {
  if (length_ == bytes_.size()) return index;
  std::size_t at = 0;
  while (at < bytes_.size()) {
    if (starts_code_point(bytes_[at]) && index-- == 0) return at;
    ++at;
  }
  return at;
}

Origin Text::origin_at(std::size_t byte) const {
  const auto run =
      std::upper_bound(runs_.begin(), runs_.end(), byte, [](std::size_t at, const OriginRun& r) { return at < r.end; });
  return run == runs_.end() ? origin() : run->origin;
}

Origin Text::origin() const {
  const auto data = [](const OriginRun& r) { return r.origin == Origin::kData; };
  return std::any_of(runs_.begin(), runs_.end(), data) ? Origin::kData : Origin::kTemplate;
}

void TextBuilder::append(std::string_view bytes, Origin origin) {
  if (bytes.empty() || !budget_.text_work(bytes.size())) return;
  const std::size_t wanted = bytes_.size() + bytes.size();
  if (wanted > reserved_) {
    const std::size_t grown = std::max(wanted, 2 * reserved_) - reserved_;
    reserved_ += grown;
    if (!budget_.allocate(grown)) return;
  }
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().origin == origin)
    runs_.back().end = bytes_.size();
  else
    runs_.push_back({bytes_.size(), origin});
}

void TextBuilder::append(const Text& text, std::size_t begin, std::size_t end) {
  auto run = std::upper_bound(text.runs().begin(), text.runs().end(), begin,
                              [](std::size_t at, const OriginRun& r) { return at < r.end; });
  for (; begin < end; ++run) {
    const std::size_t stop = std::min(end, run->end);
    append(std::string_view(text.bytes()).substr(begin, stop - begin), run->origin);
    begin = stop;
  }
}

base::Result<TextPtr> TextBuilder::take() {
  if (!budget_.ok()) return base::fail(budget_.failure());
  budget_.release(reserved_);
  reserved_ = 0;
  auto text = std::make_shared<const Text>(std::move(bytes_), std::move(runs_), &budget_);
  bytes_.clear();
  runs_.clear();
  if (!budget_.ok()) return base::fail(budget_.failure());
  return TextPtr(std::move(text));
}

base::Result<TextPtr> make_text(Budget& budget, std::string_view bytes, Origin origin) {
  TextBuilder builder(budget);
  builder.append(bytes, origin);
  return builder.take();
}

TextPtr literal_text(std::string_view bytes) {
  std::vector<OriginRun> runs;
  if (!bytes.empty()) runs.push_back({bytes.size(), Origin::kTemplate});
  return std::make_shared<const Text>(std::string(bytes), std::move(runs), nullptr);
}

base::Result<TextPtr> sub_text(Budget& budget, const Text& text, std::size_t begin, std::size_t end) {
  TextBuilder builder(budget);
  builder.append(text, begin, end);
  return builder.take();
}

}  // namespace llorch::text::jinja

#include "engine/inference/paging/testing/page_contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace llorch::engine::inference::paging::testing {

using plan::kPageTokens;

void extend_numbers(std::vector<std::uint64_t>& numbers, std::span<const base::TokenId> tokens) {
  for (std::size_t i = numbers.size(); i < tokens.size(); ++i) {
    const std::uint64_t before = i == 0 ? 0x9E3779B97F4A7C15u : numbers.back();
    const std::uint64_t mixed = (before ^ (base::index(tokens[i]) + 1)) * 0xBF58476D1CE4E5B9u;
    numbers.push_back(mixed ^ (mixed >> 29));
  }
}

PageContents::Page& PageContents::page(std::uint32_t group, PageId id) {
  const auto index = static_cast<std::size_t>(id);
  if (pages_[group].size() <= index) pages_[group].resize(index + 1);
  return pages_[group][index];
}

std::string PageContents::check_seen(std::uint32_t slot, std::span<const std::uint64_t> numbers) const {
  const auto length = static_cast<std::uint32_t>(numbers.size());
  for (std::uint32_t g = 0; g < tables_->groups_count(); ++g) {
    const std::uint32_t window = tables_->group(g).window_tokens;
    const std::span<const PageId> row = tables_->row(g, slot);
    for (std::uint32_t p = window == 0 || length < window ? 0 : length - window + 1; p < length;) {
      const std::uint32_t in_page = p % kPageTokens;
      const std::uint32_t count = std::min(kPageTokens - in_page, length - p);
      const PageId id = row[p / kPageTokens];
      if (id == kNoPage) return fmt::format("slot {} group {}: no page for position {} of {}", slot, g, p, length);
      const auto index = static_cast<std::size_t>(id);
      if (index >= pages_[g].size() ||
          !std::ranges::equal(std::span(pages_[g][index]).subspan(in_page, count), numbers.subspan(p, count))) {
        return fmt::format("slot {} group {}: page {} holds something else than positions {} .. {}", slot, g, index, p,
                           p + count);
      }
      p += count;
    }
  }
  return {};
}

std::string PageContents::run(std::uint32_t slot, std::uint32_t held, std::span<const std::uint64_t> numbers) {
  if (std::string wrong = check_seen(slot, numbers.first(held)); !wrong.empty()) return wrong;
  for (std::uint32_t g = 0; g < tables_->groups_count(); ++g) {
    for (std::uint32_t p = held; p < numbers.size(); ++p) {
      const PageId id = tables_->row(g, slot)[p / kPageTokens];
      if (id == kNoPage) return fmt::format("slot {} group {}: no page to write position {}", slot, g, p);
      if (tables_->references(g, id) != 1) return fmt::format("slot {} group {}: position {} is shared", slot, g, p);
      page(g, id)[p % kPageTokens] = numbers[p];
    }
  }
  return {};
}

void PageContents::copy(std::span<const PageCopy> copies) {
  for (const PageCopy& c : copies) {
    const Page source = page(c.group, c.from);
    page(c.group, c.to) = source;
  }
}

std::string PageContents::check_counts(const PageTables& tables, std::uint32_t slots) {
  for (std::uint32_t g = 0; g < tables.groups_count(); ++g) {
    const PageCounts counts = tables.counts(g);
    if (counts.used + counts.cached > counts.total) {
      return fmt::format("group {}: {} used + {} cached of {}", g, counts.used, counts.cached, counts.total);
    }
    std::map<PageId, std::uint32_t> named;
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      std::uint32_t held = 0;
      for (const PageId id : tables.row(g, slot)) {
        if (id == kNoPage) continue;
        ++named[id];
        ++held;
      }
      if (held != tables.pages_held(g, slot)) return fmt::format("group {} slot {}: {} entries", g, slot, held);
    }
    for (const auto& [page, rows] : named) {
      if (rows != tables.references(g, page)) {
        return fmt::format("group {}: page {} is in {} rows, its references are {}", g,
                           static_cast<std::uint32_t>(page), rows, tables.references(g, page));
      }
    }
    if (named.size() != counts.used)
      return fmt::format("group {}: rows name {} pages, {} are used", g, named.size(), counts.used);
  }
  return {};
}

}  // namespace llorch::engine::inference::paging::testing

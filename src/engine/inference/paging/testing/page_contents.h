#pragma once
// What pages would hold, for tests: wrong sharing shows as wrong content. Every position of a sequence is stood for by one
// number that depends on all tokens up to it, as the cached keys and values of a layer do.
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/token_id.h"
#include "engine/inference/paging/page_tables.h"

namespace llorch::engine::inference::paging::testing {

// Appends the numbers of the tokens that have none yet.
void extend_numbers(std::vector<std::uint64_t>& numbers, std::span<const base::TokenId> tokens);

// Every check answers with what is wrong, or with nothing.
class PageContents {
 public:
  explicit PageContents(const PageTables& tables) : tables_(&tables), pages_(tables.groups_count()) {}

  // The slot stands at `held` and computes up to numbers.size(): everything the rows see must be there, and what they
  // write must be theirs alone.
  std::string run(std::uint32_t slot, std::uint32_t held, std::span<const std::uint64_t> numbers);
  // What position numbers.size() sees is there, and right.
  std::string check_seen(std::uint32_t slot, std::span<const std::uint64_t> numbers) const;
  void copy(std::span<const PageCopy> copies);

  // Pages are conserved: what rows name is what is used, and references are the rows that name a page.
  static std::string check_counts(const PageTables& tables, std::uint32_t slots);

 private:
  using Page = std::array<std::uint64_t, plan::kPageTokens>;
  Page& page(std::uint32_t group, PageId id);

  const PageTables* tables_;
  std::vector<std::vector<Page>> pages_;  // [groups][pages]
};

}  // namespace llorch::engine::inference::paging::testing

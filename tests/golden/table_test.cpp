// The table of families in the documentation is the registry's.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "engine/models/registry.h"
#include "golden_support.h"

namespace llorch::golden {
namespace {

std::string listed(std::span<const std::string_view> names) {
  return names.empty() ? "-" : fmt::format("{}", fmt::join(names, ", "));
}

TEST(TableOfFamilies, IsTheRegistry) {
  const std::string page = base::read_file(repository() / "docs/internals/families.md", 1 << 20).value();
  std::size_t at = page.find("|---|---|---|---|");
  ASSERT_NE(at, std::string::npos);
  for (const engine::models::Family* family : engine::models::known_families()) {
    const std::string row = fmt::format("\n| {} | {} | {} | ", family->name, listed(family->gguf), listed(family->hf));
    const std::size_t found = page.find(row, at);
    ASSERT_NE(found, std::string::npos) << "no row, or not in the registry's order:" << row;
    at = found;
  }
  EXPECT_EQ(page.find("\n|", page.find('\n', at + 1)), std::string::npos) << "a row that the registry does not have";
}

}  // namespace
}  // namespace llorch::golden

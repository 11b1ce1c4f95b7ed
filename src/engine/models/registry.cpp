#include "engine/models/registry.h"

#include <fmt/format.h>

#include <array>

#include "engine/models/families/families.h"

namespace llorch::engine::models {
namespace {

constexpr std::array kFamilies{&families::kLlama};

}  // namespace

base::Result<const Family*> find_family(const io::GgufFile& file) {
  const std::string_view architecture = TRY(file.string("general.architecture"));
  std::string known;
  for (const Family* family : kFamilies) {
    if (family->architecture == architecture) return family;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family->architecture);
  }
  return base::fail(
      base::ErrorCode::kUnknownArchitecture,
      fmt::format("{}: general.architecture is '{}'; this build knows {}", file.source(), architecture, known));
}

}  // namespace llorch::engine::models

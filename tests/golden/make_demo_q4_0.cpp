// Makes the Q4_0 form of the demonstration model, at build time. Usage: make_demo_q4_0 IN.gguf OUT.gguf
#include <fmt/core.h>

#include "engine/models/gguf_export/export_model.h"
#include "engine/models/gguf_write/write_gguf.h"

namespace llorch::golden {
namespace {

base::Result<> make(const char* in, const char* out) {
  using namespace engine::models;
  const engine::io::ModelFiles files = TRY(engine::io::ModelFiles::open(in));
  const ExportModel model = TRY(export_model(files));
  constexpr auto kType = engine::plan::DType::kQ4_0;
  const auto types = TRY(choose_types(model, {.type = kType, .embedding = kType, .head = kType}));
  TRY(write_gguf(model, types, kType, out, {}));
  return {};
}

}  // namespace
}  // namespace llorch::golden

int main(int argc, char** argv) {
  if (argc != 3) return fmt::print(stderr, "usage: make_demo_q4_0 IN.gguf OUT.gguf\n"), 2;
  const auto made = llorch::golden::make(argv[1], argv[2]);
  if (!made) fmt::print(stderr, "make_demo_q4_0: {}\n", made.error().message);
  return made ? 0 : 1;
}

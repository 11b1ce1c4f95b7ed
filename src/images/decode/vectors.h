#pragma once
// Files and vectors of tests/golden/images. Tests only.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/sha256.h"
#include "images/decode/decode.h"

namespace llorch::images::decode {

struct Vector {
  std::string kind, file;  // "decode" or "resize"
  Size size;
  std::string sha256;
};

inline std::filesystem::path image_path(const std::string& file) {
  return std::filesystem::path(LLORCH_SOURCE_DIR) / "tests/golden/images" / file;
}
inline std::vector<Vector> vectors_of(const std::string& kind) {
  std::ifstream in(image_path("vectors.txt"));
  std::vector<Vector> out;
  for (Vector v; in >> v.kind >> v.file >> v.size.width >> v.size.height >> v.sha256;)
    if (v.kind == kind) out.push_back(v);
  return out;
}
inline std::string image_file(const std::string& file) { return base::read_file(image_path(file), 1 << 20).value(); }
inline std::string sha256_of(const std::vector<std::uint8_t>& bytes) {
  return base::to_hex(base::sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}
inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace llorch::images::decode
